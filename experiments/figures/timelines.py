"""Who did what when: workers that compute, send and wait, and how busy the network's cards were."""

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
        axes.barh(fates["row"], fates["time"] - ends, 0.2, ends, label="arrived, not yet applied", **queued)
    way = "on its way" if split else "on its way or queued"
    axes.barh(fates["row"], ends - fates["computed"], 0.2, fates["computed"], color=LIGHT, label=way)
    axes.plot(applied["time"], applied["row"], "|", color="black", markersize=9, label="applied")


def utilisation(
    results: Sequence[Drawn] | Drawn, path: str | Path | None = None, bins: int = 120, label: Label | None = None
) -> Figure:
    """How busy each card was: the bytes that went up and down it in each of `bins` stretches of time.

    The bytes of a message are exact, and spread evenly between its sending and its arrival: a message that queues is
    drawn as if it went slowly. A row a direction of a card; as a share of the card's bandwidth, or in bytes per second
    where that has no limit. Of several runs the first four.

    Raises:
        ValueError: a run that has not recorded its messages.
    """
    results = several(results)
    shown = results[:RUNS]
    loads = [card_loads(of, bins) for of in shown]
    heights, beyond = [0.6 + 0.17 * len(load) for _, load, _ in loads], False
    with drawing(8, 1.0 + sum(heights)) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (edges, load, unit), name in zip(panels, loads, titles(results, label), strict=False):
            top = 100 if unit == "%" else None
            beyond |= unit == "%" and bool((load > 100.5).any(axis=None))
            mesh = axes.pcolormesh(
                edges, np.arange(len(load) + 1), load, cmap="cividis", vmin=0, vmax=top, rasterized=True
            )
            axes.set_yticks(np.arange(len(load)) + 0.5, load.index, fontsize=7)
            axes.set(ylim=(len(load), 0), xlabel=AXES["time"], title=shortened(name, 100) if len(shown) > 1 else "")
            axes.grid(visible=False)
            figure.colorbar(mesh, ax=axes, label="utilisation (%)" if unit == "%" else "load (bytes/s)", pad=0.01)
        spread = "bytes are exact, spread evenly between a message's sending and its arrival"
        spread += ", so that a bin may seem to hold more than 100 %" * beyond
        more = f"{len(results) - len(shown)} more runs are not shown" * (len(results) > RUNS)
        legend(figure, panels, [spread, f"{bins} bins", more])
    return saved(figure, path)


def card_loads(result: Drawn, bins: int) -> tuple[np.ndarray, pd.DataFrame, str]:
    """Edges of the bins (s), the load of each direction of each card in each bin, and its unit: % or bytes/s.

    Raises:
        ValueError: the run has not recorded its messages.
    """
    messages = getattr(result, "messages", None)
    if messages is None or not len(messages):
        raise ValueError(f"{result.config.name}: no messages recorded: run it with record.messages=true")
    end = float(max(result.metrics["time"].max(), messages["arrived"].max()))
    edges = np.linspace(0, end, bins + 1)
    network, workers = result.config.cluster.network.build(), result.config.cluster.workers
    messages = messages[(messages["bytes"] > 0) & messages["arrived"].notna()]
    cards = {way: messages[end].map(lambda rank: network.machine(int(rank), workers)) for way, end in WAYS.items()}
    between = cards["up"] != cards["down"]  # on one machine there is no network
    ranks = sorted({*cards["up"][between], *cards["down"][between]}, key=lambda rank: (rank >= 0, abs(rank)))
    if len(ranks) > ROWS // 2:
        ranks = ranks[: ROWS // 2]
    speeds = [network.card_bandwidth(rank) for rank in ranks]
    limited = bool(np.isfinite(speeds).all())
    rows = {}
    for rank, speed in zip(ranks, speeds, strict=True):
        for way in WAYS:
            load = _binned(messages[between & (cards[way] == rank)], edges) / np.diff(edges)
            rows[f"{_card(rank)} {way}"] = 100 * load / speed if limited else load
    return edges, pd.DataFrame(rows).T, "%" if limited else "bytes/s"


def _card(rank: int) -> str:
    """Whose card it is."""
    return f"worker {rank}" if rank >= 0 else "server" if rank == -1 else f"server {-1 - rank}"


WAYS = {"up": "sender", "down": "receiver"}


def _binned(messages: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """Bytes in each bin: each message's, spread evenly from sending to arrival; at once where that takes no time."""
    sent, arrived, size = (messages[name].to_numpy(float) for name in ("sent", "arrived", "bytes"))
    took = arrived - sent
    at_once = took <= 0
    counted = np.histogram(sent[at_once], edges, weights=size[at_once])[0].astype(float)
    passed = np.zeros(len(edges))
    for start, length, of in zip(sent[~at_once], took[~at_once], size[~at_once], strict=True):
        passed += of * np.clip((edges - start) / length, 0, 1)
    return counted + np.diff(passed)
