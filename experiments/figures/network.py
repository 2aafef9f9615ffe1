"""Figures of the network: its topology, and the utilisation of its trunks and cards."""

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
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
    Panels,
    Runs,
    as_sequence,
    check_count,
    omission_note,
)
from laggard.experiments.results.formats import format_quantity
from laggard.experiments.results.result import Result
from laggard.experiments.theory import build_algorithm
from laggard.experiments.theory.iteration_time import model_bytes
from laggard.simulator import Network
from laggard.simulator.network.groups import Trunks
from laggard.simulator.network.topology import Graph, Torus, resolve_topology

Place = tuple[float, float]
MAX_PANELS, MAX_NAMED_NODES = 12, 40
MAX_RUNS, MAX_CARDS, MAX_TRUNKS = 4, 12, 8
ENDS = {"up": "sender", "down": "receiver"}
"""The node of a message whose card carries it in each direction."""


class Drawing(NamedTuple):
    """One panel: the messages of one step, their cost, and the positions of the nodes."""

    title: str
    cost: str
    graph: nx.DiGraph
    places: Mapping[int, Place]
    is_torus: bool
    note: str


def topology(results: Runs, path: File = None) -> Figure:
    """The graphs of the messages: one for each topology, and for each step where it changes.

    Lines carry messages both ways, arrows one way. A title says what the busiest card carries in
    one step, a model along every edge, and how long that takes on an idle card. A collective may
    use fewer edges of a complete graph. Groups, links of pairs and cards of other bandwidths are
    not drawn.
    """
    drawings: dict[str, list[Drawing]] = {}
    for result in as_sequence(results):
        for drawing in steps(result):
            drawings.setdefault(drawing.title, []).append(drawing)
    merged = [_merge_costs(same) for same in drawings.values()]
    panels = Panels(merged, drawings, MAX_PANELS)
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    side = min(8 / columns, 4.5)
    size = max(side * columns, 4.5), 0.45 + rows * (side + 0.35)
    with panels.figure(size, path, columns, "compressed") as figure:
        for axes, drawing in panels:
            draw_topology(axes, drawing)
        panels.notes = ["line: both ways, arrow: one way"]
        if any(-1 in drawing.graph for drawing in panels.groups):
            panels.notes.append("s: server")
        panels.notes += dict.fromkeys(drawing.note for drawing in panels.groups)
    return figure


def _merge_costs(same: list[Drawing]) -> Drawing:
    """Merge the drawings of results that share a graph but differ in size or bandwidth."""
    costs = list(dict.fromkeys(drawing.cost for drawing in same))
    if len(costs) == 1:
        return same[0]
    # the first line alone: the seconds in the second depend on size and bandwidth
    loads = dict.fromkeys(cost.partition("\n")[0] for cost in costs)
    return same[0]._replace(cost="\n".join(loads))


def steps(result: Result) -> list[Drawing]:
    """The graph of each step of a config's topology: one, or as many as its period has.

    Raises:
        ValueError: the source of a plugin, as an algorithm, is missing or has changed.
    """
    built = build_algorithm(result.config)
    if built is None:
        raise ValueError(
            f"{result.config.name}: the source of a plugin is missing, or has changed since the run"
        )
    algorithm, cluster = built
    workers, network = cluster.workers, cluster.network
    graph = resolve_topology(network.topology, algorithm.topology)
    title = f"{type(graph).__name__.lower()} of {workers}"
    if network.host_size > 1:
        title += f", {network.host_size} on a host"
    note = ""
    if network.groups is not None or network.links or network.cards:
        note = "groups, links of pairs and cards of other bandwidths are not drawn"
    if network.groups is not None:
        title += " in groups"
    servers = [rank for rank in algorithm.roles(workers) if rank < 0]
    collective = getattr(algorithm, "collective", "")
    period = graph.period(workers)
    drawings = []
    for step in range(period):
        edges = _edges(graph, step, workers, servers)
        step_title = title
        if period > 1:
            step_title += f", step {step}"
        cost = f"its collective: {collective}"
        if not collective:
            cost = _cost(_between_machines(edges, network, workers), model_bytes(result), network)
        places = _positions(graph, edges, workers)
        drawings.append(Drawing(step_title, cost, edges, places, isinstance(graph, Torus), note))
    return drawings


def _edges(graph: Any, step: int, workers: int, servers: list[int]) -> nx.DiGraph:
    edges = nx.DiGraph()
    edges.add_nodes_from(range(workers))
    for server in servers:
        for rank in range(workers):
            edges.add_edge(rank, server)
    for server in servers:
        for rank in range(workers):
            edges.add_edge(server, rank)
    for rank in range(workers):
        for peer in graph.out_peers(rank, step, workers):
            edges.add_edge(rank, peer)
    return edges


def _between_machines(edges: nx.DiGraph, network: Network, workers: int) -> nx.MultiDiGraph:
    """The edges that cross a card; messages within a host do not."""
    # a multigraph, since several workers of a host may send to the same other host
    pairs = [network.on_machines(pair, workers) for pair in edges.edges]
    return nx.MultiDiGraph((start, end) for start, end in pairs if start != end)


def busiest(graph: nx.DiGraph) -> tuple[int, int]:
    """The largest number of models that a card sends in one step, and that a card receives."""
    sent = max((degree for _, degree in graph.out_degree()), default=0)
    received = max((degree for _, degree in graph.in_degree()), default=0)
    return sent, received


def _cost(cards: nx.MultiDiGraph, size: float, network: Network) -> str:
    """The load of the busiest card, and its seconds if the bandwidth is known."""
    up, down = busiest(cards)
    load = f"busiest card: {up} up, {down} down"
    if network.changes is not None or not math.isfinite(network.bandwidth) or not size:
        return load
    models = max(up, down)
    time = with_unit(models * size / network.bandwidth)
    return f"{load}\n{models} x {format_quantity(size, 'B')}: {time}"


def with_unit(seconds: float) -> str:
    """A time with its unit: 30 ms."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.3g} ms"
    return f"{1e6 * seconds:.3g} us"


def _positions(graph: Any, edges: nx.DiGraph, workers: int) -> Mapping[int, Place]:
    """The positions of nodes: a grid for a torus, a spring layout for a graph in a file, else a
    circle; servers are in the middle.
    """
    if isinstance(graph, Torus):
        rows = graph.rows or _nearest_divisor(workers)
        columns = workers // rows
        return {rank: (rank % columns, -(rank // columns)) for rank in range(workers)}
    if isinstance(graph, Graph):
        layout = nx.kamada_kawai_layout(edges.to_undirected())
        return {rank: tuple(place) for rank, place in layout.items()}
    places = {}
    for rank in range(workers):
        angle = math.pi / 2 - 2 * math.pi * rank / workers
        places[rank] = (math.cos(angle), math.sin(angle))
    servers = sorted(rank for rank in edges if rank < 0)
    if len(servers) == 1:
        return places | {servers[0]: (0.0, 0.0)}
    for server, x in zip(servers, np.linspace(-0.3, 0.3, len(servers)), strict=True):
        places[server] = (float(x), 0.0)
    return places


def _nearest_divisor(number: int) -> int:
    """The largest divisor up to the square root."""
    side = math.isqrt(number)
    while number % side:
        side -= 1
    return side


def draw_topology(axes: Axes, drawing: Drawing) -> None:
    """Draw nodes with their ranks, and an edge or an arrow per pair."""
    graph, places = drawing.graph, drawing.places
    crowded = len(graph) > MAX_NAMED_NODES
    size = max(60, 260 - 5 * len(graph))
    width = 0.9
    if crowded:
        size = 20
        width = 0.5
    _draw_edges(axes, drawing, math.sqrt(size) / 2 + 1, width)
    workers = [rank for rank in graph if rank >= 0]
    servers = [rank for rank in graph if rank < 0]
    _draw_nodes(axes, [places[rank] for rank in workers], size, PALETTE[0], "o")
    _draw_nodes(axes, [places[rank] for rank in servers], size, PALETTE[1], "s")
    if not crowded:
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": "white", "fontsize": 6.5}
        for rank in graph:
            name = "s" if rank < 0 else str(rank)
            axes.annotate(name, places[rank], zorder=4, **style)
    corners = np.array(list(places.values()))
    x, y = (corners.max(0) + corners.min(0)) / 2
    half = max(1.0, *np.ptp(corners, axis=0) / 2)
    half *= 1.5 if drawing.is_torus else 1.18  # the arcs of a torus leave its grid
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))
    axes.set_title(f"{drawing.title}\n{drawing.cost}", fontsize="small")
    axes.set_aspect("equal")
    axes.axis("off")


def _draw_edges(axes: Axes, drawing: Drawing, shrink: float, width: float) -> None:
    graph, places = drawing.graph, drawing.places
    for sender, receiver in graph.edges:
        style: dict[str, Any] = {"arrowstyle": "-|>"}
        if graph.has_edge(receiver, sender):
            style["arrowstyle"] = "-"
            if sender > receiver:  # the line is drawn for the other direction
                continue
        start, end = places[sender], places[receiver]
        bend = 0.0
        if drawing.is_torus and math.dist(start, end) > 1.01:  # around the other nodes of a row
            bend = 0.25
        style |= {"connectionstyle": f"arc3,rad={bend:g}", "linewidth": width}
        style |= {"shrinkA": shrink, "shrinkB": shrink, "mutation_scale": 8, "color": "#8c8c8c"}
        axes.add_patch(FancyArrowPatch(start, end, **style))


def _draw_nodes(axes: Axes, places: list[Place], size: float, colour: str, marker: str) -> None:
    if places:
        x, y = np.array(places).T
        axes.scatter(x, y, s=size, color=colour, zorder=3, marker=marker)


def utilisation(
    results: Runs, path: File = None, bins: int = 120, label: Label | None = None
) -> Figure:
    """The utilisation of each trunk and card: the bytes on it in each of `bins` time bins.

    The bytes of a message are exact, and spread evenly between its sending and its arrival: a
    message that queues is drawn as if it went slowly. A row per direction of a trunk or card, the
    busiest trunks first; as a share of its bandwidth, or in bytes per second where one has no
    limit. Up to four runs.

    Raises:
        ValueError: a run has not recorded its messages, or there are more than four runs.
    """
    results = as_sequence(results)
    names = titles(results, label)
    check_count(names, MAX_RUNS, "panels")
    loads = [_loads(result, bins) for result in results]
    panels = Panels(loads, names, MAX_RUNS)
    heights = [0.6 + 0.17 * len(load.rates) for load in loads]
    spread = "bytes are exact, spread evenly between a message's sending and its arrival"
    if any(load.exceeds_bandwidth for load in loads):
        spread += ", so that a bin may seem to hold more than 100 %"
    longest = max((load.omitted for load in loads), key=len)
    panels.notes = [spread, f"{bins} bins", omission_note(longest)]
    size = 8, 1.0 + sum(heights)
    with panels.figure(size, path, height_ratios=heights) as figure:
        for (axes, load), name in zip(panels, names, strict=True):
            _draw_load(figure, axes, load)
            if len(panels) > 1:
                axes.set_title(shorten(name, 100))
    return figure


class Load(NamedTuple):
    """The load of the trunks and cards of a run.

    Attributes:
        edges: the edges of the bins (s).
        rates: a row for each direction of a trunk or card, a column per bin; in % or in bytes/s.
        is_share: whether rates are in % of the bandwidth.
        omitted: the trunks and cards that are not in `rates`.
    """

    edges: np.ndarray
    rates: pd.DataFrame
    is_share: bool
    omitted: list[str]

    @property
    def exceeds_bandwidth(self) -> bool:
        """Whether a bin exceeds the bandwidth, as it may where messages are spread evenly."""
        return self.is_share and bool((self.rates > 100.5).any(axis=None))


def _draw_load(figure: Figure, axes: Axes, load: Load) -> None:
    name, top = "load (bytes/s)", None
    if load.is_share:
        name, top = "utilisation (%)", 100
    rows = np.arange(len(load.rates) + 1)
    style: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": top, "rasterized": True}
    mesh = axes.pcolormesh(load.edges, rows, load.rates, **style)
    axes.set_yticks(rows[:-1] + 0.5, load.rates.index, fontsize=7)
    axes.set(ylim=(len(load.rates), 0), xlabel=AXIS_LABELS["time"])
    axes.grid(visible=False)
    figure.colorbar(mesh, ax=axes, label=name, pad=0.01)


class Carrier(NamedTuple):
    """One direction of a card or of a trunk, the messages that cross it, and its bandwidth."""

    name: str
    messages: pd.DataFrame
    bandwidth: float


def _loads(result: Result, bins: int) -> Load:
    messages = getattr(result, "messages", None)
    if messages is None or not len(messages):
        raise ValueError(f"{result.config.name}: {missing_messages(result)}")
    end = float(max(result.metrics["time"].max(), messages["arrived"].max()))
    edges = np.linspace(0, end, bins + 1)
    network = result.config.cluster.network.build()
    workers = result.config.cluster.workers
    messages = messages[(messages["bytes"] > 0) & messages["arrived"].notna()]
    machines = {}
    for direction, node in ENDS.items():
        ranks = messages[node].astype(int)
        machines[direction] = ranks.map(lambda rank: network.machine(rank, workers))
    messages = messages.assign(**machines)
    messages = messages[messages["up"] != messages["down"]]  # on one machine there is no network
    if messages.empty:
        raise ValueError(
            f"{result.config.name}: no message with a size has crossed a network: no card was used"
        )
    cards = sorted({*messages["up"], *messages["down"]}, key=lambda rank: (rank >= 0, abs(rank)))
    trunks = _trunks(messages, network, workers)
    omitted = [trunk.name for trunk in trunks[MAX_TRUNKS:]]
    omitted += [f"card of {_card(rank, network.host_size)}" for rank in cards[MAX_CARDS:]]
    carriers = trunks[:MAX_TRUNKS] + _cards(messages, network, cards[:MAX_CARDS])
    speeds = [carrier.bandwidth for carrier in carriers]
    is_share = network.changes is None and bool(np.isfinite(speeds).all())
    rates = {}
    for carrier in carriers:
        rate = _sum_into_bins(carrier.messages, edges) / np.diff(edges)
        if is_share:
            rate = 100 * rate / carrier.bandwidth
        rates[carrier.name] = rate
    return Load(edges, pd.DataFrame(rates).T, is_share, omitted)


def _cards(messages: pd.DataFrame, network: Network, cards: list[int]) -> list[Carrier]:
    """Both directions of cards; `up` and `down` are the machines that send and receive."""
    carriers = []
    for card in cards:
        for direction in ENDS:
            name = f"{_card(card, network.host_size)} {direction}"
            carried = messages[messages[direction] == card]
            carriers.append(Carrier(name, carried, network.card_bandwidth(card)))
    return carriers


def _trunks(messages: pd.DataFrame, network: Network, workers: int) -> list[Carrier]:
    """Both directions of each trunk with a bandwidth that messages cross, the busiest first."""
    if network.groups is None:
        return []
    trunks = Trunks(network, workers)
    crossing = defaultdict(list)  # by the two switches of a trunk: the messages of each pair
    for (start, end), carried in messages.groupby(["up", "down"]):
        path = trunks.path(trunks.switch(start), trunks.switch(end))
        for ends in pairwise(path):
            crossing[ends].append(carried)
    carriers = []
    for (switch, to), parts in crossing.items():
        bandwidth = trunks.graph.edges[switch, to]["bandwidth"]
        if bandwidth is None:  # it only adds its latency
            continue
        name = f"trunk {_switch(switch)} to {_switch(to)}"
        carriers.append(Carrier(name, pd.concat(parts), bandwidth))
    carriers.sort(key=lambda trunk: trunk.messages["bytes"].sum() / trunk.bandwidth, reverse=True)
    return carriers


def _switch(switch: int | str) -> str:
    """The name of a switch, or of the group at it."""
    if isinstance(switch, int):
        return f"group {switch}"
    return switch


def _card(rank: int, host_size: int) -> str:
    """The name of a card's node, or of its host."""
    if rank == -1:
        return "server"
    if rank < 0:
        return f"server {-rank}"
    if host_size > 1:
        return f"host {rank}"
    return f"worker {rank}"


def _sum_into_bins(messages: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """The bytes in each bin; the bytes of a message are spread evenly from sending to arrival."""
    sent, arrived, size = messages[["sent", "arrived", "bytes"]].to_numpy(float).T
    took = arrived - sent
    at_once = took <= 0
    counted = np.histogram(sent[at_once], edges, weights=size[at_once])[0].astype(float)
    passed = np.zeros(len(edges))
    spread = zip(sent[~at_once], took[~at_once], size[~at_once], strict=True)
    for start, length, content in spread:
        passed += content * np.clip((edges - start) / length, 0, 1)
    return counted + np.diff(passed)
