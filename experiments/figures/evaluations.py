"""Curves of evaluations: accuracy, losses, and the consensus distance of the nodes' models."""

import math
from collections.abc import Sequence
from typing import Any

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

MAX_LINES = len(PALETTE)
HISTOGRAMS_IN_A_ROW = 4  # of histograms
BANDS = "line and band: mean of n seeds and its 95 % interval (t)"


def comparison(
    results: Runs, path: File = None, target: float | None = None, label: Label | None = None
) -> Figure:
    """Compare runs: learning against virtual time and against updates, and staleness.

    Args:
        results: runs; those that differ only in seeds are drawn as one line, the mean in its 95 %
            interval.
        path: where the figure is saved.
        target: a test accuracy (0 to 1) to mark, where the task has accuracies.
        label: names a run; by default what was swept, else the config's name.

    Raises:
        ValueError: two results cannot be told apart.
    """
    results = as_sequence(results)
    lines = lines_of(results, label)
    measure = measures_of(results)[0]
    shown = best_of(lines, measure, MAX_LINES)
    if measure != "test_accuracy":
        target = None
    updates = {}
    for line in shown:
        updates[line.run] = pd.concat([results[index].updates for index in line.results])
    rows = math.ceil(len(updates) / HISTOGRAMS_IN_A_ROW)
    with styled_figure(8, 3.4 + 2.1 * rows, path) as figure:
        heights = [3.2] + [2.1] * rows
        grid = figure.add_gridspec(1 + rows, 12, height_ratios=heights)
        left = figure.add_subplot(grid[0, :6])
        right = figure.add_subplot(grid[0, 6:], sharey=left)
        draw(left, shown, "time", measure, target)
        draw(right, shown, "updates", measure, target)
        right.tick_params(labelleft=False, which="both")
        right.set_ylabel("")
        styles = zip(shown, line_styles(shown), strict=False)
        colours = {line.run: colour for line, (colour, _) in styles}
        _histograms(figure, grid, updates, colours)
        legend(figure, left, notes(shown, lines))
    return figure


def _histograms(
    figure: Figure, grid: GridSpec, updates: dict[str, pd.DataFrame], colours: dict[str, str]
) -> None:
    """Draw one histogram for each run, with common bins, below the first row of `grid`."""
    top = applied_gradients(pd.concat(updates.values()))["staleness"].max()
    span = grid.ncols // min(len(updates), HISTOGRAMS_IN_A_ROW)
    for index, (run, rows) in enumerate(updates.items()):
        start = index % HISTOGRAMS_IN_A_ROW * span
        axes = figure.add_subplot(grid[1 + index // HISTOGRAMS_IN_A_ROW, start : start + span])
        histogram(axes, rows, top, colours[run], run, wrap=9 * span)
        if start:
            axes.set_ylabel("")


def learning(
    results: Runs, path: File = None, x: str = "time", label: Label | None = None
) -> Figure:
    """Accuracy and losses of runs against one axis: virtual time, updates, samples or epochs.

    Each line is the mean of the runs and members that differ only in seeds; the band is the 95 %
    interval of that mean, mean +- t_(n-1, 0.975) s / sqrt(n).

    Args:
        x: `time`, `updates`, `samples` or `epoch`.

    Raises:
        ValueError: another x, or two results that cannot be told apart.
    """
    results = as_sequence(results)
    measures = measures_of(results)
    lines = lines_of(results, label)
    shown = best_of(lines, measures[0], MAX_LINES)
    height = 3.6
    if len(measures) == 3:
        height = 3.3
    with styled_figure(8, height, path) as figure:
        panels = figure.subplots(1, len(measures), squeeze=False)[0]
        for axes, measure in zip(panels, measures, strict=True):
            draw(axes, shown, x, measure)
        legend(figure, panels[-1], notes(shown, lines))
    return figure


def curves(results: Runs, path: File = None) -> Figure:
    """Accuracy, where the task has one, and losses, against each of the four axes."""
    results = as_sequence(results)
    measures = measures_of(results)
    lines = lines_of(results)
    shown = best_of(lines, measures[0], MAX_LINES)
    shape = len(measures), len(AXIS_LABELS)
    with styled_figure(8, 1 + 1.5 * len(measures), path) as figure:
        panels = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
        for row, measure in zip(panels, measures, strict=True):
            for axes, x in zip(row, AXIS_LABELS, strict=True):
                draw(axes, shown, x, measure)
                axes.label_outer()
        legend(figure, panels[-1, -1], notes(shown, lines))
    return figure


def consensus(
    results: Runs, path: File = None, x: str = "updates", label: Label | None = None
) -> Figure:
    """The consensus distance of the nodes' models against updates, on a log axis.

        sqrt(1/P sum_i |x_i - x_mean|^2)

    The start, where all models are equal, is left out. Where the distance is 0, as after an
    all-reduce, the line has a gap.

    Args:
        x: `time`, `updates`, `samples` or `epoch`.

    Raises:
        ValueError: another x, or no result with a model on each node.
    """
    measured = [result for result in as_sequence(results) if "consensus" in result.metrics]
    if not measured:
        raise ValueError(
            "no result has a consensus distance: expected a method whose nodes have models, as dpsgd"
        )
    lines = []
    for line in lines_of(measured, label):
        tails = [curve[curve["updates"] > 0] for curve in line.curves]
        if all(len(tail) for tail in tails):
            lines.append(line._replace(curves=tails))
    if not lines:
        raise ValueError(
            "no result has a consensus distance after an update: the runs ended before their first"
        )
    shown = best_of(lines, "consensus", MAX_LINES)
    texts = notes(shown, lines)
    distances = _column(shown, "consensus")
    if (distances == 0).any():
        texts.append("a gap: the nodes' models are equal")
    with styled_figure(8, 3.8, path) as figure:
        axes = figure.subplots()
        draw(axes, shown, x, "consensus")
        axes.set_ylabel("consensus distance\n(root mean square over nodes)")
        legend(figure, axes, texts)
    return figure


def notes(shown: Sequence[Line], lines: Sequence[Line]) -> list[str]:
    """How to read bands, which lines were left out, and why a line ends early."""
    texts = []
    if any(len(line.curves) > 1 for line in shown):
        texts.append(BANDS)
    if len(shown) < len(lines):
        texts.append(
            f"shown: {len(shown)} of {len(lines)} lines, of each run those that ended best"
        )
    losses = _column(shown, "test_loss", last=True)
    if not np.isfinite(losses).all():
        texts.append("a line ends where one of its seeds diverged")
    return texts


def _column(lines: Sequence[Line], name: str, last: bool = False) -> np.ndarray:
    """A column of all curves that have it, or its last values."""
    values: list[Any] = []
    for line in lines:
        for curve in line.curves:
            if name in curve:
                column = curve[name].tolist()
                values += column[-1:] if last else column
    return np.array(values, float)
