"""The table at the end of a sweep: who is first, at its best rate, and whether that can be told."""

import pytest

from laggard import load, sweep
from laggard.experiments.cli import main
from laggard.experiments.results.measures import measure_runs
from laggard.experiments.results.ranking import criterion, rank

METHODS = "method: {sync: {algorithm.name: sync_ps}, async: {algorithm.name: async_ps}}"
DIGITS = """\
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.2}, slowdowns: [{worker: 0, factor: 5}]}
algorithm: async_ps
task: {model: logistic, dataset: digits}
stop: {epochs: 0.5}
evaluate: {every_updates: 3, target_accuracy: 0.7}
"""


def swept(toy, tmp_path, axes, *overrides, text=DIGITS):
    return sweep(load(toy(f"sweep: {{{axes}}}", text=text), *overrides), tmp_path, jobs=1)


SWEEP = f"{DIGITS}sweep: {{{METHODS}, learning.lr: [0.001, 0.05], seed: [0, 1, 2]}}"


def test_methods_are_ranked_by_time_at_best_rates(results):
    table = rank(results)
    assert (table.rows, table.values[0]) == (("method", "learning.lr"), "time_to")
    measured = measure_runs(results, "time_to")
    means = {}
    for (method, rate), rows in measured.groupby(["method", "learning.lr"]):
        if rows["value"].notna().all():
            means.setdefault(method, {})[rate] = rows["value"].mean()
    best = {method: min(times, key=times.get) for method, times in means.items()}
    expected = sorted(best, key=lambda method: means[method][best[method]])
    rows = list(dict.fromkeys(row for row, _, _ in table.cells))
    assert rows == [(method, best[method]) for method in expected]
    for method, rate in rows:
        cell = table.cells[(method, rate), (), "time_to"]
        assert (cell.value, cell.n) == (pytest.approx(means[method][rate]), 3)


def test_missed_target_names_the_budget_to_raise(toy, tmp_path):
    # the wild one diverges, which no larger budget mends
    axes = "rate: {good: {learning.lr: 0.05}, wild: {learning.lr: 1.0e+38}}"
    results = swept(toy, tmp_path, axes, "evaluate.target_accuracy=0.999")
    assert {result.manifest["reached"] for result in results} == {"epochs", "diverged"}
    highest = measure_runs(results, "accuracy")["value"].max()
    (line,) = [note for note in rank(results).notes if note.startswith("no run reached 99.9 %")]
    assert f"{100 * highest:.4g} %" in line
    assert line.endswith("raise stop.epochs, or lower evaluate.target_accuracy")


def test_methods_without_target_are_ranked_by_accuracy(toy, tmp_path):
    axes = (
        "rate: {none: {learning.lr: 1.0e-9}, good: {learning.lr: 0.05}, slow: {learning.lr: 0.001}}"
    )
    results = swept(toy, tmp_path, axes, "evaluate.target_accuracy=0.999")
    ends = results.final.set_index("rate")["test_accuracy"].sort_values(ascending=False)
    rows = list(dict.fromkeys(row[0] for row, _, _ in rank(results).cells))
    assert rows == list(ends.index) == ["good", "slow", "none"]


def test_rows_that_missed_the_target_come_last(toy, tmp_path):
    axes = "rate: {slow: {learning.lr: 1.0e-9}, fast: {learning.lr: 0.05}}, seed: [0, 1]"
    table = rank(swept(toy, tmp_path, axes))
    assert [row[0] for row, _, _ in table.cells][:: len(table.values)] == ["fast", "slow"]
    assert any(note.startswith("1 of 2 rows missed the target in some") for note in table.notes)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("evaluate={every_updates: 20, target_accuracy: 0.3}", "evaluate more often"),
        ("evaluate={every_updates: 3}", "set evaluate.target_accuracy"),
        ("evaluate={every_updates: 3, target_accuracy: 0.7}", "sweep seeds, as `sweep.seeds=3`"),
    ],
)
def test_too_small_budget_names_key_to_change(toy, tmp_path, override, expected):
    notes = rank(swept(toy, tmp_path, METHODS, override)).notes
    assert [note for note in notes if expected in note]


def test_overlapping_rivals_are_named(toy, tmp_path):
    axes = "twin: {one: {}, other: {cluster.seed: 9}}, learning.lr: [0.01, 0.05], seed: [0, 1, 2]"
    notes = rank(swept(toy, tmp_path, axes)).notes
    assert [note for note in notes if "their intervals overlap" in note]


def test_notes_name_the_key_of_a_number(toy, tmp_path):
    """`0 and 1e-09: their intervals overlap` would not say of what."""
    axes = "cluster.apply_seconds: [0, 1.0e-9], learning.lr: [0.01, 0.05], seed: [0, 1, 2]"
    notes = rank(swept(toy, tmp_path, axes)).notes
    about_rows = [note for note in notes if "overlap" in note or "edge of its grid" in note]
    assert len(about_rows) == 2
    for note in about_rows:
        assert note.count("apply_seconds = ") == 2


def test_losses_are_ranked_from_the_lowest(toy, tmp_path):
    axes = "noise: {loud: {task.noise: 0.9}, quiet: {task.noise: 0.01}}, seed: [0, 1]"
    results = sweep(load(toy(f"sweep: {{{axes}}}")), tmp_path, jobs=1)
    assert criterion(results) == "loss"
    cells = rank(results).cells
    assert list(dict.fromkeys(row for row, _, _ in cells)) == [("quiet",), ("loud",)]
    assert cells[("quiet",), (), "loss"].value < cells[("loud",), (), "loss"].value


def test_sweep_of_rates_has_row_per_rate(toy, tmp_path):
    table = rank(swept(toy, tmp_path, "learning.lr: [0.001, 0.05], seed: [0, 1]"))
    assert [row for row, _, name in table.cells if name == "time_to"] == [(0.05,), (0.001,)]


def test_sweep_without_learning_keeps_its_order(toy, tmp_path):
    results = swept(
        toy, tmp_path, "cluster.workers: [4, 2, 3]", "task={model: timing}", "evaluate={}"
    )
    assert criterion(results) == "time"
    assert [row for row, _, name in rank(results).cells if name == "time"] == [(4,), (2,), (3,)]


def test_sweep_prints_a_row_per_method(toy, tmp_path, drawn, capsys):
    axes = f"{METHODS}, learning.lr: [0.01, 0.05], seed: [0, 1]"
    path = toy(f"sweep: {{{axes}}}", text=DIGITS)
    assert main(["sweep", str(path), "--out", str(tmp_path)]) == 0
    heading, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert heading.split()[:2] == ["method", "learning.lr"]
    assert sorted(row.split()[0] for row in rows) == ["async", "sync"]
