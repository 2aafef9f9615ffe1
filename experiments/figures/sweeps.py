"""An outcome along one swept key: the result by learning rate; seconds per update, or to a target,
by workers.
"""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laggard.experiments.figures.grids import (
    AXIS_NAMES,
    DELAY,
    LOSSES,
    MAX_PANELS,
    describe_seeds,
    grid_table,
    initial_loss,
    order,
)
from laggard.experiments.figures.lines import ends, measures_of, shorten, swept_keys
from laggard.experiments.figures.style import (
    DASHES,
    MARKERS,
    PALETTE,
    PERCENT,
    PLAIN,
    SPARSE,
    File,
    Panels,
    Runs,
    as_sequence,
    check_count,
    name_axes,
    span,
    tick_values,
)
from laggard.experiments.results.formats import format_quantity, label_text
from laggard.experiments.results.measures import CURVES, goal, groups, is_seed, measure_runs
from laggard.experiments.results.ranking import LR
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import as_results
from laggard.experiments.results.selection import best
from laggard.experiments.results.statistics import half_width, interval, mean
from laggard.experiments.theory.iteration_time import seconds_per_update, seconds_theory

LOST = 100.0  # times the initial loss: a larger loss counts as diverged
MAX_NAMED_LINES = 12  # in the legend; also the heights of crosses at the edge
WORKERS, BANDWIDTH = "cluster.workers", "cluster.network.bandwidth"


def cliff(
    results: Runs, path: File = None, by: str | None = None, name: str | None = None
) -> Figure:
    """The lr cliff: the final accuracy or loss against the learning rate, a line per delay.

    Points are means over seeds with the 95 % interval of the mean, or of the logarithm of a loss;
    crosses at the edge diverged in at least one seed.

    Args:
        by: the key that tells lines apart. Default: the delay, or where it was not swept the first
            axis of names.
        name: the name of that key in the legend.

    Raises:
        ValueError: there is only one learning rate.
    """
    results = as_sequence(results)
    if by is None:
        by = _default_lines(results)
    table = grid_table(results, LR, by, single=True)
    names = list(dict.fromkeys(table["panel"]))
    panels = Panels(names, names, MAX_PANELS)
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    size = 8, 1.2 + 2.9 * math.ceil(len(panels) / columns)
    measure = measures_of(results)[0]
    start = initial_loss(results, measure)
    top = None
    if measure in LOSSES:
        top = LOST * start
    if name is None:
        name = AXIS_NAMES.get(by, by).split(" (")[0]
    values = sorted(table[by].dropna().unique(), key=order)
    panels.notes = _cliff_notes(table, by, top)
    every = math.ceil(len(values) / MAX_NAMED_LINES)
    if every > 1:
        panels.notes.append(f"the legend names the last line and one in {every}")
    with panels.figure(size, path, columns, sharex=True, sharey=True) as figure:
        for axes, panel in panels:
            _draw_lines(axes, table[table["panel"] == panel], by, values, name, top)
            axes.set_xscale("log")
            if len(panels) > 1:
                axes.set_title(panel, fontsize="small")
            if measure == "test_accuracy":
                axes.yaxis.set_major_formatter(PERCENT)
            elif table["learnt"].between(0, LOST * start, inclusive="neither").any():
                axes.set_yscale("log")
        first = panels.axes[0]
        # after the loop: panels share their ticks, and `set_xscale` of any of them replaces these
        tick_values(first.xaxis, sorted(table[LR].unique()), 7.2 / columns - 0.5)
        title = f"final {CURVES.get(measure, measure)}"
        name_axes(panels.axes, columns, AXIS_NAMES[LR], title)
    return figure


def _default_lines(results: Sequence[Result]) -> str:
    """The delay, if it was swept, else the first swept key whose values are names."""
    table = ends(results, [DELAY])
    names = [key for key in swept_keys(table) if table[key].map(type).eq(str).all()]
    names = [key for key in names if table[key].nunique() > 1]
    if table[DELAY].nunique() > 1 or not names:
        return DELAY
    return names[0]


def _cliff_notes(table: pd.DataFrame, by: str, top: float | None) -> list[str]:
    """Notes on the meaning of points, bars and crosses."""
    seeds = table.groupby(["panel", LR, by], dropna=False).size()
    mean = "mean"
    if top is not None:
        mean = "geometric mean"
    notes = [f"points: {describe_seeds(seeds, mean)}"]
    if seeds.max() > 1:
        notes.append("bars: 95 % interval of the mean (t)")
    crosses = "crosses at the edge: a seed diverged"
    lost = table["learnt"].isna()
    if top is not None:
        lost |= table["learnt"] > top
        crosses += f", or ended above {LOST:g} times the loss of the start"
    if lost.any():
        notes.append(crosses)
    return notes


def _draw_lines(
    axes: Axes, table: pd.DataFrame, by: str, values: Sequence[Any], name: str, top: float | None
) -> None:
    """Draw a line for each value of the key `by`, or one line for all if it has no values."""
    if not values:
        _draw_cliff(axes, table, PALETTE[0], 0, "mean", top)
    colours: Any = PALETTE
    if len(values) > len(PALETTE):
        # up to 0.88: the yellow end is hardly visible on white
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(values)))
    every = math.ceil(len(values) / MAX_NAMED_LINES)
    for index, value in enumerate(values):
        label = None
        if index % every == 0 or index == len(values) - 1:
            label = f"{name} = {label_text(value)}"
        _draw_cliff(axes, table[table[by] == value], colours[index], index, label, top)


def _draw_cliff(
    axes: Axes, table: pd.DataFrame, colour: Any, place: int, label: str | None, top: float | None
) -> None:
    """Draw the mean at each learning rate and its interval, and crosses where a seed is lost.

    Args:
        place: the index of the line, which chooses its marker and dash.
        top: the loss above which a run is lost; None for an accuracy. Losses are averaged as
            logarithms.
    """
    learnt = table["learnt"]
    if top is not None:
        learnt = np.log(learnt.where(learnt <= top))
    groups = learnt.groupby(table[LR])
    sizes = groups.size()
    mean = groups.mean().where(groups.count() == sizes)
    half = half_width(groups.std(), sizes).fillna(0)
    low, high = mean - half, mean + half
    height = 0.015 + 0.03 * (place % MAX_NAMED_LINES)
    if top is None:
        low = low.clip(lower=0)
        high = high.clip(upper=max(1.0, float(mean.max())))
    else:
        low, mean, high = np.exp(low), np.exp(mean), np.exp(high)
        height = 1 - height
    style: dict[str, Any] = {"color": colour, "label": label, "markersize": 4}
    style["marker"] = MARKERS[place % len(MARKERS)]
    style["linestyle"] = DASHES[place % len(DASHES)]
    bars: Any = [mean - low, high - mean]
    axes.errorbar(mean.index, mean, bars, capsize=2, elinewidth=0.8, **style)
    lost = mean.index[mean.isna()]
    if len(lost):
        edge = axes.get_xaxis_transform()
        heights = np.full(len(lost), height)
        axes.plot(lost, heights, "x", color=colour, transform=edge, clip_on=False)


def scaling(results: Runs, path: File = None) -> Figure:
    """Virtual time per update against the number of workers: a colour per bandwidth, a panel per
    method.

    Markers are simulated, in the second half of a run; lines are the closed forms of
    `seconds_theory`, where there is one. An update is a server's, a round of a collective, or one
    step of every node of a gossip.

    Raises:
        ValueError: all results have the same number of workers.
    """
    results = as_sequence(results)
    table = grid_table(results, WORKERS, BANDWIDTH, single=True)
    table["seconds"] = [seconds_per_update(results[run]) for run in table["run"]]
    named = zip(table["panel"], table["run"], strict=True)
    table["panel"] = [panel or _method(results[run].config) for panel, run in named]
    names = list(dict.fromkeys(table["panel"]))
    panels = Panels(names, names, MAX_PANELS)
    columns = min(len(panels), 3)
    width = 6 if columns == 1 else 8
    height = 1.2 + 2.7 * math.ceil(len(panels) / columns)
    workers = sorted(table[WORKERS].unique())
    markers = "markers: simulated"
    with panels.figure((width, height), path, columns, sharex=True, sharey=True) as figure:
        for axes, panel in panels:
            has_theory = _draw_seconds(axes, table, panel, results)
            if has_theory:
                markers = "markers: simulated; lines: closed form"
        for axes, panel in panels:
            axes.set(xscale="log", yscale="log")
            axes.set_title(shorten(panel, 110 // columns), fontsize="small")
            tick_values(axes.xaxis, workers, 7.2 / columns - 0.5)
        name_axes(panels.axes, columns, "workers", "virtual time per update (s)")
        if table["seconds"].max() < 100 * table["seconds"].min():
            axis = panels.axes[0].yaxis
            axis.set_major_formatter(PLAIN)
            axis.set_minor_formatter(SPARSE)
        runs = table.drop_duplicates("run").groupby(["panel", WORKERS, BANDWIDTH])
        panels.notes = [markers, f"n = {span(runs.size())} per marker"]
    return figure


def _draw_seconds(axes: Axes, table: pd.DataFrame, panel: str, results: Sequence[Result]) -> bool:
    """Draw the seconds per update in one panel; return whether theory has a line in it."""
    has_theory = False
    for index, speed in enumerate(sorted(table[BANDWIDTH].unique())):
        rows = table[(table["panel"] == panel) & (table[BANDWIDTH] == speed)]
        if not len(rows):
            continue
        colour = PALETTE[index % 8]
        mean = rows.groupby(WORKERS)["seconds"].mean()
        label = format_quantity(speed, "B/s")
        axes.plot(mean.index, mean, MARKERS[index % 8], markersize=5, label=label, color=colour)
        firsts = rows.groupby(WORKERS)["run"].first()
        expected = np.array([seconds_theory(results[run]) for run in firsts], float)  # None: NaN
        if np.isfinite(expected).any():
            has_theory = True
            axes.plot(mean.index, expected, "-", linewidth=1, color=colour)
    return has_theory


def target_time(results: Runs, path: File = None, target: float | None = None) -> Figure:
    """Virtual time to a target against the number of workers: a line for each setting of the other
    keys, such as a method.

    Each number of workers has the learning rate with the least time. Points are means over seeds
    with 95 % intervals; crosses at the edge missed the target in at least one seed. The dotted line
    is the ideal speed-up, from the line that is first with the fewest workers.

    Args:
        target: as in `measure_runs`.

    Raises:
        ValueError: all results have the same number of workers, or there is no target.
    """
    results = as_results(as_sequence(results))
    if WORKERS not in results.keys or results.final[WORKERS].nunique() < 2:
        raise ValueError(f"{WORKERS}: expected several values, got one")
    measure, limit = goal(results, target)
    title = ""
    if LR in results.keys:
        results = best(results, LR, by="time", target=target).overall
        title = ", each at its own best learning rate"
    table = measure_runs(results, "time_to", target)
    keys = [key for key in results.keys if key not in (WORKERS, LR) and not is_seed(key)]
    lines = {}
    for setting, rows in groups(table, keys):
        lines[_name_setting(keys, setting)] = rows
    panels = Panels([""], [""], 1)
    check_count(list(lines), MAX_NAMED_LINES, "lines")
    with panels.figure((6, 4.1), path) as figure:
        (axes,) = panels.axes
        first: list[tuple[float, float]] = []
        for place, (name, rows) in enumerate(lines.items()):
            first.extend(_draw_target_times(axes, rows, name, place))
        axes.set(xscale="log", yscale="log", xlabel="workers")
        goal_name = CURVES[measure].split(" (")[0]
        axes.set_ylabel(f"virtual time to a {goal_name} of {limit:g} (s)")
        tick_values(axes.xaxis, sorted(table[WORKERS].unique()), 6.7)
        if first:
            _draw_ideal(axes, *min(first), table[WORKERS].max())
        seeds = table.groupby([*keys, WORKERS], dropna=False, observed=True).size()
        points = describe_seeds(seeds)
        if seeds.max() > 1:
            points += " with 95 % intervals"
        panels.notes = [f"points: {points}{title}"]
        if table["value"].isna().any():
            panels.notes.append("crosses at the edge: a seed missed the target")
    return figure


def _name_setting(keys: Sequence[str], setting: Sequence[Any]) -> str:
    """The values of `keys` as text; `mean` if there are no keys."""
    texts = []
    for key, value in zip(keys, setting, strict=True):
        texts.append(label_text(value, key))
    return ", ".join(texts) or "mean"


def _draw_target_times(
    axes: Axes, rows: pd.DataFrame, name: str, place: int
) -> list[tuple[float, float]]:
    """Draw one line of `target_time`; return its first point, or nothing if it has no points."""
    style: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "markersize": 4}
    marker = MARKERS[place % len(MARKERS)]
    dashes = DASHES[place % len(DASHES)]
    points = []
    missed = []
    for workers, own in rows.groupby(WORKERS):
        if own["value"].isna().any():
            missed.append(workers)
            continue
        estimate = mean(own["value"])
        low, high = estimate.value, estimate.value
        if np.isfinite(estimate.half):
            low, high = interval(estimate, is_share=False)
        points.append((workers, estimate.value, estimate.value - low, high - estimate.value))
    # reshaped, since without points the array would have no columns
    at, value, below, above = np.array(points, float).reshape(-1, 4).T
    bars = [below, above]
    axes.errorbar(
        at, value, bars, label=name, marker=marker, ls=dashes, capsize=2, elinewidth=0.8, **style
    )
    if missed:
        edge = axes.get_xaxis_transform()
        heights = np.full(len(missed), 0.985 - 0.03 * place)
        axes.plot(missed, heights, "x", transform=edge, clip_on=False, **style)
    if not points:
        return []
    return [(at[0], value[0])]


def _draw_ideal(axes: Axes, fewest: float, seconds: float, most: float) -> None:
    """Draw the line of ideal speed-up, within the heights of the other lines."""
    heights = axes.get_ylim()
    ends = np.array([fewest, most], float)
    sooner = seconds * fewest / ends
    axes.plot(ends, sooner, ":", color="gray", label="ideal speed-up")
    axes.set_ylim(heights)


def _method(config: Any) -> str:
    """The method, and its collective where it has one."""
    collective = getattr(config.algorithm, "collective", None)
    if collective:
        return f"{config.algorithm.name}, {collective}"
    return str(config.algorithm.name)
