"""Nobody can go on: who waits for what, said in a line."""

from collections.abc import Mapping, Sequence

from simulator.node import Node

SHOWN = 8


class Deadlock(RuntimeError):
    """Nothing can happen any more, and the simulation has not reached its end."""


def who_waits(nodes: Mapping[int, Node], outside: Sequence[int]) -> str:
    """The receives that wait at `nodes`, workers' first since servers may wait, and the workers kept `outside`."""
    waits = [
        f"node {rank} waits since {receive.since:g} s for a message"
        + ("" if receive.tag is None else f" with tag {receive.tag!r}")
        for rank, node in sorted(nodes.items(), key=lambda item: item[0] < 0)
        for receive in node.waiting()
    ]
    waits += [f"node {rank} is back and not let in again" for rank in outside]
    more = [f"and {len(waits) - SHOWN} more"] * (len(waits) > SHOWN)
    return "; ".join(waits[:SHOWN] + more or ["workers wait for cancelled work"])
