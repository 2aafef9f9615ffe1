"""Seconds per update of the parameter-server family: order statistics, Little's law, and one slow worker."""

from collections.abc import Iterator

from experiments.verify.finding import Family, Finding, at_most, batches, equals, mean_is
from experiments.verify.trials import LAWS, harmonic, method, timed, update_times
from simulator import Cluster, Network, Stop, simulate
from simulator.laws import Constant, Exponential, ShiftedExponential, TwoPoint, Uniform
from simulator.slowdowns import Factor

ORDER, DUTTA, CHEN = "order statistics", "Dutta et al. (2018)", "Chen et al. (2016)"
times = Family("times", "Parameter server: seconds per update")


@times.check
def slowest_of_all() -> Iterator[Finding]:
    """A synchronous update takes the largest of P durations."""
    for P in (2, 8, 16):
        seconds = update_times(Cluster(workers=P, compute=Exponential(0.5)), method("sync_ps"), 3000)
        yield mean_is(f"sync_ps, P = {P}, exponential(mu): H_P / mu", ORDER, harmonic(P) / 2, seconds, excludes=0.5)
    P, q = 6, 0.05
    for name, law, expected, wrong in [
        ("shifted by Delta: Delta + H_P / mu", ShiftedExponential(2.0, 0.5), 2 + harmonic(P) / 2, 2.5 * harmonic(P)),
        ("uniform(a, b): a + (b - a) P / (P + 1)", Uniform(1.0, 3.0), 1 + 2 * P / (P + 1), 3.0),
        (
            "two-point (q, s): 1 + (s - 1) (1 - (1 - q)^P)",
            TwoPoint(1.0, 10.0, q),
            1 + 9 * (1 - (1 - q) ** P),
            1 + 9 * q,
        ),
    ]:
        seconds = update_times(Cluster(workers=P, compute=law), method("sync_ps"), 4000)
        yield mean_is(f"sync_ps, P = {P}, {name}", ORDER, expected, seconds, excludes=wrong)


@times.check
def first_k_cancelled() -> Iterator[Finding]:
    """Fresh starts for all after every update: the K-th of P durations."""
    for P, K in [(8, 3), (8, 7)]:
        seconds = update_times(
            Cluster(workers=P, compute=Exponential(1.0)), method("sync_ps", wait_for=K, cancel=True), 2000
        )
        statement = f"sync_ps, P = {P}, wait_for = {K}, cancel, exponential: (H_P - H_(P-K)) / mu"
        yield mean_is(statement, DUTTA, harmonic(P) - harmonic(P - K), seconds, excludes=harmonic(P))
    P, K = 8, 3
    shifted = Cluster(workers=P, compute=ShiftedExponential(2.0, 1.0))
    seconds = update_times(shifted, method("sync_ps", wait_for=K, cancel=True), 2000)
    statement = f"sync_ps, P = {P}, wait_for = {K}, cancel, shifted by Delta: Delta + (H_P - H_(P-K)) / mu"
    yield mean_is(statement, DUTTA, 2 + harmonic(P) - harmonic(P - K), seconds, excludes=2 + harmonic(P))
    seconds = update_times(
        Cluster(workers=P, compute=Uniform(1.0, 3.0)), method("sync_ps", wait_for=K, cancel=True), 2000
    )
    statement = f"sync_ps, P = {P}, wait_for = {K}, cancel, uniform(a, b): a + (b - a) K / (P + 1)"
    yield mean_is(statement, ORDER, 1 + 2 * K / (P + 1), seconds, excludes=1 + 2 * K / P)
    N, b = 96, 4
    backed = update_times(
        Cluster(workers=N + b, compute=Exponential(1.0)), method("sync_ps", wait_for=N, cancel=True), 600
    )
    statement = f"{N} of {N} + {b} workers, cancel, exponential: (H_(N+b) - H_b) / mu"
    yield mean_is(statement, CHEN, harmonic(N + b) - harmonic(b), backed, excludes=harmonic(N))


@times.check
def first_k_finishing() -> Iterator[Finding]:
    """Late ones that finish first take longer; no closed form, three digits of an independent Monte Carlo."""
    for P, K, expected in [(2, 1, 0.750), (8, 3, 0.832)]:
        seconds = update_times(Cluster(workers=P, compute=Exponential(1.0)), method("sync_ps", wait_for=K), 20_000)
        statement, cancelled = f"sync_ps, P = {P}, wait_for = {K}, no cancel", harmonic(P) - harmonic(P - K)
        yield mean_is(statement, "Monte Carlo", expected, batches(seconds, 400), digits=0.0005, excludes=cancelled)


@times.check
def groups() -> Iterator[Finding]:
    """K mini-batches from anyone, or from K workers."""
    P, K = 8, 3
    cluster = Cluster(workers=P, compute=Exponential(1.0))
    distinct = harmonic(P) - harmonic(P - K)
    seconds = update_times(cluster, method("k_batch_sync", gradients=K), 6000)
    yield mean_is(f"k_batch_sync, P = {P}, K = {K}, exponential: K / (P mu)", DUTTA, K / P, seconds, excludes=distinct)
    seconds = update_times(cluster, method("k_batch_sync", gradients=2 * P), 2000)
    yield mean_is(f"k_batch_sync, P = {P}, K = 2 P, exponential: K / (P mu)", DUTTA, 2.0, seconds)
    seconds = batches(update_times(cluster, method("k_async", wait_for=K), 6000), 100)
    yield mean_is(
        f"k_async, P = {P}, K = {K}, exponential: (H_P - H_(P-K)) / mu", DUTTA, distinct, seconds, excludes=K / P
    )
    for name, law in LAWS.items():
        seconds = batches(update_times(Cluster(workers=P, compute=law), method("soft_sync", gradients=K), 4008)[8:])
        statement = f"soft_sync, P = {P}, K = {K}, {name}: K E[X] / P"
        yield mean_is(statement, "Little's law", K / P, seconds, excludes=K / (P - 1))


@times.check
def new_longer_than_used() -> Iterator[Finding]:
    """A computation that is under way ends no later than a new one: K-async is no slower than the order statistic."""
    P, K = 8, 3
    seconds = update_times(Cluster(workers=P, compute=Uniform(0.5, 1.5)), method("k_async", wait_for=K), 6000)
    statement = f"k_async, P = {P}, K = {K}, uniform: at most E[X_(K:P)]"
    yield at_most(statement, DUTTA, 0.5 + K / (P + 1), seconds.mean())


@times.check
def one_slow_worker() -> Iterator[Finding]:
    """Speed-up over one worker: synchronous methods wait for the slow one, asynchronous ones lose it alone."""
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    waiting = timed(cluster, method("sync_ps"), 50).mileage
    statement = f"P = {P}, one worker {s:g} times slower: speed-up of"
    yield equals(f"{statement} sync_ps P / s", "derived", P / s, waiting.gradients / waiting.time)
    going = simulate(cluster, method("async_ps"), stop=Stop(time=1000.0)).mileage
    expected = P - 1 + 1 / s
    yield equals(f"{statement} async_ps P - 1 + 1/s", "derived", expected, going.updates / going.time, excludes=P)


ROUND = {"bandwidth": 12.0, "latency": 0.125, "message_bytes": 3.0}


@times.check
def synchronous_round() -> Iterator[Finding]:
    """A whole round over the server's card: fifo's scatter staggers the workers, so that their gradients queue less."""
    P, transfer, alpha = 8, 0.25, 0.125
    for sharing, messages, wrong in [("fair", 2 * P, P + 1), ("fifo", P + 1, 2 * P)]:
        cluster = Cluster(workers=P, compute=Constant(1.0), network=Network(sharing=sharing, **ROUND))
        expected, other = (1.0 + 2 * alpha + count * transfer for count in (messages, wrong))
        count = "2 P" if sharing == "fair" else "(P + 1)"
        statement = f"sync_ps round, P = {P}, {sharing}: t_c + 2 alpha + {count} N beta"
        yield equals(statement, "derived", expected, update_times(cluster, method("sync_ps"), 20)[1:], excludes=other)


@times.check
def asynchronous_throughput() -> Iterator[Finding]:
    """A server saturates its card or its own work; constant times under fifo reach the bound."""
    P, alpha, transfer = 8, 0.125, 0.25
    for compute, apply_seconds in [(20.0, 0.0), (1.0, 0.0), (1.0, 0.7), (1.0, 0.1)]:
        bound = min(P / (compute + 2 * alpha + 2 * transfer + apply_seconds), 1 / max(transfer, apply_seconds))
        for sharing in ("fair", "fifo"):
            network = Network(sharing=sharing, **ROUND)
            cluster = Cluster(P, Constant(compute), network=network, apply_seconds=apply_seconds)
            at = timed(cluster, method("async_ps"), 4000).updates["time"]
            found, form = (at_most, "at most ") if sharing == "fair" else (equals, "")
            settings = f"async_ps, t_c {compute:g}, c {apply_seconds:g}, {sharing}"
            statement = f"{settings}: {form}min(P / round, 1 / server) updates/s"
            yield found(statement, "derived", bound, 2000 / (at[-1] - at[-2001]), 0.001)
