"""Statistics on arrays that are known, and on the results of a grid."""

import numpy as np
import pytest
import xarray as xr

from laggard import load, sweep
from laggard.experiments.claims import optima
from laggard.experiments.claims import statistics as of
from laggard.experiments.claims.statistics import (
    curve,
    final,
    harmonic,
    staleness,
    staleness_by,
    staler,
)

DESCENT = """\
cluster: {workers: 1}
algorithm: sync_ps
task: {model: quadratic}
stop: {updates: 400}
evaluate: {every_updates: 100}
sweep: {learning.lr: [0.01, 0.02, 3.0], seeds: 2}
"""


@pytest.fixture
def accuracy():
    """Over delay, learning rate and seed: the best lr is 0.1 at delay 0 and 0.01 at delay 8."""
    lr, seed = [0.01, 0.1, 1.0], [0, 1, 2]
    numbers = np.array([[0.90, 0.95, 0.10], [0.93, 0.60, 0.0]])[:, :, None] + np.array(
        [0.0, 0.01, -0.01]
    )
    return xr.DataArray(
        numbers, dims=("delay", "lr", "seed"), coords={"delay": [0, 8], "lr": lr, "seed": seed}
    )


def test_the_largest_setting_that_will_do(accuracy):
    bar = optima.best_setting(of.at(accuracy, delay=0), "lr") - 0.06
    np.testing.assert_allclose(optima.largest(accuracy >= bar, "lr"), [[0.1] * 3, [0.01] * 3])
    assert optima.largest(accuracy >= 2.0, "lr").isnull().all()  # below the grid
    assert optima.largest(accuracy >= -1.0, "lr").isnull().all()  # or above it


def test_a_seed_is_reported_at_what_is_best_for_the_others(accuracy):
    """At delay 0 the others choose 0.1; a seed that is mistaken about itself is not asked."""
    accuracy.loc[{"delay": 0, "seed": 0}] = xr.DataArray(
        [0.99, 0.5, 0.1], dims="lr"
    )  # its mean with them is best at 0.01
    own = of.at(accuracy, delay=0)
    np.testing.assert_allclose(optima.best_of_others(own, "lr").sel(seed=0), 0.5)
    # 0.01 is an end of the grid
    assert optima.best_of_others(of.at(accuracy, delay=8), "lr").isnull().all()
    there = optima.best_of_others(
        of.at(accuracy, delay=8), "lr", of=of.at(accuracy, delay=0).where(accuracy.lr > 0.05, 0)
    )
    np.testing.assert_allclose(there, [0.60, 0.61, 0.59])
    assert optima.best_of_others(own.isel(seed=[0]), "lr").isnull().all()


def test_the_best_is_chosen_on_other_seeds_than_it_reports(accuracy):
    accuracy.loc[{"delay": 0, "lr": 0.01, "seed": 0}] = 0.99  # the seed that chooses is mistaken
    chosen = optima.best_setting(accuracy, "lr", chosen_on=1)
    assert chosen.seed.values.tolist() == [1, 2]
    np.testing.assert_allclose(of.at(chosen, delay=0), [0.91, 0.89])
    np.testing.assert_allclose(of.at(chosen, delay=8), [0.94, 0.92])
    np.testing.assert_allclose(
        of.at(optima.best_setting(-accuracy, "lr", lowest=True), delay=8),
        -of.at(optima.best_setting(accuracy, "lr"), delay=8),
    )


def test_a_choice_at_an_end_of_the_grid_is_none(accuracy):
    chosen = optima.best_inside(accuracy, "lr", chosen_on=1)
    np.testing.assert_allclose(of.at(chosen, delay=0), [0.96, 0.94])
    assert np.isnan(of.at(chosen, delay=8)).all()  # 0.01 is the least of the rates
    least = optima.best_inside(-accuracy, "lr", chosen_on=1, lowest=True)
    np.testing.assert_allclose(of.at(least, delay=0), [-0.96, -0.94])


def test_the_nearest_setting_is_so_on_a_log_axis(accuracy):
    np.testing.assert_allclose(
        optima.nearest(of.at(accuracy, delay=0), "lr", 0.04), [0.95, 0.96, 0.94]
    )
    own = xr.DataArray([0.012, 5.0, 0.08], dims="seed", coords={"seed": [0, 1, 2]})
    np.testing.assert_allclose(
        optima.nearest(of.at(accuracy, delay=0), "lr", own), [0.90, 0.11, 0.94]
    )
    own[1] = np.nan
    np.testing.assert_allclose(
        optima.nearest(of.at(accuracy, delay=0), "lr", own), [0.90, np.nan, 0.94]
    )


def test_slopes_are_powers():
    y = xr.DataArray(
        3.0 * (2 * np.array([1.0, 4.0, 10.0]) + 1) ** -1.5,
        dims="delay",
        coords={"delay": [1, 4, 10]},
    )
    assert float(of.slope(y, "delay", scale=2, offset=1)) == pytest.approx(-1.5)


def test_the_greatest_rise_is_between_neighbours():
    y = xr.DataArray([3.0, 1.0, 1.5, 0.5], dims="b", coords={"b": [0, 1, 2, 3]})
    assert float(of.rises(y, "b")) == 0.5
    assert float(of.rises(-y, "b")) == 2.0


def test_what_is_missing_on_the_way_is_not_left_out():
    """A cliff beyond the rates that were tried: the slope of the other delays would be another
    claim's.
    """
    y = xr.DataArray(
        [[4.0, 2.0, 1.0], [np.nan, 2.0, 1.0]], dims=("seed", "delay"), coords={"delay": [1, 2, 4]}
    )
    np.testing.assert_allclose(of.slope(y, "delay"), [-1.0, np.nan])
    np.testing.assert_allclose(of.rises(y, "delay"), [-1.0, np.nan])


def test_an_unknown_setting_is_said_in_a_line(accuracy):
    with pytest.raises(ValueError, match=r"at: no delay = 9; there are 0, 8"):
        of.at(accuracy, delay=9)
    with pytest.raises(ValueError, match="no dimension 'dela'"):
        of.at(accuracy, dela=9)


def test_a_dimension_may_be_called_as_an_argument_of_sel(accuracy):
    """Where `sel(method=8)` would keep both methods."""
    methods = accuracy.rename(delay="method")
    assert of.at(methods, method=8).equals(of.at(accuracy, delay=8))


def test_the_cliff_is_held_against_the_best_of_each_seed(accuracy):
    """At delay 0 the best is at 0.1, and at delay 8 at 0.01, above which nothing comes within a
    point of it.
    """
    np.testing.assert_allclose(optima.cliff_setting(accuracy), [[0.1] * 3, [0.01] * 3])
    np.testing.assert_allclose(optima.cliff_setting(accuracy, below=0.34), [[0.1] * 3] * 2)


def test_a_cliff_lies_inside_the_rates_that_each_seed_tried(accuracy):
    """Seed 1 has the lower two only, so that its cliff at delay 0 may lie above them; seed 2 the
    upper two.
    """
    accuracy.loc[{"seed": 1, "lr": 1.0}] = np.nan
    accuracy.loc[{"seed": 2, "lr": 0.01}] = np.nan
    np.testing.assert_allclose(
        optima.cliff_setting(accuracy), [[0.1, np.nan, 0.1], [0.01, 0.01, 0.1]]
    )


def test_arrays_of_a_grid_carry_its_axes(toy, tmp_path):
    """A noiseless quadratic of curvature 1 from 1: after n steps w = (1 - lr)^n and the loss w^2 /
    2; 3 diverges.
    """
    config = load(toy(text=DESCENT))
    results = sweep(config, tmp_path / "out")
    loss = final(results, "loss")
    assert set(loss.dims) == {"lr", "seed"}
    expected = [(1 - lr) ** 800 / 2 for lr in (0.01, 0.02)] + [np.inf]
    np.testing.assert_allclose(
        loss.transpose("lr", "seed"), np.array(expected)[:, None].repeat(2, 1), rtol=1e-4
    )


def test_settings_are_numbers_that_theory_is_a_function_of(accuracy):
    np.testing.assert_allclose(harmonic(accuracy["delay"]), [0.0, sum(1 / n for n in range(1, 9))])
    both = of.stack_arrays(measured=of.at(accuracy, delay=8), theory=accuracy["lr"])
    assert both["of"].values.tolist() == ["measured", "theory"]
    np.testing.assert_allclose(both.sel(of="theory", seed=2), [0.01, 0.1, 1.0])
    np.testing.assert_allclose(
        both.sel(of="measured").transpose("lr", "seed"), of.at(accuracy, delay=8)
    )
    assert of.between(accuracy, "lr", 0.05, 2.0)["lr"].values.tolist() == [0.1, 1.0]
    np.testing.assert_allclose(
        of.at(of.last(accuracy, "lr", 0.67), delay=0, seed=0), (0.95 + 0.10) / 2
    )
    with pytest.raises(ValueError, match="no lr from 2 to 3"):
        of.between(accuracy, "lr", 2, 3)


ROTATION = """\
cluster: {workers: 4, compute: {law: constant, mean: 1.0}}
algorithm: async_ps
task: {model: timing}
stop: {updates: 40}
sweep: {cluster.workers: [2, 4], seeds: 2}
"""


def test_staleness_of_equal_workers_in_rotation(toy, tmp_path):
    """Worker k's first gradient has staleness k, and every later one P - 1."""
    results = sweep(load(toy(text=ROTATION)), tmp_path / "out")
    whole, late = staleness(results), staleness(results, after=0.25)
    np.testing.assert_allclose(of.at(whole, workers=4), (0 + 1 + 2 + 37 * 3) / 40)
    np.testing.assert_allclose(late.transpose("workers", "seed"), [[1, 1], [3, 3]])
    np.testing.assert_allclose(of.at(staler(results, than=2), workers=4), 37 / 40)
    np.testing.assert_allclose(staler(results, than=3), 0)
    each = of.at(staleness_by(results, "worker"), workers=4).transpose("node", "seed")
    np.testing.assert_allclose(each, [[(k + 9 * 3) / 10] * 2 for k in range(4)])
    late = staleness_by(results, "worker", after=0.25)
    np.testing.assert_allclose(of.at(late, workers=4), 3)
    np.testing.assert_allclose(of.at(late, workers=2, node=[0, 1]), 1)
    assert np.isnan(of.at(late, workers=2, node=[2, 3])).all()  # that run has no such workers


def test_staleness_of_the_stages_of_a_pipeline(toy, tmp_path):
    """Stage s of S is S - s updates late, after the pipeline has filled."""
    text = ROTATION.replace("async_ps", "pipedream").replace("[2, 4]", "[3, 4]")
    results = sweep(load(toy(text=text)), tmp_path / "out")
    late = staleness_by(results, "target", after=0.2)
    np.testing.assert_allclose(
        of.at(late, workers=4).transpose("node", "seed"), [[k] * 2 for k in (3, 2, 1, 0)]
    )
    np.testing.assert_allclose(of.at(late, workers=3, seed=0)[:3], [2, 1, 0])


def test_a_curve_is_the_trajectory_at_its_evaluations(toy, tmp_path):
    """The same quadratic, 1/128 s an update: after t = 1 s, 128 updates."""
    text = DESCENT.replace(
        "workers: 1", "workers: 1, compute: {law: constant, mean: 0.0078125}"
    ).replace(", 3.0", "")
    text = text.replace("updates: 400", "time: 2.0").replace(
        "every_updates: 100", "every_seconds: 0.5"
    )
    loss = curve(sweep(load(toy(text=text)), tmp_path / "out"), "test_loss")
    assert loss["time"].values.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    np.testing.assert_allclose(
        of.at(loss, time=1.0, seed=0), [(1 - lr) ** 256 / 2 for lr in (0.01, 0.02)], rtol=1e-4
    )
