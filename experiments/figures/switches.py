"""What is inside of a network, as a drawing: groups at their switches, trunks, slow links and
cards.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from laggard.experiments.figures.style import PALETTE, quantity
from laggard.simulator import Network
from laggard.simulator.network.groups import Switch, Trunks

LABELLED = 12
"""Lines up to which each has its label."""
Place = tuple[float, float]


class Connection(NamedTuple):
    """A trunk or a slow link: where it is, its bandwidth (bytes/s; None is no limit of its own),
    and what to write.
    """

    start: Place
    end: Place
    bandwidth: float | None
    label: str


class Inside(NamedTuple):
    """What is inside of a network.

    Attributes:
        switches: their places, which are those of groups with numbers.
        trunks, slow: lines between switches, and between pairs with a link or a latency of their
            own.
        notes: what else differs from the rest.
    """

    switches: Mapping[Switch, Place]
    trunks: Sequence[Connection]
    slow: Sequence[Connection]
    notes: Sequence[str]

    @property
    def labels(self) -> Sequence[str]:
        """What is written at its lines and below."""
        return [line.label for line in (*self.trunks, *self.slow)] + [*self.notes]


def place_groups(
    trunks: Trunks, machines: Mapping[int, int]
) -> tuple[dict[Switch, Place], dict[int, Place]]:
    """Places of switches, by the trunks between them, and of the nodes on these machines, around
    their switches.
    """
    layout = nx.kamada_kawai_layout(trunks.graph)
    found: dict[Switch, list[int]] = {}
    for rank, machine in machines.items():
        found.setdefault(trunks.switch(machine), []).append(rank)
    near = [
        math.dist(layout[one], layout[other]) for one in found for other in layout if one != other
    ]
    scale = 3 / min(near, default=1.0)
    left = math.copysign(scale, -layout[0][0])  # the first group is on the left
    switches = {switch: (float(x) * left, float(y) * scale) for switch, (x, y) in layout.items()}
    nodes = {}
    for switch, members in found.items():
        for number, rank in enumerate(members):
            # a single one is below its switch
            turn = (number + 0.25) / len(members) if len(members) > 1 else 0.5
            angle = math.pi / 2 - 2 * math.pi * turn
            x, y = switches[switch]
            nodes[rank] = (x + 0.8 * math.cos(angle), y + 0.8 * math.sin(angle))
    return switches, nodes


def inside_of(
    network: Network,
    trunks: Trunks | None,
    switches: Mapping[Switch, Place],
    nodes: Mapping[int, Place],
) -> Inside:
    """What to draw of a network whose switches and nodes are at these places."""
    edges = [] if trunks is None else list(trunks.graph.edges(data=True))
    lines = [
        Connection(
            switches[one],
            switches[other],
            trunk["bandwidth"],
            _label(trunk["bandwidth"], trunk["latency"] or None),
        )
        for one, other, trunk in edges
    ]
    slow = [
        Connection(
            nodes[link.sender],
            nodes[link.receiver],
            link.bandwidth,
            _label(link.bandwidth, link.latency),
        )
        for link in network.links
        if link.sender in nodes and link.receiver in nodes
    ]
    cards = [
        f"card of worker {card.worker}: {quantity(card.bandwidth, 'B/s')}" for card in network.cards
    ]
    return Inside(
        switches,
        lines,
        slow,
        cards if len(cards) < 4 else [f"{len(cards)} workers have another card"],
    )


def trunk_cost(trunks: Trunks, pairs: Iterable[tuple[int, int]], size: float) -> str:
    """What the trunk that takes longest carries in one step, one way, and how long that takes."""
    crossed = Counter[tuple[Any, float]]()
    for pair in pairs:
        crossed.update((ends, speed) for ends, speed in trunks.between(*pair)[1].items() if speed)
    if not crossed:
        return ""
    (_, speed), count = max(crossed.items(), key=lambda one: one[1] / one[0][1])
    return f"\nbusiest trunk: {count} x {quantity(size, 'B')}: {with_unit(count * size / speed)}"


def _label(bandwidth: float | None, latency: float | None) -> str:
    parts = [
        "" if bandwidth is None else quantity(bandwidth, "B/s"),
        "" if latency is None else with_unit(latency),
    ]
    return "\n".join(filter(None, parts)) or "unlimited"


def with_unit(seconds: float) -> str:
    """A time with its unit: 30 ms."""
    scale, unit = (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "us")
    return f"{seconds / scale:.3g} {unit}"


def draw_inside(axes: Axes, inside: Inside) -> None:
    """Circles around groups, trunks as wide as they are fast, switches, and slow links, with their
    bandwidths.
    """
    for switch, place in inside.switches.items():
        if not isinstance(switch, str):
            axes.add_patch(Circle(place, 1.0, color=PALETTE[0], alpha=0.1, linewidth=0))
    for lines, colour, dash in ((inside.trunks, PALETTE[2], "-"), (inside.slow, PALETTE[3], "--")):
        least = min((line.bandwidth for line in lines if line.bandwidth), default=1.0)
        shown = set[str]()
        for line in lines:
            width = (
                2 + min(4.0, 1.5 * math.log10(line.bandwidth / least)) if line.bandwidth else 1.2
            )
            axes.plot(
                *np.array([line.start, line.end]).T,
                color=colour,
                linewidth=width,
                linestyle=dash,
                zorder=2,
            )
            if len(lines) > LABELLED and line.label in shown:
                continue
            shown.add(line.label)
            axes.annotate(line.label, tuple(np.mean([line.start, line.end], axis=0)), xytext=(0, 5),
                          textcoords="offset points", ha="center", fontsize=6.5, color=colour, zorder=2.5,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8})  # fmt: skip
    for switch, place in inside.switches.items():
        axes.scatter(*place, s=40, color=PALETTE[2], marker="D", zorder=3)
        if isinstance(switch, str):
            axes.annotate(switch, place, xytext=(0, -12), textcoords="offset points", ha="center", fontsize=6.5,
                          zorder=5)  # fmt: skip
