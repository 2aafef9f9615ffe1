"""The lr cliff: up to which learning rate a method learns, and how it ends beyond."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t as student

from experiments.figures.grids import DELAY, LOSSES, LR, NAMES, PANELS, counts, gridded, more, order, started
from experiments.figures.look import DASHES, MARKERS, PALETTE, PERCENT, drawing, legend, saved, several
from experiments.lines import CONFIDENCE, MEASURES, Drawn, measures_of, said

LOST = 100.0


def cliff(
    results: Sequence[Drawn], path: str | Path | None = None, by: str = DELAY, label: str | None = None
) -> Figure:
    """The lr cliff: what was learnt at the end against the learning rate, a line per delay.

    Points are means over seeds with the 95 % interval of the mean, of losses those of the logarithm; crosses at the
    edge diverged in at least one seed.

    Args:
        by: the dotted key that tells lines apart.
        label: its name in the legend.

    Raises:
        ValueError: there is only one learning rate.
    """
    results = several(results)
    table = gridded(results, LR, by, single=True)
    panels = list(dict.fromkeys(table["panel"]))
    measure, shown = measures_of(results)[0], panels[:PANELS]
    columns, lines = (
        min(len(shown), 2 if len(shown) == 4 else 3),
        sorted(table[by].dropna().unique(), key=order) or [None],
    )
    rows = math.ceil(len(shown) / columns)
    colours = (
        matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(lines))) if len(lines) > len(PALETTE) else PALETTE
    )
    top = LOST * started(results, measure) if measure in LOSSES else None
    name = label or NAMES.get(by, by).split(" (")[0]
    with drawing(8, 1.2 + 2.9 * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for number, (one, panel) in enumerate(zip(axes.flat, shown, strict=False)):
            for index, value in enumerate(lines):
                own = table[(table["panel"] == panel) & ((table[by] == value) | (value is None))]
                legible = len(lines) <= 12 or index % math.ceil(len(lines) / 12) == 0 or index == len(lines) - 1
                title = (f"{name} = {said(value)}" if value is not None else "mean") if legible else None
                _cliff(one, own, (colours[index], index), title, top)
            one.set_xscale("log")
            one.set_title(panel if len(shown) > 1 else "", fontsize="small")
            lowest, first = number + columns >= len(shown), number % columns == 0
            one.set(xlabel=NAMES[LR] if lowest else "")
            one.set(ylabel=f"final {MEASURES.get(measure, measure)}" if first else "")
            one.tick_params(which="both", labelbottom=lowest)
            if measure == "test_accuracy":
                one.yaxis.set_major_formatter(PERCENT)
            elif table["learnt"].between(0, LOST * started(results, measure), inclusive="neither").any():
                one.set_yscale("log")
        for one in axes.flat[len(shown) :]:
            one.set_visible(False)
        seeds = counts(table.groupby(["panel", LR, by], dropna=False).size())
        bars = "" if seeds == "1 seed" else "bars: 95 % interval of the mean (t)"
        lost = table["learnt"].isna().any() or (top is not None and (table["learnt"] > top).any())
        worse = f", or ended above {LOST:g} times the loss of the start" if top is not None else ""
        crosses = f"crosses at the edge: a seed diverged{worse}" if lost else ""
        points = "mean" if top is None else "geometric mean"
        legend(figure, list(axes.flat), [f"points: {points} of n = {seeds}", bars, crosses, more(panels, shown)])
    return saved(figure, path)


def _cliff(axes: Axes, table: pd.DataFrame, look: tuple[Any, int], label: str | None, top: float | None) -> None:
    """The mean at each learning rate and its interval, of a loss those of its logarithm; crosses where one is lost.

    Args:
        look: a colour, and the place of the line among the others.
        top: the loss above which a run is lost; None of an accuracy.
    """
    colour, place = look
    learnt = table["learnt"] if top is None else np.log(table["learnt"].where(table["learnt"] <= top))
    groups = learnt.groupby(table[LR])
    mean, n = groups.mean().where(groups.apply(lambda of: of.notna().all())), groups.size()
    half = (groups.std() / np.sqrt(n) * student.ppf((1 + CONFIDENCE) / 2, np.maximum(n - 1, 1))).fillna(0)
    low, high = mean - half, mean + half
    if top is None:
        low, high = low.clip(lower=0), high.clip(upper=max(1.0, float(mean.max())))
    else:
        low, mean, high = np.exp(low), np.exp(mean), np.exp(high)
    style = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "linestyle": DASHES[place % len(DASHES)]}
    small = {"markersize": 4, "capsize": 2, "elinewidth": 0.8}
    axes.errorbar(mean.index, mean, [mean - low, high - mean], label=label, **style, **small)
    lost, height = mean.index[mean.isna()], 0.015 + 0.03 * (place % 12)
    if len(lost):
        edge = {"transform": axes.get_xaxis_transform(), "clip_on": False}
        axes.plot(lost, np.full(len(lost), height if top is None else 1 - height), "x", color=colour, **edge)
