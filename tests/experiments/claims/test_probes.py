"""Probes against recursions written out by hand."""

from time import perf_counter

import numpy as np
import pytest
import torch

from laggard import load
from laggard.experiments.claims.optima import best_setting
from laggard.experiments.claims.probes import closeness, expansions, fit_momentum, leaving, minima, momentum, run_probe
from laggard.experiments.config.grid import RunSpec
from laggard.models import MLP, Supervised, synthetic

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


def test_the_exact_hessian_gives_a_quadratic_the_fresh_gradient(toy, monkeypatch):
    """And the other forms those of the recursion along a run without compensation; g^2 is g g^T of one weight."""
    config = load(toy(text=DELAYED.replace("STRENGTH", "0.0")))
    monkeypatch.setattr("laggard.experiments.claims.probes.distances.EVERY", 1)
    rows = expansions(config, RunSpec(config).arguments())
    share = {(row["form"], row["strength"], row["quarter"]): row["number"] for row in rows}
    models = [1.0]
    for step in range(12):
        models.append(models[step] - 0.1 * models[max(0, step - 2)])
    late = [(models[step], models[max(0, step - 2)]) for step in range(9, 12)]
    for strength in (0.3, 3.0):
        ours = np.mean([abs(read + strength * read**2 * (now - read) - now) for now, read in late])
        expected = pytest.approx(ours / np.mean([abs(read - now) for now, read in late]), rel=1e-4)
        assert share["constant", strength, 4] == expected
        assert share["outer", strength, 4] == expected
    assert all(share["exact", 1.0, quarter] < 1e-5 for quarter in (1, 2, 3, 4))
    assert share["exact", 3.0, 4] == pytest.approx(2.0, rel=1e-4)


def test_products_with_the_hessian_are_the_slopes_of_gradients():
    task = Supervised(MLP(hidden=[5]).build, synthetic(samples=64, features=4), batch=16, dtype=torch.float64)
    batch = next(task.batches(0, [np.random.default_rng(1)]))
    weights, step = task.start([0, 1])[None], 1e-6 * task.start([2, 3])[None]
    ahead, behind = (task.gradients(weights + sign * step, [batch])[0] for sign in (1, -1))
    products = task.hessian_products(weights, step, [batch])
    np.testing.assert_allclose(products, (ahead - behind) / 2, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("delay", [0, 1, 4])
def test_a_quadratic_is_left_above_the_limit_of_theory_and_not_below(toy, delay, momentum):
    """The roots of z^(D+2) - (1 + m) z^(D+1) + m z^D + lr h z, not the formula by which the probe scales rates."""
    text = f"""\
cluster: {{workers: 1}}
algorithm: {{name: delayed, delay: {delay}}}
task: {{model: quadratic, curvature: [3.0, 1.0], dtype: float64}}
learning: {{lr: 1.0, momentum: {momentum}}}
stop: {{updates: 1}}
sweep: {{learning.lr: [0.97, 1.03]}}
"""
    config = load(toy(text=text))
    rows = leaving(config, RunSpec(config).arguments())
    found = {(row["of"], row["member"]): row["number"] for row in rows}
    assert found["sharpness", 0] == pytest.approx(3.0 + minima.DECAY, rel=1e-6)
    assert found["slope", 0] < 1e-6
    assert found["growth", 0] < 1 < found["growth", 1]


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
    # those of 50 updates, and the one that each worker has begun, which may be computed with others
    assert all(50 <= each["gradients"] <= 50 + 3 for each in made.values())
    assert run_probe("momentum", config, tmp_path).attrs["made"] == made
