"""Who did what when: workers that compute, send and wait."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.figures.lateness import applied_of
from experiments.figures.look import AXES, LIGHT, PALETTE, drawing, legend, saved, several
from experiments.figures.phases import recorded
from experiments.lines import Drawn, Label, shortened, titles

ROWS, WINDOW, RUNS = 24, 30, 4
UNUSED = {
    "dropped": {"facecolor": "white", "edgecolor": PALETTE[1]},
    "cancelled": {"facecolor": "white", "edgecolor": PALETTE[-1], "hatch": "/////"},
}


def timeline(
    results: Sequence[Drawn] | Drawn,
    path: str | Path | None = None,
    until: float | None = None,
    workers: Sequence[int] | None = None,
    label: Label | None = None,
) -> Figure:
    """Who computed when: a row a worker, a bar a gradient from its start to its fate, a tick an update.

    Thick bars compute, thin ones are on their way, hatched thin ones have arrived and wait; where arrivals were not
    recorded the last two are one. What is blank waits. Of several runs the first four, on one axis of time.

    Args:
        results: runs. Gradients still in flight at their end are not drawn.
        path: where the figure is saved, if at all.
        until: where the window ends (s); by default when the fastest worker's 30th gradient meets its fate.
        workers: ranks to show; by default the first 24, of several runs the first 8.
    """
    results = several(results)
    shown, most = results[:RUNS], ROWS if len(results) == 1 else 8
    ranks = [list(of.workers["worker"])[:most] if workers is None else list(workers) for of in shown]
    until = min(_until(of, its) for of, its in zip(shown, ranks, strict=True)) if until is None else until
    tops = [applied_of(of.updates[of.updates["started"] < until])["staleness"].max() for of in shown]
    colours = ScalarMappable(Normalize(0, max(1, *np.nan_to_num(tops))), "viridis")
    heights = [0.5 + 0.27 * (len(its) + 1) for its in ranks]
    with drawing(8, 1.2 + sum(heights) + 0.2 * (len(shown) > 1) * len(shown)) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        for axes, of, its, name in zip(panels, shown, ranks, titles(results, label), strict=False):
            _rows(axes, of.updates, its, until, colours)
            axes.set_title(shortened(name, 100) if len(shown) > 1 else "")
        panels[-1].set(xlim=(0, until), xlabel=AXES["time"])
        if max(np.nan_to_num(tops)) > 0:
            figure.colorbar(colours, ax=panels, label="staleness (updates)", ticks=MaxNLocator(integer=True))
        hidden = sum(len(of.workers) - len(its) for of, its in zip(shown, ranks, strict=True))
        notes = ["blank: waiting", f"{hidden} more workers are not shown" * (hidden > 0)]
        if any(len(set(its) - set(of.updates["worker"])) for of, its in zip(shown, ranks, strict=True)):
            notes.append("rows without bars had no gradient with a fate, as the first stages of a pipeline")
        legend(figure, panels, [*notes, f"{len(results) - len(shown)} more runs are not shown" * (len(results) > RUNS)])
    return saved(figure, path)


def _until(result: Drawn, ranks: Sequence[int]) -> float:
    fates = result.updates[result.updates["worker"].isin(ranks)]
    ends = fates.groupby("worker")["time"].nth(WINDOW - 1)
    if not len(fates):
        return float(result.metrics["time"].max()) or 1.0
    return float(min(ends) if len(ends) else max(fates["time"]))


def _rows(axes: Axes, updates: pd.DataFrame, ranks: Sequence[int], until: float, colours: ScalarMappable) -> None:
    """A row a rank, and one of updates where servers make them."""
    fates = updates[updates["worker"].isin(ranks) & (updates["started"] < until)]
    fates = fates.assign(row=fates["worker"].map(list(ranks).index), computed=fates["computed"].fillna(fates["time"]))
    _bars(axes, fates, colours)
    names, served = [str(rank) for rank in ranks], applied_of(updates)
    served = served[(served["target"] < 0) & (served["time"] <= until)]
    if len(served):
        moments = served.drop_duplicates(["target", "version"])["time"]
        axes.plot(moments, np.full(len(moments), len(ranks)), "|", color=PALETTE[1], markersize=9, label="update")
        names.append("server")
    axes.set(ylabel="worker", ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)


def _bars(axes: Axes, fates: pd.DataFrame, colours: ScalarMappable) -> None:
    """A bar while a gradient is computed, coloured by its staleness, then thin ones until its fate."""
    applied = applied_of(fates)
    looks = [("applied", "computing", {"color": colours.to_rgba(applied["staleness"].to_numpy())})]
    for status, label, look in looks + [(fate, fate, look) for fate, look in UNUSED.items()]:
        of = fates[fates["status"] == status]
        if len(of):
            axes.barh(of["row"], of["computed"] - of["started"], 0.7, of["started"], label=label, **look)
    ends = fates["time"]
    if split := recorded(fates):
        ends = fates["arrived"].where(fates["arrived"] <= fates["time"], fates["computed"])
        queued = {"facecolor": "white", "edgecolor": LIGHT, "hatch": "//////", "linewidth": 0.5}
        late = "arrived, not yet applied" if (ends < fates["time"]).any() else None
        axes.barh(fates["row"], fates["time"] - ends, 0.2, ends, label=late, **queued)
    way = ("on its way" if split else "on its way or queued") if (ends > fates["computed"]).any() else None
    axes.barh(fates["row"], ends - fates["computed"], 0.2, fates["computed"], color=LIGHT, label=way)
    axes.plot(applied["time"], applied["row"], "|", color="black", markersize=9, label="applied")
