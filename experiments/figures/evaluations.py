"""Curves of evaluations: accuracy, losses, and the consensus distance of the nodes' models."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from laggard.experiments.figures.delays import draw_distributions, histogram
from laggard.experiments.figures.facets import Facets, facets, refuse_panels
from laggard.experiments.figures.lines import (
    MIN_INTERVAL,
    Label,
    Line,
    applied_gradients,
    measures_of,
    shorten,
)
from laggard.experiments.figures.style import (
    File,
    Runs,
    as_sequence,
    draw,
    legend,
    legend_height,
    line_styles,
    styled_figure,
)

CURVE_AXES = ("time", "updates", "samples", "epoch")
HISTOGRAMS_IN_A_ROW = 4
MAX_HISTOGRAMS = 8
ROWS_OF_STALENESS = "right: shares of gradients, each row on its own scale; black line: mean"
INTERVAL_BANDS = "line and band: mean of n seeds and its 95 % interval (t)"
RANGE_BANDS = f"line and band: mean and range of n seeds, where n is below {MIN_INTERVAL}"


def comparison(
    results: Runs, path: File = None, target: float | None = None, label: Label | None = None
) -> Figure:
    """Compare runs: learning against virtual time and against updates, and staleness.

    Lines, and a row of panels for each value of a second axis, are those of `facets`.

    Args:
        results: runs; those that differ only in seeds are drawn as one line, the mean in its 95 %
            interval.
        path: where the figure is saved.
        target: a test accuracy (0 to 1) to mark, where the task has accuracies.
        label: names a run; by default what was swept, else the config's name.

    Raises:
        ValueError: two results cannot be told apart, or an axis has too many values.
    """
    shown = facets(as_sequence(results), label)
    measure = measures_of(shown.results)[0]
    if measure != "test_accuracy":
        target = None
    colours = {line.colour for line in shown.lines}
    if len(shown.panels) > 1 or len(colours) > MAX_HISTOGRAMS:
        return _compare_in_rows(shown, path, measure, target)
    looks = line_styles(shown.lines)
    updates: dict[str, pd.DataFrame] = {}
    for line in shown.lines:
        updates.setdefault(line.colour, _updates_of(shown, line.colour))
    rows = math.ceil(len(updates) / HISTOGRAMS_IN_A_ROW)
    height = 3.4 + 2.1 * rows + legend_height(shown.lines)
    with styled_figure(8, height, path) as figure:
        heights = [3.2] + [2.1] * rows
        # a row has one to four histograms, and each of these numbers divides 12
        grid = figure.add_gridspec(1 + rows, 12, height_ratios=heights)
        left = figure.add_subplot(grid[0, :6])
        right = figure.add_subplot(grid[0, 6:], sharey=left)
        draw(left, shown.lines, "time", measure, target)
        draw(right, shown.lines, "updates", measure, target)
        right.tick_params(labelleft=False, which="both")
        right.set_ylabel("")
        styles = {line.colour: looks[line.name].colour for line in shown.lines}
        _histograms(figure, grid, updates, styles)
        legend(figure, left, notes(shown), shown.title)
    return figure


def _updates_of(shown: Facets, colour: str) -> pd.DataFrame:
    """The gradients of all runs that are drawn in a colour."""
    runs = sorted({run for line in shown.lines if line.colour == colour for run in line.results})
    return pd.concat([shown.results[run].updates for run in runs])


def _compare_in_rows(shown: Facets, path: File, measure: str, target: float | None) -> Figure:
    """Draw a row of panels for each value of the second axis: by time, updates and staleness."""
    looks = line_styles(shown.lines)
    most_lines = max(len(shown.of_panel(name)) for name in shown.panels)
    # names beside the distributions must not overlap
    panel_height = max(1.9, 0.8 + 0.16 * most_lines)
    height = 0.9 + panel_height * len(shown.panels) + legend_height(shown.lines)
    with styled_figure(8, height, path) as figure:
        panels = figure.subplots(len(shown.panels), 3, squeeze=False)
        for row, name in zip(panels, shown.panels, strict=True):
            lines = shown.of_panel(name)
            draw(row[0], lines, "time", measure, target, looks)
            draw(row[1], lines, "updates", measure, target, looks)
            row[1].set_ylabel("")
            draw_distributions(row[2], lines, shown.results, looks)
            row[0].set_title(shorten(name, 60))
        for axes in panels[:-1].flat:
            axes.set_xlabel("")
        without_note = shown._replace(note="")  # the chosen values stand beside the rows
        texts = [*notes(without_note), ROWS_OF_STALENESS]
        if shown.title:
            texts.append("beside a row: its best value")
        # not those of the third column: there n counts runs, not members
        legend(figure, panels[:, :2].flat, texts, shown.title)
    return figure


def _histograms(
    figure: Figure, grid: GridSpec, updates: dict[str, pd.DataFrame], colours: dict[str, Any]
) -> None:
    """Draw one histogram for each colour, with common bins, below the first row of `grid`."""
    top = applied_gradients(pd.concat(updates.values()))["staleness"].max()
    span = grid.ncols // min(len(updates), HISTOGRAMS_IN_A_ROW)
    for index, (name, rows) in enumerate(updates.items()):
        start = index % HISTOGRAMS_IN_A_ROW * span
        axes = figure.add_subplot(grid[1 + index // HISTOGRAMS_IN_A_ROW, start : start + span])
        histogram(axes, rows, top, colours[name], name, wrap=9 * span)
        if start:
            axes.set_ylabel("")


def learning(
    results: Runs, path: File = None, x: str = "time", label: Label | None = None
) -> Figure:
    """Accuracy and losses of runs against one axis: time, updates, samples, epochs or bytes.

    Each line is the mean of the runs and members that differ only in seeds; the band is the 95 %
    interval of that mean, mean +- t_(n-1, 0.975) s / sqrt(n), or the range of fewer than five
    seeds, whose interval would fill the panel. Lines, and a row of panels for each value of a
    second axis, are those of `facets`.

    Args:
        x: `time` (virtual), `updates`, `samples`, `epoch` or `bytes` that were sent.

    Raises:
        ValueError: `x` is unknown, two results cannot be told apart, or an axis has too many
            values.
    """
    shown = facets(as_sequence(results), label)
    measures = measures_of(shown.results)
    height = 3.3
    if len(measures) < 3:
        height = 3.6
    if len(shown.panels) > 1:
        height = 0.9 + 1.9 * len(shown.panels)
    shape = len(shown.panels), len(measures)
    looks = line_styles(shown.lines)
    with styled_figure(8, height + legend_height(shown.lines), path) as figure:
        # a short run has a single training loss, whose axis alone would cover no time
        panels = figure.subplots(*shape, squeeze=False, sharex="row")
        for row, name in zip(panels, shown.panels, strict=True):
            for axes, measure in zip(row, measures, strict=True):
                draw(axes, shown.of_panel(name), x, measure, looks=looks)
            row[0].set_title(shorten(name, 60))
        for axes in panels[:-1].flat:
            axes.set_xlabel("")
        legend(figure, panels[:, -1], notes(shown), shown.title)
    return figure


def curves(results: Runs, path: File = None) -> Figure:
    """Accuracy, where the task has one, and losses, against time, updates, samples and epochs.

    Raises:
        ValueError: the lines need several panels, or an axis has too many values.
    """
    shown = facets(as_sequence(results))
    refuse_panels(shown)
    measures = measures_of(shown.results)
    shape = len(measures), len(CURVE_AXES)
    height = 1 + 1.5 * len(measures) + legend_height(shown.lines)
    with styled_figure(8, height, path) as figure:
        panels = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
        for row, measure in zip(panels, measures, strict=True):
            for axes, x in zip(row, CURVE_AXES, strict=True):
                draw(axes, shown.lines, x, measure)
                axes.label_outer()
        legend(figure, panels[-1, -1], notes(shown), shown.title)
    return figure


def consensus(
    results: Runs, path: File = None, x: str = "updates", label: Label | None = None
) -> Figure:
    """The consensus distance of the nodes' models against updates, on a log axis.

        sqrt(1/P sum_i |x_i - x_mean|^2)

    The start, where all models are equal, is left out. Where the distance is 0, as after an
    all-reduce, the line has a gap.

    Args:
        x: `time`, `updates`, `samples`, `epoch` or `bytes`.

    Raises:
        ValueError: `x` is unknown, or no result has a model at each node.
    """
    given = as_sequence(results)
    measured = [result for result in given if "consensus" in result.metrics]
    if not measured:
        raise ValueError(
            "no result has a consensus distance: expected a method whose nodes have models, as dpsgd"
        )
    shown = facets(measured, label)
    lines = []
    for line in shown.lines:
        tails = [curve[curve["updates"] > 0] for curve in line.curves]
        if all(len(tail) for tail in tails):
            lines.append(line._replace(curves=tails))
    if not lines:
        raise ValueError(
            "no result has a consensus distance after an update: the runs ended before their first"
        )
    shown = shown._replace(lines=lines)
    texts = notes(shown)
    left_out = len(given) - len(measured)
    if left_out:
        texts.append(f"{left_out} of {len(given)} runs have no models at their nodes and no line")
    distances = _column(lines, "consensus")
    # a log axis leaves out zeros; without a positive distance the axis is linear and shows them
    if (distances == 0).any() and (distances > 0).any():
        texts.append("a gap: the nodes' models are equal")
    height = 0.9 + 2.9 * len(shown.panels) + legend_height(lines)
    looks = line_styles(lines)
    with styled_figure(8, height, path) as figure:
        panels = figure.subplots(len(shown.panels), 1, squeeze=False, sharex=True)
        for axes, name in zip(panels.flat, shown.panels, strict=True):
            draw(axes, shown.of_panel(name), x, "consensus", looks=looks)
            axes.set_ylabel("consensus distance\n(root mean square over nodes)")
            axes.set_title(shorten(name, 100))
            axes.label_outer()
        legend(figure, panels.flat, texts, shown.title)
    return figure


def notes(shown: Facets) -> list[str]:
    """Notes on bands, on the values that were chosen, and on lines that end early."""
    texts = []
    seeds = [len(line.curves) for line in shown.lines]
    if max(seeds, default=0) >= MIN_INTERVAL:
        texts.append(INTERVAL_BANDS)
    if any(1 < number < MIN_INTERVAL for number in seeds):
        texts.append(RANGE_BANDS)
    losses = _column(shown.lines, "test_loss", last=True)
    if not np.isfinite(losses).all():
        texts.append("a line ends where one of its seeds diverged")
    return [*texts, shown.note]


def _column(lines: Sequence[Line], name: str, last: bool = False) -> np.ndarray:
    """The values of a column in all curves that have it, or its last values."""
    values: list[Any] = []
    for line in lines:
        for curve in line.curves:
            if name in curve:
                column = curve[name].tolist()
                values += column[-1:] if last else column
    return np.array(values, float)
