"""Figures show the whole sweep: each value of each axis, or a line that says how to choose."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from laggard import load, sweep
from laggard.experiments import figures
from laggard.experiments.cli import main
from laggard.experiments.figures.facets import facets
from tests.experiments.conftest import TOY

METHODS = """\
  method:
    sync: {algorithm.name: sync_ps}
    async: {algorithm.name: async_ps}
    late: {algorithm: {name: k_sync, wait_for: 1}}
"""
AXES = """\
  cluster.slowdowns.0.factor: [1, 2, 5]
  task.batch: [4, 16]
  learning.lr: [0.01, 0.05, 0.3]
  seed: [0, 1, 2]
"""
STRAGGLER = {"cluster.slowdowns": "[{worker: 0, factor: 1}]", "stop": "{updates: 20}"}
VALUES = ["sync", "async", "late", "factor = 1", "factor = 2", "factor = 5"]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """3 methods x 3 factors x 2 batches x 3 rates x 3 seeds."""
    return swept(tmp_path_factory.mktemp("facets"), METHODS + AXES)


def swept(folder, axes, **overrides):
    (folder / "toy.yaml").write_text(f"{TOY}sweep:\n{axes}")
    settings = [f"{key}={value}" for key, value in {**STRAGGLER, **overrides}.items()]
    return sweep(load(folder / "toy.yaml", *settings), folder, jobs=1)


def texts(figure):
    """All that can be read on a figure."""
    figure.draw_without_rendering()
    shown = [text for text in figure.findobj(Text) if text.get_visible()]
    return "\n".join(text.get_text().replace("\n", " ") for text in shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("comparison", [*VALUES, "batch = 4", "batch = 16", "0.01, 0.05, 0.3", "n = 3"]),
        ("learning", [*VALUES, "batch = 4", "batch = 16", "0.01, 0.05, 0.3", "n = 3"]),
        # the learning rate changes no time, so that the runs of three seeds are those of all rates
        ("staleness", [*VALUES, "batch = 4", "batch = 16", "n = 3 runs"]),
        ("lr_batch", [*VALUES, "4", "16", "0.01", "0.05", "0.3", "n = 3 seeds"]),
        ("cliff", [*VALUES, "batch = 4", "batch = 16", "0.01", "0.05", "0.3", "n = 3 seeds"]),
    ],
)
def test_each_value_of_each_axis_is_visible(grid, name, values):
    shown = texts(figures.FIGURES[name].draw(grid))
    assert [value for value in values if value not in shown] == []
    assert "not shown" not in shown


@pytest.mark.slow
def test_lines_are_seeds_at_best_rates(grid):
    figure = figures.learning(grid, x="updates")
    final = pd.DataFrame(grid.final).groupby(
        ["method", "cluster.slowdowns.0.factor", "task.batch", "learning.lr"], observed=True
    )["test_loss"]
    best = final.mean().groupby(level=[0, 1, 2], observed=True).min()
    rows = np.reshape(figure.axes, (3, -1))[:, 0]
    for axes, factor in zip(rows, (1, 2, 5), strict=True):
        assert axes.get_title("left") == f"factor = {factor}"
        lines = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
        expected = {
            f"{method}, batch = {batch} (n = 3)": best[method, factor, batch]
            for method in ("sync", "async", "late")
            for batch in (4, 16)
        }
        assert lines == pytest.approx(expected)


@pytest.mark.slow
def test_staleness_has_a_row_and_mean_a_line(grid):
    axes = figures.staleness(grid).axes[2]  # factor = 5
    means = [line.get_xdata()[0] for line in axes.lines if line.get_color() == "black"]
    runs = grid.where(**{"cluster.slowdowns.0.factor": 5})
    expected = []
    for method in ("sync", "async", "late"):
        for batch in (4, 16):
            updates = runs.where(method=method, **{"task.batch": batch}).updates
            expected.append(updates.loc[updates["status"] == "applied", "staleness"].mean())
    assert means == pytest.approx(expected)


@pytest.mark.slow
def test_lr_delay_names_the_keys_that_were_swept(grid):
    with pytest.raises(ValueError, match=r"^algorithm\.delay: .*: sweep it, or draw .*task\.batch"):
        figures.lr_delay(grid)


@pytest.mark.slow
def test_method_by_rates_is_drawn_at_the_best(tmp_path):
    rates = [0.01, 0.02, 0.05, 0.1, 0.2, 0.4]
    results = swept(tmp_path, f"{METHODS}  learning.lr: {rates}\n")
    shown = facets(results)
    assert shown.panels == [""]
    assert [line.name for line in shown.lines] == ["sync", "async", "late"]
    assert shown.title == f"learning.lr at its best of {', '.join(map(str, rates))}, by test loss"
    ends = results.final.set_index(["method", "learning.lr"])["test_loss"]
    for line in shown.lines:
        assert line.best == f"lr = {ends[line.name].idxmin():g}"
        assert line.curves[0]["test_loss"].iloc[-1] == ends[line.name].min()


@pytest.mark.parametrize(("rates", "lines"), [([0.01, 0.05], 6), ([0.01, 0.05, 0.3], 3)])
def test_rates_have_dashes_only_in_few_lines(tmp_path, rates, lines):
    shown = facets(swept(tmp_path, f"{METHODS}  learning.lr: {rates}\n"))
    assert len(shown.lines) == lines
    assert ("at its best" in shown.title) == (lines == 3)


def test_dependent_keys_need_no_panels(tmp_path):
    axes = "  zip: {cluster.workers: [2, 3], learning.lr: [0.1, 0.15]}\n"
    names = [line.name for line in facets(swept(tmp_path, axes)).lines]
    assert names == ["workers = 2, lr = 0.1", "workers = 3, lr = 0.15"]
    axes = """\
  method:
    sync: {algorithm.name: sync_ps}
    late: {algorithm.name: k_sync, sweep: {algorithm.wait_for: [1, 2]}}
"""
    names = [line.name for line in facets(swept(tmp_path, axes)).lines]
    assert names == ["sync", "late, wait_for = 1", "late, wait_for = 2"]


@pytest.mark.parametrize(
    ("name", "axes", "overrides", "error"),
    [
        (
            "comparison",
            f"{METHODS}  cluster.workers: [1, 2, 3]\n",
            {},
            r"cluster\.workers: 3 values, .* 2 panels: choose some by `where`, as cluster\.workers=",
        ),
        (
            "comparison",
            f"{METHODS}  cluster.workers: [1, 2]\n  stop.updates: [4, 5, 6, 7, 8]\n",
            {"task": "{model: timing}"},
            r"stop\.updates: no place in this figure: .* `where`, as stop\.updates=",
        ),
        ("curves", f"{METHODS}  cluster.workers: [1, 2]\n", {}, "workers = 1, .* by `where`"),
        ("timeline", "  seed: [0, 1, 2, 3, 4]\n", {}, "at most 4 panels, got 5 .* by `where`"),
        ("occupation", "  seeds: 5\n", {}, "at most 4 bars, got 5"),
    ],
)
def test_too_large_sweep_names_where(tmp_path, monkeypatch, name, axes, overrides, error):
    """With lower limits of panels and bars: each run takes a while to be stored."""
    monkeypatch.setattr("laggard.experiments.figures.facets.MAX_PANELS", 2)
    monkeypatch.setattr("laggard.experiments.figures.timelines.MAX_BARS", 4)
    overrides = {"cluster.slowdowns": "[]", **overrides}
    results = swept(tmp_path, axes, **overrides)
    with pytest.raises(ValueError, match=error):
        figures.FIGURES[name].draw(results)


@pytest.mark.slow
def test_plot_where_selects_runs_that_fit(tmp_path, mistake, capsys):
    folder = tmp_path / "toy"
    axes = f"{METHODS}  cluster.workers: {list(range(1, 14))}\n"
    swept(tmp_path, axes, **{"cluster.slowdowns": "[]"})
    to = tmp_path / "chosen.png"
    assert "choose some by --where, as cluster.workers=" in mistake("plot", folder, "--to", to)
    chosen = ["--where", "cluster.workers=[1, 2, 3]"]
    assert main(["plot", str(folder), "--to", str(to), *chosen]) == 0
    assert capsys.readouterr().out == f"{to}\n"
    assert to.is_file()
    assert "no run has that value" in mistake(
        "plot", folder, "--to", to, "--where", "cluster.workers=99"
    )


def test_best_values_beside_many_distributions_do_not_overlap(tmp_path):
    workers = "  cluster.workers: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]\n"
    axes = f"{workers}  learning.lr: [0.01, 0.05]\n"
    figure = figures.comparison(swept(tmp_path, axes, stop="{updates: 5}"))
    figure.draw_without_rendering()
    names = figure.axes[2].get_yticklabels()
    assert len(names) == 12
    boxes = [name.get_window_extent() for name in names]
    assert all(lower.y1 <= upper.y0 for upper, lower in pairwise(boxes))
