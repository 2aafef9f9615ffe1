"""Servers that crash and return from a checkpoint."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from laggard.simulator import Cluster, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Exponential
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash
from tests.theory.statements import close, equal, mean_is, same
from tests.theory.trials import (
    LR,
    TORCH,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    quadratic,
    timed,
    weights_after,
)

ALIKE = Cluster(workers=4, checkpoint=Checkpoint(every_updates=1))
CRASHES = [ServerCrash(at=at, restore_seconds=0.5) for at in (2.3, 3.2, 7.4)]
POISSON = 4.0
"""Updates a second of four workers with exponential times of mean 1: a Poisson process, from each
return again.
"""


@pytest.mark.parametrize("name", ["async_ps", "sync_ps"])
def test_crash_with_fresh_checkpoint_is_pause(name):
    """With a checkpoint after every update, a server crash while all workers compute is only a
    pause.
    """
    crashing = every(replace(ALIKE, server_crashes=CRASHES), name, updates=20)
    text = f"{name}, checkpoint every update, three crashes = none, every optimiser"
    same(text, crashing, every(ALIKE, name, updates=20), source="derived")


@pytest.mark.parametrize("name", TORCH)
def test_restore_resets_weights_and_optimizer(name):
    """Weights and optimiser are reset from update 6 to update 4; the next gradient is of the
    weights after update 6.
    """
    crash = ServerCrash(at=6.5, restore_seconds=0.2)
    cluster = Cluster(1, checkpoint=Checkpoint(every_updates=4), server_crashes=[crash])
    own = weights_after(cluster, method("async_ps", Rule(TORCH[name][0], lr=LR)), updates=12)
    task, saved = quadratic(), []
    weights = first_weights(task).requires_grad_()
    optimizer, batches = TORCH[name][1]([weights]), batches_of(task)
    for update in range(12):
        weights.grad = gradient_of(task, weights.detach(), next(batches))
        if update == 6:
            with torch.no_grad():
                weights.copy_(saved[0])
            optimizer.load_state_dict(saved[1])
        optimizer.step()
        if update == 3:
            saved = [weights.detach().clone(), deepcopy(optimizer.state_dict())]
    text = f"async_ps, {name}: crash after 6 updates, checkpoint after 4"
    close(f"{text} = torch's, stored and loaded", own, weights.detach(), source="torch.optim")


def test_shards_that_crash_together_equal_server():
    """Shards that crash together equal one server, if the network keeps the order of their
    messages.
    """
    checkpoint = Checkpoint(every_updates=3)
    one = replace(ALIKE, server_crashes=CRASHES, checkpoint=checkpoint)
    three = [replace(crash, shard=shard) for crash in CRASHES for shard in range(3)]
    text = "async_ps, 3 shards that crash together = one server that crashes, every optimiser"
    same(
        text,
        every(replace(one, server_crashes=three), "async_ps", shards=3),
        every(one, "async_ps"),
        source="derived",
    )


@pytest.mark.parametrize("name", ["sgp", "adpsgd", "async_ps", "all_reduce", "sync_ps"])
def test_lost_node_stops_nodes_that_wait_for_it(name):
    """One of P nodes is lost for good. Pairs and asynchronous workers go on without it; push-sum in
    step waits for its share.
    """
    P = 8
    cluster = Cluster(workers=P, slowdowns=[Crash(worker=3, at=10.25)])
    rows = simulate(cluster, method(name), stop=Stop(time=50.5)).updates
    waits = name in ("sgp", "all_reduce", "sync_ps")
    after = (rows["time"] > 20.5).sum() / (P * 30)
    says = "none" if waits else "(P - 1) / P"
    text = f"{name}, P = {P}, one lost: gradients a second over those before: {says}"
    equal(text, 0.0 if waits else (P - 1) / P, after, source="derived")


@pytest.mark.parametrize("name", ["async_ps", "sync_ps", "k_sync"])
def test_lost_server_stops_all(name):
    """No update follows the crash of the one server that does not return."""
    crash = ServerCrash(at=10.25, restore_seconds=1000.0)
    cluster = Cluster(workers=8, server_crashes=[crash])
    rows = simulate(cluster, method(name), stop=Stop(time=50.5)).updates
    text = f"{name}, P = 8, its server is lost: updates after that"
    applied = rows["time"][rows["status"] == "applied"]
    equal(text, 0, (applied > 10.25).sum(), source="derived")


def lost(checkpoint, uptime, crashes):
    """The updates that each crash loses, of four exponential workers on a free network."""
    crash = ServerCrash(uptime=Exponential(uptime), restore_seconds=0.5)
    cluster = Cluster(
        workers=4, compute=Exponential(1.0), server_crashes=[crash], checkpoint=checkpoint
    )
    found = (
        timed(cluster, method("async_ps"), int(POISSON * uptime * crashes))
        .restores["lost"]
        .tolist()
    )
    return found


@pytest.mark.parametrize(("T", "uptime"), [(2.0, 1.0), (1.0, 4.0)])
def test_mean_age_of_checkpoint_follows_closed_form(T, uptime):
    """With period T and crashes of rate r it is 1 / r - T / (exp(r T) - 1), which tends to T / 2
    for rare crashes.
    """
    age = uptime - T / math.expm1(T / uptime)
    text = (
        f"updates lost by a crash: 4 a second, checkpoints every {T:g} s, mean uptime {uptime:g} s"
    )
    often = uptime < T
    mean_is(text, POISSON * age, lost(Checkpoint(every_seconds=T), uptime, 1200 if often else 400),
            source="Young (1974)", wrong=POISSON * T / 2 if often else None)  # fmt: skip


def test_lost_updates_follow_checkpoint_period():
    """With a checkpoint every N updates, K mod N of the K updates of an uptime are lost; K is
    geometric with q = 4 / (4 + r).
    """
    N, uptime = 5, 1.0
    q = POISSON / (POISSON + 1 / uptime)
    expected = sum(j * q**j for j in range(N)) * (1 - q) / (1 - q**N)
    text, end = "updates lost by a crash: 4 a second,", f"mean uptime {uptime:g} s"
    found = lost(Checkpoint(every_updates=N), uptime, 1200)
    often = f"{text} checkpoints every {N} updates, {end}"
    mean_is(often, expected, found, source="derived", wrong=(N - 1) / 2)
    never = f"{text} no checkpoint but the start, {end}"
    mean_is(never, POISSON * uptime, lost(Checkpoint(), uptime, 400), source="derived")
