"""Who talks to whom: the graph of a config, and what its busiest card has to carry."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from experiments.figures.closed import model_bytes
from experiments.figures.look import PALETTE, drawing, legend, quantity, saved, several
from experiments.lines import Drawn
from simulator.topology import Graph, Star, Torus, resolved

PANELS, NAMED = 12, 40
Place = tuple[float, float]


class Drawing(NamedTuple):
    """One panel: who sends to whom in one step, what that costs, and where nodes stand."""

    title: str
    cost: str
    graph: nx.DiGraph
    places: Mapping[int, Place]
    bends: bool


def topology(results: Sequence[Drawn] | Drawn, path: str | Path | None = None) -> Figure:
    """Who sends to whom: a graph for each topology of the results, and one for each step where it changes in time.

    Lines carry messages both ways, arrows one way. A title says what the busiest card carries in one step, a model
    along every edge, and how long that takes with the card to itself. Which edges of a complete graph a collective
    uses is its own affair.
    """
    drawings: dict[str, list[Drawing]] = {}
    for result in several(results):
        for one in steps(result):
            drawings.setdefault(one.title, []).append(one)
    shown = []
    for same in list(drawings.values())[:PANELS]:
        costs = list(dict.fromkeys(one.cost for one in same))  # results that differ in size or bandwidth share a graph
        firsts = list(dict.fromkeys(cost.partition("\n")[0] for cost in costs))
        shown.append(same[0]._replace(cost=costs[0] if len(costs) == 1 else "\n".join(firsts)))
    columns = min(len(shown), 3)
    rows = math.ceil(len(shown) / columns)
    side = min(8 / columns, 4.5)
    with drawing(max(side * columns, 4.5), 0.45 + rows * (side + 0.35), "compressed") as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, one in zip(panels.flat, shown, strict=False):
            draw_graph(axes, one)
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        notes = ["line: both ways, arrow: one way", "s: server"]
        servers = any(rank < 0 for one in shown for rank in one.graph)
        more = f"{len(drawings) - len(shown)} more graphs are not shown" * (len(drawings) > len(shown))
        legend(figure, list(panels.flat), [*notes[: 1 + servers], more])
    return saved(figure, path)


def steps(result: Drawn) -> list[Drawing]:
    """The graph of each step of a config's topology: one, or as many as its period has."""
    config = result.config
    workers, network = config.cluster.workers, config.cluster.network.build()
    algorithm = config.algorithm.build(workers)
    graph = resolved(network.topology, algorithm.topology)
    name, found = type(graph).__name__.lower(), []
    for step in range(graph.period(workers)):
        edges = nx.DiGraph()
        edges.add_nodes_from(range(workers))
        if isinstance(graph, Star):
            servers = [rank for rank in algorithm.roles(workers) if rank < 0]
            edges.add_edges_from(
                edge for server in servers for rank in range(workers) for edge in ((rank, server), (server, rank))
            )
        else:
            edges.add_edges_from(
                (rank, peer) for rank in range(workers) for peer in graph.out_peers(rank, step, workers)
            )
        at = f", step {step}" if graph.period(workers) > 1 else ""
        collective = getattr(config.algorithm, "collective", "")
        cost = f"its collective: {collective}" if collective else _cost(edges, model_bytes(result), network.bandwidth)
        found.append(
            Drawing(f"{name} of {workers}{at}", cost, edges, _places(graph, edges, workers), isinstance(graph, Torus))
        )
    return found


def busiest(graph: nx.DiGraph) -> tuple[int, int]:
    """The most models that any card sends in one step, and the most that any receives."""
    return max((n for _, n in graph.out_degree()), default=0), max((n for _, n in graph.in_degree()), default=0)


def _cost(graph: nx.DiGraph, size: float, bandwidth: float) -> str:
    up, down = busiest(graph)
    if not math.isfinite(bandwidth) or not size:
        return f"busiest card: {up} up, {down} down"
    most = max(up, down)
    return f"busiest card: {up} up, {down} down\n{most} x {quantity(size, 'B')}: {_time(most * size / bandwidth)}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _places(graph: Any, edges: nx.DiGraph, workers: int) -> dict[int, Place]:
    """A grid for a torus, a circle for graphs in which all are alike, springs for any other; servers in the middle."""
    if isinstance(graph, Torus):
        rows = graph.rows or next(side for side in range(math.isqrt(workers), 0, -1) if workers % side == 0)
        columns = workers // rows
        return {rank: (rank % columns, -(rank // columns)) for rank in range(workers)}
    if isinstance(graph, Graph):
        return {rank: tuple(place) for rank, place in nx.kamada_kawai_layout(edges.to_undirected()).items()}
    angles = {rank: math.pi / 2 - 2 * math.pi * rank / workers for rank in range(workers)}
    places = {rank: (math.cos(angle), math.sin(angle)) for rank, angle in angles.items()}
    servers = sorted(rank for rank in edges if rank < 0)
    spots = np.linspace(-0.3, 0.3, len(servers)) if len(servers) > 1 else [0.0]
    return places | {rank: (float(x), 0.0) for rank, x in zip(servers, spots, strict=False)}


def draw_graph(axes: Axes, drawing: Drawing) -> None:
    """Nodes with their ranks, and an edge or an arrow a pair."""
    graph, places = drawing.graph, drawing.places
    crowded = len(graph) > NAMED
    size = 20 if crowded else max(60, 260 - 5 * len(graph))
    shrink = math.sqrt(size) / 2 + 1
    for sender, receiver in graph.edges:
        both = graph.has_edge(receiver, sender)
        if both and sender > receiver:
            continue
        start, end = places[sender], places[receiver]
        far = drawing.bends and math.dist(start, end) > 1.01
        style = {"arrowstyle": "-" if both else "-|>", "connectionstyle": f"arc3,rad={0.25 if far else 0}"}
        axes.add_patch(FancyArrowPatch(start, end, color="#8c8c8c", linewidth=0.5 if crowded else 0.9, mutation_scale=8,
                                       shrinkA=shrink, shrinkB=shrink, **style))  # fmt: skip
    for servers, colour in ((False, PALETTE[0]), (True, PALETTE[1])):
        ranks = [rank for rank in graph if (rank < 0) == servers]
        if ranks:
            at = np.array([places[rank] for rank in ranks])
            axes.scatter(*at.T, s=size, color=colour, zorder=3, marker="s" if servers else "o")
    for rank in graph if not crowded else ():
        axes.annotate(
            "s" if rank < 0 else str(rank),
            places[rank],
            ha="center",
            va="center",
            color="white",
            fontsize=6.5,
            zorder=4,
        )
    at = np.array(list(places.values()))
    middle, half = (at.max(0) + at.min(0)) / 2, max(1.0, *np.ptp(at, axis=0) / 2) * (1.5 if drawing.bends else 1.18)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axes.set_title(f"{drawing.title}\n{drawing.cost}", fontsize="small")
    axes.set_aspect("equal")
    axes.axis("off")
