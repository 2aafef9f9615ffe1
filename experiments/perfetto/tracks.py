"""The tracks of a trace: a process a machine, a thread for each of its lanes, in which no two slices overlap."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import pandas as pd

from experiments.perfetto.slices import COMPUTING, KINDS, machine
from experiments.store import Result

CURVES = 1
"""The process whose counters show what is learnt; those of the machines follow."""


class Track(NamedTuple):
    """A lane of what a machine does, and the process and the thread that stand for it."""

    rank: int
    kind: str
    lane: int
    pid: int
    tid: int


def machines(result: Result) -> list[int]:
    """The ranks of the servers, then those of the workers."""
    log = result.messages
    ranks = {*result.workers["worker"], *result.updates["target"], *log["sender"], *log["receiver"]}
    return sorted(map(int, ranks), key=lambda rank: (rank >= 0, abs(rank)))


def on_tracks(slices: pd.DataFrame, ranks: Sequence[int]) -> tuple[pd.DataFrame, list[Track]]:
    """`slices`, in order of their starts, with the `pid` and the `tid` of their track; and all tracks."""
    lanes = _lanes(slices)
    taken = {*lanes, *((rank, COMPUTING, 0) for rank in ranks if rank >= 0)}
    order = sorted(taken, key=lambda one: (ranks.index(one[0]), KINDS.index(one[1]), one[2]))
    pid = {rank: place for place, rank in enumerate(ranks, start=CURVES + 1)}
    tracks = {one: Track(*one, pid[one[0]], CURVES + len(ranks) + place) for place, one in enumerate(order, start=1)}
    own = [tracks[lane] for lane in lanes]
    return slices.assign(pid=[track.pid for track in own], tid=[track.tid for track in own]), list(tracks.values())


def named(tracks: Sequence[Track]) -> Iterator[dict[str, Any]]:
    """What the tracks are called, and their order."""
    processes = {CURVES: "learning", **{track.pid: machine(track.rank) for track in tracks}}
    for pid, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for track in tracks:
        name = track.kind if track.lane == 0 else f"{track.kind} ({track.lane + 1})"
        where = {"pid": track.pid, "tid": track.tid}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": track.tid}}


def _lanes(slices: pd.DataFrame) -> list[tuple[int, str, int]]:
    """Machine, kind and lane of each slice: the first lane of its machine and kind that is free at its start."""
    free: dict[tuple[int, str], list[int]] = {}
    under_way: dict[tuple[int, str], list[tuple[int, int]]] = {}
    lanes = []
    columns = (slices[name].tolist() for name in ("rank", "kind", "start", "end"))
    for rank, kind, start, end in zip(*columns, strict=True):
        ends, left = under_way.setdefault((rank, kind), []), free.setdefault((rank, kind), [])
        while ends and ends[0][0] <= start:
            heappush(left, heappop(ends)[1])
        lane = heappop(left) if left else len(ends)
        heappush(ends, (max(end, start + 1), lane))  # an instant has its nanosecond: arrows tell it from the next
        lanes.append((rank, kind, lane))
    return lanes
