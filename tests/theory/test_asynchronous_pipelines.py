"""Asynchronous replicas of a pipeline: identities, times and delays."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from laggard.models.layers import Layer
from laggard.simulator import (
    SERVER,
    Cluster,
    Evaluate,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.network.config import SlowLink
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Factor
from tests.cases import quick
from tests.theory.statements import close, equal, same
from tests.theory.trials import (
    TORCH,
    UPDATES,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    perceptron,
    quadratic,
    timed,
)

DEAN = "Dean et al. (2012)"
S, M, R = 4, 6, 3
CARDS = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
PRIVATE = Network(bandwidth=4.0, latency=0.125, message_bytes=40.0, wiring="pairs")
SCHEDULES = pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])


@SCHEDULES
def test_one_replica_equals_flushed_pipeline(schedule):
    """One replica on a free network equals the flushed pipeline."""
    cluster, task = Cluster(workers=S, compute=Gamma(1.0, 0.7)), perceptron(6, 5, 4)
    alone = every(cluster, "async_pipelines", task, micro_batches=M, schedule=schedule, updates=6)
    flushed = every(cluster, schedule, task, micro_batches=M, updates=6)
    text = f"async_pipelines, R = 1, S = {S}, M = {M} = {schedule}"
    same(f"{text}, every optimiser", alone, flushed, source=DEAN)
    mine = timed(
        cluster, method("async_pipelines", micro_batches=M, schedule=schedule), 30, Timing(depth=S)
    ).updates
    its = timed(cluster, method(schedule, micro_batches=M), 30, Timing(depth=S)).updates
    equal(
        f"{text}: times of all gradients less its",
        0,
        mine["time"] - its["time"],
        source=DEAN,
        rtol=0,
    )


def test_one_stage_equals_asynchronous_server():
    """Replicas of one stage equal the workers of an asynchronous server."""
    slow = [Factor(worker=rank, factor=1 + rank / np.e) for rank in range(R)]
    cluster = Cluster(R, Constant(1.0), slow, CARDS, apply_seconds=0.02)
    mine = every(cluster, "async_pipelines", replicas=R, micro_batches=1)
    text = f"async_pipelines, R = {R}, S = 1, M = 1 = async_ps, P = {R}"
    same(f"{text}, every optimiser", mine, every(cluster, "async_ps"), source=DEAN)
    rows = timed(
        cluster, method("async_pipelines", replicas=R, micro_batches=1), UPDATES, quadratic()
    ).updates
    its = timed(cluster, method("async_ps"), UPDATES, quadratic()).updates
    for column, rtol in (("worker", 0.0), ("staleness", 0.0), ("time", 1e-9)):
        difference = rows[column] - its[column]
        equal(f"{text}: {column} of all gradients less its", 0, difference, source=DEAN, rtol=rtol)


@pytest.mark.parametrize("name", quick(TORCH, only=["momentum", "adam"]))
def test_stages_match_loop_over_recorded_order(name):
    """In a loop over the recorded order, the stage of a replica has the parameters of the answer
    to its last push.
    """
    depth, micro_batches, task = 3, 2, perceptron(6, 5)
    optimizer, torchs = TORCH[name]
    slow = [Factor(worker=4, factor=3.0)]
    cluster = Cluster(
        R * depth, Gamma(1.0, 0.7), slow, replace(CARDS, bandwidth=5.0), apply_seconds=0.1
    )
    algorithm = method(
        "async_pipelines", Rule(optimizer, lr=0.03), replicas=R, micro_batches=micro_batches
    )
    run = simulate(
        cluster, algorithm, task, stop=Stop(updates=25), evaluate=Evaluate(every_updates=25)
    )
    start = first_weights(task)
    slices = [*algorithm.slices(R * depth, start.shape[1], task.layers()).values()]
    server = [torch.nn.Parameter(start[:, part].clone()) for part in slices]
    optimizers = [torchs([parameters]) for parameters in server]
    held = [[start[:, part] for part in slices] for _ in range(R)]  # by replica and stage
    batches, gradients = (
        [batches_of(task, replica * depth) for replica in range(R)],
        dict[int, Tensor](),
    )
    pushed = dict.fromkeys(range(R), 0)  # stages that have pushed the replica's present gradient
    for stage, last in order_of(run):
        replica = last // depth
        if not pushed[replica]:
            weights = torch.cat(held[replica], dim=1)
            taken = [
                gradient_of(task, weights, batch)
                for batch in islice(batches[replica], micro_batches)
            ]
            gradients[replica] = torch.stack(taken).mean(0)
        server[stage].grad = gradients[replica][:, slices[stage]]
        optimizers[stage].step()
        held[replica][stage] = server[stage].detach().clone()
        pushed[replica] = (pushed[replica] + 1) % depth
    ours = torch.cat([parameters.detach() for parameters in server], dim=1)
    text = f"async_pipelines, R = {R}, S = {depth}, M = {micro_batches} = a loop of torch, {name}"
    close(text, run.weights, ours, source=DEAN)


def order_of(run):
    """The stage of each update, and the last node of the replica that pushed it, as they were
    recorded.
    """
    rows = run.updates
    order = dict.fromkeys(
        zip(SERVER - rows["target"], rows["version"], rows["worker"], strict=True)
    )
    return [(int(stage), int(last)) for stage, _, last in order]


def times_of(run, stage, replica=None):
    """When the server of one of S stages made each update, or each of those by a replica."""
    rows = run.updates
    own = rows["target"] == SERVER - stage
    own = own if replica is None else own & (rows["worker"] == replica * S + S - 1)
    times = rows["time"][own][np.unique(rows["version"][own], return_index=True)[1]]
    return times


def test_slow_stage_delays_own_replica_only():
    """A slow stage delays its replica and no other."""
    slow = 3.0
    cluster = Cluster(R * S, Constant(float(S)), [Factor(worker=S + 1, factor=slow)])
    run = timed(
        cluster, method("async_pipelines", micro_batches=M, replicas=R), 60, Timing(depth=S)
    )
    text = f"async_pipelines, S = {S}, M = {M}, R = {R}, one stage {slow:g} x slower"
    took = [np.diff(times_of(run, 0, replica)) for replica in range(R)]
    equal(
        f"{text}: (M - 1 + S) (f + b) of the others",
        M - 1 + S,
        np.concatenate([took[0], took[2]]),
        source=DEAN,
    )
    longer = M * slow + S - 1
    equal(f"{text}: (M {slow:g} + S - 1) (f + b) of its own", longer, took[1], source="derived")


@pytest.mark.parametrize("network", ["free", "slow"])
@pytest.mark.parametrize("depth", [2, S])
def test_mean_staleness_is_replicas_minus_one(depth, network):
    """Each update of a stage falls between the read and the push of all other replicas: R - 1 in
    the mean.

    Counted with what replicas have begun when the run ends.
    """
    links = Network() if network == "free" else CARDS
    cluster = Cluster(
        R * depth, Gamma(1.0, 0.7), [Factor(worker=0, factor=4.0)], links, apply_seconds=0.05
    )
    algorithm = method("async_pipelines", micro_batches=1, replicas=R)
    rows = timed(cluster, algorithm, 100, Timing(depth=depth)).updates
    means = []
    for stage in range(depth):
        own = rows["target"] == SERVER - stage
        versions = [
            rows["version"][own & (rows["worker"] == replica * depth + depth - 1)]
            for replica in range(R)
        ]
        begun = sum(own.sum() - 1 - max(pushes, default=-1) for pushes in versions)
        means.append((rows["staleness"][own].sum() + begun) / own.sum())
    text = f"async_pipelines, R = {R}, S = {depth}, random times, a {network} network"
    equal(f"{text}: mean staleness of each stage", R - 1, means, source="Little's law")


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (7, 1, 1, 1), (1, 5, 1, 9)])
@SCHEDULES
def test_one_replica_waits_for_its_servers(schedule, sizes):
    """A replica alone waits for its servers; a later stage may wait longer, by f + b each, and
    delays nobody.

    With w_s = 2 (alpha + N_s beta) + u for the exchange of stage s, a mini-batch takes (M + S - 1)
    (f + b) + max_s (w_s
    - s (f + b)).
    """
    layers = [Layer(f"layer{number}", size, 0.0, 1.0) for number, size in enumerate(sizes)]
    # activations, of no size
    at_once = [SlowLink(stage, stage + 1, latency=0.0) for stage in range(S - 1)]
    cluster = Cluster(
        S, Constant(float(S)), network=replace(PRIVATE, links=at_once), apply_seconds=0.25
    )
    algorithm = method("async_pipelines", micro_batches=M, schedule=schedule)
    took = np.diff(times_of(timed(cluster, algorithm, 10, Timing(network=layers)), 0))
    answers = [2 * (0.125 + 10.0 * size / sum(sizes)) + 0.25 for size in sizes]
    longer = max(answer - stage for stage, answer in enumerate(answers))
    text = f"async_pipelines, {schedule}, R = 1, S = {S}, M = {M}, N_s as {sizes}: a mini-batch"
    equal(text, M + S - 1 + longer, took, source="derived")


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 1, 1, 97)])
def test_one_micro_batch_passes_uneven_stages(sizes):
    """One micro-batch passes through uneven stages and back, with activations on its way.

    With T_s = sum_{r < s} (f_r + b_r + 2 (alpha + a_r beta)) a mini-batch takes T_S + max_s (w_s -
    T_s).
    """
    works, crossing = np.array([2.0, 1.0, 4.0, 1.0]), np.array([1.0, 0.5, 1.0])
    layers = [
        Layer(f"layer{number}", size, sum(sizes) * activations / 10.0, work)
        for number, (size, activations, work) in enumerate(
            zip(sizes, [*crossing, 0.0], works, strict=True)
        )
    ]
    cluster = Cluster(S, Constant(8.0), network=PRIVATE, apply_seconds=0.25)
    took = np.diff(
        times_of(
            timed(cluster, method("async_pipelines", micro_batches=1), 10, Timing(network=layers)),
            0,
        )
    )
    # a stage, and both ways of the cut behind it
    passing = [*(works[:-1] + 2 * (0.125 + crossing)), works[-1]]
    answers = [2 * (0.125 + 10.0 * size / sum(sizes)) + 0.25 for size in sizes]
    longer = max(answer - sum(passing[:stage]) for stage, answer in enumerate(answers))
    text = f"async_pipelines, R = 1, S = {S}, M = 1, uneven stages, N_s as {sizes}: a mini-batch"
    equal(text, sum(passing) + longer, took, source="derived")
