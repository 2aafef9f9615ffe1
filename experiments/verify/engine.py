"""The engine: what holds for every method, whatever it learns and on whichever cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from experiments.verify.finding import Family, Finding, close, equals, identical
from experiments.verify.trials import RULES, UPDATES, every, learnt, method, optimizer_of, timed
from models import MLP, Quadratic, Supervised, synthetic
from simulator import ALGORITHMS, Algorithm, Cluster, Rule, Stop, simulate
from simulator.laws import Gamma
from simulator.testing import IDENTITIES, trial_of
from simulator.testing.elsewhere import fingerprint, fingerprints_elsewhere

METHODS: Mapping[str, Callable[[Rule], Algorithm]] = {
    **ALGORITHMS,
    "sync_ps, wait_for 3": partial(method, "sync_ps", wait_for=3),
    "sync_ps, wait_for 3, cancel": partial(method, "sync_ps", wait_for=3, cancel=True),
    "k_batch_sync, K 3": partial(method, "k_batch_sync", gradients=3),
    "k_async, K 3": partial(method, "k_async", wait_for=3),
    "soft_sync, K 3": partial(method, "soft_sync", gradients=3),
    "delayed, D 3": partial(method, "delayed", delay=3),
    "delayed, poisson": partial(method, "delayed", delay=3, law="poisson"),
    "async_ps, n_push 2, n_fetch 4": partial(method, "async_ps", n_push=2, n_fetch=4),
    "async_ps, warm start": partial(method, "async_ps", warm_start=5),
    "async_ps, sync_every 4": partial(method, "async_ps", sync_every=4),
    "async_ps, accumulate 3": partial(method, "async_ps", accumulate=3),
    "ssp, bound 0": partial(method, "ssp", bound=0),
    "async_ps, 2 shards": partial(method, "async_ps", shards=2),
    "sync_ps, weights, 2 shards": partial(method, "sync_ps", average="weights", local_steps=2, shards=2),
    "easgd, together": partial(method, "easgd", local_steps=2, together=True),
    "all_reduce, tree": partial(method, "all_reduce", collective="tree"),
    "dpsgd, adapt_then_combine": partial(method, "dpsgd", order="adapt_then_combine"),
    "sgp, overlap 2": partial(method, "sgp", overlap=2),
    "ringmaster, R 2, cancel": partial(method, "ringmaster", threshold=2, cancel=True),
}
"""Every method with its defaults, and some with other settings."""

engine = Family("engine", "The engine: what holds for every method")
HASHES = "the seed of Python's hashes changes nothing"


def holds_for_all(name: str) -> Iterator[Finding]:
    """One of `simulator.testing`'s identities, for every method."""
    broken = []
    for each, make in METHODS.items():
        try:
            IDENTITIES[name](trial_of(make, updates=UPDATES))
        except AssertionError:
            broken.append(each)
    yield all_but(name, broken)


def all_but(statement: str, broken: list[str]) -> Finding:
    """Of all methods, those for which a statement holds; it names the others."""
    named = "; ".join(broken[:5]) + f" and {len(broken) - 5} more" * (len(broken) > 5)
    said = f"{statement}: methods" + (f", but not of {named}" if broken else "")
    return Finding(said, "simulator.testing", len(METHODS), len(METHODS) - len(broken))


for _name in IDENTITIES:
    if _name != HASHES:
        engine.checks[_name] = partial(holds_for_all, _name)


@engine.check
def hash_seeds() -> Iterator[Finding]:
    """Another process, whose sets of texts have another order, gets the same bits."""
    trials = {each: trial_of(make, updates=UPDATES) for each, make in METHODS.items()}
    there = fingerprints_elsewhere(list(trials.values())) or [""] * len(trials)
    pairs = zip(trials.items(), there, strict=True)
    yield all_but(HASHES, [each for (each, made), its in pairs if fingerprint(made.run()) != its])


@engine.check
def common_random_numbers() -> Iterator[Finding]:
    """Another worker, or another method, leaves worker 0's durations as they were: methods are compared on the same."""

    def durations(workers: int, algorithm: Algorithm) -> np.ndarray:
        rows = timed(Cluster(workers=workers, compute=Gamma(1.0, 0.5)), algorithm, 400).updates
        mine = rows["worker"] == 0
        return (rows["computed"] - rows["started"])[mine][:30]

    alone = durations(8, method("async_ps"))
    for name, other in [
        ("with a ninth worker", durations(9, method("async_ps"))),
        ("under sync_ps", durations(8, method("sync_ps"))),
    ]:
        yield equals(f"the first 30 durations of worker 0 of 8, {name}: the same", "streams", 0.0, other - alone)


@engine.check
def backends() -> Iterator[Finding]:
    """Gradients in one batched call, as on a GPU, are those of a loop."""
    for dtype, rtol in [(torch.float64, 1e-12), (torch.float32, 1e-6)]:
        data, network = synthetic(samples=120, features=6, classes=3), MLP(hidden=(5,)).build
        loop, *others = (
            Supervised(network, data, batch=8, dtype=dtype, device="cpu", threads=1, backend=backend)
            for backend in ("threads", "vmap", "unfold", "unfold-graphs")
        )
        cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
        expected = every(cluster, "async_ps", loop)
        for task in others:
            text = f"{str(dtype)[6:]}: a batched call by {task.backend} = a loop, every optimiser"
            yield close(text, "rounding", every(cluster, "async_ps", task), expected, rtol)


@engine.check
def single_precision() -> Iterator[Finding]:
    """Hyper-parameters are combined in double precision and rounded once, alone as in an ensemble."""
    cluster, rates = Cluster(workers=3, compute=Gamma(1.0, 0.5)), (0.003, 0.01, 0.03)
    task = Quadratic(curvature=1.0, dim=7, condition=30.0, noise=0.3, epoch=50)
    for rule in RULES:
        lr = torch.tensor(rates, dtype=torch.float64)[:, None]
        run = simulate(cluster, method("async_ps", replace(rule, lr=lr)), task, stop=Stop(updates=UPDATES), ensemble=3)
        alone = [learnt(cluster, method("async_ps", replace(rule, lr=rate)), task)[0] for rate in rates]
        yield identical(
            f"float32, {optimizer_of(rule)}: an ensemble of learning rates = runs alone",
            "rounding",
            list(run.weights),
            alone,
        )
