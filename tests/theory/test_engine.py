"""The engine: what holds for every method."""

from dataclasses import fields
from functools import cache, partial

import pytest
import torch

from laggard.simulator import ALGORITHMS, Cluster
from laggard.simulator.testing import IDENTITIES, trial_of
from laggard.simulator.testing.fingerprint import fingerprint, fingerprints_elsewhere
from laggard.simulator.timing.distributions import Gamma
from tests.cases import quick
from tests.theory.statements import Statement, check, close, equal
from tests.theory.trials import (
    UNEVEN,
    brief,
    every,
    method,
    perceptron,
    timed,
)

SWITCHED = {
    f"{name}, {field.name} {not field.default}": partial(
        method, name, **{field.name: not field.default}
    )
    for name, kind in ALGORITHMS.items()
    for field in fields(kind)
    if isinstance(field.default, bool)
}
"""Every method with one of its switches turned."""
METHODS = {
    **ALGORITHMS,
    **SWITCHED,
    "k_sync, wait_for 3": partial(method, "k_sync", wait_for=3),
    "k_sync, wait_for 3, cancel": partial(method, "k_sync", wait_for=3, cancel=True),
    "k_batch_sync, K 3": partial(method, "k_batch_sync", gradients=3),
    "k_async, K 3": partial(method, "k_async", wait_for=3),
    "soft_sync, K 3": partial(method, "soft_sync", gradients=3),
    "delayed, D 3": partial(method, "delayed", delay=3),
    "delayed, poisson": partial(method, "delayed", delay=3, law="poisson"),
    "downpour, n_push 2, n_fetch 4": partial(method, "downpour", n_push=2, n_fetch=4),
    "downpour, warm start": partial(method, "downpour", warm_start=5),
    "downpour, sync_every 4": partial(method, "downpour", sync_every=4),
    "async_ps, accumulate 3": partial(method, "async_ps", accumulate=3),
    "ssp, bound 0": partial(method, "ssp", bound=0),
    "async_ps, 2 shards": partial(method, "async_ps", shards=2),
    "local_sgd, 2 shards": partial(method, "local_sgd", local_steps=2, shards=2),
    "all_reduce, tree": partial(method, "all_reduce", collective="tree"),
    "dpsgd, adapt_then_combine": partial(method, "dpsgd", order="adapt_then_combine"),
    "sgp, overlap 2": partial(method, "sgp", overlap=2),
    "ringmaster, R 2, cancel": partial(method, "ringmaster", threshold=2, cancel=True),
}
"""Every method with its defaults, with its switches turned, and some with other settings."""
HASHES = "the seed of Python's hashes changes nothing"
HERE = [name for name in IDENTITIES if name != HASHES]
STEPS = 6


@cache
def brief_trials():
    """A short trial of every method; identities share its runs."""
    return {name: trial_of(brief(name), updates=STEPS) for name in ALGORITHMS}


@pytest.mark.parametrize("name", HERE)
def test_methods_keep_identities(name):
    """For each identity of `laggard.simulator.testing`, count the methods that satisfy it."""
    check_identity(name, brief_trials(), STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_variants_keep_identities(name):
    """Over more updates, with other settings too."""
    updates = 4 * STEPS
    trials = {each: trial_of(make, updates=updates) for each, make in METHODS.items()}
    check_identity(name, trials, updates)


def check_identity(name, trials, updates):
    """State for how many of the methods an identity holds; all must keep it."""
    broken = {each: how_broken(name, trial) for each, trial in trials.items()}
    all_but(
        f"{name}, {updates} updates",
        {each: how for each, how in broken.items() if how},
        len(trials),
    )


def how_broken(name, trial):
    """How a method breaks an identity; empty where it does not."""
    try:
        IDENTITIES[name](trial)
    except AssertionError as error:
        return str(error)
    return ""


def all_but(text, broken, methods):
    """A statement about so many methods, of which those in `broken` are exceptions."""
    statement = Statement(
        f"{text}: methods", "laggard.simulator.testing", methods, methods - len(broken)
    )
    assert not broken, f"{statement}, but not {broken}"
    check(statement)


def one_method(identity, name="async_ps"):
    """The statement that every method keeps an identity, asked of one."""
    broken = how_broken(identity, trial_of(METHODS[name], updates=STEPS))
    all_but(identity, {name: broken} if broken else {}, methods=1)


@pytest.mark.slow
@pytest.mark.parametrize("updates", [STEPS, 60])
def test_hash_seed_changes_no_bit(updates):
    """Another process with another hash seed gives the same bits."""
    trials = {each: trial_of(make, updates=updates) for each, make in METHODS.items()}
    there = fingerprints_elsewhere(list(trials.values()))
    assert there is not None
    pairs = zip(trials.items(), there, strict=True)
    others = {each: "other bits" for (each, trial), its in pairs if fingerprint(trial.run()) != its}
    all_but(f"{HASHES}, {updates} updates", others, len(METHODS))


def durations(workers, algorithm):
    """The first 30 durations of worker 0."""
    rows = timed(Cluster(workers=workers, compute=Gamma(1.0, 0.5)), algorithm, 400).updates
    return (rows["computed"] - rows["started"])[rows["worker"] == 0][:30]


def test_worker_keeps_durations_in_other_runs():
    """Adding a worker or changing the method does not change the durations of worker 0."""
    alone = durations(8, method("async_ps"))
    for name, other in [
        ("with a ninth worker", durations(9, method("async_ps"))),
        ("under sync_ps", durations(8, method("sync_ps"))),
    ]:
        equal(
            f"the first 30 durations of worker 0 of 8, {name}: the same",
            0.0,
            other - alone,
            source="streams",
        )


@pytest.mark.parametrize("backend", ["vmap", "unfold", "unfold-graphs"])
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    quick([(torch.float64, 1e-12), (torch.float32, 1e-6)], only=[(torch.float64, 1e-12)]),
    ids=["double", "single"],
)
def test_batched_gradients_equal_loop(dtype, rtol, backend):
    """Gradients of one batched call, as on a GPU, equal those of a loop."""
    batched, loop = (
        every(UNEVEN, "async_ps", perceptron(dtype=dtype, backend=way))
        for way in (backend, "threads")
    )
    text = f"{str(dtype)[6:]}: a batched call by {backend} = a loop, every optimiser"
    close(text, batched, loop, source="rounding", rtol=rtol)
