"""Methods whose workers take steps of their own: what the server averages, local SGD, DiLoCo, elastic averaging."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, equals, identical
from experiments.verify.trials import (
    LINEAR,
    LR,
    TORCH,
    every,
    learnt,
    left_by,
    method,
    quadratic,
    slope,
    timed,
    update_times,
)
from models import Quadratic
from simulator import SERVER, Cluster, Network, Rule, Stop
from simulator.laws import Constant, Exponential, Gamma
from simulator.streams import BATCHES, start_seed, stream

UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
STICH, ZHANG, DOUILLARD = "Stich (2019)", "Zhang et al. (2015)", "Douillard et al. (2023)"
AVERAGING, TENSORFLOW = "parameter averaging", "sync_replicas_optimizer.py"
local_steps = Family("local_steps", "Steps of the workers' own, and tokens")


@local_steps.check
def what_is_averaged() -> Iterator[Finding]:
    """The mean of weights is that of updates always, and that of gradients for one step of a linear rule."""
    for steps in (1, 3):
        weights, updates = (
            every(UNEVEN, "sync_ps", average=average, local_steps=steps) for average in ("weights", "updates")
        )
        yield close(
            f"sync_ps, averaging weights = updates, {steps} steps, every optimiser", AVERAGING, weights, updates
        )
    linear, gradients = (every(UNEVEN, "sync_ps", rules=LINEAR, average=of) for of in ("weights", "gradients"))
    yield close("sync_ps, averaging weights = gradients, linear rules", AVERAGING, linear, gradients)
    for name in ("adagrad", "rmsprop", "adam"):
        rule = [Rule(TORCH[name][0], lr=LR)]
        one, other = (every(UNEVEN, "sync_ps", rules=rule, average=of) for of in ("weights", "gradients"))
        yield differ(f"sync_ps, {name}: averaging weights is not averaging gradients", AVERAGING, one, other)
    for statement, settings in [
        ("momentum with reset buffers", {"reset": True}),
        ("3 local steps", {"local_steps": 3}),
        ("momentum, wait_for 3 of 4", {"wait_for": 3}),
    ]:
        one, other = (
            every(UNEVEN, "sync_ps", rules=LINEAR[1:2], average=of, **settings) for of in ("weights", "gradients")
        )
        yield differ(f"sync_ps, {statement}: weights are not gradients", AVERAGING, one, other)


@local_steps.check
def local_sgd() -> Iterator[Finding]:
    """One local step of a linear rule is a synchronous update; DiLoCo's outer optimiser may do nothing more."""
    one, other = every(UNEVEN, "local_sgd", rules=LINEAR, local_steps=1), every(UNEVEN, "sync_ps", rules=LINEAR)
    yield close("local_sgd, H = 1 = sync_ps, linear rules", STICH, one, other)
    adam = [Rule(TORCH["adam"][0], lr=LR)]
    one, other = every(UNEVEN, "local_sgd", rules=adam, local_steps=1), every(UNEVEN, "sync_ps", rules=adam)
    yield differ("local_sgd, H = 1, adam, is not sync_ps", STICH, one, other)
    local = every(UNEVEN, "local_sgd", local_steps=3)
    averaged = every(UNEVEN, "sync_ps", average="weights", local_steps=3)
    yield close("local_sgd, H = 3 = sync_ps averaging weights, every optimiser", STICH, local, averaged)
    plain = {"outer_optimizer": "sgd", "outer_lr": 1.0, "outer_momentum": 0.0}
    outer = every(UNEVEN, "diloco", local_steps=3, **plain)
    yield close("diloco, outer SGD, lr 1 = local_sgd, every optimiser", DOUILLARD, outer, local)
    alone = learnt(Cluster(workers=1), method("diloco", Rule(lr=LR), local_steps=1, outer_lr=0.7, outer_momentum=0.9))
    nesterov = learnt(
        Cluster(workers=1), method("delayed", Rule(replace(TORCH["nesterov"][0], momentum=0.9), lr=0.7 * LR))
    )
    yield close("diloco, P = 1, H = 1 = Nesterov 0.9 at lr times 0.7", DOUILLARD, alone, nesterov)


@local_steps.check
def elastic() -> Iterator[Finding]:
    """An exchange moves a worker and the centre by as much, so that their sum sees gradients alone."""
    P, H, seconds, task = 4, 3, 31, slope()
    for together in (False, True):
        algorithm = method("easgd", Rule(lr=LR), elastic=0.2, local_steps=H, together=together)
        nodes = left_by(Cluster(workers=P, compute=Constant(1.0)), algorithm, task, Stop(time=seconds + 0.5)).nodes
        total = torch.stack([node.weights for node in nodes.values()]).sum(0)
        drawn = [islice(task.batches(rank, [stream(0, BATCHES, rank)]), seconds) for rank in range(P)]
        gradients = sum((batch for of in drawn for batch in of), torch.zeros(5, dtype=torch.float64))
        statement = f"easgd, P = {P}{', together' * together}: centre + workers = starts - lr sum of gradients"
        yield close(statement, ZHANG, total, (P + 1) * task.start([start_seed(0)]) - LR * gradients)
    quiet = Quadratic(curvature=1.0, dtype=torch.float64)
    algorithm = method("easgd", Rule(lr=LR), elastic=0.1, local_steps=1, together=True)
    nodes = left_by(Cluster(workers=P, compute=Constant(1.0)), algorithm, quiet, Stop(time=20.5)).nodes
    yield close("easgd together, no noise: section 3 by hand", ZHANG, nodes[SERVER].weights, springs(P, 0.1, 21))


def springs(P: int, elastic: float, exchanges: int) -> Tensor:
    """The centre after so many exchanges with P equal workers that descend w^2 / 2 without noise."""
    x = c = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(exchanges):
        x, c = x - LR * x - elastic * (x - c), c + elastic * P * (x - c)
    return c


@local_steps.check
def tokens() -> Iterator[Finding]:
    """TensorFlow's tokens: without any at the start it is synchronous; an update costs max(R, P) pushes."""
    synchronous = every(UNEVEN, "sync_ps")
    clean = every(UNEVEN, "sync_replicas", num_tokens=0)
    yield identical("sync_replicas, R = P, num_tokens 0 = sync_ps, every optimiser", TENSORFLOW, clean, synchronous)
    early = every(UNEVEN, "sync_replicas", rules=LINEAR[:1])
    yield differ("sync_replicas, R = P, num_tokens -1, is not sync_ps", TENSORFLOW, early, synchronous[:1])
    P, updates = 8, 400
    for R in (5, 8, 16):
        algorithm = method("sync_replicas", replicas_to_aggregate=R, num_tokens=max(0, R - P))
        fates = timed(Cluster(workers=P, compute=Exponential(1.0)), algorithm, updates).gradients
        pushes = (fates["applied"] + fates["dropped"]) / updates
        statement = f"sync_replicas, P = {P}, R = {R}: pushes an update max(R, P)"
        yield Finding(statement, TENSORFLOW, max(R, P), pushes, P / updates)  # what a last update leaves over
    fates = timed(Cluster(workers=P), method("sync_replicas"), 50).gradients
    yield equals("sync_replicas, P = 8 equal, num_tokens -1: a gradient wasted each", TENSORFLOW, P, fates["dropped"])


@local_steps.check
def sharded() -> Iterator[Finding]:
    """A server in shards learns the same, and divides the time on its card until the workers' cards bind."""
    whole = every(UNEVEN, "sync_ps")
    for S in (2, 4):
        yield identical(
            f"sync_ps, {S} shards = one, every optimiser",
            "Dean et al. (2012)",
            every(UNEVEN, "sync_ps", shards=S),
            whole,
        )
    P, transfer, alpha = 8, 0.25, 0.125
    network = Network(bandwidth=12.0, latency=alpha, message_bytes=3.0, sharing="fair")
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network)
    for S in (1, 2, 4, 8):
        seconds = update_times(cluster, method("sync_ps", shards=S), 20, quadratic())[1:]
        statement = f"sync_ps round, P = {P}, {S} shards, fair: t_c + 2 alpha + 2 (P / S) N beta"
        yield equals(statement, "derived", 1.0 + 2 * alpha + 2 * P / S * transfer, seconds)
