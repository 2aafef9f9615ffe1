"""Signs of gradients, of which a server takes the majority."""

from dataclasses import replace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Record, Rule, Stop, simulate
from laggard.simulator.algorithms.contrib.majority_vote import signs_of
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.theory.statements import close, equal
from tests.theory.trials import (
    UNEVEN,
    batches_of,
    first_weights,
    gradient_of,
    method,
    quadratic,
    update_times,
    weights_after,
)

VOTE, SIGNUM = "Bernstein et al. (2018)", "Bernstein et al. (2019)"
LR, UPDATES = 0.01, 30
SLOW = Network(bandwidth=8.0, latency=0.125, message_bytes=32.0)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weights_match_a_loop(workers, momentum):
    """Also with ties, of which the sign is 1, and with a decay of the weights."""
    task, decay = quadratic(), 0.1
    weights = first_weights(task)
    batches = [batches_of(task, worker) for worker in range(workers)]
    means = torch.zeros(workers, weights.shape[1], dtype=weights.dtype)
    ties = 0
    for _ in range(UPDATES):
        gradients = [gradient_of(task, weights, next(batch)) for batch in batches]
        means = momentum * means + (1 - momentum) * torch.cat(gradients)
        votes = torch.sign(means).sum(0)
        ties += int((votes == 0).sum())
        majority = torch.where(votes >= 0, 1.0, -1.0)
        weights = weights - LR * (majority + decay * weights)
    assert workers == 1 or ties > 0
    algorithm = method("majority_vote", Rule(lr=LR, weight_decay=decay), momentum=momentum)
    found = weights_after(UNEVEN if workers == 4 else Cluster(1), algorithm, task, UPDATES)
    text = f"majority_vote, P = {workers}, beta = {momentum}, = its loop"
    close(text, found, weights, source=SIGNUM if momentum else VOTE)


def test_sign_of_zero_is_positive_and_nan_stays():
    signs = signs_of(torch.tensor([[-2.0, 0.0, -0.0, 3.0, torch.inf, torch.nan]]))
    assert signs[0, :-1].tolist() == [-1.0, 1.0, 1.0, 1.0, 1.0]
    assert signs[0, -1].isnan()


def test_step_does_not_depend_on_size_of_gradients():
    """A worker whose gradients are 1,000 times as large has one voice of three."""
    optima = [-1000.0, 2.0, 3.0]
    task = Quadratic(shift=optima, initial=1.0, noise=0.0, dtype=torch.float64)
    algorithm = method("majority_vote", Rule(lr=LR))
    steps = weights_after(Cluster(3), algorithm, task, 1) - first_weights(task)
    equal("majority_vote: the step of two against a large one", LR, steps, source=VOTE)


@pytest.mark.parametrize("workers", [1, 3])
def test_messages_have_a_bit_for_each_number(workers):
    cluster = Cluster(workers, Constant(1.0), network=SLOW)
    algorithm = method("majority_vote")
    seconds = update_times(cluster, algorithm, 4)[1:]
    expected = 1.0 + 2 * 0.125 + 2 * workers * (32.0 / 32) / 8.0
    text = f"majority_vote, P = {workers}: t_c + 2 alpha + 2 P N b / 32"
    equal(text, expected, seconds, source="derived")


def test_worker_that_returns_is_sent_the_model():
    """Worker 0 has sent its signs when it crashes, and is back before the slow one has sent its own:
    it holds no model to which it could apply the vote. Worker 2 crashes before it has sent any.
    """
    slowdowns = [
        Factor(1, factor=10.0),
        Crash(0, at=2.0, back=3.0),
        Crash(2, at=0.5, back=0.75),
    ]
    network = replace(SLOW, bandwidth=3200.0)
    cluster = Cluster(3, Constant(1.0), slowdowns=slowdowns, network=network)
    record = Record(messages=True)
    outcome = simulate(cluster, method("majority_vote"), stop=Stop(updates=3), record=record)
    log = outcome.message_log
    assert log is not None
    for worker in (0, 2):
        answers = log["bytes"][(log["receiver"] == worker) & (log["bytes"] > 0)]
        assert answers.tolist()[:3] == [32.0, 32.0, 1.0]
