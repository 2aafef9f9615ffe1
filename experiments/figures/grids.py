"""Grids: what was learnt over learning rate and delay or batch, and up to which learning rate."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from laggard.experiments.figures.lines import ends, label_text, measures_of, swept_keys
from laggard.experiments.figures.style import (
    DIGIT,
    LIGHT,
    PERCENT,
    File,
    Runs,
    as_sequence,
    legend,
    name_axes,
    name_ticks,
    omission_note,
    panels_of,
    span,
    styled_figure,
)
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.result import Result
from laggard.experiments.theory.stability import chance, exact_limit, find_failed, measured_limit

LR, DELAY, BATCH = "learning.lr", "algorithm.delay", "task.batch"
AXIS_NAMES = {
    LR: "learning rate",
    DELAY: "delay D (updates)",
    BATCH: "mini-batch (samples)",
    "learning.compensation.strength": "strength of the compensation",
}
LOSSES = ("test_loss", "train_loss")
PANELS, CELLS = 6, 70


def lr_delay(results: Runs, path: File = None) -> Figure:
    """What was learnt at the end over learning rate and delay, with the stability limit."""
    return heat(results, path, LR, DELAY)


def lr_batch(results: Runs, path: File = None) -> Figure:
    """What was learnt at the end over learning rate and mini-batch, with the stability limit."""
    return heat(results, path, LR, BATCH)


def heat(results: Runs, path: File = None, x: str = LR, y: str = DELAY) -> Figure:
    """The final accuracy, or loss, over two parameters; a cell is the mean over seeds, a panel a
    value of the others.

    Hatched cells diverged, in at least one seed. Over the learning rate the stability limit is
    drawn: on a quadratic where theory knows it, the exact one (`exact_limit`); else the measured
    one, a step line between the largest lr that learns and the next, which diverges in at least one
    seed or ends below twice chance.

    Args:
        x, y: dotted keys of the config whose values differ.

    Raises:
        ValueError: one of them has a single value.
    """
    results = as_sequence(results)
    table = grid_table(results, x, y)
    found = list(dict.fromkeys(table["panel"]))
    measure, shown = measures_of(results)[0], found[:PANELS]
    few = len(shown) in (2, 4) or (len(shown) == 3 and table[x].nunique() > 4)
    columns = min(len(shown), 2 if few else 3)
    rows, each = math.ceil(len(shown) / columns), 0.75 + 0.36 * max(3, table[y].nunique())
    colours, beyond = _colour_map(table.groupby(["panel", x, y])["learnt"].mean(), measure, results)
    with styled_figure(8 if columns > 1 else 6.4, 1.5 + rows * each, path) as figure:
        panels, limit = panels_of(figure, len(shown), columns), ""
        for axes, name in zip(panels, shown, strict=True):
            own = table[table["panel"] == name]
            _heat(axes, own, (x, y), colours, measure, 6.8 / columns if columns > 1 else 5.0)
            limit = _limit(axes, own, results, y) if x == LR else ""
            axes.set_title(name, fontsize="small")
        same = has_same_values(table, x), has_same_values(table, y)
        name_axes(panels, columns, AXIS_NAMES.get(x, x), AXIS_NAMES.get(y, y), same)
        title, extend = f"final {CURVES.get(measure, measure)}", "max" if beyond else "neither"
        bar = figure.colorbar(colours, ax=figure.axes, label=title, pad=0.02, extend=extend)
        if measure == "test_accuracy":
            bar.formatter = PERCENT
        cells = f"cells: mean of n = {counts(table.groupby(['panel', x, y]).size())}"
        failing = "hatched: diverged" if table["learnt"].isna().any() else ""
        legend(
            figure, panels, [cells, failing, limit, omission_note(len(found), len(shown), "panels")]
        )
    return figure


def _colour_map(
    values: pd.Series, measure: str, results: Sequence[Result]
) -> tuple[ScalarMappable, bool]:
    """The colours of all cells, of losses on a log scale where they span much, and whether some lie
    beyond them.
    """
    spread = values[np.isfinite(values) & (values > 0)]
    logs = measure != "test_accuracy" and len(spread) > 1 and spread.max() > 30 * spread.min()
    low, high = (spread.min(), spread.max()) if len(spread) else (0.0, 1.0)
    if measure in LOSSES and len(spread):  # losses above the initial one count as not learnt
        high = max(min(high, initial_loss(results, measure)), low)
    norm = (LogNorm if logs else Normalize)(low, high)
    colours = ScalarMappable(norm, "viridis" if measure == "test_accuracy" else "viridis_r")
    return colours, bool(spread.max() > high)


def grid_table(results: Sequence[Result], x: str, y: str, single: bool = False) -> pd.DataFrame:
    """The final rows with their parameters and the name of their `panel`: all that differs besides
    x, y and seeds.

    Raises:
        ValueError: x, or unless `single` y, does not differ.
    """
    table = ends(results, [x, y])
    for key in (x, y)[: 2 - single]:
        if table[key].nunique() < 2:
            raise ValueError(f"{key}: expected several values, got one: sweep it")
    names = [key for key in swept_keys(table) if key not in (x, y) and not key.endswith("seed")]
    others = [key for key in names if table[key].nunique() > 1]
    table["panel"] = [
        ", ".join(label_text(row[key], key) for key in others) for _, row in table.iterrows()
    ]
    return table


def initial_loss(results: Sequence[Result], measure: str) -> float:
    """The largest value of a loss that any result started with; infinite where none says."""
    firsts = [of.metrics[measure].dropna().iloc[:1] for of in results if measure in of.metrics]
    return max((float(first.iloc[0]) for first in firsts if len(first)), default=math.inf)


def _heat(
    axes: Axes,
    table: pd.DataFrame,
    keys: tuple[str, str],
    colours: ScalarMappable,
    measure: str,
    width: float,
) -> None:
    """The cells of one panel, `width` inches wide."""
    x, y = keys
    xs, ys = _settings(table[x]), _settings(table[y], upwards=True)
    broken = table.assign(nan=table["learnt"].isna()).pivot_table(
        index=y, columns=x, values="nan", aggfunc="max"
    )
    cells = table.pivot_table(index=y, columns=x, values="learnt", aggfunc="mean").reindex(
        index=ys, columns=xs
    )
    diverged = broken.reindex(index=ys, columns=xs).to_numpy() == 1
    values = np.where(diverged, np.nan, cells.to_numpy(float))
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours.cmap, norm=colours.norm)  # type: ignore[arg-type]
    for (row, column), value in np.ndenumerate(values):
        if diverged[row, column]:
            axes.add_patch(
                Rectangle((column, row), 1, 1, hatch="////", facecolor="white", edgecolor=LIGHT)
            )
        elif np.isfinite(value) and values.size <= CELLS:
            colour = colours.to_rgba(value)
            dark = matplotlib.colors.rgb_to_hsv(colour[:3])[2] < 0.65
            plain = f"{value:.0f}" if 100 <= value < 1e4 else f"{value:.2g}"
            text = f"{100 * value:.1f}" if measure == "test_accuracy" else plain
            halo = [withStroke(linewidth=2.5, foreground=colour)]  # the limit may pass below
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7, zorder=4,
                      color="white" if dark else "black", path_effects=halo)  # fmt: skip
    below = [label_text(value) for value in xs]
    longest = max(((len(left) + len(right)) / 2 + 1 for left, right in pairwise(below)), default=0)
    crowded = longest * DIGIT > width / len(xs)
    name_ticks(axes.xaxis, np.arange(len(xs)) + 0.5, below, rotation=45 if crowded else 0)
    name_ticks(axes.yaxis, np.arange(len(ys)) + 0.5, map(label_text, ys))
    axes.grid(visible=False)


def _settings(column: pd.Series, upwards: bool = False) -> list[Any]:
    """The values of a key in the order of its axis: numbers grow, and names are read from the left
    or from above.
    """
    values = sorted(column.dropna().unique(), key=order)
    return values[::-1] if upwards and isinstance(values[0], str) else values


def _limit(axes: Axes, table: pd.DataFrame, results: Sequence[Result], y: str) -> str:
    """The stability limit, a step a row, in places of cells; what it is, or nothing where there is
    none.
    """
    xs, ys = _settings(table[LR]), _settings(table[y], upwards=True)
    firsts = table.groupby(y)["run"].first()
    at = [exact_limit(results[firsts[value]].config) for value in ys]
    exact = None not in at
    if not exact:
        at = [_row_limit(table[table[y] == value], results, xs) for value in ys]
    if all(limit is None for limit in at):
        return ""
    centres = np.arange(len(xs)) + 0.5
    ratio = math.log(xs[-1] / xs[0]) / (len(xs) - 1)
    logs, beyond = (
        np.log([xs[0] * math.exp(-ratio), *xs, xs[-1] * math.exp(ratio)]),
        [-0.5, *centres, len(xs) + 0.5],
    )
    inside = [
        len(xs) if limit is None else np.interp(math.log(max(limit, 1e-300)), logs, beyond)
        for limit in at
    ]
    places = np.clip(inside, 0, len(xs))
    name = "stability limit: theory" if exact else "stability limit: measured"
    for colour, width in (("white", 4), ("black", 2)):
        label = name if colour == "black" else None
        axes.stairs(places, np.arange(len(ys) + 1), orientation="horizontal", baseline=None, color=colour,
                    linewidth=width, clip_on=False, label=label)  # fmt: skip
    if exact:
        return "limit: the learning rate at which the quadratic oscillates for ever, between cells by its logarithm"
    fails = "a seed that does not learn diverges or ends below twice the accuracy of chance"
    return (
        f"limit: between the largest learning rate at which all seeds learn and the next; {fails}"
    )


def _row_limit(row: pd.DataFrame, results: Sequence[Result], xs: list[Any]) -> float | None:
    """The measured limit in a row of the grid."""
    first = results[int(row["run"].iloc[0])]
    lost = find_failed(row, initial_loss(results, "test_loss"), chance(first.config))
    fails = lost.groupby(row[LR]).max().reindex(xs)
    learnt = row.groupby(LR)["learnt"].mean().reindex(xs).where(~fails.astype(bool))
    if learnt.isna().all():
        return 0.0
    best = int(np.nanargmax(learnt) if "test_accuracy" in row else np.nanargmin(learnt))
    return measured_limit(np.array(xs), fails.fillna(False).to_numpy(bool), best)


def counts(sizes: pd.Series) -> str:
    return f"{span(sizes)} seed{'s' * bool(sizes.max() > 1)}"


def has_same_values(table: pd.DataFrame, key: str) -> bool:
    """Whether a key has the same values in every panel, so that one panel's ticks can stand for
    all.
    """
    return len({frozenset(values.dropna()) for _, values in table.groupby("panel")[key]}) == 1


def order(value: Any) -> tuple[bool, Any]:
    """A sort key: numbers by size, then strings in the order of the sweep."""
    return isinstance(value, str), 0 if isinstance(value, str) else value
