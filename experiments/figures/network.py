"""Figures of the network: its topology, the load of its busiest card, and the utilisation of its
cards.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from laggard.experiments.figures.lines import Label, missing_messages, shorten, titles
from laggard.experiments.figures.style import (
    AXIS_LABELS,
    PALETTE,
    File,
    Runs,
    as_sequence,
    legend,
    omission_note,
    panels_of,
    quantity,
    styled_figure,
)
from laggard.experiments.results.result import Result
from laggard.experiments.theory import build_algorithm
from laggard.experiments.theory.iteration_time import model_bytes
from laggard.simulator.network.topology import Graph, Torus, resolve_topology

PANELS, NAMED = 12, 40
RUNS, CARDS = 4, 12
WAYS = {"up": "sender", "down": "receiver"}
Place = tuple[float, float]


class Drawing(NamedTuple):
    """One panel: who sends to whom in one step, what that costs, and the positions of the nodes."""

    title: str
    cost: str
    graph: nx.DiGraph
    places: Mapping[int, Place]
    bends: bool
    note: str


def topology(results: Runs, path: File = None) -> Figure:
    """Who sends to whom: a graph for each topology of the results, and one for each step where it
    changes in time.

    Lines carry messages both ways, arrows one way. A title says what the busiest card carries in
    one step, a model along every edge, and how long that takes on an idle card. A collective may
    use fewer edges of a complete graph. Groups, links of pairs and cards of other bandwidths are
    not drawn.
    """
    drawings: dict[str, list[Drawing]] = {}
    for result in as_sequence(results):
        for one in steps(result):
            drawings.setdefault(one.title, []).append(one)
    shown = []
    for same in list(drawings.values())[:PANELS]:
        # results that differ in size or bandwidth share a graph
        costs = list(dict.fromkeys(one.cost for one in same))
        firsts = list(dict.fromkeys(cost.partition("\n")[0] for cost in costs))
        shown.append(same[0]._replace(cost=costs[0] if len(costs) == 1 else "\n".join(firsts)))
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    side = min(8 / columns, 4.5)
    with styled_figure(
        max(side * columns, 4.5), 0.45 + rows * (side + 0.35), path, "compressed"
    ) as figure:
        panels = panels_of(figure, len(shown), columns)
        for axes, one in zip(panels, shown, strict=True):
            draw_topology(axes, one)
        servers = any(rank < 0 for one in shown for rank in one.graph)
        more = omission_note(len(drawings), len(shown), "graphs")
        notes = dict.fromkeys(one.note for one in shown)
        legend(
            figure, panels, ["line: both ways, arrow: one way", "s: server" * servers, *notes, more]
        )
    return figure


def steps(result: Result) -> list[Drawing]:
    """The graph of each step of a config's topology: one, or as many as its period has.

    Raises:
        ValueError: the source of an entry of one's own, as an algorithm, is not at hand as it was.
    """
    found = build_algorithm(result.config)
    if found is None:
        raise ValueError(
            f"{result.config.name}: the source of its own entries is not at hand, or has changed"
        )
    algorithm, workers, network = found[0], found[1].workers, found[1].network
    graph = resolve_topology(network.topology, algorithm.topology)
    bandwidth = network.bandwidth if network.changes is None else math.inf
    name = type(graph).__name__.lower()
    note = ""
    if network.groups is not None or network.links or network.cards:
        note = "groups, links of pairs and cards of other bandwidths are not drawn"
    drawings = []
    for step in range(graph.period(workers)):
        edges = nx.DiGraph()
        edges.add_nodes_from(range(workers))
        servers = [rank for rank in algorithm.roles(workers) if rank < 0]
        pairs = [(rank, server) for server in servers for rank in range(workers)]
        edges.add_edges_from([*pairs, *((server, rank) for rank, server in pairs)])
        peers = {rank: graph.out_peers(rank, step, workers) for rank in range(workers)}
        edges.add_edges_from((rank, peer) for rank in peers for peer in peers[rank])
        at = f", step {step}" if graph.period(workers) > 1 else ""
        collective = getattr(algorithm, "collective", "")
        machines = (network.on_machines(pair, workers) for pair in edges.edges)
        cards = nx.MultiDiGraph((start, end) for start, end in machines if start != end)
        cost = (
            f"its collective: {collective}"
            if collective
            else _cost(cards, model_bytes(result), bandwidth)
        )
        title = f"{name} of {workers}{f', {network.host_size} on a host' * (network.host_size > 1)}"
        if network.groups is not None:
            title += " in groups"
        places = _positions(graph, edges, workers)
        drawings.append(Drawing(title + at, cost, edges, places, isinstance(graph, Torus), note))
    return drawings


def busiest(graph: nx.DiGraph) -> tuple[int, int]:
    """The most models that any card sends in one step, and the most that any receives."""
    return max((n for _, n in graph.out_degree()), default=0), max(
        (n for _, n in graph.in_degree()), default=0
    )


def _cost(graph: nx.DiGraph, size: float, bandwidth: float) -> str:
    up, down = busiest(graph)
    if not math.isfinite(bandwidth) or not size:
        return f"busiest card: {up} up, {down} down"
    time = with_unit(max(up, down) * size / bandwidth)
    return f"busiest card: {up} up, {down} down\n{max(up, down)} x {quantity(size, 'B')}: {time}"


def with_unit(seconds: float) -> str:
    """A time with its unit: 30 ms."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.3g} ms"
    return f"{1e6 * seconds:.3g} us"


def _positions(graph: Any, edges: nx.DiGraph, workers: int) -> dict[int, Place]:
    """A grid for a torus, a circle for graphs in which all are alike, springs for any other;
    servers in the middle.
    """
    if isinstance(graph, Torus):
        rows = graph.rows or next(
            side for side in range(math.isqrt(workers), 0, -1) if workers % side == 0
        )
        columns = workers // rows
        return {rank: (rank % columns, -(rank // columns)) for rank in range(workers)}
    if isinstance(graph, Graph):
        return {
            rank: tuple(place)
            for rank, place in nx.kamada_kawai_layout(edges.to_undirected()).items()
        }
    angles = {rank: math.pi / 2 - 2 * math.pi * rank / workers for rank in range(workers)}
    places = {rank: (math.cos(angle), math.sin(angle)) for rank, angle in angles.items()}
    servers = sorted(rank for rank in edges if rank < 0)
    spots = np.linspace(-0.3, 0.3, len(servers)) if len(servers) > 1 else [0.0]
    return places | {rank: (float(x), 0.0) for rank, x in zip(servers, spots, strict=False)}


def draw_topology(axes: Axes, drawing: Drawing) -> None:
    """Nodes with their ranks, and an edge or an arrow a pair."""
    graph, places = drawing.graph, drawing.places
    crowded = len(graph) > NAMED
    size = 20 if crowded else max(60, 260 - 5 * len(graph))
    shrink, width = math.sqrt(size) / 2 + 1, 0.5 if crowded else 0.9
    for sender, receiver in graph.edges:
        both = graph.has_edge(receiver, sender)
        if both and sender > receiver:
            continue
        start, end = places[sender], places[receiver]
        far = drawing.bends and math.dist(start, end) > 1.01
        axes.add_patch(FancyArrowPatch(start, end, color="#8c8c8c", linewidth=width, mutation_scale=8,
                                       shrinkA=shrink, shrinkB=shrink, arrowstyle="-" if both else "-|>",
                                       connectionstyle=f"arc3,rad={0.25 if far else 0}"))  # fmt: skip
    for servers, colour in ((False, PALETTE[0]), (True, PALETTE[1])):
        ranks = [rank for rank in graph if (rank < 0) == servers]
        if ranks:
            x, y = np.array([places[rank] for rank in ranks]).T
            axes.scatter(x, y, s=size, color=colour, zorder=3, marker="s" if servers else "o")
    for rank in graph if not crowded else ():
        axes.annotate("s" if rank < 0 else str(rank), places[rank], ha="center", va="center", color="white",
                      fontsize=6.5, zorder=4)  # fmt: skip
    at = np.array([*places.values()])
    middle, half = (
        (at.max(0) + at.min(0)) / 2,
        max(1.0, *np.ptp(at, axis=0) / 2) * (1.5 if drawing.bends else 1.18),
    )
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axes.set_title(f"{drawing.title}\n{drawing.cost}", fontsize="small")
    axes.set_aspect("equal")
    axes.axis("off")


def utilisation(
    results: Runs, path: File = None, bins: int = 120, label: Label | None = None
) -> Figure:
    """How busy each card was: the bytes that went up and down it in each of `bins` stretches of
    time.

    The bytes of a message are exact, and spread evenly between its sending and its arrival: a
    message that queues is drawn as if it went slowly. A row a direction of a card; as a share of
    the card's bandwidth, or in bytes per second where that has no limit. Of several runs the first
    four.

    Raises:
        ValueError: a run that has not recorded its messages.
    """
    results = as_sequence(results)
    shown = results[:RUNS]
    loads = [_card_loads(of, bins) for of in shown]
    heights, beyond = [0.6 + 0.17 * len(load) for _, load, _ in loads], False
    with styled_figure(8, 1.0 + sum(heights), path) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (edges, load, unit), name in zip(
            panels, loads, titles(results, label), strict=False
        ):
            top = 100 if unit == "%" else None
            beyond |= unit == "%" and bool((load > 100.5).any(axis=None))
            cells = np.arange(len(load) + 1)
            mesh = axes.pcolormesh(
                edges, cells, load, cmap="cividis", vmin=0, vmax=top, rasterized=True
            )
            axes.set_yticks(np.arange(len(load)) + 0.5, load.index, fontsize=7)
            title = shorten(name, 100) if len(shown) > 1 else ""
            axes.set(ylim=(len(load), 0), xlabel=AXIS_LABELS["time"], title=title)
            axes.grid(visible=False)
            figure.colorbar(
                mesh,
                ax=axes,
                label="utilisation (%)" if unit == "%" else "load (bytes/s)",
                pad=0.01,
            )
        spread = "bytes are exact, spread evenly between a message's sending and its arrival"
        spread += ", so that a bin may seem to hold more than 100 %" * beyond
        legend(figure, panels, [spread, f"{bins} bins", omission_note(len(results), len(shown))])
    return figure


def _card_loads(result: Result, bins: int) -> tuple[np.ndarray, pd.DataFrame, str]:
    """Edges of the bins (s), the load of each direction of each card in each bin, and its unit: %
    or bytes/s.
    """
    if (messages := getattr(result, "messages", None)) is None or not len(messages):
        raise ValueError(f"{result.config.name}: {missing_messages(result)}")
    end = float(max(result.metrics["time"].max(), messages["arrived"].max()))
    edges = np.linspace(0, end, bins + 1)
    network, workers = result.config.cluster.network.build(), result.config.cluster.workers
    messages = messages[(messages["bytes"] > 0) & messages["arrived"].notna()]
    cards = {
        way: messages[end].map(lambda rank: network.machine(int(rank), workers))
        for way, end in WAYS.items()
    }
    between = cards["up"] != cards["down"]  # on one machine there is no network
    ranks = sorted(
        {*cards["up"][between], *cards["down"][between]}, key=lambda rank: (rank >= 0, abs(rank))
    )
    if not ranks:
        raise ValueError(
            f"{result.config.name}: no message with a size has crossed a network: no card was used"
        )
    speeds = [network.card_bandwidth(rank) for rank in ranks[:CARDS]]
    limited = bool(np.isfinite(speeds).all()) and network.changes is None
    rows = {}
    for rank, speed in zip(ranks[:CARDS], speeds, strict=True):
        for way in WAYS:
            load = _sum_into_bins(messages[between & (cards[way] == rank)], edges) / np.diff(edges)
            rows[f"{_card(rank, network.host_size)} {way}"] = (
                100 * load / speed if limited else load
            )
    return edges, pd.DataFrame(rows).T, "%" if limited else "bytes/s"


def _card(rank: int, host_size: int) -> str:
    """The name of a card's node, or of its host."""
    if host_size > 1 and rank >= 0:
        return f"host {rank}"
    return f"worker {rank}" if rank >= 0 else "server" if rank == -1 else f"server {-rank}"


def _sum_into_bins(messages: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """Bytes in each bin: each message's, spread evenly from sending to arrival; at once where that
    takes no time.
    """
    sent, arrived, size = (messages[name].to_numpy(float) for name in ("sent", "arrived", "bytes"))
    took = arrived - sent
    at_once = took <= 0
    counted = np.histogram(sent[at_once], edges, weights=size[at_once])[0].astype(float)
    passed = np.zeros(len(edges))
    for start, length, of in zip(sent[~at_once], took[~at_once], size[~at_once], strict=True):
        passed += of * np.clip((edges - start) / length, 0, 1)
    return counted + np.diff(passed)
