"""Figures of results: pictures for a README or a paper, drawn without a display."""

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, MaxNLocator

from experiments.lines import MEASURES, Drawn, Label, Line, best_of, lines_of, measures_of

STYLE = Path(__file__).with_name("laggard.mplstyle")
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")  # Okabe and Ito
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.5, 1.2, 1.5)))
AXES = {"time": "virtual time (s)", "updates": "updates", "samples": "samples", "epoch": "epochs"}
UNUSED = {
    "dropped": {"facecolor": "white", "edgecolor": PALETTE[1]},
    "cancelled": {"facecolor": "white", "edgecolor": PALETTE[-1], "hatch": "/////"},
}
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
SPARSE = FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.6g}")
COUNT = FuncFormatter(lambda n, _: f"{n / 1e6:g}M" if n >= 1e6 else f"{n / 1e3:g}k" if n >= 1e4 else f"{n:,g}")
BINS, ROLLING, ROWS, WINDOW = 60, 20, 24, 30


def comparison(
    results: Sequence[Drawn],
    path: str | Path | None = None,
    target: float | None = None,
    label: Label | None = None,
) -> Figure:
    """Compare runs: what was learnt against virtual time and against updates, and how stale the gradients were.

    Args:
        results: runs; those that differ only in seeds are drawn as one, their mean and their range.
        path: where the figure is saved, if at all.
        target: a test accuracy (0 to 1) worth a line, where the task has accuracies.
        label: names a run; by default what was swept, else the config's name.

    Raises:
        ValueError: two results cannot be told apart.
    """
    lines, measure = lines_of(results, label), measures_of(results)[0]
    shown = best_of(lines, measure, len(PALETTE))
    target = target if measure == "test_accuracy" else None
    updates = {line.run: pd.concat([results[index].updates for index in line.results]) for line in shown}
    rows = math.ceil(len(updates) / 4)
    with style.context(STYLE):
        figure = Figure(figsize=(8, 3.2 + 2.1 * rows), layout="constrained")
        grid = figure.add_gridspec(1 + rows, 12, height_ratios=[3.2] + [2.1] * rows)
        left = figure.add_subplot(grid[0, :6])
        right = figure.add_subplot(grid[0, 6:], sharey=left)
        _draw(left, shown, "time", measure, target)
        _draw(right, shown, "updates", measure, target)
        right.tick_params(labelleft=False, which="both")
        right.set_ylabel("")
        _histograms(figure, grid, updates)
        _legend(figure, left, _notes(shown, lines))
    return save(figure, path) if path else figure


def timeline(
    result: Drawn, path: str | Path | None = None, until: float | None = None, workers: Sequence[int] | None = None
) -> Figure:
    """Who computed when: a row a worker, a bar a gradient from its start to its fate.

    Args:
        result: a run. Gradients still in flight at its end are not drawn.
        path: where the figure is saved, if at all.
        until: where the window ends (s); by default when the fastest worker's 30th gradient meets its fate.
        workers: ranks to show; by default the first 24.
    """
    ranks = list(result.workers["worker"])[:ROWS] if workers is None else list(workers)
    fates = result.updates[result.updates["worker"].isin(ranks)]
    if until is None:
        ends = fates.groupby("worker")["time"].nth(WINDOW - 1)
        until = float(min(ends) if len(ends) else max(fates["time"]))
    fates = fates[fates["started"] < until]
    fates = fates.assign(row=fates["worker"].map(ranks.index), computed=fates["computed"].fillna(fates["time"]))
    left_out = len(result.workers) - len(ranks)
    with style.context(STYLE):
        figure = Figure(figsize=(8, 1.5 + 0.27 * len(ranks)), layout="constrained")
        axes = figure.subplots()
        _bars(axes, fates)
        axes.set(xlim=(0, until), xlabel=AXES["time"], ylabel="worker", ylim=(len(ranks) - 0.4, -0.6))
        axes.set_yticks(range(len(ranks)), [str(rank) for rank in ranks])
        axes.grid(visible=False)
        _legend(figure, axes, ["blank: waiting"] + [f"{left_out} more workers are not shown"] * (left_out > 0))
    return save(figure, path) if path else figure


def staleness(result: Drawn, path: str | Path | None = None) -> Figure:
    """How stale the applied gradients of a run were: their distribution, and each worker's over time."""
    applied = _applied(result.updates)
    means = applied.groupby("worker")["staleness"].mean()
    shown = means.index if len(means) <= len(PALETTE) else [means.idxmax()]
    colours = dict(zip(shown, PALETTE, strict=False))
    with style.context(STYLE):
        figure = Figure(figsize=(8, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2, 3))
        _histogram(left, result.updates, applied["staleness"].max(), PALETTE[0], "all workers")
        for worker, of in applied.groupby("worker"):
            look = {"color": colours.get(worker, "#bbbbbb"), "zorder": 2 + (worker in colours)}
            right.scatter(of["time"], of["staleness"], s=4, alpha=0.3, linewidth=0, rasterized=True, **look)
            smooth = of["staleness"].rolling(ROLLING, min_periods=1).mean()
            label = f"worker {worker}" if worker in colours else None
            right.plot(of["time"], smooth, linewidth=1.2, label=label, **look)
        right.axhline(applied["staleness"].mean(), color="black", linewidth=1, linestyle=DASHES[1], label="mean")
        right.set(xlabel=AXES["time"], ylabel="staleness (updates)")
        others = [f"grey: the other {len(means) - 1} workers"] if len(means) > len(colours) else []
        _legend(figure, right, [f"lines: rolling mean of {ROLLING} gradients", *others])
    return save(figure, path) if path else figure


def curves(result: Drawn, path: str | Path | None = None) -> Figure:
    """What one run learnt: accuracy, where the task has one, and losses, against each of the four axes."""
    measures, lines = measures_of([result]), lines_of([result])
    shown = best_of(lines, measures[0], len(PALETTE))
    with style.context(STYLE):
        figure = Figure(figsize=(8, 1 + 1.5 * len(measures)), layout="constrained")
        panels = figure.subplots(len(measures), len(AXES), sharex="col", sharey="row", squeeze=False)
        for row, measure in zip(panels, measures, strict=True):
            for axes, x in zip(row, AXES, strict=True):
                _draw(axes, shown, x, measure)
                axes.label_outer()
        _legend(figure, axes, _notes(shown, lines))
    return save(figure, path) if path else figure


def save(figure: Figure, path: str | Path) -> Figure:
    """Write `figure` at 150 dots per inch, as its suffix says (png, svg, pdf), whole or not at all; and return it.

    Raises:
        ValueError: a suffix that cannot be drawn.
        OSError: it cannot be written.
    """
    path = Path(path)
    known = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ValueError(f"expected a name that ends in one of .{', .'.join(sorted(known))}, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with style.context(STYLE):  # an SVG without its date, and with the style's salt: same data, same bytes
            figure.savefig(part, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        part.replace(path)
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # nobody knows the part's name
    finally:
        part.unlink(missing_ok=True)
    return figure


def _looks(lines: Sequence[Line]) -> list[tuple[str, Any]]:
    """A colour and a dash for each line: the colour is its run's if there are several and dashes enough."""
    runs = [line.run for line in lines]
    names = list(dict.fromkeys(runs))
    if len(names) == 1 or max(map(runs.count, names)) > len(DASHES):
        return [(colour, "-") for colour in PALETTE]
    return [(PALETTE[names.index(run)], DASHES[runs[:index].count(run)]) for index, run in enumerate(runs)]


def _draw(axes: Axes, lines: Sequence[Line], x: str, measure: str, target: float | None = None) -> None:
    """Each line, the mean of its curves within their range; of an accuracy above a half not the first steep ascent."""
    levels = [] if target is None else [target]
    for line, (colour, dash) in zip(lines, _looks(lines), strict=False):
        at, values = line.points(x, measure)
        label = f"{line.name} (n = {len(values)})" if len(values) > 1 else line.name
        axes.plot(at, values.mean(0), color=colour, linestyle=dash, marker="o" if len(at) <= 25 else "", label=label)
        axes.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)
        levels += values[:, min(len(at) // 8 + 1, len(at) - 1) :].ravel().tolist()
    axes.set(xlabel=AXES[x], ylabel=MEASURES.get(measure, measure))
    if x in ("updates", "samples"):
        axes.xaxis.set_major_formatter(COUNT)
    if target is not None:
        axes.axhline(target, color="black", linewidth=1, linestyle=DASHES[2], label=f"target {100 * target:.6g} %")
    if measure == "test_accuracy":
        axes.yaxis.set_major_formatter(PERCENT)
        low, high = np.nanmin(levels), np.nanmax(levels)
        margin = 0.06 * (high - low) or 0.01
        if low > 0.5:
            axes.set_ylim(low - margin, high + margin)
    elif measure in MEASURES:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < 100 * low:  # hardly a decade to name: plain numbers, as many as fit
            axes.yaxis.set_major_formatter(PLAIN)
            axes.yaxis.set_minor_formatter(PLAIN if high < 3 * low else SPARSE)


def _applied(updates: pd.DataFrame) -> pd.DataFrame:
    return updates[updates["status"] == "applied"]


def _histogram(axes: Axes, updates: pd.DataFrame, top: float, colour: str, title: str, wrap: int = 50) -> None:
    """Shares of the applied gradients by staleness up to `top`, in bins one update wide unless that is too narrow."""
    applied = _applied(updates)["staleness"]
    top = np.nan_to_num(top)  # NaN where none was applied
    width = math.ceil((top + 1) / BINS)
    edges = np.arange(-0.5, top + width, width)
    shares = np.histogram(applied, edges)[0] / max(1, len(applied))
    axes.bar(edges[:-1], shares, 0.94 * width, align="edge", color=colour)
    line = {"color": "black", "linewidth": 1, "linestyle": DASHES[1], "zorder": 0.9}  # behind the bars
    axes.axvline(applied.mean(), marker="v", markevery=[1], markersize=5, clip_on=False, **line)
    counts = [f"{(updates['status'] == fate).sum():,} {fate}" for fate in UNUSED if (updates["status"] == fate).any()]
    counts += [f"bins of {width}"] * (width > 1)
    stated = [title, f"mean {applied.mean():.2f}, max {applied.max()}, n = {len(applied):,}", ", ".join(counts)]
    axes.set_title("\n".join(textwrap.fill(text, wrap) for text in stated if text), fontsize="small", pad=8)
    axes.set(xlabel="staleness (updates)", ylabel="share of gradients (%)")
    axes.yaxis.set_major_formatter(PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _histograms(figure: Figure, grid: GridSpec, updates: Mapping[str, pd.DataFrame]) -> None:
    """A histogram a run, up to four in each row of `grid` below the first, all in the same bins."""
    top = _applied(pd.concat(updates.values()))["staleness"].max()
    span = grid.ncols // min(len(updates), 4)
    for index, (run, of) in enumerate(updates.items()):
        row, start = 1 + index // 4, index % 4 * span
        axes = figure.add_subplot(grid[row, start : start + span])
        _histogram(axes, of, top, PALETTE[index], run, wrap=10 * span)
        axes.set_ylabel("" if start else axes.get_ylabel())


def _bars(axes: Axes, fates: pd.DataFrame) -> None:
    """A bar while a gradient is computed, coloured by its staleness, then a thin one until its fate."""
    applied = _applied(fates)
    colours = ScalarMappable(Normalize(0, max(1, applied["staleness"].max())), "viridis")
    looks = [("applied", "computing", {"color": colours.to_rgba(applied["staleness"].to_numpy())})]
    for status, label, look in looks + [(fate, fate, look) for fate, look in UNUSED.items()]:
        of = fates[fates["status"] == status]
        if len(of):
            axes.barh(of["row"], of["computed"] - of["started"], 0.7, of["started"], label=label, **look)
    way = fates["time"] - fates["computed"]
    axes.barh(fates["row"], way, 0.2, fates["computed"], color="#bbbbbb", label="on its way or queued")
    axes.plot(applied["time"], applied["row"], "|", color="black", markersize=9, label="applied")
    if applied["staleness"].max() > 0:
        axes.figure.colorbar(colours, ax=axes, label="staleness (updates)", ticks=MaxNLocator(integer=True))


def _legend(figure: Figure, axes: Axes, notes: Sequence[str]) -> None:
    """One legend above all panels, where it hides no data, and below them what else the reader must know."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, 100 // (max(map(len, labels)) + 6))
    figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(labels)))
    figure.align_ylabels()
    figure.supxlabel("; ".join(notes), x=0.01, ha="left", fontsize="small", color="#666666")


def _notes(shown: Sequence[Line], lines: Sequence[Line]) -> list[str]:
    """How to read bands, and how many lines were left out."""
    bands = ["line and band: mean and range of n seeds"] * any(len(line.curves) > 1 for line in shown)
    fewer = [f"shown: {len(shown)} of {len(lines)} lines, of each run those that ended best"]
    return bands + fewer * (len(shown) < len(lines))
