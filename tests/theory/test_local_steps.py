"""Steps of the workers' own, and tokens."""

from dataclasses import replace

import pytest

from laggard.simulator import Cluster, Network, Rule
from laggard.simulator.timing.distributions import Constant, Exponential
from tests.theory.statements import Statement, check, close, differ, equal, same
from tests.theory.trials import (
    LINEAR,
    LR,
    ONE,
    TORCH,
    UNEVEN,
    every,
    method,
    quadratic,
    timed,
    update_times,
    weights_after,
)

STICH, DOUILLARD = "Stich (2019)", "Douillard et al. (2023)"
AVERAGING, TENSORFLOW = "parameter averaging", "sync_replicas_optimizer.py"
MOMENTUM = LINEAR[1:2]


@pytest.mark.parametrize("steps", [1, 3])
def test_mean_of_weights_equals_mean_of_updates(steps):
    """Averaging weights equals averaging updates."""
    weights, updates = (
        every(UNEVEN, "local_sgd", average=of, local_steps=steps) for of in ("weights", "updates")
    )
    text = f"local_sgd, averaging weights = updates, local_steps {steps}, every optimiser"
    close(text, weights, updates, source=AVERAGING)


def test_averaging_weights_equals_gradients_for_one_step():
    """With H = 1, averaging weights equals averaging gradients only for linear rules whose buffers
    persist.
    """
    one, other = (
        every(UNEVEN, "local_sgd", rules=LINEAR, local_steps=1),
        every(UNEVEN, "sync_ps", rules=LINEAR),
    )
    close("local_sgd, H = 1 = sync_ps, linear rules", one, other, source=STICH)
    for name in ("adagrad", "rmsprop", "adam"):
        rules = [Rule(TORCH[name][0], lr=LR)]
        one, other = (
            every(UNEVEN, "local_sgd", rules=rules, local_steps=1),
            every(UNEVEN, "sync_ps", rules=rules),
        )
        differ(f"local_sgd, H = 1, {name}, is not sync_ps", one, other, source=AVERAGING)
    for name, settings, gradients in [
        (
            "momentum with reset buffers",
            {"local_steps": 1, "reset": True},
            every(UNEVEN, "sync_ps", rules=MOMENTUM),
        ),
        (
            "3 local steps",
            {"local_steps": 3},
            every(UNEVEN, "sync_ps", rules=MOMENTUM, accumulate=3),
        ),
        (
            "wait_for 3 of 4",
            {"local_steps": 1, "wait_for": 3},
            every(UNEVEN, "k_sync", rules=MOMENTUM, wait_for=3),
        ),
    ]:
        weights = every(UNEVEN, "local_sgd", rules=MOMENTUM, **settings)
        differ(
            f"local_sgd, {name}: weights are not gradients", weights, gradients, source=AVERAGING
        )


def test_outer_optimizer_includes_averaging_and_nesterov():
    """DiLoCo's outer optimiser can be plain averaging, or a Nesterov step over plain SGD."""
    local = every(UNEVEN, "local_sgd", local_steps=3)
    plain = {"outer_optimizer": "sgd", "outer_lr": 1.0, "outer_momentum": 0.0}
    outer = every(UNEVEN, "diloco", local_steps=3, **plain)
    close("diloco, outer SGD, lr 1 = local_sgd, every optimiser", outer, local, source=DOUILLARD)
    alone = weights_after(
        ONE, method("diloco", Rule(lr=LR), local_steps=1, outer_lr=0.7, outer_momentum=0.9)
    )
    nesterov = weights_after(
        ONE, method("delayed", Rule(replace(TORCH["nesterov"][0], momentum=0.9), lr=0.7 * LR))
    )
    close("diloco, P = 1, H = 1 = Nesterov 0.9 at lr times 0.7", alone, nesterov, source=DOUILLARD)


def test_no_tokens_give_synchronous_server():
    """Without initial tokens, TensorFlow's SyncReplicas is synchronous."""
    synchronous = every(UNEVEN, "sync_ps")
    clean = every(UNEVEN, "sync_replicas", num_tokens=0)
    same(
        "sync_replicas, R = P, num_tokens 0 = sync_ps, every optimiser",
        clean,
        synchronous,
        source=TENSORFLOW,
    )
    early = every(UNEVEN, "sync_replicas", rules=LINEAR[:1])
    differ(
        "sync_replicas, R = P, num_tokens -1, is not sync_ps",
        early,
        synchronous[:1],
        source=TENSORFLOW,
    )
    P = 8
    fates = timed(Cluster(workers=P), method("sync_replicas"), 50).gradients
    text = "sync_replicas, P = 8 equal, num_tokens -1: a gradient wasted each"
    equal(text, P, fates["dropped"], source=TENSORFLOW)


@pytest.mark.parametrize("R", [5, 8, 16])
def test_pushes_per_update_follow_closed_form(R):
    """An update takes max(R, P) pushes."""
    P, updates = 8, 400
    algorithm = method("sync_replicas", replicas_to_aggregate=R, num_tokens=max(0, R - P))
    fates = timed(Cluster(workers=P, compute=Exponential(1.0)), algorithm, updates).gradients
    pushes = (fates["applied"] + fates["dropped"]) / updates
    text = f"sync_replicas, P = {P}, R = {R}: pushes an update max(R, P)"
    # what a last update leaves over
    check(Statement(text, TENSORFLOW, max(R, P), pushes, P / updates))


@pytest.mark.parametrize("S", [1, 2, 4, 8])
def test_shards_divide_time_of_round(S):
    """Shards divide the time of the server's card until the workers' cards are the bottleneck."""
    P, transfer, alpha = 8, 0.25, 0.125
    network = Network(bandwidth=12.0, latency=alpha, message_bytes=3.0, sharing="fair")
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network)
    seconds = update_times(cluster, method("sync_ps", shards=S), 20, quadratic())[1:]
    text = f"sync_ps round, P = {P}, {S} shards, fair: t_c + 2 alpha + 2 (P / S) N beta"
    equal(text, 1.0 + 2 * alpha + 2 * P / S * transfer, seconds, source="derived")
