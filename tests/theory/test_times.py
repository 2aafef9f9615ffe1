"""Parameter server: seconds per update."""

import numpy as np
import pytest

from laggard.simulator import Cluster, Network
from laggard.simulator.timing.distributions import (
    Constant,
    Exponential,
    Gamma,
    ShiftedExponential,
    Trace,
    TwoPoint,
    Uniform,
)
from tests.theory.statements import at_most, batch_means, equal, mean_is
from tests.theory.trials import LAWS, harmonic, method, timed, update_times

ORDER, DUTTA = "order statistics", "Dutta et al. (2018)"
SIX, Q = 6, 0.05
SLOWEST = {
    "exponential: H_P / mu": (Exponential(0.5), harmonic(SIX) / 2, 0.5),
    "shifted by Delta: Delta + H_P / mu": (
        ShiftedExponential(2.0, 0.5),
        2 + harmonic(SIX) / 2,
        2.5 * harmonic(SIX),
    ),
    "uniform(a, b): a + (b - a) P / (P + 1)": (Uniform(1.0, 3.0), 1 + 2 * SIX / (SIX + 1), 3.0),
    "two-point (q, s): 1 + (s - 1) (1 - (1 - q)^P)": (
        TwoPoint(1.0, 10.0, Q),
        1 + 9 * (1 - (1 - Q) ** SIX),
        1 + 9 * Q,
    ),
}


@pytest.mark.parametrize("name", SLOWEST)
def test_slowest_duration_follows_each_distribution(name):
    """A synchronous update takes the maximum of P durations."""
    law, expected, wrong = SLOWEST[name]
    seconds = update_times(Cluster(workers=SIX, compute=law), method("sync_ps"), 3000)
    mean_is(f"sync_ps, P = {SIX}, {name}", expected, seconds, source=ORDER, wrong=wrong)


EIGHT, THREE = 8, 3
K_OF_P = harmonic(EIGHT) - harmonic(EIGHT - THREE)
FIRST = {
    "exponential: (H_P - H_(P-K)) / mu": (THREE, Exponential(1.0), DUTTA, K_OF_P, harmonic(EIGHT)),
    "exponential: (H_P - H_1) / mu": (
        EIGHT - 1,
        Exponential(1.0),
        DUTTA,
        harmonic(EIGHT) - 1,
        harmonic(EIGHT),
    ),
    "shifted: Delta + (H_P - H_(P-K)) / mu": (
        THREE,
        ShiftedExponential(2.0, 1.0),
        DUTTA,
        2 + K_OF_P,
        2 + harmonic(EIGHT),
    ),
    "uniform(a, b): a + (b - a) K / (P + 1)": (
        THREE,
        Uniform(1.0, 3.0),
        ORDER,
        1 + 2 * THREE / (EIGHT + 1),
        1 + 2 * THREE / EIGHT,
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_update_takes_kth_duration_with_cancelling(name):
    """All workers restart after every update, which takes the K-th smallest of P durations."""
    K, law, source, expected, wrong = FIRST[name]
    cluster = Cluster(workers=EIGHT, compute=law)
    seconds = update_times(cluster, method("k_sync", wait_for=K, cancel=True), 800)
    mean_is(
        f"k_sync, P = {EIGHT}, wait_for = {K}, cancel, {name}",
        expected,
        seconds,
        source=source,
        wrong=wrong,
    )


@pytest.mark.parametrize(("P", "K", "expected"), [(2, 1, 0.750), (8, 3, 0.832)])
def test_late_gradients_lengthen_updates(P, K, expected):
    """Workers that finish late gradients first lengthen updates. There is no closed form: an
    independent Monte Carlo gives three digits.
    """
    seconds = update_times(
        Cluster(workers=P, compute=Exponential(1.0)), method("k_sync", wait_for=K), 4000
    )
    text, cancelled = f"k_sync, P = {P}, wait_for = {K}, no cancel", harmonic(P) - harmonic(P - K)
    mean_is(
        text,
        expected,
        batch_means(seconds, 200),
        source="Monte Carlo",
        digits=0.0005,
        wrong=cancelled,
    )


def test_groups_take_k_mini_batches():
    """An update takes K mini-batches from any workers, or from K distinct ones."""
    P, K = EIGHT, THREE
    cluster = Cluster(workers=P, compute=Exponential(1.0))
    seconds = update_times(cluster, method("k_batch_sync", gradients=K), 2000)
    text = f"k_batch_sync, P = {P}, K = {K}, exponential: K / (P mu)"
    mean_is(text, K / P, seconds, source=DUTTA, wrong=K_OF_P)
    seconds = update_times(cluster, method("k_batch_sync", gradients=2 * P), 500)
    mean_is(f"k_batch_sync, P = {P}, K = 2 P, exponential: K / (P mu)", 2.0, seconds, source=DUTTA)
    seconds = batch_means(update_times(cluster, method("k_async", wait_for=K), 2000), 100)
    text = f"k_async, P = {P}, K = {K}, exponential: (H_P - H_(P-K)) / mu"
    mean_is(text, K_OF_P, seconds, source=DUTTA, wrong=K / P)


@pytest.mark.parametrize("law", LAWS)
def test_mean_update_time_is_independent_of_distribution(law):
    """If no worker waits, K mini-batches take K / P of a mean duration for every distribution."""
    P, K = EIGHT, THREE
    seconds = update_times(
        Cluster(workers=P, compute=LAWS[law]), method("soft_sync", gradients=K), 4008
    )[8:]
    text = f"soft_sync, P = {P}, K = {K}, {law}: K E[X] / P"
    mean_is(text, K / P, batch_means(seconds), source="Little's law", wrong=K / (P - 1))


def test_k_async_is_no_slower_than_order_statistic():
    """For these distributions running work ends no later than new work: K-async is no slower than
    the order statistic.
    """
    P, K = EIGHT, THREE
    seconds = update_times(
        Cluster(workers=P, compute=Uniform(0.5, 1.5)), method("k_async", wait_for=K), 6000
    )
    text = f"k_async, P = {P}, K = {K}, uniform: at most E[X_(K:P)]"
    at_most(text, 0.5 + K / (P + 1), seconds.mean(), source=DUTTA)


def test_replayed_times_set_update_times(tmp_path):
    """Recorded times t_i(k) are replayed, once with a straggler and once with the median in its
    place.
    """
    rows, law = 200, Gamma(1.0, 0.5)
    seconds = law.draw(np.random.default_rng(7), EIGHT * rows).reshape(EIGHT, rows)
    seconds[-1] *= 5
    text, source = f"all_reduce, P = {EIGHT}, replayed", "derived"
    expected = float(seconds.max(0).sum())
    equal(
        f"{text}: sum_k max_i t_i(k)",
        expected,
        replayed_seconds(seconds, tmp_path / "straggler.csv"),
        source=source,
        wrong=EIGHT * float(seconds.max(1).mean()),
    )
    others = seconds[:-1]
    without = np.vstack([others, np.median(others, axis=0)])
    text += " without a straggler j"
    equal(
        f"{text}: sum_k max_(i != j) t_i(k)",
        float(others.max(0).sum()),
        replayed_seconds(without, tmp_path / "without.csv"),
        source=source,
        wrong=expected,
    )


def replayed_seconds(seconds, file):
    """The time of all-reduce steps that replay compute times `(workers, steps)`."""
    workers, steps = seconds.shape
    rows = [f"{rank},{time}\n" for rank in range(workers) for time in seconds[rank].tolist()]
    file.write_text("worker,seconds\n" + "".join(rows))
    cluster = Cluster(workers=workers, compute=Trace(str(file), "seconds", "replay", "worker"))
    return timed(cluster, method("all_reduce"), steps).progress.time


ALPHA, TRANSFER = 0.125, 0.25
CARDS = {"bandwidth": 12.0, "latency": ALPHA, "message_bytes": 3.0}


@pytest.mark.parametrize(("sharing", "count"), [("fair", "2 P"), ("fifo", "(P + 1)")])
def test_synchronous_round_follows_closed_form(sharing, count):
    """With fifo the scatter over the server's card staggers the workers, so that their gradients
    queue less.
    """
    P = EIGHT
    messages, others = (2 * P, P + 1) if sharing == "fair" else (P + 1, 2 * P)
    cluster = Cluster(workers=P, compute=Constant(1.0), network=Network(sharing=sharing, **CARDS))
    seconds = update_times(cluster, method("sync_ps"), 20)[1:]
    expected, wrong = (1.0 + 2 * ALPHA + number * TRANSFER for number in (messages, others))
    text = f"sync_ps round, P = {P}, {sharing}: t_c + 2 alpha + {count} N beta"
    equal(text, expected, seconds, source="derived", wrong=wrong)


@pytest.mark.parametrize(
    ("compute", "apply_seconds"), [(20.0, 0.0), (1.0, 0.0), (1.0, 0.7), (1.0, 0.1)]
)
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_asynchronous_throughput_reaches_bound(sharing, compute, apply_seconds):
    """The bound is the server's card or its work; constant times with fifo reach it."""
    P = EIGHT
    bound = min(
        P / (compute + 2 * ALPHA + 2 * TRANSFER + apply_seconds), 1 / max(TRANSFER, apply_seconds)
    )
    cluster = Cluster(
        P, Constant(compute), network=Network(sharing=sharing, **CARDS), apply_seconds=apply_seconds
    )
    at = timed(cluster, method("async_ps"), 2000).updates["time"]
    rate, settings = (
        1000 / (at[-1] - at[-1001]),
        f"async_ps, t_c {compute:g}, c {apply_seconds:g}, {sharing}",
    )
    if sharing == "fair":
        at_most(
            f"{settings}: at most min(P / round, 1 / server) updates/s",
            bound,
            rate,
            source="derived",
            rtol=0.001,
        )
    else:
        equal(
            f"{settings}: min(P / round, 1 / server) updates/s",
            bound,
            rate,
            source="derived",
            rtol=0.001,
        )
