"""Asynchronous server: Downpour, barriers and bounds; delays that grow."""

from dataclasses import replace

import numpy as np
import pytest

from laggard.simulator import Cluster, Network
from laggard.simulator.timing.distributions import Exponential
from laggard.simulator.timing.slowdowns import Factor
from tests.theory.statements import close, equal, same
from tests.theory.trials import (
    LINEAR,
    LR,
    ONE,
    RULES,
    UNEVEN,
    every,
    method,
    timed,
    update_times,
    weights_after,
)

CARDS = Network(bandwidth=50.0, latency=0.05, message_bytes=2.0)
DEAN, HO = "Dean et al. (2012)", "Ho et al. (2013)"


def test_ssp_without_slack_is_lock_step():
    """SSP without slack runs in lock step: each round has P updates of staleness 0 to P - 1."""
    barrier = every(UNEVEN, "downpour", sync_every=1)
    own = every(UNEVEN, "ssp", bound=0)
    same("ssp, bound 0 = downpour, sync_every 1, every optimiser", own, barrier, source=HO)
    P, rounds = 8, 50
    rows = timed(
        Cluster(workers=P, compute=Exponential(1.0)), method("ssp", bound=0), P * rounds
    ).updates
    by_round = rows["staleness"].reshape(rounds, P)
    equal(
        "ssp, bound 0, P = 8: the i-th update of each round is i - 1 stale",
        0,
        by_round - np.arange(P),
        source=HO,
    )
    workers = np.sort(rows["worker"].reshape(rounds, P))
    equal("ssp, bound 0, P = 8: each worker once a round", 0, workers - np.arange(P), source=HO)


@pytest.mark.parametrize("s", [1, 3])
def test_slack_bounds_lead_of_fastest_worker(s):
    """The lead of the fastest worker over the slowest reaches s + 1 iterations and never exceeds
    it.
    """
    P = 8
    slow = Cluster(workers=P, compute=Exponential(1.0), slowdowns=[Factor(worker=0, factor=10.0)])
    rows = timed(slow, method("ssp", bound=s), 400).updates
    clocks = (rows["worker"][:, None] == np.arange(P)).cumsum(0)
    ahead = (clocks.max(1) - clocks.min(1)).max()
    equal(
        f"ssp, bound {s}, one slow worker: most iterations of fastest over slowest",
        s + 1,
        ahead,
        source=HO,
    )


@pytest.mark.parametrize("n", [1, 3])
def test_one_replica_equals_sgd(n):
    """A single replica gives SGD."""
    alone = weights_after(ONE, method("downpour", RULES[0], n_push=n, n_fetch=n), updates=12)
    sgd = weights_after(ONE, method("delayed", RULES[0]), updates=12 * n)
    close(f"downpour, P = 1, n_push = n_fetch = {n} = SGD", alone, sgd, source=DEAN)


def test_downpour_sum_equals_mean_at_larger_rate():
    """Local steps last until the next fetch; pushing a sum equals pushing a mean at a larger
    learning rate.
    """
    plain = every(UNEVEN, "async_ps")
    own = every(UNEVEN, "downpour", n_push=1, n_fetch=1, local_rule="same")
    same("downpour, n_push = n_fetch = 1 = async_ps, every optimiser", own, plain, source=DEAN)
    G = 3
    summed = every(UNEVEN, "async_ps", accumulate=G, rules=LINEAR)
    larger = every(
        UNEVEN, "soft_sync", gradients=G, rules=[replace(rule, lr=G * LR) for rule in LINEAR]
    )
    text = f"async_ps, accumulate {G} = soft_sync, K = {G}, lr times {G}, linear rules"
    close(text, summed, larger, source="derived")


@pytest.mark.parametrize("n", [1, 5])
def test_rare_messages_divide_idle_time(n):
    """A replica is idle for E = alpha + N beta each way once in n mini-batches."""
    cards = Network(bandwidth=12.0, latency=0.125, message_bytes=3.0)
    algorithm = method("downpour", n_push=n, n_fetch=n)
    seconds = update_times(Cluster(workers=1, network=cards), algorithm, 50)[1:]
    text = f"downpour, P = 1, n_push = n_fetch = {n}: {n} mini-batches take n t_c + 2 E"
    equal(text, n + 2 * 0.375, seconds, source=DEAN)


@pytest.mark.parametrize("network", [Network(), CARDS], ids=["free", "cards"])
@pytest.mark.parametrize("R", [1, 3, 12])
@pytest.mark.parametrize("cancel", [False, True], ids=["finish", "cancel"])
def test_ringmaster_applies_no_older_gradient(cancel, R, network):
    """Gradients of staleness R - 1 are applied, those of staleness R are not; with R = 1 only fresh
    gradients are.
    """
    slow = [Factor(worker=1, factor=9.0)]
    cluster = Cluster(6, Exponential(1.0), slow, network=network, apply_seconds=0.01)
    rows = timed(cluster, method("ringmaster", threshold=R, cancel=cancel), 300).updates
    applied, staleness = rows["status"] == "applied", rows["staleness"]
    text, source = f"ringmaster, R = {R}, cancel {cancel}: staleness", "Maranjyan et al. (2025)"
    equal(f"{text} of the stalest applied", R - 1, staleness[applied].max(), source=source)
    equal(f"{text} of the freshest not applied", R, staleness[~applied].min(), source=source)
    assert ("cancelled" in rows["status"]) == cancel


def test_warm_start_runs_one_replica_first():
    """A warm start runs one replica for some time, then all replicas."""
    P, alone = 8, 20
    rows = timed(
        Cluster(workers=P, compute=Exponential(1.0)), method("downpour", warm_start=alone), 400
    ).updates
    equal(
        f"downpour, warm_start {alone}: worker of those updates",
        0,
        rows["worker"][:alone],
        source=DEAN,
    )
    equal(
        f"downpour, warm_start {alone}: staleness of those updates",
        0,
        rows["staleness"][:alone],
        source=DEAN,
    )
    contribute = len(np.unique(rows["worker"][alone:]))
    equal(
        f"downpour, warm_start {alone}: workers that contribute after it",
        P,
        contribute,
        source=DEAN,
    )
