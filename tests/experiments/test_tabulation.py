"""Tables and the best of a grid, against the same numbers got by hand from the runs' own tables."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from laggard import Results, load, load_results, run, sweep
from laggard.experiments.results import measures, selection, tables
from laggard.experiments.results.measures import measure_runs, summary
from laggard.experiments.results.selection import best
from laggard.experiments.results.tables import FORMATS, label_results, table

SWEEP = """\
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}}
task: {model: logistic, dataset: {name: synthetic, samples: 200, separation: 3.0}, batch: 8}
stop: {updates: 40}
evaluate: {every_updates: 4, target_accuracy: 0.85}
sweep:
  method: {sync: {algorithm: sync_ps}, late: {algorithm: async_ps}}
  learning.lr: [0.002, 0.1, 0.5]
  seeds: 4
"""


def curves(results, method, lr):
    """The metrics of each seed, from each run's own table."""
    runs = [result for result in results if result.labels["method"] == method]
    return [result.metrics[result.metrics["learning.lr"] == lr] for result in runs]


def test_cell_is_the_mean_over_its_seeds(results):
    made = table(
        results,
        columns="learning.lr",
        values=["accuracy", "time_to", "updates_to", "bytes_to", "staleness"],
    )
    assert made.rows == ("method",)
    for method in ("sync", "late"):
        for lr in (0.002, 0.1, 0.5):
            values = ends(results, method, lr, range(4))
            cell = made.cells[(method,), (lr,), "accuracy"]
            interval = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
            assert (cell.value - cell.half, cell.value + cell.half) == pytest.approx(interval)
            each = curves(results, method, lr)
            there = [curve[curve["test_accuracy"] >= 0.85] for curve in each]
            for value in ("time_to", "updates_to", "bytes_to"):
                axis = value.removesuffix("_to")
                cell = made.cells[(method,), (lr,), value]
                assert cell.reached == sum(len(rows) > 0 for rows in there)
                assert cell.n == 4
                if cell.reached == 4:
                    assert cell.value == pytest.approx(
                        np.mean([rows[axis].iloc[0] for rows in there])
                    )
                else:
                    assert cell.kind in ("median", "more")
            stale = [
                result.updates.query("status == 'applied'")["staleness"].mean()
                for result in results.where(method=method)
            ]
            assert made.cells[(method,), (lr,), "staleness"].value == pytest.approx(np.mean(stale))
    assert {cell.kind for cell in made.cells.values()} > {"mean"}, (
        "no seed is censored: nothing was tested"
    )


@pytest.mark.parametrize("target", [0.0, 90.0, math.nan])
def test_impossible_target_is_refused(results, target):
    for make in (Results.table, summary):
        with pytest.raises(ValueError, match="target: expected a test accuracy above 0"):
            make(results, target=target)


def test_single_key_needs_no_list(results):
    sync = results.where(method="sync")
    listed = sync.table(rows=["learning.lr"], value=["accuracy"])
    assert sync.table(rows="learning.lr", value="accuracy").equals(listed)


def test_key_with_one_value_needs_no_row(results):
    """The hint of the error names the remedy; a notebook shows the same table."""
    left = table(results.where(**{"learning.lr": 0.1}), rows=["method"], values=["accuracy"])
    assert {row for row, _, _ in left.cells} == {("sync",), ("late",)}
    assert (repr(left), left._repr_markdown_()) == (FORMATS["text"](left), FORMATS["md"](left))


def test_one_seed_has_no_interval(results):
    made = table(results.where(seed=2), values=["accuracy"])
    assert "n = 1 seed: no interval" in made.notes
    assert all(np.isnan(cell.half) for cell in made.cells.values())
    assert "±" not in FORMATS["text"](made)


def test_diverged_members_are_counted(toy, tmp_path):
    path = toy("sweep: {learning.lr: [0.1, 1e10], learning.seed: [0, 1, 2]}")
    made = table([run(load(path), tmp_path)], values=["loss", "time_to"], target=1e-9)
    bad = made.cells[(1e10,), (), "loss"]
    assert (bad.kind, bad.n, bad.diverged) == ("none", 3, 3)
    assert made.cells[(1e10,), (), "time_to"].kind == "never"
    assert made.cells[(0.1,), (), "loss"].diverged == 0
    assert "never (0 of 3, 3 diverged)" in FORMATS["text"](made)


def ends(results, method, lr, seeds):
    """The last accuracy of each of the seeds."""
    every = curves(results, method, lr)
    return [every[seed]["test_accuracy"].iloc[-1] for seed in seeds]


def test_each_seed_reports_choice_of_the_others(results):
    chosen = best(results, "learning.lr")
    made = table(results, values=["accuracy"], chosen=chosen)
    for method in ("sync", "late"):
        reported = []
        for seed in range(4):
            others = [other for other in range(4) if other != seed]
            means = {lr: np.mean(ends(results, method, lr, others)) for lr in (0.002, 0.1, 0.5)}
            lr = max(means, key=means.get)
            reported += ends(results, method, lr, [seed])
            own = chosen.results.where(method=method, seed=seed)
            assert set(own.metrics["learning.lr"]) == {lr}
        means = {lr: np.mean(ends(results, method, lr, range(4))) for lr in (0.002, 0.1, 0.5)}
        (lr,) = chosen.table.query("method == @method")["learning.lr"]
        assert means[lr] == max(means.values())
        cell = made.cells[(method, lr), (), "accuracy"]
        assert cell.value == pytest.approx(np.mean(reported))
        spreads = [
            np.std(values, ddof=1) for values in (reported, ends(results, method, lr, range(4)))
        ]
        assert cell.half == pytest.approx(stats.t.ppf(0.975, 3) * max(spreads) / 2)


def test_best_by_time_reaches_the_target_most_often(results):
    chosen = best(results, ["learning.lr"], by="time")
    for method in ("sync", "late"):
        scores = {}
        for lr in (0.002, 0.1, 0.5):
            there = [
                curve[curve["test_accuracy"] >= 0.85]["time"]
                for curve in curves(results, method, lr)
            ]
            times = [rows.iloc[0] for rows in there if len(rows)]
            scores[lr] = (-len(times), np.mean(times) if times else 0)
        (lr,) = chosen.table.query("method == @method")["learning.lr"]
        assert scores[lr] == min(scores.values())


def test_best_by_time_is_most_accurate_where_all_miss(results):
    unreached = best(results, ["learning.lr"], by="time", target=1.0)
    by_accuracy = best(results, ["learning.lr"], by="accuracy")
    assert list(unreached.table["learning.lr"]) == list(by_accuracy.table["learning.lr"])
    assert unreached.results.names == by_accuracy.results.names
    # the first of the grid is not the most accurate, so that a tie would be seen
    assert 0.002 not in list(unreached.table["learning.lr"])


def scored(monkeypatch, results, accuracies):
    """Has every member of `results` end at the accuracy of its lr, or of its lr and seed."""
    real = measures.measure_runs

    def measured(*args):
        frame = real(*args)  # type: ignore[arg-type]
        values = []
        for lr, seed in zip(frame["learning.lr"], frame["seed"], strict=True):
            values.append(accuracies.get((lr, seed), accuracies.get(lr, 0.1)))
        return frame.assign(value=values)

    monkeypatch.setattr(selection, "measure_runs", measured)
    monkeypatch.setattr(tables, "measure_runs", measured)


def test_edges_and_ties_are_noted(results, monkeypatch):
    for accuracies, lr, edge, tied in (
        ({0.1: 0.9, 0.5: 0.8}, 0.1, "", 0),
        ({0.1: 0.8, 0.5: 0.9}, 0.5, "learning.lr", 0),
        ({0.002: 0.95, 0.5: 0.9}, 0.002, "learning.lr", 0),
        ({0.1: 0.9, 0.5: 0.9}, 0.1, "", 1),
        # the run diverged
        ({0.1: float("nan"), 0.5: 0.01, 0.002: 0.0}, 0.5, "learning.lr", 0),
    ):
        with monkeypatch.context() as patch:
            scored(patch, results, accuracies)
            chosen = best(results, "learning.lr")
        for row in chosen.table.to_dict("records"):
            assert (row["learning.lr"], row["edge"], row["tied"]) == (lr, edge, tied), accuracies
        assert any("edge of its grid" in note for note in chosen.notes) == bool(edge)
        assert any("is tied with 1 more" in note for note in chosen.notes) == bool(tied)


def test_true_and_false_have_no_edge(toy, tmp_path):
    variants = "sgp: {algorithm: sgp, sweep: {algorithm.biased: [false, true]}}, async: {algorithm: async_ps}"
    ran = sweep(load(toy(f"sweep: {{method: {{{variants}}}, seeds: 2}}")), tmp_path, jobs=1)
    chosen = best(ran, "algorithm.biased")
    assert not [note for note in chosen.notes if "edge of its grid" in note]


def test_choice_that_depends_on_a_seed_is_noted(results, monkeypatch):
    """Seed 3 alone makes 0.5 the best: it reports 0.1, and the others 0.5."""
    accuracies = {0.1: 0.8, (0.5, 3): 1.0, 0.5: 0.75}
    scored(monkeypatch, results, accuracies)
    chosen = best(results, "learning.lr")
    assert chosen.choices == ["learning.lr = 0.5: sync; late"]
    (note,) = [note for note in chosen.notes if "without one of the seeds" in note]
    assert note.endswith("it is learning.lr = 0.1")
    made = table(results, values=["accuracy"], chosen=chosen)
    cell = made.cells[("sync", 0.5), (), "accuracy"]
    assert cell.value == pytest.approx((3 * 0.75 + 0.8) / 4)
    assert cell.half == pytest.approx(stats.t.ppf(0.975, 3) * np.std([0.75] * 3 + [1], ddof=1) / 2)


def test_median_of_seeds_that_others_chose_for_has_no_interval(results, monkeypatch):
    """Seed 3 alone makes 0.5 the best, and misses the target at 0.1, which the others chose."""
    times = {(0.1, 3): math.nan, 0.1: 1.0, (0.5, 3): 1.0, 0.5: 2.0, 0.002: 9.0}
    scored(monkeypatch, results, times)
    chosen = best(results, "learning.lr", by="time")
    assert set(chosen.table["learning.lr"]) == {0.5}
    made = table(results, values=["time_to"], chosen=chosen)
    for cell in made.cells.values():
        assert (cell.kind, cell.value, cell.n, cell.reached) == ("median", 2.0, 4, 3)
        assert math.isnan(cell.half)
    assert "median 2 s (3 of 4)" in FORMATS["text"](made)


def test_single_seed_that_chooses_is_noted(results):
    notes = best(results.where(seed=1), "learning.lr").notes
    assert any("the only seed chooses and reports" in note for note in notes)
    assert not any("the only seed" in note for note in best(results, "learning.lr").notes)


def test_differences_are_of_pairs_with_equal_seeds(results):
    made = table(results, columns="learning.lr", values=["accuracy"], against={"method": "sync"})
    assert {row for row, _, _ in made.cells} == {("late",)}
    for lr in (0.002, 0.1, 0.5):
        sync, late = (np.array(ends(results, method, lr, range(4))) for method in ("sync", "late"))
        cell = made.cells[("late",), (lr,), "accuracy"]
        half = stats.t.ppf(0.975, 3) * stats.sem(late - sync)
        assert (cell.value, cell.half) == pytest.approx((np.mean(late - sync), half))
    chosen = best(results, "learning.lr")
    made = table(results, values=["accuracy"], chosen=chosen, against={"method": "sync"})
    whole = table(results, values=["accuracy"], chosen=chosen)
    values = {row[0]: cell.value for (row, _, _), cell in whole.cells.items()}
    (cell,) = made.cells.values()
    assert cell.value == pytest.approx(values["late"] - values["sync"])


def test_formats_have_the_same_cells(results):
    made = table(results, values=["accuracy", "time_to"])
    heading, *body = made.lines()
    text, markdown, latex = (FORMATS[name](made) for name in ("text", "md", "latex"))
    assert all(cell in text for line in body for cell in line)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]
    assert rows[: 2 + len(body)] == [heading, ["---", "---", "---:", "---:"], *body]
    signs = {"±": "$\\pm$", "%": "\\%", ">": "$>$"}
    for line in body:
        cells = [cell.translate(str.maketrans(signs)) for cell in line]
        assert f"\n{' & '.join(cells)} \\\\\n" in latex
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](made))))
    shares = made.records[made.records["measure"] == "accuracy"]
    assert shares["low"].min() >= 0
    assert shares["high"].max() <= 1
    for row, cell in zip(rows, made.cells.values(), strict=True):
        assert float(row["value"]) == pytest.approx(cell.value)
        assert (row["kind"], row["n"], row["diverged"]) == (cell.kind, str(cell.n), "0")


@pytest.mark.parametrize(
    ("style", "title"),
    [
        ("text", "Who waits?\n\n"),
        ("md", "**Who waits?**\n\n"),
        ("latex", "% Who waits?\n"),
        ("csv", ""),
    ],
)
def test_common_question_is_the_title(results, style, title):
    def asking(*questions):
        asked = []
        for text, result in zip(questions, results, strict=True):
            config = result.config.model_copy(update={"question": text})
            asked.append(replace(result, given=config))
        return FORMATS[style](table(asked, values=["accuracy"]))

    others = ["Who waits?"] * (len(results) - 1)
    plain = asking(*[""] * len(results))
    assert asking(*others, "") == title + plain
    assert asking(*others, "And why?") == plain


def test_runs_that_differ_in_lists_are_rows(toy, tmp_path):
    for override in (
        "cluster.slowdowns=[]",
        "cluster.slowdowns=[{kind: factor, worker: 0, factor: 3}]",
        "cluster.slowdowns=[{kind: factor, worker: 1, factor: 3}]",
        "cluster.network.cards=[{worker: 0, bandwidth: 1000}]",
    ):
        run(load(toy(), override), tmp_path / "out")
    found = load_results(tmp_path / "out" / "toy")
    for form in FORMATS.values():
        shown = form(table(label_results(found)))
        assert all(f"worker: {worker}" in shown for worker in (0, 1))
    assert len(table(label_results(found)).lines()) == 1 + 4


def test_runs_beside_a_sweep_are_rows_of_their_own(toy, tmp_path):
    """Runs outside a sweep have no labels: their settings must not count as seeds of one."""
    grid = "sweep: {cluster.workers: [1, 2], seed: [0, 1]}"
    swept = sweep(load(toy(grid)), tmp_path / "grid", jobs=1)
    runs = []
    for workers in (3, 4):
        for seed in (0, 1):
            settings = [f"cluster.workers={workers}", f"seed={seed}"]
            runs.append(run(load(toy(), *settings), tmp_path / "runs"))
    cells = table([*swept, *runs], values=["time"]).cells
    assert {row: cell.n for (row, _, _), cell in cells.items()} == {(n,): 2 for n in (1, 2, 3, 4)}


def test_runs_beside_an_ensemble_are_rows_of_their_own(toy, tmp_path):
    ensemble = sweep(load(toy("sweep: {learning.lr: [0.1, 0.2]}")), tmp_path / "grid", jobs=1)
    runs = [run(load(toy(), f"learning.lr={lr}"), tmp_path / "runs") for lr in (0.3, 0.4)]
    cells = table([*ensemble, *runs], values=["time"]).cells
    assert [row for row, _, _ in cells] == [(0.1,), (0.2,), (0.3,), (0.4,)]


def test_equal_sweeps_of_two_configs_have_separate_rows(toy, tmp_path):
    grid = "sweep: {cluster.workers: [1, 2], seed: [0, 1]}"
    results = []
    for batch in (2, 4):
        config = load(toy(grid), f"cluster.compute.mean={batch}")
        results += sweep(config, tmp_path / f"{batch}", jobs=1)
    made = table(results, values=["time"])
    assert made.rows == ("cluster.workers", "cluster.compute.mean")
    assert [cell.n for cell in made.cells.values()] == [2, 2, 2, 2]


def test_speedup_follows_from_equal_steps(tmp_path):
    """Without noise P workers on a free network learn what one does in the same seconds.

    So the speedup is 1, the efficiency 1 / P and the cost P times the seconds; ten times slower
    workers have a speedup of 1/10, and what misses the target has 0.
    """
    path = tmp_path / "workers.yaml"
    path.write_text(
        "algorithm: sync_ps\n"
        "task: {model: quadratic}\n"
        "learning: {lr: 0.5}\n"
        "stop: {time: 40}\n"
        "evaluate: {every_updates: 1}\n"
        "sweep:\n"
        "  cluster.workers: [2, 4, 8, 16]\n"
        "  cluster.compute.mean: [1.0]\n",
        encoding="utf-8",
    )
    slower = ["cluster.slowdowns=[{worker: 4, factor: 10}]", "sweep.cluster.workers=[8]"]
    missing = ["stop.time=2", "sweep.cluster.workers=[16]"]
    parts = [
        sweep(load(path, "sweep.cluster.workers=[2, 4]"), tmp_path, jobs=1),
        sweep(load(path, *slower), tmp_path, jobs=1),
        sweep(load(path, *missing), tmp_path, jobs=1),
    ]
    results = Results([result for part in parts for result in part])
    target = 0.5 * 0.25**3  # after three steps
    measured = {
        value: measure_runs(results, value, target).set_index("cluster.workers")["value"].to_dict()
        for value in ("time_to", "cost_to", "speedup", "efficiency")
    }
    assert measured["time_to"] == pytest.approx({2: 3, 4: 3, 8: 30, 16: np.nan}, nan_ok=True)
    assert measured["cost_to"] == pytest.approx({2: 6, 4: 12, 8: 240, 16: np.nan}, nan_ok=True)
    assert measured["speedup"] == pytest.approx({2: 1, 4: 1, 8: 0.1, 16: 0})
    assert measured["efficiency"] == pytest.approx({2: 1, 4: 0.5, 8: 0.025, 16: 0})


def test_goodput_divides_by_possible_mini_batches(tmp_path):
    """Stays of three mini-batches and absences of one, ten times; a mini-batch has 32 samples."""
    path = tmp_path / "spot.yaml"
    path.write_text(
        "cluster: {workers: 4, members: {uptime: 3, downtime: 1}}\n"
        "task: {model: timing}\n"
        "stop: {time: 40}\n"
    )
    results = Results([run(load(path), tmp_path)])
    (goodput,) = measure_runs(results, "goodput")["value"]
    (up,) = measure_runs(results, "up")["value"]
    assert (goodput, up) == (pytest.approx(0.75), pytest.approx(3.0))
    (throughput,) = measure_runs(results, "throughput")["value"]
    assert throughput == pytest.approx(4 * 0.75 * 32)


def test_interval_of_a_ratio_may_lie_above_one(tmp_path):
    """Workers that are twice as fast as the law says apply twice the mini-batches, but for noise."""
    path = tmp_path / "fast.yaml"
    path.write_text(
        "algorithm: async_ps\n"
        "cluster:\n"
        "  workers: 2\n"
        "  compute: {law: gamma, mean: 1.0, cv: 0.5}\n"
        "  slowdowns: [{workers: [0, 1], factor: 0.5}]\n"
        "task: {model: timing}\n"
        "stop: {time: 40}\n"
        "sweep: {seeds: 4}\n"
    )
    made = table(sweep(load(path), tmp_path, jobs=1), values=["goodput", "waiting"])
    goodput, waiting = made.records.to_dict("records")
    assert goodput["value"] > 1.5
    ends = goodput["value"] - goodput["half"], goodput["value"] + goodput["half"]
    assert (goodput["low"], goodput["high"]) == pytest.approx(ends, rel=0.01)
    assert waiting["high"] <= 1


def test_speedup_needs_several_numbers_of_workers(toy, tmp_path):
    results = sweep(load(toy("sweep: {seeds: 2}")), tmp_path, jobs=1)
    with pytest.raises(
        ValueError, match=r"speedup: expected cluster\.workers among the swept keys"
    ):
        measure_runs(results, "speedup", 0.1)
