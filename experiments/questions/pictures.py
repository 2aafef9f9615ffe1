"""The figures of the pages: accuracy by rate and delay, speed-up, and the figure of a question."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from laggard.experiments.figures.grids import draw_cells, draw_steps
from laggard.experiments.figures.style import (
    COUNT,
    DASHES,
    GREY,
    LIGHT,
    MARKERS,
    PALETTE,
    PERCENT,
    PLAIN,
    File,
    legend,
    logarithmic,
    name_ticks,
    span,
    styled_figure,
    tick_values,
)
from laggard.experiments.questions.delay import (
    EPOCHS_TO,
    NAMES,
    POINT,
    RATE,
    SPEEDUP,
    cliff_rate,
    epochs_at_best,
    speed_up,
    targets_in,
    whole_grid,
)
from laggard.experiments.questions.numbers import reporting, select
from laggard.experiments.questions.question import Picture, Question
from laggard.experiments.questions.words import SeedEstimate, estimate
from laggard.experiments.results.formats import label_text
from laggard.experiments.theory.stability import critical

LINE = "largest stable rate in theory, for one curvature, fitted to where accuracy falls"
FITTED_FROM = 8
"""The least delay at which theory's line is fitted and drawn. Without delay it is far too high."""
USUAL = 10**-2.5
MOMENTUM = 0.9
WIDTH = 8.0  # inches of a figure
MOST_TICKS = 10
"""The largest number of settings of which each has a tick."""
ERROR = "error"  # of a figure, in %: 1 minus the accuracy of the table
LONG_NAME = 12  # characters of a tick's name, above which names are slanted


def rates_picture(table: pd.DataFrame, path: File = None) -> Figure:
    """Accuracy by learning rate and delay, a panel per optimiser, of seeds with the whole grid.

    A cell is the mean over seeds; a run that diverged counts as chance, the least accuracy of all.
    A cell within five points of chance is grey. Frames mark the best rate of each delay, and one
    rate for all delays.
    """
    grid = whole_grid(table)
    chance = float(grid["value"].min())
    optimisers = [name for name in NAMES if name in set(grid["optimiser"])]
    colours = ScalarMappable(Normalize(0.0, 1.0), "viridis")
    with styled_figure(8, 3.0, path) as figure:
        panels = figure.subplots(1, len(optimisers), sharey=True, squeeze=False)[0]
        for axes, optimiser in zip(panels, optimisers, strict=True):
            own = select(grid, optimiser=optimiser)
            values = own["value"].mask(own["lost"], chance)
            cells = own.assign(value=values).pivot_table("value", "delay", "lr")
            _draw_accuracy(axes, cells, chance, colours)
            axes.set_title(NAMES[optimiser], fontsize="small")
            axes.set_xlabel("learning rate")
        panels[0].set_ylabel("delay D (updates)")
        bar = figure.colorbar(colours, ax=list(panels), label="final test accuracy (%)", pad=0.02)
        bar.formatter = PERCENT
        note = (
            "Cells: mean accuracy of the seeds, in %; grey: diverged, or at chance. White frame: the "
            f"best rate of a delay; dashed: one rate for all, {usual_rate(grid):.1g}. "
            f"n = {span([grid['seed'].nunique()])} seeds"
        )
        legend(figure, panels, [note])
    return figure


def describe_rates(table: pd.DataFrame) -> str:
    """The caption of `rates_picture`: accuracies at one rate for all delays, and at best rates."""
    grid = whole_grid(table)
    seeds = grid["seed"].nunique()
    chance = float(grid["value"].min())
    grid = grid.assign(value=grid["value"].mask(grid["lost"], chance))
    at_usual, at_best = [], []
    for optimiser, name in NAMES.items():
        cells = select(grid, optimiser=optimiser).pivot_table("value", "delay", "lr")
        usual = cells[usual_rate(grid)]
        lost = usual.index[usual <= chance + 5 * POINT]
        if len(lost):
            at_usual.append(f"{name} from a delay of {lost.min():g} on")
        best = 100 * cells.max(axis=1)
        longest = best.index.max()
        cost = best.loc[0] - best.loc[longest]
        at_best.append(f"{name} {cost:.1f} points")
    one_rate = " and ".join(at_usual)
    return (
        f"Means of the {seeds} seeds that ran the whole grid. At one rate for all, "
        f"{usual_rate(grid):.1g}, accuracy is at chance: {one_rate}. Each at its best rate, a delay "
        f"of {longest:g} updates costs {' and '.join(at_best)}."
    )


def usual_rate(table: pd.DataFrame) -> float:
    """The rate of the grid that is nearest to `USUAL`, the one rate for all delays."""
    rates = np.sort(table["lr"].unique()).astype(float)
    return float(rates[np.argmin(abs(np.log(rates / USUAL)))])


def _draw_accuracy(axes: Axes, cells: pd.DataFrame, chance: float, colours: ScalarMappable) -> None:
    """Draw the cells `(delays, rates)` of one optimiser, their frames and the stability line."""
    values = cells.to_numpy(float)
    lost = values <= chance + 5 * POINT
    shown = np.where(lost, np.nan, values)
    hatched = np.zeros_like(lost)
    percents = np.array([[f"{100 * value:.1f}" for value in row] for row in values], object)
    draw_cells(axes, shown, hatched, percents, colours, 6.5)
    for row, column in np.argwhere(lost):
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=LIGHT, edgecolor="none"))
    distances_to_usual = abs(np.log(cells.columns.to_numpy(float) / USUAL))
    usual = int(np.argmin(distances_to_usual))
    for row, best in enumerate(values.argmax(axis=1)):
        _frame(axes, best, row, 0.06, "-", "white")
        _frame(axes, usual, row, 0.14, (0, (2, 2)), "black")
    _draw_stability(axes, cells)
    rates = [label_text(rate) for rate in cells.columns]
    delays = [label_text(delay) for delay in cells.index]
    name_ticks(axes.xaxis, np.arange(len(rates)) + 0.5, rates, rotation=45)
    name_ticks(axes.yaxis, np.arange(len(delays)) + 0.5, delays)


def _frame(axes: Axes, column: int, row: int, inset: float, dashes: Any, colour: str) -> None:
    place, side = (column + inset, row + inset), 1 - 2 * inset
    frame = Rectangle(place, side, side, fill=False, edgecolor=colour, linestyle=dashes)
    axes.add_patch(frame)


def _draw_stability(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw the stability limit of a quadratic with momentum, its curvature fitted to the cliffs."""
    delays = cells.index.to_numpy()
    limits = np.array([critical(int(delay), MOMENTUM, nesterov=False)[0] for delay in delays])
    cliffs = np.array([cliff_rate(cells.loc[delay].rename_axis("lr")) for delay in delays])
    is_late = delays >= FITTED_FROM
    is_fitted = is_late & np.isfinite(cliffs)
    if not is_fitted.any():
        return
    # Limits are for curvature 1: the mean ratio in the logarithm stands for the curvature.
    log_ratio = np.mean(np.log(cliffs[is_fitted]) - np.log(limits[is_fitted]))
    fitted = limits * np.exp(log_ratio)

    # Columns have side 1 and rates at their middle; beyond the ends the scale goes on as there.
    logs = np.log(cells.columns.to_numpy(float))
    before = 2 * logs[0] - logs[1]
    after = 2 * logs[-1] - logs[-2]
    middles = np.arange(len(logs)) + 0.5
    columns = [-0.5, *middles, len(logs) + 0.5]
    places = np.interp(np.log(fitted), [before, *logs, after], columns).clip(0, len(logs))
    draw_steps(axes, np.where(is_late, places, np.nan), LINE)


def speedup_picture(table: pd.DataFrame, path: File = None) -> Figure:
    """Epochs to each target, and the speed-up, against D + 1 workers; a column per optimiser."""
    optimisers = [name for name in NAMES if name in set(table["optimiser"])]
    with styled_figure(8, 4.6, path) as figure:
        panels = figure.subplots(2, len(optimisers), sharex=True, sharey="row", squeeze=False)
        for column, optimiser in enumerate(optimisers):
            above, below = panels[:, column]
            for number, target in enumerate(targets_in(select(table, study="targets"))):
                _draw_target(above, below, table, optimiser, target, number)
            above.set_title(NAMES[optimiser], fontsize="small")
            below.set_xlabel("workers D + 1")
            for axes in (above, below):
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.xaxis.set_major_formatter(COUNT)
                axes.yaxis.set_major_formatter(COUNT)
            ends = below.get_xlim()
            below.plot(ends, ends, color=LIGHT, zorder=1, label="as many times sooner as workers")
            below.set_xlim(ends)
        panels[0, 0].set_ylabel("epochs to the target")
        panels[1, 0].set_ylabel("times sooner than one")
        note = (
            "Means with 95 % intervals, each target at its own best rate; a target that some seeds "
        )
        note += "missed within the budget is left out"
        legend(figure, panels.flat, [note])
    return figure


def _draw_target(
    above: Axes, below: Axes, table: pd.DataFrame, optimiser: str, target: float, number: int
) -> None:
    measure = f"{EPOCHS_TO}{target:g}"
    epochs = select(epochs_at_best(table, target), optimiser=optimiser)
    delays = sorted(epochs["delay"].unique())
    taken = [estimate(select(epochs, delay=delay)["value"]) for delay in delays]
    sooner = [speed_up(epochs, optimiser, delay, measure) for delay in delays]
    label = f"to {target:.0%}"
    workers = np.array(delays, float) + 1
    _draw_estimates(above, workers, taken, number, label)
    _draw_estimates(below, workers, sooner, number, label)


def has_picture(question: Question, table: pd.DataFrame) -> bool:
    """Whether a question has a figure, and its table some numbers to show in it."""
    if question.name in (SPEEDUP.name, RATE.name):
        return True
    drawing = question.drawing
    return drawing is not None and not _shown_rows(drawing, table).empty


def _shown_rows(drawing: Picture, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a figure: those of the reporting seeds."""
    if drawing.measure == ERROR:
        accuracies, _ = reporting(select(table, measure="accuracy", **drawing.where))
        return accuracies.assign(value=100 * (1 - accuracies["value"]))
    rows, _ = reporting(select(table, measure=drawing.measure, **drawing.where))
    return rows


def question_picture(question: Question, table: pd.DataFrame, path: File = None) -> Figure:
    """The figure of a question.

    Raises:
        ValueError: the question has no figure.
    """
    if question.name == SPEEDUP.name:
        return speedup_picture(table, path)
    if question.name == RATE.name:
        return rates_picture(table, path)
    drawing = question.drawing
    if drawing is None:
        raise ValueError(f"{question.name} has no figure")
    rows = _shown_rows(drawing, table)
    return measure_picture(rows, drawing, f"{question.asks} {question.setting}.", path=path)


def measure_picture(
    rows: pd.DataFrame,
    drawing: Picture,
    caption: str,
    reported: Mapping[str, Mapping[float, float]] = MappingProxyType({}),
    path: File = None,
) -> Figure:
    """A figure of means over seeds with their 95 % intervals.

    Args:
        rows: the rows to show, of one measure.
        caption: the caption, which notes on seeds and lost runs follow.
        reported: a paper's values, name of the line -> x -> value; they are drawn in grey.
    """
    rows = rows.assign(value=rows["value"].mask(rows["lost"]))
    panels: Sequence[Any] = [None]
    if drawing.panels:
        panels = list(dict.fromkeys(rows[drawing.panels]))
    with styled_figure(WIDTH, 3.4, path) as figure:
        parts = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(parts, panels, strict=True):
            own = rows if panel is None else select(rows, **{drawing.panels: panel})
            _draw_reported(axes, reported)
            _draw_measure(axes, own, drawing, WIDTH / len(panels))
            if panel is not None:
                title = NAMES.get(str(panel), _value_text(drawing.panels, panel))
                axes.set_title(title, fontsize="small")
            axes.set_xlabel(drawing.xlabel or drawing.x)
        parts[0].set_ylabel(drawing.ylabel or drawing.measure)
        seeds = rows.groupby([drawing.x])["seed"].nunique()
        lost = int(rows["lost"].sum())
        note = f"Means with 95 % intervals, n = {span(seeds)} seeds"
        if seeds.max() == 1:
            note = "Exact: times are constant"
        if lost:
            note += f"; {lost} of {len(rows)} runs were lost and are left out"
        legend(figure, parts, [f"{caption} {note}"])
    return figure


def _value_text(key: str, value: Any) -> str:
    """A setting as text: a name by itself, a number with its key, as in `delay 8`."""
    if isinstance(value, str):
        return value
    return f"{key} {label_text(value)}"


def _draw_reported(axes: Axes, reported: Mapping[str, Mapping[float, float]]) -> None:
    """Draw a paper's values, in grey and behind ours."""
    for number, (name, values) in enumerate(reported.items()):
        axes.plot(
            list(values),
            list(values.values()),
            color=GREY,
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=8,
            fillstyle="none",
            linewidth=1.0,
            zorder=1,
            label=name,
        )


def _draw_measure(axes: Axes, rows: pd.DataFrame, drawing: Picture, inches: float) -> None:
    """Draw the lines of one panel, `inches` wide."""
    lines: Sequence[Any] = [None]
    if drawing.lines:
        lines = list(dict.fromkeys(rows[drawing.lines]))
    settings = list(dict.fromkeys(rows[drawing.x]))
    named = not pd.api.types.is_numeric_dtype(rows[drawing.x])
    if named:
        known = [name for name in drawing.order if name in settings]
        settings = known + [name for name in settings if name not in known]
    else:
        settings.sort()
    for number, line in enumerate(lines):
        own = rows if line is None else select(rows, **{drawing.lines: line})
        present = [setting for setting in settings if (own[drawing.x] == setting).any()]
        numbers = [estimate(own.loc[own[drawing.x] == setting, "value"]) for setting in present]
        places = present
        if named:
            places = [settings.index(setting) for setting in present]
        label = None
        if line is not None:
            label = _value_text(drawing.lines, line)
        _draw_estimates(axes, np.array(places, float), numbers, number, label, joined=not named)
    if named:
        longest = max(len(str(setting)) for setting in settings)
        slant = {"rotation": 30, "ha": "right"} if longest > LONG_NAME else {}
        name_ticks(axes.xaxis, range(len(settings)), settings, **slant)
        axes.set_xlim(-0.5, len(settings) - 0.5)
    elif drawing.log_x:
        axes.set_xscale("log")
        if len(settings) <= MOST_TICKS:
            tick_values(axes.xaxis, settings, inches)
    elif len(settings) <= MOST_TICKS:
        axes.set_xticks(settings, [label_text(setting) for setting in settings])
    if drawing.log_y:
        logarithmic(axes)
    if drawing.measure == ERROR:
        axes.yaxis.set_major_formatter(PLAIN)
    if drawing.measure.startswith("accuracy"):
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 1.005))
        axes.yaxis.set_major_formatter(PERCENT)


def _draw_estimates(
    axes: Axes,
    places: np.ndarray,
    numbers: Sequence[SeedEstimate],
    line: int,
    label: str | None,
    joined: bool = True,
) -> None:
    """Draw means with their intervals, without those that are NaN."""
    means = np.array([number.mean.value for number in numbers], float)
    lows = np.array([number.mean.low for number in numbers], float)
    highs = np.array([number.mean.high for number in numbers], float)
    known = np.isfinite(means)
    ends = np.nan_to_num(np.array([means - lows, highs - means]))[
        :, known
    ]  # a single seed has no interval
    linestyle: Any = "none"
    if joined:
        linestyle = DASHES[line % len(DASHES)]
    axes.errorbar(
        places[known],
        means[known],
        yerr=np.maximum(ends, 0),
        color=PALETTE[line % len(PALETTE)],
        linestyle=linestyle,
        marker=MARKERS[line % len(MARKERS)],
        markersize=4,
        capsize=2,
        linewidth=1.4,
        label=label,
    )
