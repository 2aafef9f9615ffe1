"""The asynchronous server's options: Downpour, sums, barriers and bounds; delays that grow."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments.verify.finding import Family, Finding, at_most, close, equals, identical
from experiments.verify.trials import LINEAR, LR, ONE, RULES, every, learnt, method, timed
from simulator import Cluster
from simulator.laws import Exponential, Gamma
from simulator.slowdowns import Factor

UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
DEAN, HO, SRINIVASAN = "Dean et al. (2012)", "Ho et al. (2013)", "Srinivasan et al. (2018)"
asynchronous = Family("asynchronous", "Asynchronous server: Downpour, barriers and bounds")


@asynchronous.check
def lock_step() -> Iterator[Finding]:
    """SSP without slack is lock-step in iterations: P updates a round, of staleness 0 to P - 1."""
    barrier = every(UNEVEN, "async_ps", sync_every=1)
    yield identical(
        "ssp, bound 0 = async_ps, sync_every 1, every optimiser", HO, every(UNEVEN, "ssp", bound=0), barrier
    )
    P, rounds = 8, 50
    rows = timed(Cluster(workers=P, compute=Exponential(1.0)), method("ssp", bound=0), P * rounds).updates
    by_round = rows["staleness"].reshape(rounds, P)
    yield equals("ssp, bound 0, P = 8: the i-th update of each round is i - 1 stale", HO, 0, by_round - np.arange(P))
    workers = np.sort(rows["worker"].reshape(rounds, P))
    yield equals("ssp, bound 0, P = 8: each worker once a round", HO, 0, workers - np.arange(P))
    for s in (1, 3):
        slow = Cluster(workers=P, compute=Exponential(1.0), slowdowns=[Factor(worker=0, factor=10.0)])
        rows = timed(slow, method("ssp", bound=s), 400).updates
        clocks = (rows["worker"][:, None] == np.arange(P)).cumsum(0)
        statement = f"ssp, bound {s}, one slow worker: iterations made, fastest over slowest"
        yield equals(f"{statement}: at most and at times s + 1", HO, s + 1, (clocks.max(1) - clocks.min(1)).max())


@asynchronous.check
def downpour() -> Iterator[Finding]:
    """A replica alone goes where SGD goes; a sum is worth as much as a mean at a larger learning rate."""
    plain = every(UNEVEN, "async_ps", local_rule="none")
    own = every(UNEVEN, "async_ps", n_push=1, n_fetch=1, local_rule="same")
    yield identical("async_ps, n_push = n_fetch = 1: no step of a replica's own counts", DEAN, own, plain)
    for n in (1, 3):
        alone = learnt(ONE, method("async_ps", RULES[0], n_push=n, n_fetch=n), updates=12)
        statement = f"async_ps, P = 1, n_push = n_fetch = {n} = SGD"
        yield close(statement, DEAN, alone, learnt(ONE, method("delayed", RULES[0]), updates=12 * n))
    G = 3
    summed = every(UNEVEN, "async_ps", accumulate=G, rules=LINEAR)
    larger = every(UNEVEN, "soft_sync", gradients=G, rules=[replace(rule, lr=G * LR) for rule in LINEAR])
    yield close(f"async_ps, accumulate {G} = soft_sync, K = {G}, lr times {G}, linear rules", "derived", summed, larger)


@asynchronous.check
def ringmaster() -> Iterator[Finding]:
    """No gradient of staleness R or more is applied; where R = 1 only fresh ones are."""
    cluster = Cluster(workers=8, compute=Exponential(1.0))
    for cancel in (False, True):
        for R in (1, 3):
            rows = timed(cluster, method("ringmaster", threshold=R, cancel=cancel), 300).updates
            applied = rows["staleness"][rows["status"] == "applied"]
            statement = f"ringmaster, R = {R}{', cancel' * cancel}: staleness of what is applied"
            yield at_most(statement, "Maranjyan et al. (2025)", R - 1, applied)


@asynchronous.check
def warm_start() -> Iterator[Finding]:
    """One replica alone for a while, then all of them."""
    P, alone = 8, 20
    rows = timed(Cluster(workers=P, compute=Exponential(1.0)), method("async_ps", warm_start=alone), 400).updates
    yield equals(f"async_ps, warm_start {alone}: whose those updates are", DEAN, 0, rows["worker"][:alone])
    yield equals(f"async_ps, warm_start {alone}: staleness of those updates", DEAN, 0, rows["staleness"][:alone])
    contribute = len(np.unique(rows["worker"][alone:]))
    yield equals(f"async_ps, warm_start {alone}: workers that contribute after it", DEAN, P, contribute)


@asynchronous.check
def ramp() -> Iterator[Finding]:
    """A delay that grows linearly and stays where it has come to."""
    rows = timed(ONE, method("delayed", delay=0, ramp_to=8, over=80), 400).updates
    yield equals(
        "delayed, ramp from 0 to 8 over 80 updates: staleness of the first", SRINIVASAN, 0, rows["staleness"][0]
    )
    yield equals("delayed, ramp from 0 to 8 over 80 updates: staleness at last", SRINIVASAN, 8, rows["staleness"][100:])
    flat = every(ONE, "delayed", delay=3, ramp_to=3, over=10)
    yield identical(
        "delayed, ramp from 3 to 3 = delayed, D = 3, every optimiser", SRINIVASAN, flat, every(ONE, "delayed", delay=3)
    )
