"""Curves of evaluations: accuracy, losses, and the consensus distance of the nodes' models."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from laggard.experiments.figures.delays import histogram
from laggard.experiments.figures.lines import (
    Label,
    Line,
    applied_gradients,
    best_of,
    lines_of,
    measures_of,
)
from laggard.experiments.figures.style import (
    AXIS_LABELS,
    PALETTE,
    File,
    Runs,
    as_sequence,
    draw,
    legend,
    line_styles,
    styled_figure,
)

MOST = len(PALETTE)


def comparison(
    results: Runs, path: File = None, target: float | None = None, label: Label | None = None
) -> Figure:
    """Compare runs: what was learnt against virtual time and against updates, and how stale the
    gradients were.

    Args:
        results: runs; those that differ only in seeds are drawn as one, their mean and its 95 %
            interval.
        path: where the figure is saved, if at all.
        target: a test accuracy (0 to 1) worth a line, where the task has accuracies.
        label: names a run; by default what was swept, else the config's name.

    Raises:
        ValueError: two results cannot be told apart.
    """
    results = as_sequence(results)
    lines, measure = lines_of(results, label), measures_of(results)[0]
    shown = best_of(lines, measure, MOST)
    target = target if measure == "test_accuracy" else None
    updates = {
        line.run: pd.concat([results[index].updates for index in line.results]) for line in shown
    }
    rows = math.ceil(len(updates) / 4)
    with styled_figure(8, 3.4 + 2.1 * rows, path) as figure:
        grid = figure.add_gridspec(1 + rows, 12, height_ratios=[3.2] + [2.1] * rows)
        left = figure.add_subplot(grid[0, :6])
        right = figure.add_subplot(grid[0, 6:], sharey=left)
        draw(left, shown, "time", measure, target)
        draw(right, shown, "updates", measure, target)
        right.tick_params(labelleft=False, which="both")
        right.set_ylabel("")
        _histograms(
            figure,
            grid,
            updates,
            dict(zip([line.run for line in shown], line_styles(shown), strict=False)),
        )
        legend(figure, left, notes(shown, lines))
    return figure


def learning(
    results: Runs, path: File = None, x: str = "time", label: Label | None = None
) -> Figure:
    """Accuracy and losses of runs against one axis: virtual time, updates, samples or epochs.

    Each line is the mean of the runs and members that differ only in seeds, in the 95 % interval of
    that mean, mean +- t_(n-1, 0.975) s / sqrt(n).

    Args:
        x: `time`, `updates`, `samples` or `epoch`.

    Raises:
        ValueError: another x, or two results that cannot be told apart.
    """
    results = as_sequence(results)
    measures, lines = measures_of(results), lines_of(results, label)
    shown = best_of(lines, measures[0], MOST)
    with styled_figure(8, 3.6 if len(measures) < 3 else 3.3, path) as figure:
        for axes, measure in zip(
            figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True
        ):
            draw(axes, shown, x, measure)
        legend(figure, axes, notes(shown, lines))
    return figure


def curves(results: Runs, path: File = None) -> Figure:
    """Accuracy, where the task has one, and losses, against each of the four axes."""
    results = as_sequence(results)
    measures, lines = measures_of(results), lines_of(results)
    shown = best_of(lines, measures[0], MOST)
    with styled_figure(8, 1 + 1.5 * len(measures), path) as figure:
        panels = figure.subplots(
            len(measures), len(AXIS_LABELS), sharex="col", sharey="row", squeeze=False
        )
        for row, measure in zip(panels, measures, strict=True):
            for axes, x in zip(row, AXIS_LABELS, strict=True):
                draw(axes, shown, x, measure)
                axes.label_outer()
        legend(figure, axes, notes(shown, lines))
    return figure


def consensus(
    results: Runs, path: File = None, x: str = "updates", label: Label | None = None
) -> Figure:
    """How far the nodes' models lie apart: the consensus distance against updates, on a log axis.

        sqrt(1/P sum_i |x_i - x_mean|^2)

    The start, where all models are equal, is left out. Where it is 0, as after an all-reduce, there
    is nothing to draw on a log axis, and the line has a gap.

    Args:
        x: `time`, `updates`, `samples` or `epoch`.

    Raises:
        ValueError: another x, or no result whose nodes have models of their own.
    """
    found = [result for result in as_sequence(results) if "consensus" in result.metrics]
    if not found:
        raise ValueError(
            "no result has a consensus distance: expected a method whose nodes have models, as dpsgd"
        )
    lines = [
        line._replace(curves=[curve[curve["updates"] > 0] for curve in line.curves])
        for line in lines_of(found, label)
    ]
    lines = [line for line in lines if all(len(curve) for curve in line.curves)]
    if not lines:
        raise ValueError(
            "no result has a consensus distance after an update: the runs ended before their first"
        )
    shown = best_of(lines, "consensus", MOST)
    with styled_figure(8, 3.8, path) as figure:
        axes = figure.subplots()
        draw(axes, shown, x, "consensus")
        axes.set_ylabel("consensus distance\n(root mean square over nodes)")
        zero = any((curve["consensus"] == 0).any() for line in shown for curve in line.curves)
        legend(
            figure,
            axes,
            [*notes(shown, lines), "a gap: the nodes' models are equal" if zero else ""],
        )
    return figure


def notes(shown: Sequence[Line], lines: Sequence[Line]) -> list[str]:
    """How to read bands, and how many lines were left out."""
    bands = ["line and band: mean of n seeds and its 95 % interval (t)"] * any(
        len(line.curves) > 1 for line in shown
    )
    fewer = [f"shown: {len(shown)} of {len(lines)} lines, of each run those that ended best"]
    losses = [
        curve["test_loss"].iloc[-1]
        for line in shown
        for curve in line.curves
        if "test_loss" in curve
    ]
    ended = not np.isfinite(np.array(losses, float)).all()
    return (
        bands
        + fewer * (len(shown) < len(lines))
        + ["a line ends where one of its seeds diverged"] * ended
    )


def _histograms(
    figure: Figure,
    grid: GridSpec,
    updates: Mapping[str, pd.DataFrame],
    colours: Mapping[str, tuple[str, object]],
) -> None:
    """A histogram a run, up to four in each row of `grid` below the first, all in the same bins."""
    top = applied_gradients(pd.concat(updates.values()))["staleness"].max()
    span = grid.ncols // min(len(updates), 4)
    for index, (run, of) in enumerate(updates.items()):
        row, start = 1 + index // 4, index % 4 * span
        axes = figure.add_subplot(grid[row, start : start + span])
        histogram(axes, of, top, colours[run][0], run, wrap=9 * span)
        axes.set_ylabel("" if start else axes.get_ylabel())
