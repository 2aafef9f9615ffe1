"""Model parallel: gradients of a pipeline, how late each stage's are, and the bubble."""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, equals, identical
from experiments.verify.trials import (
    LR,
    ONE,
    RULES,
    every,
    learnt,
    left_by,
    method,
    optimizer_of,
    timed,
    update_times,
)
from models import MLP, Quadratic, Supervised, synthetic
from simulator import Algorithm, Cluster, Rule, Stop
from simulator.laws import Constant
from simulator.streams import BATCHES, start_seed, stream

HUANG, NARAYANAN, TWO = "Huang et al. (2019)", "Narayanan et al. (2019)", "Narayanan et al. (2021)"
S, M, UPDATES = 4, 6, 12
STAGES = Cluster(workers=S)
pipelines = Family("pipelines", "Pipelines: gradients, delays and bubbles")


@cache
def network() -> Supervised:
    """A network of four full layers, a stage each, in double precision."""
    data = synthetic(samples=120, features=6, classes=3)
    return Supervised(MLP(hidden=(6, 5, 4)).build, data, batch=8, dtype=torch.float64, device="cpu", threads=1)


def by_stage(algorithm: Algorithm, stages: int, updates: int) -> tuple[list[Tensor], list[tuple[int, slice]]]:
    """What each stage holds at the end, and after how many updates it does which slice; the last stage is ahead."""
    nodes = left_by(Cluster(workers=stages), algorithm, network(), Stop(updates=updates)).nodes
    slices = algorithm.slices(stages, nodes[0].weights.shape[1], network().layers())
    return [nodes[rank].weights for rank in slices], [(nodes[rank].version, piece) for rank, piece in slices.items()]


@pipelines.check
def flushed() -> Iterator[Finding]:
    """A pipeline that is flushed has the gradients of the whole model."""
    sgd = every(ONE, "delayed", network(), updates=UPDATES)
    yield identical(
        f"naive, S = {S} = SGD, every optimiser", HUANG, every(STAGES, "naive", network(), updates=UPDATES), sgd
    )
    together = every(ONE, "sync_ps", network(), local_steps=M, updates=UPDATES)
    for name in ("gpipe", "1f1b"):
        mine = every(STAGES, name, network(), micro_batches=M, updates=UPDATES)
        yield close(f"{name}, S = {S}, M = {M} = SGD on {M} mini-batches, every optimiser", HUANG, mine, together)


@pipelines.check
def weight_stashing() -> Iterator[Finding]:
    """Stage s of n updates by gradients n - s updates late, all of one mini-batch at one mixture of weights."""
    mine, held = by_stage(method("pipedream", Rule(lr=LR)), S, UPDATES)
    history = stashed(network(), [piece for _, piece in held])
    its = [history[version][:, piece] for version, piece in held]
    yield close(f"pipedream, n = {S}: stage s at weights n - s updates old", NARAYANAN, mine, its)
    rows = timed(STAGES, method("pipedream"), 60, Quadratic(dim=S)).updates
    for rank in range(S):
        settled = rows["staleness"][rows["target"] == rank][S:]
        yield equals(f"pipedream, stage {rank + 1} of {S}: staleness n - s", NARAYANAN, S - 1 - rank, settled)


def stashed(task: Supervised, pieces: Sequence[slice]) -> list[Tensor]:
    """w_s(t + 1) = w_s(t) - lr g_s(w_1(t - n + 1), ..., w_n(t)), with w(t) = w(0) for t < 0: all w(t)."""
    history, batches = [task.start([start_seed(0)])], task.batches(0, [stream(0, BATCHES, 0)])
    for t in range(UPDATES + S):
        read = [history[max(0, t - len(pieces) + s)][:, piece] for s, piece in enumerate(pieces, 1)]
        gradient = task.gradients(torch.cat(read, dim=1)[None], [next(batches)])[0][0]
        history.append(history[-1] - LR * gradient)
    return history


@pipelines.check
def two_versions() -> Iterator[Finding]:
    """PipeDream-2BW is a delay of one update on every stage."""
    for rule in RULES:
        mine, held = by_stage(method("pipedream_2bw", rule, micro_batches=1), 2, UPDATES)
        its = [learnt(ONE, method("delayed", rule, delay=1), network(), version)[:, piece] for version, piece in held]
        yield close(f"pipedream_2bw, S = 2, M = 1 = delayed, D = 1, {optimizer_of(rule)}", TWO, mine, its)
    for micro_batches in (3, M):
        mine, held = by_stage(method("pipedream_2bw", Rule(lr=LR), micro_batches=micro_batches), S, UPDATES)
        history = late_by_one(network(), micro_batches)
        its = [history[version][:, piece] for version, piece in held]
        statement = f"pipedream_2bw, S = {S}, M = {micro_batches}: M mini-batches at the weights one update old"
        yield close(statement, TWO, mine, its)


def late_by_one(task: Supervised, micro_batches: int) -> list[Tensor]:
    """w(t + 1) = w(t) - lr (1/M) sum_m g_m(w(t - 1)), with w(-1) = w(0): all w(t)."""
    history, batches = [task.start([start_seed(0)])], task.batches(0, [stream(0, BATCHES, 0)])
    for t in range(UPDATES + 2):
        read = history[max(0, t - 1)]
        gradients = [task.gradients(read[None], [next(batches)])[0][0] for _ in range(micro_batches)]
        history.append(history[-1] - LR * torch.stack(gradients).mean(0))
    return history


@pipelines.check
def bubble() -> Iterator[Finding]:
    """Equal stages on a free network: an update takes (M + S - 1) (f + b), of which (S - 1) / (M + S - 1) is idle."""
    task = Quadratic(dim=S, epoch=50)
    cluster = Cluster(workers=S, compute=Constant(float(S)))  # f + b = 1 on each of the stages
    for name in ("gpipe", "1f1b"):
        for count in (1, M):
            run = timed(cluster, method(name, micro_batches=count), 10, task)
            took = np.diff([run.updates["time"][run.updates["version"] == version].max() for version in range(10)])
            yield equals(f"{name}, S = {S}, M = {count}: (M + S - 1) (f + b)", HUANG, count + S - 1, took)
            idle = run.workers["waiting"] / (run.workers["waiting"] + run.workers["computing"])
            statement = f"{name}, S = {S}, M = {count}: bubble (S - 1) / (M + S - 1)"
            yield equals(statement, HUANG, (S - 1) / (count + S - 1), idle)
    took = update_times(cluster, method("naive"), 10, task)[1:]
    yield equals(f"naive, S = {S}: S (f + b)", HUANG, S, took)
    took = update_times(cluster, method("pipedream"), 30, task)[S:]
    yield equals(f"pipedream, S = {S}: f + b a mini-batch, no bubble", NARAYANAN, 1, took)
    took = update_times(cluster, method("pipedream_2bw", micro_batches=M), 10, task)[2:]
    yield equals(f"pipedream_2bw, S = {S}, M = {M}: M (f + b), no bubble", TWO, M, took)
