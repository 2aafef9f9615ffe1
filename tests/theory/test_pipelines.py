"""Pipelines: gradients, delays and bubbles."""

from functools import partial

import numpy as np
import pytest
import torch

from laggard.models import MLP, Quadratic, Supervised, synthetic
from laggard.models.layers import Layer
from laggard.simulator import Cluster, Network, Rule, Stop, Timing
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.streams import BATCHES, stream
from tests.theory.statements import close, equal, same
from tests.theory.trials import (
    LR,
    ONE,
    TORCH,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    perceptron,
    quadratic,
    remains_of,
    timed,
    update_times,
    weights_after,
)

MEGATRON = "Narayanan et al. (2021), Megatron-LM"
HUANG, NARAYANAN, TWO = "Huang et al. (2019)", "Narayanan et al. (2019)", "Narayanan et al. (2021)"
S, M, UPDATES = 4, 6, 6
STAGES = Cluster(workers=S)
network = partial(perceptron, 6, 5, 4)
"""A network of four linear layers, a stage each."""


def by_stage(algorithm, stages):
    """What each stage holds at the end, and after how many updates it does which slice; the last
    stage is ahead.
    """
    nodes = remains_of(Cluster(workers=stages), algorithm, network(), Stop(updates=UPDATES)).nodes
    slices = algorithm.slices(stages, nodes[0].weights.shape[1], network().layers())
    return [nodes[rank].weights for rank in slices], [
        (nodes[rank].version, piece) for rank, piece in slices.items()
    ]


def test_flush_after_mini_batch_equals_sgd():
    """A pipeline that is flushed after every mini-batch is plain SGD."""
    sgd = every(ONE, "delayed", network(), updates=UPDATES)
    naive = every(STAGES, "naive", network(), updates=UPDATES)
    same(f"naive, S = {S} = SGD, every optimiser", naive, sgd, source=HUANG)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_flush_gives_gradient_of_whole_model(name):
    """A pipeline that is flushed after M micro-batches has the gradients of the whole model."""
    together = every(ONE, "sync_ps", network(), accumulate=M, updates=UPDATES)
    mine = every(STAGES, name, network(), micro_batches=M, updates=UPDATES)
    close(
        f"{name}, S = {S}, M = {M} = SGD on {M} mini-batches, every optimiser",
        mine,
        together,
        source=HUANG,
    )


class FirstStages(Supervised):
    """The network's data, of which the first stage of replica r, node 2 r, has the mini-batches of
    worker r.
    """

    def batches(self, rank, rngs):
        """Those of worker rank / 2."""
        return super().batches(rank // 2, [stream(0, BATCHES, rank // 2)])


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_replicas_equal_data_parallel_workers(name):
    """Replicas of a pipeline that sum their gradients are data-parallel workers that hold the whole
    model.
    """
    data, R = synthetic(samples=120, features=6, classes=3), 3
    task = FirstStages(
        MLP(hidden=(6, 5, 4)).build, data, batch=8, dtype=torch.float64, device="cpu", threads=1
    )
    workers = every(Cluster(workers=R), "sync_ps", network(), accumulate=2, updates=UPDATES)
    mine = every(Cluster(workers=2 * R), name, task, micro_batches=2, replicas=R, updates=UPDATES)
    text = f"{name}, S = 2, M = 2, R = {R} = sync_ps, P = {R}, accumulate = 2, every optimiser"
    close(text, mine, workers, source=MEGATRON)
    nodes = remains_of(
        Cluster(workers=2 * R), method(name, replicas=R), task, Stop(time=20.0)
    ).nodes
    models = [
        torch.cat([nodes[rank].weights, nodes[rank + 1].weights], dim=1)
        for rank in range(0, 2 * R, 2)
    ]
    same(
        f"{name}, S = 2, R = {R}: replicas hold the same model",
        models[1:],
        [models[0]] * (R - 1),
        source=MEGATRON,
    )


def test_weight_stashing_delays_each_stage():
    """Stage s of n has a delay of n - s updates; all stages use one mini-batch and one mixture of
    weights.
    """
    mine, held = by_stage(method("pipedream", Rule(lr=LR)), S)
    history = stashed(network(), [piece for _, piece in held])
    its = [history[version][:, piece] for version, piece in held]
    close(f"pipedream, n = {S}: stage s at weights n - s updates old", mine, its, source=NARAYANAN)
    rows = timed(STAGES, method("pipedream"), 60, Quadratic(dim=S)).updates
    assert set(rows["worker"]) == {S - 1}  # as docs/tables.md says; `target` is the stage
    for rank in range(S):
        stale = rows["staleness"][rows["target"] == rank][S:]
        equal(
            f"pipedream, stage {rank + 1} of {S}: staleness n - s",
            S - 1 - rank,
            stale,
            source=NARAYANAN,
        )


PROFILE = tuple(range(S - 1, -1, -1))
"""The delays of PipeDream's stages."""


def with_delays(delays, task):
    """The model of `delayed_stages`, and the updates of each stage."""
    algorithm = method("delayed_stages", Rule(lr=LR), delays=delays)
    nodes = remains_of(ONE, algorithm, task, Stop(updates=UPDATES)).nodes
    servers = [nodes[-1 - stage] for stage in range(len(delays))]
    model = torch.cat([server.weights for server in servers], dim=1)
    return model, [server.version for server in servers]


def test_equal_delays_of_stages_are_a_delay():
    for delay in (0, 3):
        one = every(ONE, "delayed_stages", network(), updates=UPDATES, delays=(delay,) * S)
        other = every(ONE, "delayed", network(), updates=UPDATES, delay=delay)
        text = f"delayed_stages, D_s = {delay} = delayed, D = {delay}, every optimiser"
        same(text, one, other, source="derived")


def test_delays_of_stages_match_pipedream():
    """And so are the weights: at step t each stage has made D_s updates less than t."""
    algorithm = method("delayed_stages", delays=PROFILE)
    rows = timed(ONE, algorithm, 60, Quadratic(dim=S)).updates
    for stage, delay in enumerate(PROFILE):
        stale = rows["staleness"][rows["target"] == -1 - stage][S:]
        equal(f"delayed_stages, stage {stage + 1} of {S}: D_s", delay, stale, source="derived")
    for task in (quadratic(), network()):
        model, updates = with_delays(PROFILE, task)
        pieces = list(algorithm.slices(1, model.shape[1], task.layers()).values())
        history = stashed(task, pieces)
        parts = []
        for number, piece in zip(updates, pieces, strict=True):
            parts.append(history[number][:, piece])
        text = f"delayed_stages, D_s = {S} - s = pipedream, {type(task).__name__}"
        close(text, model, torch.cat(parts, dim=1), source=NARAYANAN)


def stashed(task, pieces):
    """w_s(t + 1) = w_s(t) - lr g_s(w_1(t - n + 1), ..., w_n(t)), with w(t) = w(0) for t < 0: all
    w(t).
    """
    history, batches = [first_weights(task)], batches_of(task)
    for t in range(UPDATES + S):
        read = [history[max(0, t - len(pieces) + s)][:, piece] for s, piece in enumerate(pieces, 1)]
        history.append(history[-1] - LR * gradient_of(task, torch.cat(read, dim=1), next(batches)))
    return history


@pytest.mark.parametrize("name", TORCH)
def test_pipedream_2bw_delays_by_one_update(name):
    """PipeDream-2BW is a delay of one update on every stage."""
    rule = Rule(TORCH[name][0], lr=LR)
    mine, held = by_stage(method("pipedream_2bw", rule, micro_batches=1), 2)
    delayed = method("delayed", rule, delay=1)
    its = [weights_after(ONE, delayed, network(), version)[:, piece] for version, piece in held]
    close(f"pipedream_2bw, S = 2, M = 1 = delayed, D = 1, {name}", mine, its, source=TWO)


@pytest.mark.parametrize("micro_batches", [3, M])
def test_micro_batches_use_previous_weights(micro_batches):
    """All micro-batches of an update use the weights before the present ones."""
    mine, held = by_stage(method("pipedream_2bw", Rule(lr=LR), micro_batches=micro_batches), S)
    history = late_by_one(network(), micro_batches)
    its = [history[version][:, piece] for version, piece in held]
    text = (
        f"pipedream_2bw, S = {S}, M = {micro_batches}: M mini-batches at the weights one update old"
    )
    close(text, mine, its, source=TWO)


def late_by_one(task, micro_batches):
    """w(t + 1) = w(t) - lr (1/M) sum_m g_m(w(t - 1)), with w(-1) = w(0): all w(t)."""
    history, batches = [first_weights(task)], batches_of(task)
    for t in range(UPDATES + 2):
        gradients = [
            gradient_of(task, history[max(0, t - 1)], next(batches)) for _ in range(micro_batches)
        ]
        history.append(history[-1] - LR * torch.stack(gradients).mean(0))
    return history


EQUAL_STAGES = Cluster(workers=S, compute=Constant(float(S)))
"""f + b = 1 on each of the stages."""


@pytest.mark.parametrize("count", [1, M])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_follows_closed_form(name, count):
    """With equal stages on a free network an update takes (M + S - 1) (f + b), of which (S - 1) /
    (M + S - 1) is idle.
    """
    run = timed(EQUAL_STAGES, method(name, micro_batches=count), 10, Quadratic(dim=S, epoch=50))
    took = np.diff(
        [run.updates["time"][run.updates["version"] == version].max() for version in range(10)]
    )
    equal(f"{name}, S = {S}, M = {count}: (M + S - 1) (f + b)", count + S - 1, took, source=HUANG)
    idle = run.workers["waiting"] / (run.workers["waiting"] + run.workers["computing"])
    text = f"{name}, S = {S}, M = {count}: bubble (S - 1) / (M + S - 1)"
    equal(text, (S - 1) / (count + S - 1), idle, source=HUANG)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (6, 1, 1), (1, 6, 1), (1, 1, 9), (1, 5, 9)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_replicated_stages_sum_gradients_after_flush(name, sizes):
    """Each stage sums its gradient with its replicas' after the flush; each later stage begins f +
    b earlier. Stages without parameters have equal bytes.
    """
    S, transfer = len(sizes), 4.0
    shares = np.array(sizes) / sum(sizes) if any(sizes) else np.full(S, 1 / S)
    layers = [Layer(f"layer{number}", size, 0.0, 1.0) for number, size in enumerate(sizes)]
    text = f"{name}, S = {S} of {sizes} numbers, M = {M}: (M + S - 1) (f + b) + the last sum's rest"
    for R, wiring in ((2, "pairs"), (4, "cards")):
        links = Network(bandwidth=8.0, message_bytes=8.0 * transfer, wiring=wiring)
        cluster, task = Cluster(R * S, Constant(S * 2.0), network=links), Timing(network=layers)
        rows = timed(cluster, method(name, micro_batches=M, replicas=R), 8, task).updates
        took = np.diff([rows["time"][rows["version"] == version].max() for version in range(8)])
        rest = max(2 * (R - 1) / R * transfer * shares - 2 * np.arange(S))
        equal(f"{text}, R = {R}", (M + S - 1) * 2 + rest, took, source=MEGATRON)


def test_asynchronous_pipelines_have_no_bubble():
    """Asynchronous pipelines have no bubble; without pipelining only one node works at a time."""
    task = Quadratic(dim=S, epoch=50)
    took = update_times(EQUAL_STAGES, method("naive"), 10, task)[1:]
    equal(f"naive, S = {S}: S (f + b)", S, took, source=HUANG)
    took = update_times(EQUAL_STAGES, method("pipedream"), 30, task)[S:]
    equal(f"pipedream, S = {S}: f + b a mini-batch, no bubble", 1, took, source=NARAYANAN)
    took = update_times(EQUAL_STAGES, method("pipedream_2bw", micro_batches=M), 10, task)[2:]
    equal(f"pipedream_2bw, S = {S}, M = {M}: M (f + b), no bubble", M, took, source=TWO)
