"""Grids: what was learnt over learning rate and delay or batch, and up to which learning rate."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from experiments.figures.limits import chance, exact_limit, failed, measured_limit
from experiments.figures.look import LIGHT, PERCENT, drawing, legend, saved, several
from experiments.lines import MEASURES, Drawn, ends, measures_of, said

LR, DELAY, BATCH = "learning.lr", "algorithm.delay", "task.batch"
NAMES = {
    LR: "learning rate",
    DELAY: "delay D (updates)",
    BATCH: "mini-batch (samples)",
    "learning.compensation.strength": "strength of the compensation",
}
LOSSES = ("test_loss", "train_loss")
PANELS, CELLS = 6, 70
DIGIT = 0.075  # inches that a character of a tick's label takes


def lr_delay(results: Sequence[Drawn], path: str | Path | None = None) -> Figure:
    """What was learnt at the end over learning rate and delay, with the stability limit; see `heat`."""
    return heat(results, path, LR, DELAY)


def lr_batch(results: Sequence[Drawn], path: str | Path | None = None) -> Figure:
    """What was learnt at the end over learning rate and mini-batch, with the stability limit; see `heat`."""
    return heat(results, path, LR, BATCH)


def heat(results: Sequence[Drawn], path: str | Path | None = None, x: str = LR, y: str = DELAY) -> Figure:
    """The final accuracy, or loss, over two parameters; a cell is the mean over seeds, a panel a value of the others.

    Hatched cells diverged, in at least one seed. Over the learning rate the stability limit is drawn: on a quadratic
    where theory knows it, the exact one (`exact_limit`); else the measured one, a step line between the largest lr
    that learns and the next, which diverges in at least one seed or ends below twice chance.

    Args:
        x, y: dotted keys of the config whose values differ.

    Raises:
        ValueError: one of them has a single value.
    """
    results = several(results)
    table = gridded(results, x, y)
    panels = list(dict.fromkeys(table["panel"]))
    measure, shown = measures_of(results)[0], panels[:PANELS]
    few = len(shown) in (2, 4) or (len(shown) == 3 and table[x].nunique() > 4)
    columns = min(len(shown), 2 if few else 3)
    rows = math.ceil(len(shown) / columns)
    ys = table[y].nunique()
    values = table.groupby(["panel", x, y])["learnt"].mean()
    spread = values[np.isfinite(values) & (values > 0)]
    logs = measure != "test_accuracy" and len(spread) > 1 and spread.max() > 30 * spread.min()
    low, high = (spread.min(), spread.max()) if len(spread) else (0.0, 1.0)
    if measure in LOSSES and len(spread):  # what is worse than the start has not learnt, however much worse
        high = max(min(high, started(results, measure)), low)
    norm = (LogNorm if logs else Normalize)(low, high)
    colours = ScalarMappable(norm, "viridis" if measure == "test_accuracy" else "viridis_r")
    wide = 6.8 / columns if columns > 1 else 5.0
    with drawing(8 if columns > 1 else 6.4, 1.5 + rows * (0.75 + 0.36 * max(3, ys))) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for number, (one, name) in enumerate(
            zip(axes.flat, [*shown, *[None] * (rows * columns - len(shown))], strict=True)
        ):
            one.set_visible(name is not None)
            if name is not None:
                limit = _heat(one, table[table["panel"] == name], results, (x, y), colours, measure, wide)
                one.set_title(name, fontsize="small")
                lowest, first = number + columns >= len(shown), number % columns == 0
                one.set(xlabel=NAMES.get(x, x) if lowest else "", ylabel=NAMES.get(y, y) if first else "")
                one.tick_params(labelbottom=lowest or not alike(table, x), labelleft=first or not alike(table, y))
        bar = figure.colorbar(
            colours,
            ax=axes,
            label=f"final {MEASURES.get(measure, measure)}",
            pad=0.02,
            extend="max" if spread.max() > high else "neither",
        )
        if measure == "test_accuracy":
            bar.formatter = PERCENT
        seeds = counts(table.groupby(["panel", x, y]).size())
        failing = "hatched: diverged" if table["learnt"].isna().any() else ""
        legend(figure, list(axes.flat), [f"cells: mean of n = {seeds}", failing, limit, more(panels, shown)])
    return saved(figure, path)


def gridded(results: Sequence[Drawn], x: str, y: str, single: bool = False) -> pd.DataFrame:
    """The final rows with their parameters and the name of their `panel`: all that differs besides x, y and seeds.

    Raises:
        ValueError: x, or unless `single` y, does not differ.
    """
    table = ends(results, [x, y])
    for key in (x, y)[: 2 - single]:
        if table[key].nunique() < 2:
            raise ValueError(f"{key}: expected several values, got {said(table[key].iloc[0])} alone: sweep it")
    names = [key for key in table if "." in key or key == "seed" or table[key].dtype.kind not in "iufb"]
    others = [key for key in names if key not in (x, y) and not key.endswith("seed") and table[key].nunique() > 1]
    table["panel"] = [", ".join(said(row[key], key) for key in others) for _, row in table.iterrows()]
    return table


def started(results: Sequence[Drawn], measure: str) -> float:
    """The largest value of a loss that any result started with; infinite where none says."""
    firsts = [of.metrics[measure].dropna().iloc[:1] for of in results if measure in of.metrics]
    return max((float(first.iloc[0]) for first in firsts if len(first)), default=math.inf)


def _heat(
    axes: Axes,
    table: pd.DataFrame,
    results: Sequence[Drawn],
    keys: tuple[str, str],
    colours: ScalarMappable,
    measure: str,
    width: float,
) -> str:
    """One panel, `width` inches wide; what the limit in it is."""
    x, y = keys
    xs, ys = sorted(table[x].dropna().unique(), key=order), sorted(table[y].dropna().unique(), key=order)
    ys = ys[::-1] if isinstance(ys[0], str) else ys  # names are read from above, numbers grow upwards
    broken = table.assign(nan=table["learnt"].isna()).pivot_table(index=y, columns=x, values="nan", aggfunc="max")
    cells = table.pivot_table(index=y, columns=x, values="learnt", aggfunc="mean").reindex(index=ys, columns=xs)
    broken = broken.reindex(index=ys, columns=xs)
    values = np.where(broken.to_numpy() == 1, np.nan, cells.to_numpy(float))
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours.cmap, norm=colours.norm)
    for (row, column), value in np.ndenumerate(values):
        if broken.to_numpy()[row, column] == 1:
            axes.add_patch(
                matplotlib.patches.Rectangle((column, row), 1, 1, hatch="////", facecolor="white", edgecolor=LIGHT)
            )
        elif np.isfinite(value) and values.size <= CELLS:
            dark = matplotlib.colors.rgb_to_hsv(colours.to_rgba(value)[:3])[2] < 0.65
            plain = f"{value:.0f}" if 100 <= value < 1e4 else f"{value:.2g}"
            text = f"{100 * value:.1f}" if measure == "test_accuracy" else plain
            halo = [withStroke(linewidth=2.5, foreground=colours.to_rgba(value))]  # the limit may pass below
            look = {"color": "white" if dark else "black", "path_effects": halo, "zorder": 4}
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7, **look)
    below = [said(value) for value in xs]
    longest = max(((len(left) + len(right)) / 2 + 1 for left, right in pairwise(below)), default=0)
    crowded = longest * DIGIT > width / len(xs)
    axes.set_xticks(np.arange(len(xs)) + 0.5, below, rotation=45 if crowded else 0)
    axes.set_yticks(np.arange(len(ys)) + 0.5, [said(value) for value in ys])
    axes.grid(visible=False)
    return _limit(axes, table, results, xs, ys, y) if x == LR else ""


def _limit(axes: Axes, table: pd.DataFrame, results: Sequence[Drawn], xs: list, ys: list, y: str) -> str:
    """The stability limit, a step a row, in places of cells; what it is, or nothing where there is none."""
    at, exact = [], True
    for value in ys:
        row = table[table[y] == value]
        config = results[int(row["run"].iloc[0])].config if len(row) else None
        theory = exact_limit(config)
        exact &= theory is not None
        at.append(theory)
    if not exact:
        at = [_measured(table[table[y] == value], results, xs) for value in ys]
    if all(limit is None for limit in at):
        return ""
    centres = np.arange(len(xs)) + 0.5
    ratio = math.log(xs[-1] / xs[0]) / (len(xs) - 1)
    logs, beyond = np.log([xs[0] * math.exp(-ratio), *xs, xs[-1] * math.exp(ratio)]), [-0.5, *centres, len(xs) + 0.5]
    places = [len(xs) if limit is None else np.interp(math.log(max(limit, 1e-300)), logs, beyond) for limit in at]
    places = np.clip(places, 0, len(xs))
    name = "stability limit: theory" if exact else "stability limit: measured"
    for colour, width in (("white", 4), ("black", 2)):
        look = {"color": colour, "linewidth": width, "clip_on": False, "label": name if colour == "black" else None}
        axes.stairs(places, np.arange(len(ys) + 1), orientation="horizontal", baseline=None, **look)
    if exact:
        return "limit: the learning rate at which the quadratic oscillates for ever, between cells by its logarithm"
    fails = "of which a seed diverges or ends below twice chance"
    return f"limit: between the largest learning rate that learns and the next, {fails}"


def _measured(row: pd.DataFrame, results: Sequence[Drawn], xs: list) -> float | None:
    """The measured limit in a row of the grid."""
    if not len(row):
        return None
    first = results[int(row["run"].iloc[0])]
    fails = (
        row.assign(failed=failed(row, started(results, "test_loss"), chance(first.config)))
        .groupby(LR)["failed"]
        .max()
        .reindex(xs)
    )
    learnt = row.groupby(LR)["learnt"].mean().reindex(xs).where(~fails.astype(bool))
    if learnt.isna().all():
        return 0.0
    best = int(np.nanargmax(learnt) if "test_accuracy" in row else np.nanargmin(learnt))
    return measured_limit(np.array(xs), fails.fillna(False).to_numpy(bool), best)


def counts(sizes: pd.Series) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"


def more(panels: Sequence[str], shown: Sequence[str]) -> str:
    return f"{len(panels) - len(shown)} more panels are not shown" if len(panels) > len(shown) else ""


def alike(table: pd.DataFrame, key: str) -> bool:
    """Whether a key has the same values in every panel, so that one panel's ticks can stand for all."""
    return len({frozenset(values.dropna()) for _, values in table.groupby("panel")[key]}) == 1


def order(value: Any) -> tuple[bool, Any]:
    """Numbers by size, then texts as the sweep has them."""
    return isinstance(value, str), 0 if isinstance(value, str) else value
