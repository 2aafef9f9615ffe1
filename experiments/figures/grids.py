"""Grids: the outcome over learning rate and delay or batch, with the stability limit."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, rgb_to_hsv
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from laggard.experiments.figures.lines import ends, measures_of, swept_keys
from laggard.experiments.figures.style import (
    DIGIT,
    LIGHT,
    PERCENT,
    File,
    Panels,
    Runs,
    as_sequence,
    name_axes,
    name_ticks,
    span,
)
from laggard.experiments.results.formats import label_text
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.ranking import LR
from laggard.experiments.results.result import Result
from laggard.experiments.theory.stability import chance, exact_limit, find_failed, measured_limit

DELAY, BATCH = "algorithm.delay", "task.batch"
AXIS_NAMES = {
    LR: "learning rate",
    DELAY: "delay D (updates)",
    BATCH: "mini-batch (samples)",
    "learning.compensation.strength": "strength of the compensation",
}
LOSSES = ("test_loss", "train_loss")
MAX_PANELS, MAX_NAMED_CELLS = 24, 70
HATCHED: dict[str, Any] = {"hatch": "////", "facecolor": "white", "edgecolor": LIGHT}
CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 4}
EXACT_LIMIT = (
    "limit: the learning rate above which the quadratic diverges,"
    " on a logarithmic scale between cells"
)
MEASURED_LIMIT = (
    "limit: between the largest learning rate at which all seeds learn and the next;"
    " a seed that does not learn diverges or ends below twice chance accuracy"
)


def lr_delay(results: Runs, path: File = None) -> Figure:
    """The outcome over learning rate and delay, with the stability limit."""
    return heat(results, path, LR, DELAY)


def lr_batch(results: Runs, path: File = None) -> Figure:
    """The outcome over learning rate and mini-batch, with the stability limit."""
    return heat(results, path, LR, BATCH)


def heat(results: Runs, path: File = None, x: str = LR, y: str = DELAY) -> Figure:
    """The final accuracy, or loss, over two parameters; a cell is the mean over seeds.

    A panel for each setting of the other swept keys. Hatched cells diverged, in at least one seed.
    Over the learning rate the stability limit is drawn: on a quadratic where theory knows it, the
    exact one (`exact_limit`); else the measured one, a step line between the largest lr that learns
    and the next, which diverges in at least one seed or ends below twice chance.

    Args:
        x, y: dotted keys of the config whose values differ.

    Raises:
        ValueError: one of them has a single value, or the other keys have too many settings.
    """
    results = as_sequence(results)
    table = grid_table(results, x, y)
    names = list(dict.fromkeys(table["panel"]))
    panels = Panels(names, names, MAX_PANELS)
    columns = _panels_in_a_row(table, x)
    rows = math.ceil(len(panels) / columns)
    size = 8.0, 1.5 + rows * (0.75 + 0.36 * max(3, table[y].nunique()))
    width = 6.8 / columns
    if columns == 1:
        size = 6.4, size[1]
        width = 5.0
    measure = measures_of(results)[0]
    means = table.groupby(["panel", x, y])["learnt"].mean()
    colours, extend = _colour_map(means, measure, results)
    panels.notes = [f"cells: {describe_seeds(table.groupby(['panel', x, y]).size())}"]
    if table["learnt"].isna().any():
        panels.notes.append("hatched: diverged")
    with panels.figure(size, path, columns) as figure:
        limit = ""
        for axes, name in panels:
            rows_of_panel = table[table["panel"] == name]
            _draw_panel(axes, rows_of_panel, (x, y), colours, measure, width)
            if x == LR:
                limit = _draw_limit(axes, rows_of_panel, results, y)
            axes.set_title(name, fontsize="small")
        panels.notes.append(limit)
        same = has_same_values(table, x), has_same_values(table, y)
        name_axes(panels.axes, columns, AXIS_NAMES.get(x, x), AXIS_NAMES.get(y, y), same)
        label = f"final {CURVES.get(measure, measure)}"
        bar = figure.colorbar(colours, ax=figure.axes, label=label, pad=0.02, extend=extend)
        if measure == "test_accuracy":
            bar.formatter = PERCENT
    return figure


def _panels_in_a_row(table: pd.DataFrame, x: str) -> int:
    """The number of panels per row: where two keys fit, a row has one value of the first key."""
    panels = int(table["panel"].nunique())
    lengths = table["panel"].str.count(", ")
    last = int(table["panel"].str.rpartition(", ")[2].nunique())
    if bool(lengths.eq(1).all()) and last <= 4 and panels % last == 0:
        return last
    if panels in (2, 4) or (panels == 3 and table[x].nunique() > 4):
        return 2
    return min(panels, 3)


def _colour_map(
    values: pd.Series, measure: str, results: Sequence[Result]
) -> tuple[ScalarMappable, str]:
    """The colour map of all cells, and the end of its colour bar that values exceed, if any.

    Losses are on a log scale where they span a factor of 30; those above the initial loss have one
    colour, as nothing was learnt.
    """
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = 0.0, 1.0
    if len(positive):
        low, high = positive.min(), positive.max()
    norm: Normalize = Normalize(low, high)
    extend = "neither"
    if measure in LOSSES and len(positive):
        high = max(min(high, initial_loss(results, measure)), low)
        norm = Normalize(low, high)
        if positive.max() > high:
            extend = "max"
    if measure == "test_accuracy":
        return ScalarMappable(norm, "viridis"), extend
    if len(positive) > 1 and positive.max() > 30 * positive.min():
        norm = LogNorm(low, high)
    return ScalarMappable(norm, "viridis_r"), extend


def grid_table(results: Sequence[Result], x: str, y: str, single: bool = False) -> pd.DataFrame:
    """The final rows with their parameters, and in `panel` the values of the other swept keys.

    Args:
        single: whether y may have a single value.

    Raises:
        ValueError: x or y does not differ.
    """
    table = ends(results, [x, y])
    required = [x]
    if not single:
        required.append(y)
    for key in required:
        if table[key].nunique() < 2:
            swept = [name for name in swept_keys(table) if table[name].nunique() > 1]
            remedy = "sweep it"
            if swept:
                remedy += f", or draw what is swept: {', '.join(swept)}"
            raise ValueError(f"{key}: expected several values, got one: {remedy}")
    keys = [key for key in swept_keys(table) if key not in (x, y) and not key.endswith("seed")]
    others = [key for key in keys if table[key].nunique() > 1]
    panels = []
    for _, row in table.iterrows():
        texts = [label_text(row[key], key) for key in others]
        panels.append(", ".join(texts))
    table["panel"] = panels
    return table


def initial_loss(results: Sequence[Result], measure: str) -> float:
    """The largest loss that any result started with; infinite where none was measured."""
    losses = []
    for result in results:
        if measure in result.metrics:
            losses += result.metrics[measure].dropna().tolist()[:1]
    return max(losses, default=math.inf)


def _draw_panel(
    axes: Axes,
    table: pd.DataFrame,
    keys: tuple[str, str],
    colours: ScalarMappable,
    measure: str,
    width: float,
) -> None:
    """The cells of one panel, `width` inches wide."""
    x, y = keys
    xs = _settings(table[x])
    ys = _settings(table[y], upwards=True)
    groups = table.groupby([y, x])["learnt"]
    means = groups.mean().unstack().reindex(index=ys, columns=xs)
    has_diverged = table["learnt"].isna().groupby([table[y], table[x]]).max()
    # a setting that was not run is NaN here, and not hatched
    diverged = has_diverged.unstack().reindex(index=ys, columns=xs).to_numpy() == 1
    values = np.where(diverged, np.nan, means.to_numpy(float))
    names = np.full(values.shape, "", object)
    if values.size <= MAX_NAMED_CELLS:
        for place, value in np.ndenumerate(values):
            names[place] = _cell_text(value, measure)
    draw_cells(axes, values, diverged, names, colours, 7)
    _name_settings(axes, xs, ys, width)


def _name_settings(axes: Axes, xs: list[Any], ys: list[Any], width: float) -> None:
    """Name columns and rows; rotate the names of columns if they would overlap."""
    names = [label_text(value) for value in xs]
    lengths = [(len(left) + len(right)) / 2 + 1 for left, right in pairwise(names)]
    rotation = 0
    if max(lengths, default=0) * DIGIT > width / len(xs):
        rotation = 45
    name_ticks(axes.xaxis, np.arange(len(xs)) + 0.5, names, rotation=rotation)
    name_ticks(axes.yaxis, np.arange(len(ys)) + 0.5, map(label_text, ys))


def _cell_text(value: float, measure: str) -> str:
    if measure == "test_accuracy":
        return f"{100 * value:.1f}"
    if 100 <= value < 1e4:
        return f"{value:.0f}"
    return f"{value:.2g}"


def draw_cells(
    axes: Axes,
    values: np.ndarray,
    hatched: np.ndarray,
    names: Any,
    colours: ScalarMappable,
    fontsize: float,
) -> None:
    """Draw coloured cells of side 1 with their texts.

    Args:
        values: `(rows, columns)`, from below; NaN leaves a cell empty.
        hatched: whether each cell is hatched.
        names: the text in each cell `(rows, columns)`.
    """
    masked = np.ma.masked_invalid(values)
    axes.pcolormesh(masked, cmap=colours.cmap, norm=colours.norm)  # type: ignore[arg-type]
    for (row, column), value in np.ndenumerate(values):
        if hatched[row, column]:
            axes.add_patch(Rectangle((column, row), 1, 1, **HATCHED))
        elif np.isfinite(value) and names[row, column]:
            colour = colours.to_rgba(value)
            brightness = rgb_to_hsv(colour[:3])[2]
            text = axes.text(column + 0.5, row + 0.5, names[row, column], **CENTRED)
            text.set_fontsize(fontsize)
            ink = "white" if brightness < 0.65 else "black"
            text.set_color(ink)
            # the limit may pass below the text
            text.set_path_effects([withStroke(linewidth=2.5, foreground=colour)])
    axes.grid(visible=False)


def draw_steps(axes: Axes, places: np.ndarray, label: str) -> None:
    """Draw a step line with a step per row, at these positions along the columns."""
    rows = np.arange(len(places) + 1)
    style: dict[str, Any] = {"orientation": "horizontal", "baseline": None, "clip_on": False}
    axes.stairs(places, rows, color="white", linewidth=4, **style)
    axes.stairs(places, rows, color="black", linewidth=2, label=label, **style)


def _settings(column: pd.Series, upwards: bool = False) -> list[Any]:
    """The values of a key in the order of its axis: numbers ascend, names are read from the top."""
    values = sorted(column.dropna().unique(), key=order)
    if upwards and isinstance(values[0], str):
        values.reverse()
    return values


def _draw_limit(axes: Axes, table: pd.DataFrame, results: Sequence[Result], y: str) -> str:
    """Draw the stability limit; returns a note on its meaning, empty where there is none."""
    xs = _settings(table[LR])
    ys = _settings(table[y], upwards=True)
    if len(xs) < 2:  # a limit lies between rates
        return ""
    firsts = table.groupby(y)["run"].first()
    limits = [exact_limit(results[firsts[value]].config) for value in ys]
    name, note = "stability limit: theory", EXACT_LIMIT
    if None in limits:
        limits = [_row_limit(table[table[y] == value], results, xs) for value in ys]
        name, note = "stability limit: measured", MEASURED_LIMIT
    if all(limit is None for limit in limits):
        return ""
    # between cells by the logarithm of the rate; the ends stand for rates beyond the grid
    step = math.log(xs[-1] / xs[0]) / (len(xs) - 1)
    logs = np.log([xs[0] * math.exp(-step), *xs, xs[-1] * math.exp(step)])
    columns = [-0.5, *(np.arange(len(xs)) + 0.5), len(xs) + 0.5]
    places = []
    for limit in limits:
        if limit is None:
            places.append(float(len(xs)))
        else:
            places.append(float(np.interp(math.log(max(limit, 1e-300)), logs, columns)))
    draw_steps(axes, np.clip(places, 0, len(xs)), name)
    return note


def _row_limit(row: pd.DataFrame, results: Sequence[Result], xs: list[Any]) -> float | None:
    """The measured limit in a row of the grid; 0 where no rate learns."""
    first = results[int(row["run"].iloc[0])]
    failed = find_failed(row, initial_loss(results, "test_loss"), chance(first.config))
    fails = failed.groupby(row[LR]).max().reindex(xs)
    learnt = row.groupby(LR)["learnt"].mean().reindex(xs).where(~fails.astype(bool))
    if learnt.isna().all():
        return 0.0
    best = np.nanargmin(learnt)
    if "test_accuracy" in row:
        best = np.nanargmax(learnt)
    return measured_limit(np.array(xs), fails.fillna(False).to_numpy(bool), int(best))


def describe_seeds(sizes: pd.Series, mean: str = "mean") -> str:
    """`n = 1 seed`, or `mean of n = 2 to 3 seeds`."""
    if sizes.max() > 1:
        return f"{mean} of n = {span(sizes)} seeds"
    return "n = 1 seed"


def has_same_values(table: pd.DataFrame, key: str) -> bool:
    """Whether a key has the same values in every panel, so that they can share ticks."""
    panels = table.groupby("panel")[key]
    return len({frozenset(values.dropna()) for _, values in panels}) == 1


def order(value: Any) -> tuple[bool, Any]:
    """A sort key: numbers by size, then strings in the order of the sweep."""
    if isinstance(value, str):
        return True, 0
    return False, value
