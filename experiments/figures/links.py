"""How busy the network's cards were, from the messages that a run recorded."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.look import AXES, drawing, legend, saved, several
from experiments.lines import Drawn, Label, shortened, titles

RUNS, CARDS = 4, 12
WAYS = {"up": "sender", "down": "receiver"}


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
    if len(ranks) > CARDS:
        ranks = ranks[:CARDS]
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
