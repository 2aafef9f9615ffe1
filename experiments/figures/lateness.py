"""How stale the applied gradients were: distributions beside theory's, and each worker's over time."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.figures.look import (
    AXES,
    DASHES,
    LIGHT,
    PALETTE,
    PERCENT,
    drawing,
    legend,
    saved,
    several,
)
from experiments.figures.theory import CONSTANT, Theory, staleness_theory
from experiments.lines import Drawn, Label, titles

BINS, ROLLING, SMOOTH, PANELS, ROWS = 60, 20, 20, 16, 6


def histograms(results: Sequence[Drawn], path: str | Path | None = None, label: Label | None = None) -> Figure:
    """The distribution of the staleness of applied gradients, a panel a run, with theory's where there is one.

    Theory is `staleness_theory` of the config, for the steady state: a curve where the whole law is known, else a
    triangle at the mean. A run begins with fresh gradients, which theory leaves out.
    """
    results = several(results)
    shown = results[:PANELS]
    columns = 2 if len(shown) == 4 else min(len(shown), 4 if len(shown) > 6 else 3)
    rows = math.ceil(len(shown) / columns)
    with drawing(8 if columns > 1 else 5, 1 + 2.3 * rows) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for number, axes in enumerate(panels.flat):
            axes.set_visible(number < len(shown))
        for number, (axes, result, name) in enumerate(zip(panels.flat, shown, titles(results, label), strict=False)):
            theory = staleness_theory(result.config)
            top = _top(result.updates)
            histogram(axes, result.updates, top, PALETTE[0], name, wrap=112 // columns, theory=theory)
            axes.set_ylabel(axes.get_ylabel() if number % columns == 0 else "")
        _legend(figure, panels.flat[: len(shown)], _left_out(len(results), len(shown)))
    return saved(figure, path)


def staleness(results: Sequence[Drawn] | Drawn, path: str | Path | None = None, label: Label | None = None) -> Figure:
    """How stale the applied gradients of runs were: their distribution beside theory's, and each worker's over time.

    A row a run. Points are gradients, lines each worker's rolling mean; of more than eight workers the stalest alone
    has a colour.
    """
    results = several(results)
    shown = results[:ROWS]
    with drawing(8, 1.1 + 2.5 * len(shown)) as figure:
        panels = figure.subplots(len(shown), 2, width_ratios=(2, 3), squeeze=False)
        for (left, right), result, name in zip(panels, shown, titles(results, label), strict=False):
            applied = applied_of(result.updates)
            histogram(left, result.updates, _top(result.updates), PALETTE[0], name, 44, staleness_theory(result.config))
            coloured, others = _over_time(right, applied)
        notes = [f"lines: rolling mean of {ROLLING} gradients, of a {SMOOTH}th of a worker's where that is more"]
        notes += (
            [f"colour: the stalest worker, {coloured}; grey: the other {others}"] if others and len(shown) == 1 else []
        )
        notes += ["colour: the stalest worker of each run; grey: the others"] if others and len(shown) > 1 else []
        _legend(figure, [*panels[:, 1], *panels[:, 0]], notes + _left_out(len(results), len(shown)))
    return saved(figure, path)


def applied_of(updates: pd.DataFrame) -> pd.DataFrame:
    """The rows of the gradients that were applied."""
    return updates[updates["status"] == "applied"]


def histogram(
    axes: Axes, updates: pd.DataFrame, top: float, colour: str, title: str, wrap: int = 50, theory: Theory | None = None
) -> None:
    """Shares of the applied gradients by staleness up to `top`, in bins one update wide unless that is too narrow."""
    applied = applied_of(updates)["staleness"]
    top = np.nan_to_num(top)  # NaN where none was applied
    top = max(top, math.ceil(theory.mean)) if theory else top
    width = math.ceil((top + 1) / BINS)
    edges = np.arange(-0.5, top + width, width)
    shares = np.histogram(applied, edges)[0] / max(1, len(applied))
    axes.bar(edges[:-1], shares, 0.94 * width, align="edge", color=colour)
    if len(applied):
        line = {"color": "black", "linewidth": 1, "linestyle": DASHES[1], "zorder": 0.9}  # behind the bars
        axes.axvline(applied.mean(), marker="v", markevery=[1], markersize=5, clip_on=False, **line)
    measured = f"mean {applied.mean():.2f}, max {applied.max()}, " if len(applied) else ""
    stated = [title, f"{measured}n = {len(applied):,}", _besides(updates, edges, width)]
    stated += [f"theory: {theory.law}, mean {theory.mean:.2f}"] if theory else []
    axes.set_title("\n".join(textwrap.fill(text, wrap) for text in stated if text), fontsize="small", pad=8)
    axes.set(xlabel="staleness (updates)", ylabel="share of gradients (%)")
    axes.yaxis.set_major_formatter(PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlim(-0.5 - 0.02 * (top + 1), max(edges[-1], 1.5) + 0.02 * (top + 1))
    if theory is not None:
        _theory(axes, theory, edges, width)


def _besides(updates: pd.DataFrame, edges: np.ndarray, width: int) -> str:
    """What a histogram's bars do not say: gradients that were not applied or lie beyond its axis, and wide bins."""
    beyond = int((applied_of(updates)["staleness"] > edges[-1]).sum())
    counts = {fate: int((updates["status"] == fate).sum()) for fate in ("dropped", "cancelled")}
    said = [f"{count:,} {fate}" for fate, count in counts.items() if count]
    return ", ".join(said + [f"bins of {width}"] * (width > 1) + [f"{beyond:,} beyond the axis"] * (beyond > 0))


def _top(updates: pd.DataFrame) -> float:
    """Where a histogram by itself ends: at the largest staleness or, where a few lie far out, at 99.8 % of them."""
    applied = applied_of(updates)["staleness"]
    if not len(applied):
        return 0.0
    most = float(np.quantile(applied, 0.998, method="higher"))
    return most if applied.max() > 1.5 * most + 1 else float(applied.max())


def _theory(axes: Axes, theory: Theory, edges: np.ndarray, width: int) -> None:
    """Theory's share of each bin; of a mean alone, a triangle on the axis."""
    if theory.probabilities is None:
        axes.plot(theory.mean, 0, "^", color=PALETTE[1], markersize=8, clip_on=False, zorder=3, label="theory: mean")
        return
    ks = (edges[:-1, None] + 0.5 + np.arange(width)).round()
    shares = theory.probabilities(ks.ravel()).reshape(ks.shape).sum(1)
    line = "" if theory.law == CONSTANT else "-"
    axes.plot(edges[:-1] + width / 2, np.where((shares == 0) & (line == ""), np.nan, shares), "o", linestyle=line,
              color=PALETTE[1], markersize=3 if line else 6, linewidth=1.2, label="theory")  # fmt: skip


def _over_time(axes: Axes, applied: pd.DataFrame) -> tuple[int | None, int]:
    """Each worker's staleness over time; which alone has a colour, and how many have not."""
    means = applied.groupby("worker")["staleness"].mean()
    many = len(means) > len(PALETTE)
    shown = [means.idxmax()] if many else list(means.index)
    looks = {worker: (PALETTE[index], DASHES[index % len(DASHES)]) for index, worker in enumerate(shown)}
    for worker, of in applied.groupby("worker"):
        colour, dash = looks.get(worker, (LIGHT, "-"))
        look = {"color": colour, "zorder": 2 + (worker in looks)}
        axes.scatter(
            of["time"],
            of["staleness"],
            s=4,
            alpha=max(0.05, min(0.3, 600 / len(applied))),
            linewidth=0,
            rasterized=True,
            **look,
        )
        smooth = of["staleness"].rolling(max(ROLLING, len(of) // SMOOTH), min_periods=1).mean()
        label = f"worker {worker}" if worker in looks and not many else "stalest worker" if worker in looks else None
        axes.plot(of["time"], smooth, linewidth=1.2, linestyle=dash, label=label, **look)
    if len(applied):
        axes.axhline(applied["staleness"].mean(), color="black", linewidth=1, linestyle=DASHES[1], label="mean")
    axes.set(xlabel=AXES["time"], ylabel="staleness (updates)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if not applied["staleness"].any():
        axes.set_ylim(-0.1, 1.1)
    return (int(shown[0]), len(means) - 1) if many else (None, 0)


def _legend(figure: Figure, panels: Sequence[Axes], notes: Sequence[str]) -> None:
    """The legend, and what dashes and curves mean."""
    theory = any(text.startswith("theory") for axes in panels for text in axes.get_legend_handles_labels()[1])
    legend(figure, panels, ["dashed: mean of the run", *["theory: steady state"] * theory, *notes])


def _left_out(given: int, shown: int) -> list[str]:
    return [f"{given - shown} more runs are not shown"] * (given > shown)
