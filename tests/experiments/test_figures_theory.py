"""Theory drawn beside data is theory's: laws of staleness, stability limits, closed forms of
time.
"""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from ruamel.yaml import YAML

from laggard.experiments import figures
from laggard.experiments.config.config import parse
from laggard.experiments.theory.computation import order_statistic
from laggard.experiments.theory.iteration_time import seconds_per_update, seconds_theory
from laggard.experiments.theory.stability import exact_limit, measured_limit
from laggard.experiments.theory.staleness import staleness_theory
from laggard.simulator.timing.distributions import (
    Constant,
    Exponential,
    Gamma,
    LogNormal,
    Pareto,
    Scaled,
    ShiftedExponential,
    TwoLevelGamma,
    TwoPoint,
    Uniform,
)
from tests.cases import yaml_table

EXPONENTIAL = "compute: {law: exponential, mean: 2}"
SLOW = pytest.mark.slow
FORMS = yaml_table(__file__, "closed_forms.yaml")


def timing(config, updates, **more):
    """A config of the clock alone, as text."""
    return json.dumps({**config, "task": {"model": "timing", **more}, "stop": {"updates": updates}})


@pytest.mark.parametrize(("law", "mean", "config"), FORMS["staleness"], ids=str)
def test_distribution_of_staleness_matches_simulation(bench, law, mean, config):
    """Mean and shares within five standard errors, by batches of rows, which are correlated."""
    run = bench(timing(config, updates=2000))
    theory = staleness_theory(run.config)
    assert theory is not None
    assert (theory.law, theory.mean) == (law, pytest.approx(mean))
    staleness = run.updates.query("status == 'applied'")["staleness"].to_numpy()[400:]
    blocks = np.array_split(staleness, 40)
    assert_near([block.mean() for block in blocks], theory.mean)
    if theory.probabilities is None:
        return
    ks = np.arange(400)
    shares = theory.probabilities(ks)
    assert shares.sum() == pytest.approx(1, abs=1e-6)
    assert shares @ ks == pytest.approx(theory.mean, abs=1e-3)
    for k in (0, 1, 3, 6):
        assert_near([(block == k).mean() for block in blocks], shares[k])


def assert_near(blocks, expected):
    error = np.std(blocks, ddof=1) / math.sqrt(len(blocks))
    assert abs(np.mean(blocks) - expected) <= 5 * error + 1e-9, (np.mean(blocks), expected, error)


def test_run_without_config_has_no_theory():
    assert staleness_theory(SimpleNamespace(name="own")) is None


@pytest.mark.parametrize("config", FORMS["staleness without theory"], ids=str)
def test_no_theory_is_drawn_where_unknown(bench, config):
    run = bench(timing(config, updates=20))
    assert staleness_theory(run.config) is None
    axes = figures.histograms([run]).axes[0]
    assert not any(line.get_label().startswith("theory") for line in axes.lines)
    assert "theory" not in axes.get_title(loc="left")


def test_histogram_draws_the_predicted_distribution(bench):
    run = bench(
        f"cluster: {{workers: 5, {EXPONENTIAL}}}\ntask: {{model: timing}}\nstop: {{updates: 900}}\n"
    )
    axes = figures.histograms([run]).axes[0]
    (curve,) = [line for line in axes.lines if line.get_label() == "theory"]
    ks, shares = curve.get_xydata().T
    np.testing.assert_allclose(shares, 0.2 * 0.8**ks)
    beyond = (run.updates["staleness"] > axes.patches[-1].get_x() + 0.5).sum()
    assert (f"{beyond} beyond the axis" in axes.get_title(loc="left")) == (beyond > 0)
    assert "theory: geometric, mean 4.00" in axes.get_title(loc="left")


QUADRATIC = "cluster: {workers: 1}\ntask: {model: quadratic, curvature: 2.5, initial: 1}\nevaluate: {every_updates: 20}\n"


@pytest.mark.parametrize(
    ("delay", "momentum", "product"),
    [
        (0, 0.0, 2.0),
        (1, 0.0, 1.0),
        (4, 0.0, 0.3473),
        (16, 0.0, 0.09516),
        (0, 0.9, 3.8),
        (4, 0.9, 0.0265),
    ],
)
def test_exact_limit_follows_delay_and_momentum(delay, momentum, product):
    """`tests/theory/test_delayed.py` measures these limits."""
    text = (
        f"{QUADRATIC}algorithm: {{name: delayed, delay: {delay}}}\n"
        f"learning: {{optimizer: sgd, momentum: {momentum}}}\n"
    )
    limit = exact_limit(parse(YAML(typ="safe").load(text)))
    assert limit * 2.5 == pytest.approx(product, rel=2e-3)


def test_exact_limit_of_tridiagonal_follows_from_smoothness():
    text = "cluster: {workers: 1}\nalgorithm: {name: delayed, delay: 1}\nstop: {updates: 1}\n"
    config = parse(YAML(typ="safe").load(text + "task: {model: tridiagonal, dim: 2, shift: [3]}\n"))
    # 1 over the larger eigenvalue of 1/4 (2, -1; -1, 2)
    assert exact_limit(config) == pytest.approx(4 / 3)
    uneven = (
        text.replace("delayed, delay: 1", "sync_ps") + "task: {model: tridiagonal, scale: [2]}\n"
    )
    assert exact_limit(parse(YAML(typ="safe").load(uneven))) is None


def test_exact_limit_is_none_where_conditions_fail(bench):
    for text in (
        "learning: {optimizer: adam}\n",
        "learning: {optimizer: sgd, schedule: {name: cosine, length: 30}}\n",
        "algorithm: {name: delayed, delay: 3, law: poisson}\n",
    ):
        assert exact_limit(bench(QUADRATIC + text + "stop: {updates: 1}\n").config) is None


def test_measured_limit_lies_between_learning_and_failing():
    lrs = np.array([0.001, 0.01, 0.1, 1.0])
    assert measured_limit(lrs, np.array([False, False, True, True]), best=1) == pytest.approx(
        math.sqrt(0.001)
    )
    assert measured_limit(lrs, np.array([True, False, False, True]), best=1) == pytest.approx(
        math.sqrt(0.1)
    )
    assert measured_limit(lrs, np.array([False, False, False, False]), best=2) is None


METHODS = [
    "algorithm: {name: all_reduce, collective: ring}",
    "algorithm: {name: all_reduce, collective: tree}",
    "algorithm: sync_ps",
    "algorithm: sgp",
    "algorithm: {name: sgp, overlap: 1}",
    "algorithm: {name: dpsgd, order: adapt_then_combine}",
    "algorithm: {name: dpsgd, order: combine_then_adapt}",
    "algorithm: d2",
    "algorithm: qg_dsgdm",
    "algorithm: gradient_tracking",
]


@pytest.mark.parametrize("workers", [pytest.param(2, marks=SLOW), 4])
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("method", METHODS)
def test_closed_forms_of_time_match_simulation(bench, method, sharing, workers):
    network = f"{{bandwidth: 8, latency: 0.125, message_bytes: 2, sharing: {sharing}}}"
    cluster = f"cluster: {{workers: {workers}, network: {network}}}"
    run = bench(f"{cluster}\n{method}\ntask: {{model: timing}}\nstop: {{updates: 24}}\n")
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)


# in CI one of each kind: no overlap, a divisor of it, none, and more local steps than overlap
@pytest.mark.parametrize("workers", [pytest.param(1, marks=SLOW), 6])
@pytest.mark.parametrize(
    ("late", "local"),
    [
        (0, 3),
        (1, 1),
        (3, 2),
        (2, 3),
        *(pytest.param(*pair, marks=SLOW) for pair in [(0, 1), (2, 1), (3, 1), (4, 1), (4, 2)]),
    ],
)
@pytest.mark.parametrize("seconds", [1.0, pytest.param(0.3, marks=SLOW), 0.05])
def test_closed_form_of_overlap_sgp_matches_simulation(bench, seconds, late, local, workers):
    """12 gradients of a node are measured, a multiple of H ceil(tau / H), after which waiting
    repeats itself.
    """
    network = "{bandwidth: 8, latency: 0.75, message_bytes: 2, sharing: fifo}"
    cluster = f"cluster: {{workers: {workers}, compute: {{law: constant, mean: {seconds}}}, network: {network}}}"
    method = f"algorithm: {{name: osgp, overlap: {late}, local_steps: {local}}}\n"
    run = bench(f"{cluster}\n{method}task: {{model: timing}}\nstop: {{updates: 25}}\n")
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)
    fair = bench(
        f"{cluster}\n{method}task: {{model: timing}}\nstop: {{updates: 25}}\n".replace(
            "fifo", "fair"
        )
    )
    if seconds_theory(fair) is None:
        assert late > local
        assert local * seconds < 0.25
    else:
        assert seconds_per_update(fair) == pytest.approx(seconds_theory(fair), rel=1e-9)


@pytest.mark.parametrize("workers", [pytest.param(2, marks=SLOW), 6])
@pytest.mark.parametrize(
    "network", ["{latency: 0.125}", "{bandwidth: 8, latency: 0.1, message_bytes: 2, sharing: fifo}"]
)
@pytest.mark.parametrize("costs", [(0.3, 0, 0), (0, 0.2, 0), (0, 0, 0.25), (0.1, 0.05, 0.12)])
def test_asynchronous_closed_form_counts_cost_of_messages(bench, workers, network, costs):
    receive, update, reply = costs
    own = f"receive_seconds: {receive}, apply_seconds: {update}, reply_seconds: {reply}"
    cluster = f"cluster: {{workers: {workers}, network: {network}, {own}}}"
    run = bench(
        f"{cluster}\nalgorithm: async_ps\ntask: {{model: timing}}\nstop: {{updates: {120 * workers + 1}}}\n"
    )
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)


@pytest.mark.parametrize("method", ["async_ps", "sync_ps", "sgp"])
def test_closed_forms_count_latency_of_server_messages(bench, method):
    network = "{bandwidth: 8, latency: 0.125, server_latency: 0.5, message_bytes: 2, sharing: fifo}"
    cluster = f"cluster: {{workers: 3, network: {network}}}"
    run = bench(
        f"{cluster}\nalgorithm: {method}\ntask: {{model: timing}}\nstop: {{updates: 181}}\n"
    )
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)
    cluster = cluster.replace("0.125", "{mean: 0.125}")
    drawn = bench(
        f"{cluster}\nalgorithm: {method}\ntask: {{model: timing}}\nstop: {{updates: 4}}\n"
    )
    assert seconds_theory(drawn) is None


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_recursion_of_p3_counts_latencies_shards_and_layers(bench, order):
    network = (
        "{bandwidth: 7.3, latency: 0.0137, server_latency: 0.031, message_bytes: 2, sharing: %s}"
    )
    method = f"{{name: p3, slice_bytes: 0.17, order: {order}, shards: 2, backward: 1.3}}"
    text = f"algorithm: {method}\ntask: {{model: timing, depth: 5}}\nstop: {{updates: 24}}\n"
    run = bench(f"cluster: {{workers: 3, network: {network % 'fair'}}}\n{text}")
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)
    assert seconds_theory(run) > 1.01
    assert (
        seconds_theory(bench(f"cluster: {{workers: 3, network: {network % 'fifo'}}}\n{text}"))
        is None
    )


@pytest.mark.parametrize(
    ("groups", "sharing", "known"),
    [
        ("{count: 2, trunks: [{switches: [0], to: 1, bandwidth: 2, latency: 0.5}]}", "fair", True),
        ("{count: 4, trunks: [{switches: [0, 1, 2, 3], to: core, oversubscription: 3}]}", "fair", True),
        ("{count: 8, trunks: [{switches: [0, 1, 2, 3, 4, 5, 6, 7], to: core, bandwidth: 2}]}", "fifo", True),
        ("{count: 1}", "fifo", True),
        ("{count: 4, trunks: [{switches: [0, 1, 2, 3], to: core, oversubscription: 3}]}", "fifo", False),
        ("{count: 4, trunks: [{switches: [0, 2], to: a}, {switches: [1, 3], to: b}, {switches: [a], to: b}]}", "fair",
         False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("collective", ["ring", "hierarchical"])
def test_all_reduce_over_trunks_takes_theory_time(bench, groups, sharing, known, collective):
    """In the last tree, ranks of neighbouring groups are in different halves, whose trunk all of
    them share.
    """
    network = (
        f"{{bandwidth: 8, latency: 0.125, message_bytes: 48, sharing: {sharing}, groups: {groups}}}"
    )
    method = f"{{name: all_reduce, collective: {collective}}}"
    run = bench(f"cluster: {{workers: 8, network: {network}}}\nalgorithm: {method}\ntask: {{model: timing}}\n"
                "stop: {updates: 24}\n")  # fmt: skip
    if known or (collective == "ring" and sharing == "fifo"):
        assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)
    else:
        assert seconds_theory(run) is None


@pytest.mark.parametrize("size", [0, "null"])
def test_message_has_four_bytes_per_parameter_by_default(bench, size):
    cluster = (
        f"cluster: {{workers: 4, network: {{bandwidth: 8, latency: 0.125, message_bytes: {size}}}}}"
    )
    run = bench(
        f"{cluster}\nalgorithm: all_reduce\ntask: {{model: quadratic, dim: 12}}\nstop: {{updates: 24}}\n"
    )
    transfer = 0 if size == 0 else 4 * 12 / 8
    assert seconds_theory(run) == pytest.approx(1 + 2 * 3 * (0.125 + transfer / 4))
    assert seconds_per_update(run) == pytest.approx(seconds_theory(run), rel=1e-9)


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


def beta_ratio(n, k, shift):
    """E[U_(k:n)^shift], of the k-th smallest of n uniform durations."""
    return math.exp(
        math.lgamma(k + shift) - math.lgamma(k) + math.lgamma(n + 1) - math.lgamma(n + 1 + shift)
    )


@pytest.mark.parametrize(("P", "K"), [(1, 1), (8, 3), (8, 7), (8, 8), (40, 36)])
def test_order_statistics_match_the_textbook(P, K):
    same = [1.0] * P
    above = harmonic(P) - harmonic(P - K)
    assert order_statistic(Exponential(2.0), same, K) == pytest.approx(2 * above, rel=1e-4)
    assert order_statistic(ShiftedExponential(3.0, 2.0), same, K) == pytest.approx(
        3 + 2 * above, rel=1e-4
    )
    assert order_statistic(Gamma(2.0, 1.0), same, K) == pytest.approx(2 * above, rel=1e-4)
    assert order_statistic(Uniform(1.0, 3.0), same, K) == pytest.approx(
        1 + 2 * K / (P + 1), rel=1e-4
    )
    # X = U^(-1/a): the K-th smallest X is the K-th largest U
    pareto = beta_ratio(P, P - K + 1, -1 / 2.5)
    assert order_statistic(Pareto(1.0, 2.5), same, K) == pytest.approx(pareto, rel=1e-4)
    assert order_statistic(Scaled(Constant(2.0), 3.0), same, K) == pytest.approx(6.0)


def test_order_statistics_hold_for_uneven_workers():
    """Two exponential workers: the first of rate mu_1 + mu_2, and the sum of both is the sum of the
    means.
    """
    first, last = (order_statistic(Exponential(1.0), [1.0, 4.0], K) for K in (1, 2))
    assert first == pytest.approx(1 / (1 + 1 / 4), rel=1e-4)
    assert last == pytest.approx(5 - 0.8, rel=1e-4)
    assert order_statistic(Constant(1.0), [5.0, 1.0, 2.0], 2) == 2.0
    assert order_statistic(TwoPoint(1.0, 10.0, 0.05), [1.0] * 6, 6) == pytest.approx(
        1 + 9 * (1 - 0.95**6)
    )
    lognormal = order_statistic(LogNormal(2.0, 0.8), [1.0, 3.0], 1) + order_statistic(
        LogNormal(2.0, 0.8), [1.0, 3.0], 2
    )
    assert lognormal == pytest.approx(8.0, rel=1e-4)
    assert order_statistic(TwoLevelGamma(1.0, 0.1, 0.1), [1.0], 1) is None


@pytest.mark.parametrize("config", FORMS["seconds on a free network"], ids=str)
def test_closed_forms_on_free_network_match_simulation(bench, config):
    """Within five standard errors over seeds, and two thousandths: a run may end within a
    period.
    """
    seconds = []
    for seed in range(5):
        run = bench(timing({**config, "seed": seed}, updates=400))
        seconds.append(seconds_per_update(run))
        if config["cluster"]["compute"]["law"] == "constant":  # all seeds give the same times
            seconds *= 5
            break
    expected = seconds_theory(run)
    error = np.std(seconds, ddof=1) / math.sqrt(len(seconds))
    assert np.mean(seconds) == pytest.approx(expected, abs=5 * error + 2e-3 * expected)


@pytest.mark.parametrize("config", FORMS["seconds of pipelines that are flushed"], ids=str)
def test_closed_forms_of_flushed_pipelines_match_simulation(bench, config):
    """The rate of a model is the sum of those at which its replicas update it, where they do so
    each by itself.
    """
    run = bench(timing(config, updates=24, depth=7))
    first = run.updates[run.updates["target"] == run.updates["target"].max()].drop_duplicates(
        "version"
    )
    own = [(0, first["time"])]
    if "async_pipelines" in str(config):
        own = first.groupby("worker")["time"]
    gaps = np.stack([[np.diff(times).min(), np.diff(times).max()] for _, times in own])
    np.testing.assert_allclose(1 / (1 / gaps).sum(0), seconds_theory(run), rtol=1e-9)


@pytest.mark.parametrize("config", FORMS["seconds without theory"], ids=str)
def test_theory_is_none_without_closed_form(bench, config):
    run = bench(timing(config, updates=3))
    assert seconds_theory(run) is None
