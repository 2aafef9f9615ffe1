"""A run as a trace that ui.perfetto.dev and chrome://tracing open: with computations, messages and
updates.

A process a machine, in it a thread for what it computes, for each direction of its card, and for
the updates of its model. What overlaps on one of them goes to further lanes. Arrows lead from a
gradient's computation over the message that carried it to the update that it made part of. Curves
of what was learnt stand above.

Source: Trace Event Format, Google, section "Event Types"; timestamps are microseconds, here to the
nanosecond.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from laggard.experiments.perfetto.slices import (
    COMPUTING,
    KINDS,
    TimeWindow,
    arrows,
    computation_slices,
    gradients,
    machine,
    message_slices,
    messages,
    nanoseconds,
    update_slices,
)
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.result import Result

__all__ = ["WHOLE_RUN", "TimeWindow", "events", "write_trace"]

Event = dict[str, Any]
WHOLE_RUN = TimeWindow()
LEARNING_TRACK = 1
"""The process whose counters show what is learnt; those of the machines follow."""


class Track(NamedTuple):
    """A lane of what a machine does, and the process and the thread that stand for it."""

    rank: int
    kind: str
    lane: int
    pid: int
    tid: int


def write_trace(result: Result, path: str | Path, window: TimeWindow = WHOLE_RUN) -> int:
    """Write the trace of a run, and return the number of its events.

    It is compressed if `path` ends in .gz. Without recorded messages it has no links. Gradients in
    flight at the end of the run are left out.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    head = {
        "run": result.manifest["run"],
        "name": result.config.name,
        "messages recorded": result.has_messages,
    }
    count = 0
    opened: Any = open
    if path.suffix == ".gz":
        opened = gzip.open
    with whole_file(path) as part, opened(part, "wt", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(head)}, "traceEvents": [')
        for count, event in enumerate(events(result, window), start=1):
            file.write(f"{',' * (count > 1)}\n{json.dumps(event, allow_nan=False)}")
        file.write("\n]}\n")
    return count


def events(result: Result, window: TimeWindow = WHOLE_RUN) -> Iterator[Event]:
    """The events of the trace: the names of its tracks, then what happened, in order of time."""
    ended, sent = gradients(result.updates, window), messages(result, window)
    slices = pd.concat(
        [computation_slices(ended), update_slices(ended), *message_slices(sent)], ignore_index=True
    )
    slices, tracks = assign_tracks(slices.sort_values("start", kind="stable"), machines(result))
    kinds = _slices(slices), arrows(slices, ended, sent), _curves(result.metrics, window)
    happened = merge(*kinds, key=itemgetter("ts"))
    return chain(track_names(tracks), ({**event, "ts": event["ts"] / 1000} for event in happened))


def _slices(slices: pd.DataFrame) -> Iterator[Event]:
    columns = (
        slices[name].tolist() for name in ("pid", "tid", "kind", "start", "end", "name", "args")
    )
    for pid, tid, kind, start, end, name, args in zip(*columns, strict=True):
        yield {
            "ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": (end - start) / 1000,
            "args": args,
        }  # fmt: skip


def _curves(metrics: pd.DataFrame, window: TimeWindow) -> Iterator[Event]:
    """The metrics of the first member of the ensemble, a counter each."""
    first = metrics[(metrics["member"] == 0) & window.meets(metrics["time"], metrics["time"])]
    for time, evaluation in zip(
        nanoseconds(first["time"]).tolist(), first.to_dict("records"), strict=True
    ):
        for measure in CURVES:
            value = evaluation.get(measure, float("nan"))
            if abs(value) < float("inf"):
                yield {
                    "ph": "C",
                    "name": measure,
                    "pid": LEARNING_TRACK,
                    "ts": time,
                    "args": {measure: value},
                }


def machines(result: Result) -> list[int]:
    """The ranks of the servers, then those of the workers."""
    log = result.messages
    ranks = {*result.workers["worker"], *result.updates["target"], *log["sender"], *log["receiver"]}
    return sorted(map(int, ranks), key=lambda rank: (rank >= 0, abs(rank)))


def assign_tracks(slices: pd.DataFrame, ranks: Sequence[int]) -> tuple[pd.DataFrame, list[Track]]:
    """`slices`, in order of their starts, with the `pid` and the `tid` of their track; and all
    tracks.
    """
    lanes = _lanes(slices)
    taken = {*lanes, *((rank, COMPUTING, 0) for rank in ranks if rank >= 0)}
    order = sorted(taken, key=lambda one: (ranks.index(one[0]), KINDS.index(one[1]), one[2]))
    pid = {rank: place for place, rank in enumerate(ranks, start=LEARNING_TRACK + 1)}
    tracks = {
        one: Track(*one, pid[one[0]], LEARNING_TRACK + len(ranks) + place)
        for place, one in enumerate(order, start=1)
    }
    own = [tracks[lane] for lane in lanes]
    return slices.assign(pid=[track.pid for track in own], tid=[track.tid for track in own]), list(
        tracks.values()
    )


def track_names(tracks: Sequence[Track]) -> Iterator[dict[str, Any]]:
    """The events that name and order the tracks."""
    processes = {LEARNING_TRACK: "learning", **{track.pid: machine(track.rank) for track in tracks}}
    for pid, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for track in tracks:
        name = track.kind
        if track.lane > 0:
            name = f"{track.kind} ({track.lane + 1})"
        where = {"pid": track.pid, "tid": track.tid}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": track.tid}}


def _lanes(slices: pd.DataFrame) -> list[tuple[int, str, int]]:
    """Machine, kind and lane of each slice: the first lane of its machine and kind that is free at
    its start.
    """
    free: dict[tuple[int, str], list[int]] = {}
    under_way: dict[tuple[int, str], list[tuple[int, int]]] = {}
    lanes = []
    columns = (slices[name].tolist() for name in ("rank", "kind", "start", "end"))
    for rank, kind, start, end in zip(*columns, strict=True):
        ends, left = under_way.setdefault((rank, kind), []), free.setdefault((rank, kind), [])
        while ends and ends[0][0] <= start:
            heappush(left, heappop(ends)[1])
        lane = len(ends)
        if left:
            lane = heappop(left)
        # an instant lasts one nanosecond, so that arrows can address it
        heappush(ends, (max(end, start + 1), lane))
        lanes.append((rank, kind, lane))
    return lanes
