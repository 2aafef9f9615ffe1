"""Probes against recursions written out by hand."""

from time import perf_counter

import numpy as np
import pytest

from laggard import load
from laggard.experiments.claims.probes import closeness, fit_momentum, momentum, run_probe
from laggard.experiments.claims.statistics import best_setting
from laggard.experiments.config.grid import RunSpec

DELAYED = """\
cluster: {workers: 1}
algorithm: {name: delayed, delay: 2}
task: {model: quadratic, curvature: 1.0}
learning: {lr: 0.1, compensation: {name: dc_asgd_c, strength: STRENGTH}}
stop: {updates: 12}
"""


def by_hand(strength, lr=0.1, delay=2, updates=12):
    """w <- w - lr (g + strength g^2 (w - w_read)) with g = w_read, and in each quarter the mean distances to g = w."""
    models, ours, theirs = [1.0], [], []
    for step in range(updates):
        now, read = models[step], models[max(0, step - delay)]
        corrected = read + strength * read**2 * (now - read)
        ours.append(abs(corrected - now))
        theirs.append(abs(read - now))
        models.append(now - lr * corrected)
    return [np.mean(ours[i : i + 3]) / np.mean(theirs[i : i + 3]) for i in range(0, updates, 3)]


@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
def test_closeness_is_that_of_the_recursion(toy, strength):
    config = load(toy(text=DELAYED.replace("STRENGTH", str(strength))))
    rows = closeness(config, RunSpec(config).arguments())
    assert [row["quarter"] for row in rows] == [1, 2, 3, 4]
    np.testing.assert_allclose([row["number"] for row in rows], by_hand(strength), rtol=1e-4)


def test_a_grid_is_probed_once_and_carries_its_axes(toy, tmp_path, monkeypatch):
    text = (
        DELAYED.replace("STRENGTH", "0.5")
        + "sweep: {algorithm.delay: [1, 2], learning.compensation.strength: [0.0, 2.0]}\n"
    )
    config = load(toy(text=text))
    first = run_probe("closeness", config, tmp_path)
    assert dict(first.sizes) == {"quarter": 4, "delay": 2, "strength": 2}
    np.testing.assert_allclose(first.sel(strength=0.0), 1.0)
    np.testing.assert_allclose(first.sel(strength=2.0, delay=2), by_hand(2.0), rtol=1e-4)
    monkeypatch.setattr("laggard.experiments.claims.probes.PROBES", {})  # nothing is simulated again
    assert run_probe("closeness", config, tmp_path).equals(first)


def test_a_member_that_diverges_is_infinitely_far_away(toy, tmp_path):
    """Else its mean would be that of the quarters before, and the strength that diverges might be chosen."""
    text = DELAYED.replace("STRENGTH", "1.0").replace("updates: 12", "updates: 400")
    config = load(toy(text=text + "sweep: {learning.lr: [0.1, 30.0], seeds: 2}\n"))
    found = run_probe("closeness", config, tmp_path)
    assert np.isinf(found.sel(lr=30.0, quarter=4)).all()
    whole = found.mean("quarter")
    assert best_setting(whole, "lr", chosen_on=1, lowest=True).values.tolist() == whole.sel(lr=0.1)[1:].values.tolist()


def test_a_heavy_ball_has_the_momentum_that_it_was_given():
    """w(t+1) = w(t) + 0.6 (w(t) - w(t-1)) - 0.4 w(t) + noise: autocovariances obey it from lag 1 on."""
    rng = np.random.default_rng(1)
    models = np.zeros((20_000, 16))
    for t in range(1, len(models) - 1):
        step = 0.6 * (models[t] - models[t - 1]) - 0.4 * models[t]
        models[t + 1] = models[t] + step + rng.standard_normal(16)
    assert fit_momentum(models, 4) == pytest.approx(0.6, abs=0.02)


def test_a_delay_of_one_has_a_momentum_of_lr_times_curvature(toy):
    """w(t+1) = w(t) - a w(t-1) + noise is a heavy ball with mu = a, here 0.3: two workers that take turns."""
    text = """\
cluster: {workers: 2, compute: {law: constant, mean: 1.0}}
algorithm: {name: async_ps}
task: {model: quadratic, dim: 64, initial: 0.0, noise: 1.0}
learning: {lr: 0.3}
stop: {updates: 3000}
"""
    config = load(toy(text=text))
    (row,) = momentum(config, RunSpec(config).arguments())
    assert row["number"] == pytest.approx(0.3, abs=0.02)


def test_a_probe_says_how_it_was_made_as_a_run_does(toy, tmp_path):
    text = """\
cluster: {workers: 2, compute: {law: constant, mean: 1.0}}
algorithm: {name: async_ps}
task: {model: quadratic, dim: 4, noise: 1.0}
stop: {updates: 50}
sweep: {cluster.workers: [2, 3]}
"""
    config = load(toy(text=text))
    began = perf_counter()
    made = run_probe("momentum", config, tmp_path).attrs["made"]
    assert len(made) == 2
    assert 0 < sum(each["wall_seconds"] for each in made.values()) < perf_counter() - began
    assert {each["device"] for each in made.values()} == {"cpu"}
    assert run_probe("momentum", config, tmp_path).attrs["made"] == made
