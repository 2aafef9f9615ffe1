"""DANA: a momentum for each worker, and reads of the model that is to come."""

from dataclasses import replace

import pytest
import torch

from laggard.simulator import Rule, Stop, simulate
from laggard.simulator.learning.rules import SGD, Nesterov
from tests.theory.statements import close, equal, same
from tests.theory.trials import (
    LR,
    ONE,
    UNEVEN,
    UPDATES,
    batches_of,
    first_weights,
    gradient_of,
    method,
    note_reads,
    quadratic,
    timed,
    weights_after,
)

HAKIMI = "Hakimi et al. (2019)"
MOMENTUM = 0.9
HEAVY_BALL = Rule(SGD(momentum=MOMENTUM), lr=LR)
NESTEROV = Rule(Nesterov(momentum=MOMENTUM), lr=LR)


def reads_of(cluster, algorithm):
    """The weights at which workers compute, in the order in which they begin."""
    reads = []
    stop = Stop(updates=UPDATES)
    simulate(cluster, algorithm, quadratic(), stop=stop, observe=note_reads(reads))
    return [weights for _, weights in reads]


def papers_server(order):
    """The weights of algorithm DANA-Zero, fed with the workers' gradients in that order."""
    task = quadratic()
    weights = first_weights(task)
    velocities = torch.zeros(UNEVEN.workers, *weights.shape, dtype=weights.dtype)
    reads = [weights] * UNEVEN.workers
    streams = [batches_of(task, rank) for rank in range(UNEVEN.workers)]
    for worker in order:
        gradient = gradient_of(task, reads[worker], next(streams[worker]))
        velocities[worker] = MOMENTUM * velocities[worker] + gradient
        weights = weights - LR * velocities[worker]
        reads[worker] = weights - LR * MOMENTUM * velocities.sum(0)
    return weights


def test_dana_follows_its_pseudo_code():
    """A momentum for each worker; a read is ahead by the momenta of all."""
    run = simulate(UNEVEN, method("dana", HEAVY_BALL), quadratic(), stop=Stop(updates=UPDATES))
    paper = papers_server(run.updates["worker"].tolist())
    close("dana, P = 4: the paper's server", run.weights, paper, source=HAKIMI)


def test_one_worker_follows_nesterov():
    """A look ahead over one worker's momentum is Nesterov's."""
    nesterov = reads_of(ONE, method("async_ps", NESTEROV))
    ahead = reads_of(ONE, method("dana", HEAVY_BALL))
    close("dana, P = 1: gradients at the weights of Nesterov", ahead, nesterov, source=HAKIMI)
    slim = weights_after(ONE, method("dana_slim", HEAVY_BALL))
    plain = weights_after(ONE, method("async_ps", NESTEROV))
    same("dana_slim, P = 1 = async_ps with Nesterov", slim, plain, source=HAKIMI)


def test_slim_takes_gradients_at_same_weights():
    """Where the momentum is kept does not change the gradients."""
    zero, slim = (reads_of(UNEVEN, method(name, HEAVY_BALL)) for name in ("dana", "dana_slim"))
    close("dana_slim, P = 4: gradients at the weights of dana", slim, zero, source=HAKIMI)


@pytest.mark.parametrize("name", ["dana", "dana_slim"])
def test_dana_has_timeline_of_asynchronous(name):
    """Neither state nor look ahead costs a byte or an update of staleness."""
    cluster = replace(UNEVEN, network=replace(UNEVEN.network, bandwidth=4.0, message_bytes=2.0))
    mine, plain = (
        timed(cluster, method(each, HEAVY_BALL), 200, quadratic()).updates
        for each in (name, "async_ps")
    )
    for column in ("staleness", "time"):
        text = f"{name}: {column} of every gradient as in async_ps"
        equal(text, 0, mine[column] - plain[column], source="derived")
