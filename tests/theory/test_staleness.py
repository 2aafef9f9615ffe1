"""Parameter server: staleness."""

import pytest

from laggard.simulator import Cluster, Network
from laggard.simulator.timing.distributions import Exponential, Gamma
from tests.cases import quick
from tests.theory.statements import at_most, batch_means, mean_is
from tests.theory.trials import LAWS, method, settled, timed

LITTLE, DUTTA, ZHANG = "Little's law", "Dutta et al. (2018)", "Zhang et al. (2016)"
under_any_law = pytest.mark.parametrize("law", LAWS)


@under_any_law
def test_mean_staleness_is_workers_minus_one(law):
    """The mean is P - 1 for every distribution of compute times; "average staleness P" is one too
    many.
    """
    P = 16
    series = settled(Cluster(workers=P, compute=LAWS[law]), method("async_ps"), 400 * P)
    mean_is(
        f"async_ps, P = {P}, {law}: mean staleness P - 1",
        P - 1,
        batch_means(series),
        source=LITTLE,
        wrong=P,
    )


@under_any_law
def test_staleness_in_groups_depends_on_method(law):
    """K-async and K-batch-async are often mixed up; their staleness differs."""
    P, K = 12, 3
    cluster = Cluster(workers=P, compute=LAWS[law])
    soft = batch_means(settled(cluster, method("soft_sync", gradients=K), 3000))
    text = f"soft_sync, P = {P}, K = {K}, {law}: mean staleness (P - 1) / K"
    mean_is(text, (P - 1) / K, soft, source=LITTLE, wrong=P / K)
    distinct = batch_means(settled(cluster, method("k_async", wait_for=K), 3000))
    text = f"k_async, P = {P}, K = {K}, {law}: mean staleness P / K - 1"
    mean_is(text, P / K - 1, distinct, source=LITTLE, wrong=(P - 1) / K)


@under_any_law
def test_accumulation_divides_staleness(law):
    """If G pushes make an update, staleness in updates is divided by G; Downpour counts in pushes."""
    P, G = 12, 3
    series = batch_means(
        settled(Cluster(workers=P, compute=LAWS[law]), method("async_ps", accumulate=G), 3000)
    )
    text = f"async_ps, P = {P}, accumulate {G}, {law}: (P - 1) / G"
    mean_is(text, (P - 1) / G, series, source=LITTLE, wrong=P / G)


@pytest.mark.parametrize("law", quick(LAWS, only=["exponential"]))
@pytest.mark.parametrize(("push", "fetch"), [(1, 1), (3, 3), (1, 4), (2, 4)])
def test_rarer_fetches_add_staleness(push, fetch, law):
    """A fetch with every push adds no staleness; rarer fetches add the pushes between them."""
    P = 8
    expected = P * (fetch / push + 1) / 2 - 1
    cluster = Cluster(workers=P, compute=LAWS[law])
    series = batch_means(settled(cluster, method("downpour", n_push=push, n_fetch=fetch), 4000))
    text = f"downpour, P = {P}, n_push {push}, n_fetch {fetch}, {law}: P (b / a + 1) / 2 - 1"
    mean_is(text, expected, series, source=LITTLE, wrong=P if push == fetch else P - 1)


@pytest.mark.parametrize("law", ["uniform", "poisson", "geometric"])
def test_mean_staleness_equals_mean_delay(law):
    """As many gradients leave the queue as enter it, so that mean staleness equals the mean delay."""
    series = timed(Cluster(workers=1), method("delayed", delay=6, law=law), 20_000).updates[
        "staleness"
    ]
    text = f"delayed, D = 6, {law}: mean staleness D"
    mean_is(text, 6, batch_means(series[500:], 100), source=LITTLE, wrong=7)


SYNCHRONOUS = {
    "sync_ps": ("sync_ps", {}),
    "k_sync, wait_for = 5": ("k_sync", {"wait_for": 5}),
    "k_sync, wait_for = 5, cancel": ("k_sync", {"wait_for": 5, "cancel": True}),
    "k_batch_sync, K = 5": ("k_batch_sync", {"gradients": 5}),
    "malenia": ("malenia", {}),
}


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_synchronous_methods_apply_no_stale_gradient(name):
    """Methods that apply only gradients of the present weights have staleness 0, also on a slow
    network.
    """
    cluster = Cluster(workers=8, compute=Exponential(1.0), network=Network(latency=0.1))
    algorithm, settings = SYNCHRONOUS[name]
    stale = settled(cluster, method(algorithm, **settings), 500)
    at_most(f"{name}, P = 8, exponential: no staleness", 0, stale, source=DUTTA)


def test_exponential_times_give_geometric_staleness():
    """Exponential times are memoryless: each worker makes the next update with probability 1 / P,
    so staleness is geometric.
    """
    P = 8
    series = settled(Cluster(workers=P, compute=Exponential(1.0)), method("async_ps"), 60_000)
    for k in (0, 1, 5, 20):
        text = f"async_ps, P = {P}, exponential: Pr(staleness = {k}) = (1/P) (1 - 1/P)^{k}"
        mean_is(
            text, (1 / P) * (1 - 1 / P) ** k, batch_means(series == k, 200), source="memorylessness"
        )


BEYOND = {
    "cv 0.1": (Gamma(1.0, 0.1), ZHANG, 0.0, 0.0),
    "cv 0.3": (Gamma(1.0, 0.3), "Monte Carlo", 0.0023, 0.00005),
    "exponential": (Exponential(1.0), "memorylessness", (29 / 30) ** 61, 0.0),
}


@pytest.mark.parametrize("name", BEYOND)
def test_softsync_bound_needs_low_variance(name):
    """The bound "staleness at most 2n" of n-softsync holds only for low variance."""
    n, (law, source, expected, digits) = 30, BEYOND[name]
    stale = settled(Cluster(workers=n, compute=law), method("soft_sync", gradients=1), 30_000)
    text, wrong = f"soft_sync, n = P = {n}, {name}: Pr(staleness > 2n)", 0.0 if expected else None
    mean_is(
        text, expected, batch_means(stale > 2 * n, 100), source=source, digits=digits, wrong=wrong
    )
