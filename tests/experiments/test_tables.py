"""The summary says what the tables of a run say."""

import numpy as np
import pytest

from laggard import load, run, summary, sweep
from laggard.experiments.results.formats import format_table
from laggard.experiments.results.measures import goal

TASK = "task={model: logistic, dataset: {name: synthetic, samples: 200, separation: 4.0}, batch: 8}"


def test_table_has_row_per_run_and_member(toy, tmp_path):
    path = toy(
        "sweep: {algorithm.name: [sync_ps, async_ps], learning.lr: [0.001, 0.2], learning.seed: [0, 1]}"
    )
    results = sweep(load(path, TASK, "evaluate={every_updates: 5}"), tmp_path)
    table = summary(results, target=0.8)
    assert list(table["algorithm.name"]) == ["sync_ps"] * 4 + ["async_ps"] * 4
    assert list(table["learning.seed"]) == [0, 1] * 4
    for result, rows in zip(results, (table[:4], table[4:]), strict=True):
        staleness = result.updates["staleness"]
        assert np.allclose(rows["staleness"], staleness.mean())
        assert (rows["max_staleness"] == staleness.max()).all()
        spent = result.workers[["computing", "sending", "waiting", "down"]].sum()
        assert np.allclose(rows["waiting"], spent["waiting"] / spent.sum())
    for index, row in enumerate(table.to_dict("records")):
        curve = results[index // 4].metrics.query(f"member == {index % 4}")
        reached = curve[curve["test_accuracy"] >= 0.8]["time"]
        assert row["accuracy"] == curve["test_accuracy"].iloc[-1]
        assert row["time_to_target"] == reached.min() or (
            reached.empty and np.isnan(row["time_to_target"])
        )
    assert table["time_to_target"].notna().any()
    assert summary(results, target=1.0)["time_to_target"].isna().any()
    assert "not reached" in format_table(summary(results, target=1.0))


def test_staleness_counts_applied_gradients_only(ran):
    result = ran("algorithm={name: k_sync, wait_for: 2}")
    assert result.updates["staleness"].max() > 0
    (row,) = summary([result]).to_dict("records")
    assert (row["staleness"], row["max_staleness"]) == (0, 0)


def test_target_is_that_of_config_by_default(ran):
    assert "time_to_target" not in summary([ran(TASK)])
    assert "time_to_target" in summary([ran(TASK, "evaluate.target_accuracy=0.5")])


def test_loss_is_shown_without_an_accuracy(ran):
    result = ran("learning.compensation=dc_asgd_a")
    (row,) = summary([result]).to_dict("records")
    assert row["method"] == "async_ps + dc_asgd_a"
    assert row["loss"] == pytest.approx(result.metrics["test_loss"].iloc[-1])
    assert row["updates"] == 40


def test_unmeasured_value_has_no_target(ran):
    with pytest.raises(
        ValueError, match="target: none of the runs measured a test accuracy or a test loss"
    ):
        goal(ran("task={model: timing}"), target=0.5)
    quadratic = ran()
    assert goal(quadratic, target=0.5) == ("test_loss", 0.5)
    with pytest.raises(ValueError, match="target: expected a finite test loss, got nan"):
        goal(quadratic, target=float("nan"))


def test_run_without_learning_has_a_row_too(ran):
    (row,) = summary([ran("task={model: timing}")]).to_dict("records")
    assert row["status"] == "finished"
    assert not {"loss", "accuracy"} & set(row)


def test_table_is_aligned_and_names_divergence(ran):
    table = summary([ran("sweep.learning.lr=[0.1, 1e10]")])
    assert table["status"][0] == "finished"
    assert table["status"][1].startswith("diverged at update ")
    header, *rows = format_table(table).splitlines()
    column = header.index("status")
    assert all(row[column - 1] == " " != row[column] for row in rows)


def test_seeds_are_written_in_full(toy, tmp_path):
    path = toy("sweep: {seed: [123456789, 9007199254740993], learning.seed: [7654321]}")
    _, *rows = format_table(summary(sweep(load(path), tmp_path))).splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["123456789", "7654321"],
        ["9007199254740993", "7654321"],
    ]


EXACT = """
cluster: {workers: 1, compute: {law: constant, mean: 3.0e-4, per: sample}}
algorithm: delayed
task: {model: logistic, dataset: synthetic, batch: 32}
learning: {lr: 0.01, momentum: 0.9, seed: 3}
stop: {updates: 60}
evaluate: {every_updates: 10}
"""


def test_accuracy_that_is_the_target_reaches_it(toy, tmp_path):
    """Accuracies are in single precision: 195 of 250 is a little below 0.78."""
    path = toy(text=EXACT)
    result = run(load(path), tmp_path)
    metrics, tested = result.metrics, 250
    right = (metrics["test_accuracy"] * tested).round().astype(int)
    targets = {number / tested for number in right if number > 0}
    assert any(np.float64(np.float32(target)) < target for target in targets)
    for target in targets:
        first = metrics[right >= round(target * tested)].iloc[0]
        assert summary([result], target)["time_to_target"].tolist() == [first["time"]]
        early = run(load(path, f"stop={{updates: 60, accuracy: {target!r}}}"), tmp_path)
        assert early.metrics["time"].iloc[-1] == first["time"]
        missed = summary([result], target + 1 / tested)["time_to_target"].iloc[0]
        later = metrics[right > round(target * tested)]["time"]
        assert missed == later.iloc[0] if len(later) else np.isnan(missed)
