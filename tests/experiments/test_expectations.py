"""Theory stands beside what was measured: the right row, the right half of the run, and their ratio."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments import load, sweep
from experiments.expectations import expected_seconds, expected_staleness

TEXT = """\
cluster: {workers: 4}
task: {model: timing}
stop: {updates: 40}
sweep:
  method:
    asynchronous: {algorithm: {name: async_ps}}
    synchronous: {algorithm: {name: sync_ps}}
    bounded: {algorithm: {name: ssp, bound: 1}}
"""


def test_staleness_by_theory_and_as_measured(toy: Callable[..., Path], tmp_path: Path) -> None:
    """Equal constant times: three others push in between, but for the first gradients, which are left out."""
    results = sweep(load(toy("", TEXT)), tmp_path)
    assert results[0].updates["staleness"].min() == 0
    table = expected_staleness(results)
    assert list(table["method"]) == ["asynchronous", "synchronous", "bounded"]
    assert list(table["law"]) == ["constant", "constant", ""]
    assert list(table["theory"][:2]) == [3.0, 0.0]
    assert list(table["measured"][:2]) == [3.0, 0.0]
    assert table["ratio"][0] == 1.0
    assert table[["theory", "ratio"]].isna().to_numpy().tolist() == [[False, False], [False, True], [True, True]]
    end = results[0].metrics["time"].max()
    assert table["n"][0] == (results[0].updates["time"] > end / 2).sum()


def test_seconds_of_an_update_by_theory_and_as_measured(toy: Callable[..., Path], tmp_path: Path) -> None:
    more = "cluster.slowdowns=[{worker: 0, factor: 5}]"
    table = expected_seconds(sweep(load(toy("", TEXT), more, "stop.updates=640"), tmp_path))
    assert table["theory"][:2].tolist() == pytest.approx([1 / 3.2, 5.0])
    assert table["measured"][:2].tolist() == pytest.approx([1 / 3.2, 5.0], rel=0.02)
    assert table["ratio"].tolist() == pytest.approx((table["measured"] / table["theory"]).tolist(), nan_ok=True)
    assert table["theory"].isna().tolist() == [False, False, True]
    (alone,) = expected_seconds(sweep(load(toy("", TEXT), "sweep={}"), tmp_path)).to_dict("records")
    assert alone["method"] == "async_ps"
