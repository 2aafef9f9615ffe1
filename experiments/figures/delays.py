"""Figures of staleness: its distribution beside theory's and reality's, each worker's over time,
and its phases.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from laggard.experiments.figures.lines import Label, applied_gradients, pool_seeds, shorten, titles
from laggard.experiments.figures.style import (
    AXIS_LABELS,
    DASHES,
    GREY,
    LIGHT,
    PALETTE,
    PERCENT,
    File,
    Runs,
    as_sequence,
    legend,
    name_ticks,
    omission_note,
    panels_of,
    styled_figure,
)
from laggard.experiments.figures.timelines import UNSPLIT, has_arrivals, phases, seconds, stack_bars
from laggard.experiments.theory.staleness import CONSTANT, Theory, staleness_theory

if TYPE_CHECKING:
    from laggard.experiments.real.comparison import Figures


BINS, ROLLING, SMOOTH, PANELS, ROWS, BARS = 60, 20, 20, 16, 6, 24
LOOKS: dict[str, dict[str, Any]] = {
    "network down": {"color": PALETTE[5]},
    "compute": {"color": PALETTE[0]},
    "network up": {"color": PALETTE[4]},
    "barrier": {"facecolor": "white", "edgecolor": PALETTE[3], "hatch": "\\\\\\\\"},
    "queue": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    UNSPLIT: {"facecolor": "white", "edgecolor": PALETTE[4], "hatch": "...."},
}


def histograms(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """The distribution of the staleness of applied gradients, of all seeds of a setting, beside
    theory's.

    Theory is `staleness_theory` of the config, for the steady state: a curve where the whole law is
    known, else a triangle at the mean. A run begins with fresh gradients, which theory leaves out.
    """
    results = as_sequence(results)
    pooled = pool_seeds(results, label)
    shown = pooled[:PANELS]
    columns = 2 if len(shown) == 4 else min(len(shown), 4 if len(shown) > 6 else 3)
    with styled_figure(
        8 if columns > 1 else 5, 1 + 2.3 * math.ceil(len(shown) / columns), path
    ) as figure:
        panels = panels_of(figure, len(shown), columns)
        for number, (axes, (name, seeds)) in enumerate(zip(panels, shown, strict=True)):
            theory, updates = (
                staleness_theory(seeds[0].config),
                pd.concat([result.updates for result in seeds]),
            )
            histogram(
                axes, updates, _top(updates), PALETTE[0], name, wrap=112 // columns, theory=theory
            )
            axes.set_ylabel(axes.get_ylabel() if number % columns == 0 else "")
        _legend(figure, panels, [omission_note(len(pooled), len(shown), "panels")])
    return figure


def staleness(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """How stale the applied gradients of runs were: their distribution beside theory's, and each
    worker's over time.

    A row a run. Points are gradients, lines each worker's rolling mean; of more than eight workers
    the stalest alone has a colour.
    """
    results = as_sequence(results)
    shown = results[:ROWS]
    with styled_figure(8, 1.1 + 2.5 * len(shown), path) as figure:
        panels = figure.subplots(len(shown), 2, width_ratios=(2, 3), squeeze=False)
        for (left, right), result, name in zip(panels, shown, titles(results, label), strict=False):
            applied = applied_gradients(result.updates)
            histogram(
                left,
                result.updates,
                _top(result.updates),
                PALETTE[0],
                name,
                44,
                staleness_theory(result.config),
            )
            coloured, others = _over_time(right, applied)
        notes = [
            f"lines: rolling mean of {ROLLING} gradients, of a {SMOOTH}th of a worker's where that is more"
        ]
        alone = f"colour: the stalest worker, {coloured}; grey: the other {others}"
        each = "colour: the stalest worker of each run; grey: the others"
        notes += [alone if len(shown) == 1 else each] if others else []
        _legend(
            figure,
            [*panels[:, 1], *panels[:, 0]],
            [*notes, omission_note(len(results), len(shown))],
        )
    return figure


def histogram(
    axes: Axes,
    updates: pd.DataFrame,
    top: float,
    colour: str,
    title: str,
    wrap: int = 50,
    theory: Theory | None = None,
) -> None:
    """Shares of the applied gradients by staleness up to `top`, in bins one update wide unless that
    is too narrow.
    """
    applied = applied_gradients(updates)["staleness"]
    top = np.nan_to_num(top)  # NaN where none was applied
    top = max(top, math.ceil(theory.mean)) if theory else top
    width = math.ceil((top + 1) / BINS)
    edges = np.arange(-0.5, top + width, width)
    shares = np.histogram(applied, edges)[0] / max(1, len(applied))
    axes.bar(edges[:-1], shares, 0.94 * width, align="edge", color=colour)
    if len(applied):
        axes.axvline(applied.mean(), marker="v", markevery=[1], markersize=5, clip_on=False, color="black",
                     linewidth=1, linestyle=DASHES[1], zorder=0.9)  # fmt: skip  # behind the bars
    measured = f"mean {applied.mean():.2f}, max {applied.max()}, " if len(applied) else ""
    stated = [title, f"{measured}n = {len(applied):,}", _besides(updates, edges, width)]
    stated += [f"theory: {theory.law}, mean {theory.mean:.2f}"] if theory else []
    axes.set_title(
        "\n".join(textwrap.fill(text, wrap) for text in stated if text), fontsize="small", pad=8
    )
    axes.set(xlabel="staleness (updates)", ylabel="share of gradients (%)")
    axes.yaxis.set_major_formatter(PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlim(-0.5 - 0.02 * (top + 1), max(edges[-1], 1.5) + 0.02 * (top + 1))
    if theory is not None:
        _theory(axes, theory, edges, width)


def _besides(updates: pd.DataFrame, edges: np.ndarray, width: int) -> str:
    """A note below a histogram: gradients that were not applied or lie beyond its axis, and wide
    bins.
    """
    beyond = int((applied_gradients(updates)["staleness"] > edges[-1]).sum())
    counts = {
        status: int((updates["status"] == status).sum()) for status in ("dropped", "cancelled")
    }
    besides = [f"{count:,} {status}" for status, count in counts.items() if count]
    return ", ".join(
        besides
        + [f"bins of {width}"] * (width > 1)
        + [f"{beyond:,} beyond the axis"] * (beyond > 0)
    )


def _top(updates: pd.DataFrame) -> float:
    """Where a histogram by itself ends: at the largest staleness or, where a few lie far out, at
    99.8 % of them.
    """
    applied = applied_gradients(updates)["staleness"]
    if not len(applied):
        return 0.0
    most = float(np.quantile(applied, 0.998, method="higher"))
    return most if applied.max() > 1.5 * most + 1 else float(applied.max())


def _theory(axes: Axes, theory: Theory, edges: np.ndarray, width: int) -> None:
    """Theory's share of each bin; of a mean alone, a triangle on the axis."""
    if theory.probabilities is None:
        axes.plot(
            theory.mean,
            0,
            "^",
            color=PALETTE[1],
            markersize=8,
            clip_on=False,
            zorder=3,
            label="theory: mean",
        )
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
    looks = {
        worker: (PALETTE[index], DASHES[index % len(DASHES)]) for index, worker in enumerate(shown)
    }
    for worker, of in applied.groupby("worker"):
        colour, dash = looks.get(worker, (LIGHT, "-"))
        above, alpha = 2 + (worker in looks), max(0.05, min(0.3, 600 / len(applied)))
        axes.scatter(of["time"], of["staleness"], s=4, alpha=alpha, linewidth=0, rasterized=True, color=colour,
                     zorder=above)  # fmt: skip
        smooth = of["staleness"].rolling(max(ROLLING, len(of) // SMOOTH), min_periods=1).mean()
        label = (
            f"worker {worker}"
            if worker in looks and not many
            else "stalest worker"
            if worker in looks
            else None
        )
        axes.plot(
            of["time"],
            smooth,
            linewidth=1.2,
            linestyle=dash,
            label=label,
            color=colour,
            zorder=above,
        )
    if len(applied):
        axes.axhline(
            applied["staleness"].mean(),
            color="black",
            linewidth=1,
            linestyle=DASHES[1],
            label="mean",
        )
    axes.set(xlabel=AXIS_LABELS["time"], ylabel="staleness (updates)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if not applied["staleness"].any():
        axes.set_ylim(-0.1, 1.1)
    return (int(shown[0]), len(means) - 1) if many else (None, 0)


def _legend(figure: Figure, panels: Sequence[Axes], notes: Sequence[str]) -> None:
    """The legend, with the meaning of dashes and curves."""
    theory = any(
        text.startswith("theory") for axes in panels for text in axes.get_legend_handles_labels()[1]
    )
    legend(figure, panels, ["dashed: mean of the run", *["theory: steady state"] * theory, *notes])


def split(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """Where staleness comes from: the updates, and the seconds, of each phase of a gradient's life.

    A bar a worker for one run, a bar a run for several; means over the applied gradients. See
    `phases`.
    """
    results = as_sequence(results)
    names = ["all workers"] if len(results) == 1 else titles(results, label)
    tables = {
        name: (phases(of.updates), seconds(of.updates))
        for name, of in zip(names, results, strict=True)
    }
    if len(results) == 1:  # each counts the updates of all
        counts, spent = tables["all workers"]
        for rank in sorted(results[0].updates["worker"].unique()):
            tables[f"worker {rank}"] = (
                counts[counts["worker"] == rank],
                spent[spent["worker"] == rank],
            )
    shown = dict(list(tables.items())[:BARS])
    with styled_figure(8, 1.3 + 0.25 * max(3, len(shown)), path) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        counted = [len(counts) for counts, _ in shown.values()]
        _stack(
            left,
            [counts.drop(columns=["worker", "staleness"]).mean() for counts, _ in shown.values()],
            "{:.2f}",
        )
        _stack(
            right, [spent.drop(columns="worker").mean() for _, spent in shown.values()], "{:.3g}"
        )
        names = [f"{shorten(name, 36)} (n = {n:,})" for name, n in zip(shown, counted, strict=True)]
        left.set_xlabel("mean staleness (updates)")
        name_ticks(left.yaxis, range(len(shown)), names)
        right.set_xlabel("mean time from its start (s)")
        more = f"{len(tables) - len(shown)} more are not shown" * (len(tables) > len(shown))
        notes = ["n: applied gradients", more]
        if not all(has_arrivals(of.updates) for of in results):
            recorded = all(of.config.record.messages for of in results)
            why = (
                "gradients are no messages here"
                if recorded
                else "arrivals were not recorded (record.messages: true)"
            )
            notes.append(f"{why}: the last three phases are one")
        legend(figure, [left, right], notes)
    return figure


def _stack(axes: Axes, means: Sequence[pd.Series], form: str) -> None:
    """Stacked bars with their sums beside them."""
    table = pd.DataFrame(means).fillna(0.0)
    stack_bars(axes, table, LOOKS)
    totals = table.sum(axis=1).to_numpy()
    for row, total in enumerate(totals):
        axes.annotate(form.format(total), (total, row), (3, 0), textcoords="offset points", va="center", size="small",
                      color=GREY)  # fmt: skip
    axes.set_xlim(0, 1.15 * max(totals.max(initial=0.0), 1e-12))
    axes.grid(visible=False, axis="y")


def agreement(
    real: "Figures", simulated: "Figures", missing: pd.DataFrame, path: File = None
) -> Figure:
    """The staleness of a real run and of its simulation, and the error in its rate that each
    missing time makes.

    Args:
        missing: as `what_is_missing` gives it.
    """
    with styled_figure(8, 3.2, path) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        for figures, place, colour, name in (
            (real, -0.2, PALETTE[0], "real processes"),
            (simulated, 0.2, PALETTE[1], "simulated"),
        ):
            shares = figures.staleness
            left.bar(np.arange(len(shares)) + place, shares, 0.38, color=colour, label=name)
        left.set(xlabel="staleness (updates)", ylabel="gradients (%)", title="Staleness")
        left.yaxis.set_major_formatter(PERCENT)
        left.xaxis.get_major_locator().set_params(integer=True)
        errors = missing["error"].to_numpy()
        places = np.arange(len(errors))[::-1]
        right.barh(places, errors, 0.6, color=[PALETTE[2], *[GREY] * (len(errors) - 1)])
        right.axvline(0, color="black", linewidth=0.8)
        right.set_yticks(places, missing["missing"])
        right.set(xlabel="simulated rate above the real one (%)", title="Without one of the times")
        right.xaxis.set_major_formatter(PERCENT)
        legend(figure, left, ["right: the simulated cluster without that time"])
    return figure
