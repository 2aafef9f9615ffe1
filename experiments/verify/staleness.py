"""Staleness of the parameter-server family: Little's law, and the whole distribution where it is known."""

from collections.abc import Iterator

from experiments.verify.finding import Family, Finding, at_most, batches, mean_is
from experiments.verify.trials import LAWS, method, settled, timed
from simulator import Cluster, Network
from simulator.laws import Exponential, Gamma

LITTLE, DUTTA, ZHANG = "Little's law", "Dutta et al. (2018)", "Zhang et al. (2016)"
staleness = Family("staleness", "Parameter server: staleness")


@staleness.check
def asynchronous() -> Iterator[Finding]:
    """P - 1 under any law of compute time; "average staleness P" is one too many."""
    P = 16
    for name, law in LAWS.items():
        series = settled(Cluster(workers=P, compute=law), method("async_ps"), 400 * P)
        yield mean_is(f"async_ps, P = {P}, {name}: mean staleness P - 1", LITTLE, P - 1, batches(series), excludes=P)


@staleness.check
def in_groups() -> Iterator[Finding]:
    """K-async and K-batch-async are often mixed up; their staleness differs."""
    P, K = 12, 3
    for name, law in LAWS.items():
        cluster = Cluster(workers=P, compute=law)
        soft = batches(settled(cluster, method("soft_sync", gradients=K), 3000))
        statement = f"soft_sync, P = {P}, K = {K}, {name}: mean staleness (P - 1) / K"
        yield mean_is(statement, LITTLE, (P - 1) / K, soft, excludes=P / K)
        distinct = batches(settled(cluster, method("k_async", wait_for=K), 3000))
        statement = f"k_async, P = {P}, K = {K}, {name}: mean staleness P / K - 1"
        yield mean_is(statement, LITTLE, P / K - 1, distinct, excludes=(P - 1) / K)


@staleness.check
def summed() -> Iterator[Finding]:
    """Where G pushes make an update, staleness in updates is a G-th; Downpour's is counted in pushes."""
    P, G = 12, 3
    for name, law in LAWS.items():
        series = batches(settled(Cluster(workers=P, compute=law), method("async_ps", accumulate=G), 3000))
        statement = f"async_ps, P = {P}, accumulate {G}, {name}: (P - 1) / G"
        yield mean_is(statement, LITTLE, (P - 1) / G, series, excludes=P / G)


@staleness.check
def downpour() -> Iterator[Finding]:
    """A fetch that rides on every push costs nothing; rarer fetches grow older by the pushes between them."""
    P = 8
    for push, fetch in [(1, 1), (3, 3), (1, 4), (2, 4)]:
        expected = P * (fetch / push + 1) / 2 - 1
        form = "P - 1" if push == fetch else "P (b / a + 1) / 2 - 1"
        for name, law in LAWS.items():
            cluster = Cluster(workers=P, compute=law)
            series = batches(settled(cluster, method("async_ps", n_push=push, n_fetch=fetch), 4000))
            statement = f"async_ps, P = {P}, n_push {push}, n_fetch {fetch}, {name}: {form}"
            yield mean_is(statement, LITTLE, expected, series, excludes=P if push == fetch else P - 1)


@staleness.check
def drawn() -> Iterator[Finding]:
    """A delay that is drawn: as many gradients come out of the queue as go in, so that the means agree."""
    for law in ("uniform", "poisson", "geometric"):
        series = timed(Cluster(workers=1), method("delayed", delay=6, law=law), 20_000).updates["staleness"]
        yield mean_is(f"delayed, D = 6, {law}: mean staleness D", LITTLE, 6, batches(series[500:], 100), excludes=7)


@staleness.check
def synchronous() -> Iterator[Finding]:
    """Methods that take gradients of the present weights alone apply no stale one, though news takes its time."""
    cluster = Cluster(workers=8, compute=Exponential(1.0), network=Network(latency=0.1))
    for name, algorithm in [
        ("sync_ps", method("sync_ps")),
        ("sync_ps, wait_for = 5", method("sync_ps", wait_for=5)),
        ("sync_ps, wait_for = 5, cancel", method("sync_ps", wait_for=5, cancel=True)),
        ("k_batch_sync, K = 5", method("k_batch_sync", gradients=5)),
    ]:
        yield at_most(f"{name}, P = 8, exponential: no staleness", DUTTA, 0, settled(cluster, algorithm, 500))


@staleness.check
def geometric() -> Iterator[Finding]:
    """Exponential times forget: each update is any worker's with probability 1 / P, so that staleness is geometric."""
    P = 8
    series = settled(Cluster(workers=P, compute=Exponential(1.0)), method("async_ps"), 60_000)
    for k in (0, 1, 5, 20):
        statement = f"async_ps, P = {P}, exponential: Pr(staleness = {k}) = (1/P) (1 - 1/P)^{k}"
        yield mean_is(statement, "memorylessness", (1 / P) * (1 - 1 / P) ** k, batches(series == k, 200))


@staleness.check
def bounded() -> Iterator[Finding]:
    """n-softsync's "staleness at most 2n" is a fact of low variance."""
    n = 30
    for name, law, expected, digits in [
        ("cv 0.1", Gamma(1.0, 0.1), 0.0, 0.0),
        ("cv 0.3", Gamma(1.0, 0.3), 0.0023, 0.00005),
        ("exponential", Exponential(1.0), (29 / 30) ** 61, 0.0),
    ]:
        beyond = batches(
            settled(Cluster(workers=n, compute=law), method("soft_sync", gradients=1), 60_000) > 2 * n, 200
        )
        wrong = {"excludes": 0.0} if expected else {}
        statement = f"soft_sync, n = P = {n}, {name}: Pr(staleness > 2n)"
        yield mean_is(statement, ZHANG if not expected else "Monte Carlo" if digits else "memorylessness", expected,
                      beyond, digits=digits, **wrong)  # fmt: skip
