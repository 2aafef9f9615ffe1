"""A run as a trace that ui.perfetto.dev and chrome://tracing open: who computed, sent and updated when.

A process a machine, in it a thread for what it computes, for each direction of its card, and for the updates of its
model. What overlaps on one of them goes to further lanes. Arrows lead from a gradient's computation over the message
that carried it to the update that it made part of. Curves of what was learnt stand above.

Source: Trace Event Format, Google, section "Event Types"; timestamps are microseconds, here to the nanosecond.
"""

import gzip
import json
import os
from collections.abc import Iterator
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.lines import MEASURES
from experiments.perfetto.arrows import arrows
from experiments.perfetto.slices import Window, computing, crossing, gradients, messages, nanoseconds, updating
from experiments.perfetto.tracks import CURVES, machines, named, on_tracks
from experiments.store import Result

__all__ = ["WHOLE", "Window", "events", "write"]

Event = dict[str, Any]
WHOLE = Window()


def write(result: Result, path: str | Path, window: Window = WHOLE) -> int:
    """Write the trace of a run, compressed where `path` ends in .gz, whole or not at all; the number of its events.

    Without recorded messages it has no links. Gradients without a fate at the end of the run are not in it.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    head = {"run": result.manifest["run"], "name": result.config.name, "messages recorded": result.recorded}
    count = 0
    try:
        with gzip.open(part, "wt") if path.suffix == ".gz" else part.open("w", encoding="utf-8") as file:
            file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(head)}, "traceEvents": [')
            for count, event in enumerate(events(result, window), start=1):
                file.write(f"{',' * (count > 1)}\n{json.dumps(event, allow_nan=False)}")
            file.write("\n]}\n")
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)
    return count


def events(result: Result, window: Window = WHOLE) -> Iterator[Event]:
    """The events of the trace: the names of its tracks, then what happened, in order of time."""
    fates, sent = gradients(result.updates, window), messages(result, window)
    slices = pd.concat([computing(fates), updating(fates), *crossing(sent)], ignore_index=True)
    slices, tracks = on_tracks(slices.sort_values("start", kind="stable"), machines(result))
    happened = merge(_slices(slices), arrows(slices, fates, sent), _curves(result.metrics, window), key=_moment)
    return chain(named(tracks), ({**event, "ts": event["ts"] / 1000} for event in happened))


def _moment(event: Event) -> int:
    """When it happened, in nanoseconds."""
    return event["ts"]  # type: ignore[no-any-return]


def _slices(slices: pd.DataFrame) -> Iterator[Event]:
    columns = (slices[name].tolist() for name in ("pid", "tid", "kind", "start", "end", "name", "args"))
    for pid, tid, kind, start, end, name, args in zip(*columns, strict=True):
        yield {
            "ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": (end - start) / 1000,
            "args": args,
        }  # fmt: skip


def _curves(metrics: pd.DataFrame, window: Window) -> Iterator[Event]:
    """What the first member of the ensemble learnt, a counter each."""
    first = metrics[(metrics["member"] == 0) & window.meets(metrics["time"], metrics["time"])]
    for time, evaluation in zip(nanoseconds(first["time"]).tolist(), first.to_dict("records"), strict=True):
        for measure in MEASURES:
            value = evaluation.get(measure, float("nan"))
            if abs(value) < float("inf"):
                yield {"ph": "C", "name": measure, "pid": CURVES, "ts": time, "args": {measure: value}}
