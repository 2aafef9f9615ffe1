"""A run as a trace that ui.perfetto.dev and chrome://tracing open: with computations, messages and
updates.

A machine is a process. It has a thread for its computations, one for each direction of its card,
and a thread for the updates of its model. Slices that overlap go to further lanes. Arrows lead from
a gradient's computation over the message that carried it to the update that it made part of.
Learning curves are above them.

Source: Trace Event Format, Google, section "Event Types"; timestamps are microseconds, here to the
nanosecond.
"""

import gzip
import json
import math
from collections import defaultdict
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
from laggard.experiments.results.result import Result, TimeWindow

__all__ = ["WHOLE_RUN", "events", "write_trace"]

Event = dict[str, Any]
Lane = tuple[int, str, int]
"""A machine's rank, the kind of its activity, and the number of the lane within that kind."""
WHOLE_RUN = TimeWindow()
LEARNING_TRACK = 1
"""The process whose counters show what is learnt; those of the machines follow."""


class Track(NamedTuple):
    """A lane of a machine's slices of one kind, and the process and thread that show it."""

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
            if count > 1:
                file.write(",")
            file.write("\n" + json.dumps(event, allow_nan=False))
        file.write("\n]}\n")
    return count


def events(result: Result, window: TimeWindow = WHOLE_RUN) -> Iterator[Event]:
    """The events of the trace: the names of its tracks, then what happened, in order of time."""
    ended = gradients(result.updates, window)
    sent = messages(result, window)
    tables = [computation_slices(ended), update_slices(ended), *message_slices(sent)]
    slices = pd.concat(tables, ignore_index=True).sort_values("start", kind="stable")
    slices, tracks = assign_tracks(slices, machines(result))
    curves = _curves(result.metrics, window)
    in_order = merge(_slices(slices), arrows(slices, ended, sent), curves, key=itemgetter("ts"))
    return chain(track_names(tracks), map(_in_microseconds, in_order))


def _in_microseconds(event: Event) -> Event:
    event["ts"] /= 1000
    return event


def _slices(slices: pd.DataFrame) -> Iterator[Event]:
    events = slices[["name", "pid", "tid", "args"]].copy()
    events["cat"] = slices["kind"]
    events["ts"] = slices["start"]  # ns until `events` has merged by it, as in `arrows`
    events["dur"] = (slices["end"] - slices["start"]) / 1000
    for event in events.to_dict("records"):
        yield {"ph": "X", **event}


def _curves(metrics: pd.DataFrame, window: TimeWindow) -> Iterator[Event]:
    """The metrics of the first member of the ensemble, each as a counter."""
    first_member = metrics["member"] == 0
    first = metrics[first_member & window.meets(metrics["time"], metrics["time"])]
    first = first.assign(ts=nanoseconds(first["time"]))
    for evaluation in first.to_dict("records"):
        where = {"pid": LEARNING_TRACK, "ts": evaluation["ts"]}
        for measure in CURVES:
            value = evaluation.get(measure, math.nan)
            if math.isfinite(value):
                yield {"ph": "C", "name": measure, **where, "args": {measure: value}}


def machines(result: Result) -> list[int]:
    """The ranks of the servers, then those of the workers."""
    ranks: set[int] = set()
    for table, column in (
        (result.workers, "worker"),
        (result.updates, "target"),
        (result.messages, "sender"),
        (result.messages, "receiver"),
    ):
        ranks.update(map(int, table[column].unique()))
    servers = sorted((rank for rank in ranks if rank < 0), reverse=True)
    workers = sorted(rank for rank in ranks if rank >= 0)
    return servers + workers


def assign_tracks(slices: pd.DataFrame, ranks: Sequence[int]) -> tuple[pd.DataFrame, list[Track]]:
    """Give each of the `slices`, in order of their starts, the `pid` and `tid` of a track; return
    the tracks.
    """
    lanes = _lanes(slices)
    pids = {rank: pid for pid, rank in enumerate(ranks, start=LEARNING_TRACK + 1)}
    every_worker = {(rank, COMPUTING, 0) for rank in ranks if rank >= 0}

    def position(lane: Lane) -> tuple[int, int, int]:
        rank, kind, number = lane
        return pids[rank], KINDS.index(kind), number

    tracks: dict[Lane, Track] = {}
    in_order = sorted(every_worker.union(lanes), key=position)
    for tid, lane in enumerate(in_order, start=LEARNING_TRACK + len(ranks) + 1):
        rank, kind, number = lane
        tracks[lane] = Track(rank, kind, number, pids[rank], tid)
    slices = slices.copy()
    slices["pid"] = [tracks[lane].pid for lane in lanes]
    slices["tid"] = [tracks[lane].tid for lane in lanes]
    return slices, list(tracks.values())


def track_names(tracks: Sequence[Track]) -> Iterator[dict[str, Any]]:
    """The events that name and order the tracks."""
    processes = {LEARNING_TRACK: "learning"}
    for track in tracks:
        processes[track.pid] = machine(track.rank)
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


def _lanes(slices: pd.DataFrame) -> list[Lane]:
    """Machine, kind and lane of each slice: the first lane of its machine and kind that is free at
    its start.
    """
    free: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    busy: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    lanes = []
    for rank, kind, start, end in slices[["rank", "kind", "start", "end"]].itertuples(index=False):
        busy_lanes = busy[rank, kind]
        free_lanes = free[rank, kind]
        while busy_lanes and busy_lanes[0][0] <= start:
            _, lane = heappop(busy_lanes)
            heappush(free_lanes, lane)
        lane = len(busy_lanes)
        if free_lanes:
            lane = heappop(free_lanes)
        # an instant lasts one nanosecond, so that arrows can address it
        heappush(busy_lanes, (max(end, start + 1), lane))
        lanes.append((rank, kind, lane))
    return lanes
