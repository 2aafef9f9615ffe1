"""Figures of time: the workers' states, a timeline of computations, and the phases of a gradient's
life.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from laggard.experiments.figures.lines import Label, applied_gradients, shorten, titles
from laggard.experiments.figures.style import (
    AXIS_LABELS,
    LIGHT,
    PALETTE,
    PERCENT,
    File,
    Runs,
    as_sequence,
    legend,
    name_ticks,
    omission_note,
    styled_figure,
)
from laggard.experiments.results.measures import shares
from laggard.experiments.results.result import Result

STATE_STYLES: dict[str, dict[str, Any]] = {
    "computing": {"color": PALETTE[0]},
    "sending": {"color": PALETTE[4]},
    "waiting": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    "down": {"color": LIGHT},
}
MOST, ROWS, WINDOW, RUNS = 40, 24, 30, 4
QUEUED: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": LIGHT,
    "hatch": "//////",
    "linewidth": 0.5,
}
UNUSED: dict[str, dict[str, Any]] = {
    "dropped": {"facecolor": "white", "edgecolor": PALETTE[1]},
    "cancelled": {"facecolor": "white", "edgecolor": PALETTE[-1], "hatch": "/////"},
}
PHASES = ("network down", "compute", "network up", "barrier", "queue")
"""From the read to the worker; computing; to the target; waiting for the others of the same update;
waiting in turn.
"""
UNSPLIT = "network up, queue, barrier"
"""The last three together, where a run did not record when gradients arrived."""


def occupation(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """Utilisation: the shares of their time that workers computed, sent, waited and were down.

    A bar a worker for one run, a bar a run for several, over all of its workers. A share written in
    it is the waiting.
    """
    results = as_sequence(results)
    if len(results) == 1:
        table = shares(results[0].workers)
        names = [f"worker {rank}" for rank in results[0].workers["worker"]]
    else:
        table = shares(pd.DataFrame([of.workers.sum() for of in results]))
        counts = [len(of.workers) for of in results]
        called = [shorten(name, 48) for name in titles(results, label)]
        names = [f"{name} (n = {n})" for name, n in zip(called, counts, strict=True)]
    shown = table.head(MOST).fillna(0.0)
    with styled_figure(8, 1.1 + 0.24 * max(3, len(shown)), path) as figure:
        axes = figure.subplots()
        stack_bars(axes, shown, STATE_STYLES)
        for row, waited in enumerate(shown["waiting"]):
            axes.annotate(
                f"{waited:.0%}",
                (1, row),
                (4, 0),
                textcoords="offset points",
                va="center",
                size="small",
            )
        axes.set(xlabel="share of the workers' time (%); beside it, of waiting", xlim=(0, 1))
        name_ticks(axes.yaxis, range(len(shown)), names[:MOST])
        axes.xaxis.set_major_formatter(PERCENT)
        axes.grid(visible=False)
        more = f"{len(table) - len(shown)} more are not shown" * (len(table) > MOST)
        notes = ["n: workers" * (len(results) > 1), more]
        legend(figure, axes, notes)
    return figure


def stack_bars(axes: Axes, table: pd.DataFrame, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """A bar for each row, from the top, with a part for each column of the table, in the order of
    `looks`.
    """
    left = np.zeros(len(table))
    for name in filter(table.columns.__contains__, looks):
        width = table[name].to_numpy()
        (there,) = (width > 0).nonzero()  # an empty bar would still have edges
        if len(there):
            axes.barh(
                there, width[there], 0.72, left[there], label=name, linewidth=0.7, **looks[name]
            )
        left = left + width
    axes.set_ylim(len(table) - 0.4, -0.6)


def timeline(
    results: Runs,
    path: File = None,
    until: float | None = None,
    workers: Sequence[int] | None = None,
    label: Label | None = None,
) -> Figure:
    """A timeline of computations: a row a worker, a bar a gradient from its start to its end, a
    tick an update.

    Thick bars compute, thin ones are on their way, hatched thin ones have arrived and wait; where
    arrivals were not recorded the last two are one. What is blank waits. Of several runs the first
    four, on one axis of time.

    Args:
        results: runs. Gradients still in flight at their end are not drawn.
        path: where the figure is saved, if at all.
        until: where the window ends (s); by default when the fastest worker's 30th gradient ends.
        workers: ranks to show; by default the first 24, of several runs the first 8.
    """
    results = as_sequence(results)
    shown, most = results[:RUNS], ROWS if len(results) == 1 else 8
    ranks = [
        list(of.workers["worker"])[:most] if workers is None else list(workers) for of in shown
    ]
    until = (
        min(_until(of, its) for of, its in zip(shown, ranks, strict=True))
        if until is None
        else until
    )
    tops = [
        applied_gradients(of.updates[of.updates["started"] < until])["staleness"].max()
        for of in shown
    ]
    colours = ScalarMappable(Normalize(0, max(1, *np.nan_to_num(tops))), "viridis")
    heights = [0.5 + 0.27 * (len(its) + 1) for its in ranks]
    with styled_figure(8, 1.2 + sum(heights) + 0.2 * (len(shown) > 1) * len(shown), path) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights)[
            :, 0
        ]
        for axes, of, its, name in zip(panels, shown, ranks, titles(results, label), strict=False):
            _rows(axes, of.updates, its, until, colours)
            axes.set_title(shorten(name, 100) if len(shown) > 1 else "")
        panels[-1].set(xlim=(0, until), xlabel=AXIS_LABELS["time"])
        if max(np.nan_to_num(tops)) > 0:
            figure.colorbar(
                colours, ax=panels, label="staleness (updates)", ticks=MaxNLocator(integer=True)
            )
        hidden = sum(len(of.workers) - len(its) for of, its in zip(shown, ranks, strict=True))
        notes = ["blank: waiting", omission_note(hidden, 0, "workers")]
        if any(
            len(set(its) - set(of.updates["worker"])) for of, its in zip(shown, ranks, strict=True)
        ):
            notes.append(
                "rows without bars had no gradient that ended, as the first stages of a pipeline"
            )
        legend(figure, panels, [*notes, omission_note(len(results), len(shown))])
    return figure


def _until(result: Result, ranks: Sequence[int]) -> float:
    ended = result.updates[result.updates["worker"].isin(ranks)]
    ends = ended.groupby("worker")["time"].nth(WINDOW - 1)
    if not len(ended):
        return float(result.metrics["time"].max()) or 1.0
    return float(min(ends) if len(ends) else max(ended["time"]))


def _rows(
    axes: Axes, updates: pd.DataFrame, ranks: Sequence[int], until: float, colours: ScalarMappable
) -> None:
    """A row a rank, and one of updates where servers make them."""
    ended = updates[updates["worker"].isin(ranks) & (updates["started"] < until)]
    ended = ended.assign(
        row=ended["worker"].map(list(ranks).index), computed=ended["computed"].fillna(ended["time"])
    )
    _bars(axes, ended, colours)
    names, served = [str(rank) for rank in ranks], applied_gradients(updates)
    served = served[(served["target"] < 0) & (served["time"] <= until)]
    if len(served):
        moments = served.drop_duplicates(["target", "version"])["time"]
        axes.plot(
            moments,
            np.full(len(moments), len(ranks)),
            "|",
            color=PALETTE[1],
            markersize=9,
            label="update",
        )
        names.append("server")
    axes.set(ylabel="worker", ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)


def _bars(axes: Axes, ended: pd.DataFrame, colours: ScalarMappable) -> None:
    """A bar while a gradient is computed, coloured by its staleness, then thin ones until its
    end.
    """
    applied = applied_gradients(ended)
    for status, look in {
        "applied": {"color": colours.to_rgba(applied["staleness"].to_numpy())},
        **UNUSED,
    }.items():
        of, label = ended[ended["status"] == status], "computing" if status == "applied" else status
        if len(of):
            axes.barh(
                of["row"], of["computed"] - of["started"], 0.7, of["started"], label=label, **look
            )
    ends = ended["time"]
    if split := has_arrivals(ended):
        ends = ended["arrived"].where(ended["arrived"] <= ended["time"], ended["computed"])
        late = "arrived, not yet applied" if (ends < ended["time"]).any() else None
        axes.barh(ended["row"], ended["time"] - ends, 0.2, ends, label=late, **QUEUED)
    way = (
        ("on its way" if split else "on its way or queued")
        if (ends > ended["computed"]).any()
        else None
    )
    axes.barh(
        ended["row"], ends - ended["computed"], 0.2, ended["computed"], color=LIGHT, label=way
    )
    axes.plot(applied["time"], applied["row"], "|", color="black", markersize=9, label="applied")


def phases(updates: pd.DataFrame) -> pd.DataFrame:
    """Of each applied gradient, the updates of its target that fell into each phase of its life;
    their sum is its staleness.

    A gradient is read, `started`, `computed`, it `arrived`, its update was ready (the last of the
    gradients that were applied together had arrived), and it was applied. With V(t) the version of
    its target just before t,

        network down = V(started) - version_read,   compute = V(computed) - V(started),   ...

    so that updates at the very moment at which two phases meet are the later one's. Where `arrived`
    is not recorded the last three phases are one.

    Args:
        updates: rows as of `Result.updates`.

    Returns:
        A row per applied gradient with its `worker`, `staleness` and a column per phase.
    """
    applied = updates[updates["status"] == "applied"]
    borders = _borders(applied)
    counts = pd.DataFrame(index=applied.index)
    for _, of in applied.groupby("target"):
        rose = of.groupby("version")["time"].min()
        moments, versions = rose.to_numpy(), rose.index.to_numpy() + 1  # that the model then had
        before = of["version_read"].to_numpy()
        for name, border in borders.items():
            if border is None:
                reached = of["version"].to_numpy()
            else:
                found = np.searchsorted(moments, border[of.index].to_numpy(), side="left") - 1
                reached = np.where(found >= 0, versions[np.maximum(found, 0)], 0)
            reached = np.clip(reached, before, of["version"])
            counts.loc[of.index, name] = reached - before
            before = reached
    return applied[["worker", "staleness"]].join(counts.reindex(columns=list(borders)).fillna(0.0))


def seconds(updates: pd.DataFrame) -> pd.DataFrame:
    """Of each applied gradient, the seconds that each phase after its start took, and its
    `worker`.
    """
    applied = updates[updates["status"] == "applied"]
    before, spent = applied["started"], {"worker": applied["worker"]}
    for name, border in list(_borders(applied).items())[1:]:
        border = applied["time"] if border is None else border
        spent[name] = border - before
        before = border
    return pd.DataFrame(spent)


def has_arrivals(updates: pd.DataFrame) -> bool:
    """Whether the moments at which gradients arrived are known."""
    return "arrived" in updates and bool(updates["arrived"].notna().any())


def _borders(applied: pd.DataFrame) -> dict[str, pd.Series | None]:
    """The moment (s) at which each phase ends, in their order; None at the end itself."""
    start = {
        "network down": applied["started"],
        "compute": applied["computed"].fillna(applied["time"]),
    }
    if not has_arrivals(applied):
        return {**start, UNSPLIT: None}
    arrived = applied["arrived"].fillna(start["compute"])  # a local gradient is not sent
    ready = arrived.groupby([applied["target"], applied["version"], applied["time"]]).transform(
        "max"
    )
    return {**start, "network up": arrived, "barrier": ready, "queue": None}
