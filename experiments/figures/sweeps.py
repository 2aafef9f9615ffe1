"""An outcome along one swept key: what was learnt by learning rate, and the seconds of an update by
workers.
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
    LR,
    PANELS,
    counts,
    grid_table,
    initial_loss,
    order,
)
from laggard.experiments.figures.lines import label_text, measures_of, shorten
from laggard.experiments.figures.style import (
    DASHES,
    MARKERS,
    PALETTE,
    PERCENT,
    PLAIN,
    SPARSE,
    File,
    Runs,
    as_sequence,
    legend,
    name_axes,
    omission_note,
    panels_of,
    quantity,
    span,
    styled_figure,
    tick_values,
)
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.result import Result
from laggard.experiments.results.statistics import half_width
from laggard.experiments.theory.iteration_time import seconds_per_update, seconds_theory

LOST = 100.0
NAMED = 12  # lines that the legend names, and the most that crosses at the edge keep apart
WORKERS, BANDWIDTH = "cluster.workers", "cluster.network.bandwidth"


def cliff(results: Runs, path: File = None, by: str = DELAY, name: str | None = None) -> Figure:
    """The lr cliff: what was learnt at the end against the learning rate, a line per delay.

    Points are means over seeds with the 95 % interval of the mean, of losses those of the
    logarithm; crosses at the edge diverged in at least one seed.

    Args:
        by: the dotted key that tells lines apart.
        name: of that key in the legend.

    Raises:
        ValueError: there is only one learning rate.
    """
    results = as_sequence(results)
    table = grid_table(results, LR, by, single=True)
    found = list(dict.fromkeys(table["panel"]))
    measure, shown = measures_of(results)[0], found[:PANELS]
    columns = min(len(shown), 2 if len(shown) == 4 else 3)
    start = initial_loss(results, measure)
    top = LOST * start if measure in LOSSES else None
    name = name or AXIS_NAMES.get(by, by).split(" (")[0]
    with styled_figure(8, 1.2 + 2.9 * math.ceil(len(shown) / columns), path) as figure:
        panels = panels_of(figure, len(shown), columns, sharex=True, sharey=True)
        for axes, panel in zip(panels, shown, strict=True):
            _lines(
                axes,
                table[table["panel"] == panel],
                by,
                sorted(table[by].dropna().unique(), key=order),
                name,
                top,
            )
            axes.set_xscale("log")
            axes.set_title(panel if len(shown) > 1 else "", fontsize="small")
            if measure == "test_accuracy":
                axes.yaxis.set_major_formatter(PERCENT)
            elif table["learnt"].between(0, LOST * start, inclusive="neither").any():
                axes.set_yscale("log")
        tick_values(panels[0].xaxis, sorted(table[LR].unique()), 7.2 / columns - 0.5)
        name_axes(panels, columns, AXIS_NAMES[LR], f"final {CURVES.get(measure, measure)}")
        legend(
            figure,
            panels,
            [*_cliff_notes(table, by, top), omission_note(len(found), len(shown), "panels")],
        )
    return figure


def _cliff_notes(table: pd.DataFrame, by: str, top: float | None) -> list[str]:
    """Notes on the meaning of points, bars and crosses."""
    seeds = counts(table.groupby(["panel", LR, by], dropna=False).size())
    bars = "" if seeds == "1 seed" else "bars: 95 % interval of the mean (t)"
    lost = table["learnt"].isna().any() or (top is not None and (table["learnt"] > top).any())
    worse = f", or ended above {LOST:g} times the loss of the start" if top is not None else ""
    points = "mean" if top is None else "geometric mean"
    return [
        f"points: {points} of n = {seeds}",
        bars,
        f"crosses at the edge: a seed diverged{worse}" if lost else "",
    ]


def _lines(
    axes: Axes, table: pd.DataFrame, by: str, values: Sequence[Any], name: str, top: float | None
) -> None:
    """A line for each value of the key `by`, or one for all where it has none; the legend names at
    most twelve.
    """
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(values)))
    colours = shades if len(values) > len(PALETTE) else PALETTE
    if not values:
        _cliff(axes, table, (PALETTE[0], 0), "mean", top)
    for index, value in enumerate(values):
        named = (
            len(values) <= NAMED
            or index % math.ceil(len(values) / NAMED) == 0
            or index == len(values) - 1
        )
        title = f"{name} = {label_text(value)}" if named else None
        _cliff(axes, table[table[by] == value], (colours[index], index), title, top)


def _cliff(
    axes: Axes, table: pd.DataFrame, look: tuple[Any, int], label: str | None, top: float | None
) -> None:
    """The mean at each learning rate and its interval, of a loss those of its logarithm; crosses
    where one is lost.

    Args:
        look: a colour, and the place of the line among the others.
        top: the loss above which a run is lost; None of an accuracy.
    """
    colour, place = look
    learnt = (
        table["learnt"] if top is None else np.log(table["learnt"].where(table["learnt"] <= top))
    )
    groups = learnt.groupby(table[LR])
    mean, n = groups.mean().where(groups.apply(lambda of: of.notna().all())), groups.size()
    half = half_width(groups.std(), n).fillna(0)
    low, high = mean - half, mean + half
    if top is None:
        low, high = low.clip(lower=0), high.clip(upper=max(1.0, float(mean.max())))
    else:
        low, mean, high = np.exp(low), np.exp(mean), np.exp(high)
    style = {
        "color": colour,
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
    }
    bars: Any = [mean - low, high - mean]
    axes.errorbar(
        mean.index, mean, bars, label=label, markersize=4, capsize=2, elinewidth=0.8, **style
    )
    lost, height = mean.index[mean.isna()], 0.015 + 0.03 * (place % NAMED)
    if len(lost):
        heights, across = (
            np.full(len(lost), height if top is None else 1 - height),
            axes.get_xaxis_transform(),
        )
        axes.plot(lost, heights, "x", color=colour, transform=across, clip_on=False)


def scaling(results: Runs, path: File = None) -> Figure:
    """Virtual time per update against the number of workers: a colour a bandwidth, a panel a
    method.

    Markers are simulated, in the second half of a run; lines are the closed forms of
    `seconds_theory`, where there is one. An update is a server's, a round of a collective, or one
    step of every node of a gossip.

    Raises:
        ValueError: all results have the same number of workers.
    """
    results = as_sequence(results)
    table = grid_table(results, WORKERS, BANDWIDTH, single=True)
    table["seconds"] = table["run"].map(
        {run: seconds_per_update(result) for run, result in enumerate(results)}
    )
    named = zip(table["panel"], table["run"], strict=True)
    table["panel"] = [panel or _method(results[run].config) for panel, run in named]
    shown = list(dict.fromkeys(table["panel"]))[:PANELS]
    columns, sizes = min(len(shown), 3), sorted(table[WORKERS].unique())
    with styled_figure(
        8 if columns > 1 else 6, 1.2 + 2.7 * math.ceil(len(shown) / columns), path
    ) as figure:
        panels = panels_of(figure, len(shown), columns, sharex=True, sharey=True)
        with_theory = [
            _update_seconds(axes, table, panel, results)
            for axes, panel in zip(panels, shown, strict=True)
        ]
        for axes, panel in zip(panels, shown, strict=True):
            axes.set(xscale="log", yscale="log")
            axes.set_title(shorten(panel, 110 // columns), fontsize="small")
            tick_values(axes.xaxis, sizes, 7.2 / columns - 0.5)
        name_axes(panels, columns, "workers", "virtual time per update (s)")
        if table["seconds"].max() < 100 * table["seconds"].min():
            panels[0].yaxis.set_major_formatter(PLAIN)
            panels[0].yaxis.set_minor_formatter(SPARSE)
        seeds = table.drop_duplicates("run").groupby(["panel", WORKERS, BANDWIDTH]).size()
        theory = "; lines: closed form" * any(with_theory)
        legend(figure, panels, [f"markers: simulated{theory}", f"n = {span(seeds)} per marker"])
    return figure


def _update_seconds(axes: Axes, table: pd.DataFrame, panel: str, results: Sequence[Result]) -> bool:
    """Seconds of an update in one panel, a colour a bandwidth; whether theory has a line for one of
    them.
    """
    found = False
    for index, speed in enumerate(sorted(table[BANDWIDTH].unique())):
        own = table[(table["panel"] == panel) & (table[BANDWIDTH] == speed)]
        if not len(own):
            continue
        colour, mark, mean = (
            PALETTE[index % 8],
            MARKERS[index % 8],
            own.groupby(WORKERS)["seconds"].mean(),
        )
        axes.plot(mean.index, mean, mark, markersize=5, label=quantity(speed, "B/s"), color=colour)
        firsts = own.drop_duplicates(WORKERS).set_index(WORKERS)["run"]
        # None is NaN
        expected = np.array([seconds_theory(results[int(firsts[P])]) for P in mean.index], float)
        if np.isfinite(expected).any():
            found = True
            axes.plot(mean.index, expected, "-", linewidth=1, color=colour)
    return found


def _method(config: Any) -> str:
    """The method, and its collective where it has one."""
    collective = getattr(config.algorithm, "collective", None)
    return f"{config.algorithm.name}, {collective}" if collective else str(config.algorithm.name)
