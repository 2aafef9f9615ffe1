"""Figures of time: the workers' states, a timeline of computations, and the phases of gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
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
    Panels,
    Runs,
    as_sequence,
    check_count,
    legend,
    name_ticks,
    omission_note,
    styled_figure,
)
from laggard.experiments.results.measures import shares
from laggard.experiments.results.result import Result, TimeWindow

STATE_STYLES: dict[str, dict[str, Any]] = {
    "computing": {"color": PALETTE[0]},
    "sending": {"color": PALETTE[4]},
    "waiting": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    "down": {"color": LIGHT},
}
MAX_BARS, MAX_ROWS, MAX_ROWS_OF_SEVERAL, MAX_RUNS = 40, 24, 8, 4
MAX_MESSAGES = 400
"""Lines between the rows of a timeline that can still be told apart."""
WINDOW = 30  # gradients of the fastest worker in a timeline
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
MESSAGE: dict[str, Any] = {"colors": PALETTE[3], "linewidth": 0.9, "zorder": 3}
TICK: dict[str, Any] = {"marker": "|", "linestyle": "none", "markersize": 9}
PHASES = ("network down", "compute", "network up", "barrier", "queue")
"""The phases of a gradient: the transfer of the weights to the worker; the computation; the
transfer of the gradient to its target; the wait for the other gradients of the same update; the
wait for the update.
"""
UNSPLIT = "network up, queue, barrier"
"""The last three phases together, if a run did not record when gradients arrived."""


def occupation(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """The shares of their time in which workers computed, sent, waited and were down.

    A bar per worker for one run, a bar per run for several. The share beside a bar is of waiting.
    """
    results = as_sequence(results)
    notes = []
    if len(results) == 1:
        workers = results[0].workers
        names = [f"worker {rank}" for rank in workers["worker"]]
        table = shares(workers)
    else:
        names = []
        for result, title in zip(results, titles(results, label), strict=True):
            names.append(f"{shorten(title, 48)} (n = {len(result.workers)})")
        table = shares(pd.DataFrame([result.workers.sum() for result in results]))
        notes.append("n: workers")
        check_count(names, MAX_BARS, "bars")
    shown = table.head(MAX_BARS).fillna(0.0)
    style: dict[str, Any] = {"va": "center", "size": "small"}
    with styled_figure(8, 1.1 + 0.24 * max(3, len(shown)), path) as figure:
        axes = figure.subplots()
        stack_bars(axes, shown, STATE_STYLES)
        for row, waited in enumerate(shown["waiting"]):
            axes.annotate(f"{waited:.0%}", (1, row), (4, 0), textcoords="offset points", **style)
        axes.set(xlabel="share of the workers' time (%); beside it, of waiting", xlim=(0, 1))
        name_ticks(axes.yaxis, range(len(shown)), names[:MAX_BARS])
        axes.xaxis.set_major_formatter(PERCENT)
        axes.grid(visible=False)
        legend(figure, axes, [*notes, omission_note(names[MAX_BARS:])])
    return figure


def stack_bars(axes: Axes, table: pd.DataFrame, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a bar for each row from the top, divided by columns in the order of `styles`."""
    left = np.zeros(len(table))
    for name, style in styles.items():
        if name not in table:
            continue
        width = table[name].to_numpy()
        (rows,) = (width > 0).nonzero()  # an empty bar would still have edges
        if len(rows):
            sizes = rows, width[rows], 0.72, left[rows]
            axes.barh(*sizes, label=name, linewidth=0.7, **style)
        left = left + width
    axes.set_ylim(len(table) - 0.4, -0.6)


def timeline(
    results: Runs,
    path: File = None,
    until: float | None = None,
    workers: Sequence[int] | None = None,
    label: Label | None = None,
    start: float = 0.0,
) -> Figure:
    """A timeline of computations: a row per worker, a bar per gradient, a tick per update.

    Thick bars compute, thin ones are on their way, hatched thin ones have arrived and wait; where
    arrivals were not recorded the last two are one. Blanks are waiting. Where messages were
    recorded and are few, a line leads from each one's sender, when it is sent, to its receiver,
    when it arrives; tokens are dotted. Up to four runs, on one axis of time.

    Args:
        results: runs. Gradients still in flight at their end are not drawn.
        path: where the figure is saved.
        until: the end of the window (s); by default when the fastest worker's 30th gradient in it
            ends.
        workers: ranks to show; by default the first 24, of several runs the first 8.
        start: the start of the window (s).

    Raises:
        ValueError: there are more than four runs, or the window is empty.
    """
    results = as_sequence(results)
    names = titles(results, label)
    limit = MAX_ROWS
    if len(results) > 1:
        limit = MAX_ROWS_OF_SEVERAL
    groups = [(result, _ranks(result, workers, limit)) for result in results]
    panels = Panels(groups, names, MAX_RUNS)
    if until is None:
        until = min(_end_of_window(result, ranks, start) for result, ranks in groups)
    if not 0 <= start < until:
        raise ValueError(f"start: expected at least 0 and less than {until:g} s, got {start:g}")
    window = TimeWindow(start, until)
    top = max(_max_staleness(result, window) for result, _ in groups)
    colours = ScalarMappable(Normalize(0, max(1, top)), "viridis")
    heights = [0.5 + 0.27 * (len(ranks) + 1) for _, ranks in groups]
    height = 1.2 + sum(heights)
    if len(panels) > 1:
        height += 0.2 * len(panels)
    idle = "without a thick bar: sending or waiting"
    if any(result.workers["down"].any() for result in results):
        idle = "without a thick bar: sending, waiting or away"
    panels.notes = [idle, *_describe_rows(groups)]
    with panels.figure((8, height), path, sharex=True, height_ratios=heights) as figure:
        for (axes, (result, ranks)), name in zip(panels, names, strict=True):
            _draw_rows(axes, result.updates, ranks, window, colours)
            panels.notes.append(_draw_messages(axes, result.messages, ranks, window))
            if len(panels) > 1:
                axes.set_title(shorten(name, 100))
        panels.axes[-1].set(xlim=window, xlabel=AXIS_LABELS["time"])
        if top > 0:
            ticks = MaxNLocator(integer=True)
            figure.colorbar(colours, ax=panels.axes, label="staleness (updates)", ticks=ticks)
    return figure


def _ranks(result: Result, workers: Sequence[int] | None, limit: int) -> list[int]:
    if workers is not None:
        return list(workers)
    return list(result.workers["worker"])[:limit]


def _in_window(updates: pd.DataFrame, window: TimeWindow) -> pd.DataFrame:
    """The gradients that overlap the window."""
    return updates[window.meets(updates["started"], updates["time"])]


def _max_staleness(result: Result, window: TimeWindow) -> float:
    shown = applied_gradients(_in_window(result.updates, window))
    return float(np.nan_to_num(shown["staleness"].max()))


def _describe_rows(groups: list[tuple[Result, list[int]]]) -> list[str]:
    """Notes on the workers that have no row, and on rows without bars."""
    hidden: list[str] = []
    blank = False
    for result, ranks in groups:
        omitted = [str(rank) for rank in result.workers["worker"] if rank not in ranks]
        hidden = max(hidden, omitted, key=len)
        blank = blank or not set(ranks) <= set(result.updates["worker"])
    notes = [omission_note(hidden, "workers ")]
    if blank:
        notes.append(
            "rows without bars: no gradient ended there, as on the first stages of a pipeline"
        )
    return notes


def _end_of_window(result: Result, ranks: Sequence[int], start: float) -> float:
    """The first moment (s) at which a worker has ended 30 gradients since `start`, or the end of
    the last gradient.
    """
    updates = result.updates
    ended = updates[updates["worker"].isin(ranks) & (updates["time"] >= start)]
    if not len(ended):
        return float(result.metrics["time"].max()) or 1.0
    ends = ended.groupby("worker")["time"].nth(WINDOW - 1)
    if len(ends):
        return float(min(ends))
    return float(max(ended["time"]))


def _draw_rows(
    axes: Axes,
    updates: pd.DataFrame,
    ranks: Sequence[int],
    window: TimeWindow,
    colours: ScalarMappable,
) -> None:
    """Draw a row per rank, and a row of updates where servers make them."""
    ended = _in_window(updates[updates["worker"].isin(ranks)], window)
    rows = ended["worker"].map(list(ranks).index)
    computed = ended["computed"].fillna(ended["time"])
    _draw_bars(axes, ended.assign(row=rows, computed=computed), colours)
    names = [str(rank) for rank in ranks]
    applied = applied_gradients(updates)
    served = applied[(applied["target"] < 0) & applied["time"].between(*window)]
    if len(served):
        moments = served.drop_duplicates(["target", "version"])["time"]
        heights = np.full(len(moments), len(ranks))
        axes.plot(moments, heights, color=PALETTE[1], label="update", **TICK)
        names.append("server")
    axes.set(ylabel="worker", ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)


def _draw_messages(
    axes: Axes, messages: pd.DataFrame, ranks: Sequence[int], window: TimeWindow
) -> str:
    """Draw a line from the sender's row to the receiver's; servers share a row below the workers.

    Returns:
        A note where there are too many to draw.
    """
    rows = dict(zip(ranks, range(len(ranks)), strict=True))
    ends = messages[["sender", "receiver"]].to_numpy()
    rows |= dict.fromkeys(ends[ends < 0], len(ranks))
    places = messages.assign(start=messages["sender"].map(rows), end=messages["receiver"].map(rows))
    places = places[window.meets(places["sent"], places["arrived"])]
    shown = places.dropna(subset=["start", "end"])
    if len(shown) > MAX_MESSAGES:
        return f"{len(shown)} messages are not drawn, more than {MAX_MESSAGES}: shorten the window"
    are_tokens = shown["content"] == "token"
    for label, dash, chosen in (("message", "-", ~are_tokens), ("token", ":", are_tokens)):
        points = shown.loc[chosen, ["sent", "start", "arrived", "end"]].to_numpy(float)
        lines = points.reshape(-1, 2, 2)  # (messages, sending and arrival, time and row)
        if len(lines):
            axes.add_collection(LineCollection(lines, label=label, linestyle=dash, **MESSAGE))
    return ""


def _draw_bars(axes: Axes, ended: pd.DataFrame, colours: ScalarMappable) -> None:
    """Draw a thick bar while a gradient is computed, coloured by staleness, then thin ones to its
    end.
    """
    applied = applied_gradients(ended)
    staleness = colours.to_rgba(applied["staleness"].to_numpy())
    _draw_computing(axes, applied, "computing", {"color": staleness})
    for status, style in UNUSED.items():
        _draw_computing(axes, ended[ended["status"] == status], status, style)
    computed, end = ended["computed"], ended["time"]
    arrived = end
    # in a collective it waits for the slowest node, and has nothing on its way
    way = "computed, not yet applied"
    if has_arrivals(ended):
        arrived = ended["arrived"].where(ended["arrived"] <= end, computed)
        way = "on its way"
        queued = "arrived, not yet applied" if (arrived < end).any() else None
        axes.barh(ended["row"], end - arrived, 0.2, arrived, label=queued, **QUEUED)
    style = {"color": LIGHT}
    if (arrived > computed).any():
        style["label"] = way
    axes.barh(ended["row"], arrived - computed, 0.2, computed, **style)
    axes.plot(applied["time"], applied["row"], color="black", label="applied", **TICK)


def _draw_computing(
    axes: Axes, gradients: pd.DataFrame, label: str, style: Mapping[str, Any]
) -> None:
    if len(gradients):
        start = gradients["started"]
        width = gradients["computed"] - start
        axes.barh(gradients["row"], width, 0.7, start, label=label, **style)


def phases(updates: pd.DataFrame) -> pd.DataFrame:
    """The updates that fell into each phase of a gradient's life; their sum is its staleness.

    A gradient is read, `started`, `computed`, it `arrived`, its update was ready (the last of the
    gradients that were applied together had arrived), and it was applied. With V(t) the version of
    its target just before t,

        network down = V(started) - version_read,   compute = V(computed) - V(started),   ...

    so that an update at the moment at which two phases meet belongs to the later one. Where
    `arrived` is not recorded the last three phases are one.

    Args:
        updates: rows as of `Result.updates`.

    Returns:
        A row per applied gradient with its `worker`, `staleness` and a column per phase.
    """
    applied = applied_gradients(updates)
    borders = _borders(applied)
    counts = pd.DataFrame(index=applied.index)
    for _, gradients in applied.groupby("target"):
        first_times = gradients.groupby("version")["time"].min()
        moments = first_times.to_numpy()
        versions = np.array([0, *(first_times.index + 1)])  # before the first, and after each
        before = gradients["version_read"].to_numpy()
        for name, border in borders.items():
            if border is None:
                reached = gradients["version"].to_numpy()
            else:
                ends = border[gradients.index].to_numpy()
                reached = versions[np.searchsorted(moments, ends, side="left")]
            # not below the version read: weights that are read in the instant of an update have it
            reached = np.clip(reached, before, gradients["version"])
            counts.loc[gradients.index, name] = reached - before
            before = reached
    counts = counts.reindex(columns=list(borders)).fillna(0.0)
    return applied[["worker", "staleness"]].join(counts)


def seconds(updates: pd.DataFrame) -> pd.DataFrame:
    """The `worker` of each applied gradient, and the seconds of each phase after its start."""
    applied = applied_gradients(updates)
    spent = {"worker": applied["worker"]}
    before = applied["started"]
    _, *borders = _borders(applied).items()
    for name, border in borders:
        if border is None:
            border = applied["time"]
        spent[name] = border - before
        before = border
    return pd.DataFrame(spent)


def has_arrivals(updates: pd.DataFrame) -> bool:
    """Whether the moments at which gradients arrived are known."""
    return "arrived" in updates and bool(updates["arrived"].notna().any())


def _borders(applied: pd.DataFrame) -> dict[str, pd.Series | None]:
    """For each phase, in order, the moment (s) at which it ends; None for the gradient's end."""
    computed = applied["computed"].fillna(applied["time"])
    borders: dict[str, pd.Series | None] = {"network down": applied["started"], "compute": computed}
    if not has_arrivals(applied):
        return borders | {UNSPLIT: None}
    arrived = applied["arrived"].fillna(computed)  # a local gradient is not sent
    update = [applied["target"], applied["version"], applied["time"]]
    ready = arrived.groupby(update).transform("max")
    return borders | {"network up": arrived, "barrier": ready, "queue": None}
