"""Imports Horovod's timeline: how long workers compute, and how long sums of gradients take.

Rank 0 writes it, with a track for each tensor. Under `NEGOTIATE_ALLREDUCE` a tick tells when each
rank had the tensor; then `ALLREDUCE` lasts until the sum is there.

Source: Horovod, docs/timeline.rst; Sergeev & Del Balso (2018), arXiv 1802.05799.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.real.trace_events import read_trace

NEGOTIATION, REDUCTION = "NEGOTIATE_ALLREDUCE", "ALLREDUCE"
SHAPE = re.compile(r"\[([\d, ]*)\]")
BITS = re.compile(r"\D*(\d+)")
BYTES_OF = {"bool": 1, "double": 8, "float": 4, "half": 2}
"""Types without a number of bits in their names -> bytes."""


@dataclass
class Occurrence:
    """One reduction of a tensor.

    Attributes:
        ready: rank -> when it had the tensor (microseconds).
        start, end: start and end of the reduction (microseconds).
        size: bytes of the tensor; None if the timeline does not have them.
    """

    ready: dict[int, float] = field(default_factory=dict)
    start: float = math.nan
    end: float = math.nan
    size: float | None = None


class Timeline(NamedTuple):
    """The steps of training in a timeline, except the first, whose start is unknown.

    Attributes:
        steps: `worker`, `step`, `seconds` that the worker computed.
        reductions: `step`, `seconds`, `bytes` of each sum that was made at once; bytes are NaN
            where they are unknown.
        step_bytes: the bytes of all tensors of a step; None if unknown.
    """

    steps: pd.DataFrame
    reductions: pd.DataFrame
    step_bytes: float | None


def read_timeline(path: Path) -> Timeline:
    """The steps in Horovod's timeline of a training.

    In a step each tensor is summed once. A worker computes from the end of the last sum of the step
    before until its last tensor is ready:

        seconds = max over tensors of ready - max over tensors of the end of the step before

    Tensors that are summed less often, such as metrics, are left out, with a warning.

    Raises:
        ConfigError: the file cannot be read, or has no two whole steps of all ranks; names it.
    """
    tensors = _occurrences(path, read_trace(path)["traceEvents"])
    steps = _steps(path, tensors)
    ranks = sorted(steps[0][0].ready)
    compute, reductions = [], []
    for number, (before, step) in enumerate(pairwise(steps), 1):
        begin = max(occurrence.end for occurrence in before)
        for rank in ranks:
            ready = max(occurrence.ready[rank] for occurrence in step)
            if not ready > begin:
                problem = f"expected tensors of step {number} that are ready after step"
                got = f"got rank {rank}'s before"
                raise ConfigError(NEGOTIATION, f"{problem} {number - 1}, {got}", str(path))
            compute.append((rank, number, (ready - begin) / 1e6))
        for seconds, size in _fused(step):
            reductions.append((number, seconds, size))
    sizes = [occurrence.size for occurrence in steps[0]]
    step_bytes = None
    if all(size is not None for size in sizes):
        step_bytes = float(sum(filter(None, sizes)))
    return Timeline(
        pd.DataFrame(compute, columns=["worker", "step", "seconds"]),
        pd.DataFrame(reductions, columns=["step", "seconds", "bytes"]),
        step_bytes,
    )


def fit_network(timeline: Timeline) -> dict[str, float | bool]:
    """`cluster.network` of a ring whose sums take the recorded times; empty without bytes.

    With `rendezvous`, since the recorded sums are those of all nodes together.

    seconds = 2 (P - 1) alpha + 2 ((P - 1) / P) N beta for N bytes and P workers, by least squares
    over the sums; alpha is 0 where all have one size, or where it would be negative.
    """
    workers = timeline.steps["worker"].nunique()
    if not timeline.step_bytes or workers < 2:
        return {}
    sizes = timeline.reductions["bytes"].to_numpy()
    seconds = timeline.reductions["seconds"].to_numpy()
    latencies = 2 * (workers - 1)
    bytes_sent = 2 * (workers - 1) / workers
    constant, slope = 0.0, float(seconds.sum() / sizes.sum())
    if np.ptp(sizes) > 0:
        fitted_slope, fitted_constant = np.polyfit(sizes, seconds, 1)
        if fitted_slope > 0 and fitted_constant > 0:
            constant = float(fitted_constant)
            slope = float(fitted_slope)
    return {
        "bandwidth": bytes_sent / slope,
        "latency": constant / latencies,
        "message_bytes": timeline.step_bytes,
        "rendezvous": True,
    }


def _occurrences(path: Path, events: Sequence[Any]) -> dict[str, list[Occurrence]]:
    """Tensor -> its whole reductions, in order."""
    names: dict[Any, str] = {}
    open_names: dict[Any, list[str]] = {}  # of the begun events, by track
    current: dict[Any, Occurrence] = {}
    tensors: dict[str, list[Occurrence]] = {}
    for event in events:
        if not isinstance(event, Mapping):
            continue
        track = event.get("pid")
        phase = event.get("ph")
        name = event.get("name")
        nesting = open_names.setdefault(track, [])
        arguments = event.get("args")
        if phase == "M":
            if name == "process_name" and isinstance(arguments, Mapping):
                names[track] = str(arguments.get("name", track))
        elif phase == "B":
            nesting.append(str(name))
            if name == NEGOTIATION:
                current[track] = Occurrence()
            elif name == REDUCTION and track in current:
                current[track].start = _moment(path, event)
        elif phase == "X":
            if nesting and nesting[-1] == NEGOTIATION and str(name).isdecimal():
                current[track].ready[int(str(name))] = _moment(path, event)
        elif phase == "E" and nesting:
            closed = nesting.pop()
            if closed == REDUCTION and track in current:
                occurrence = current.pop(track)
                occurrence.end = _moment(path, event)
                occurrence.size = _size_in(arguments)
                tensors.setdefault(names.get(track, str(track)), []).append(occurrence)
    if not tensors:
        problem = f"expected events {NEGOTIATION} and {REDUCTION}, got none"
        raise ConfigError("traceEvents", f"{problem}: this is not a timeline of Horovod", str(path))
    return tensors


def _moment(path: Path, event: Mapping[str, Any]) -> float:
    moment = event.get("ts")
    if isinstance(moment, bool) or not isinstance(moment, int | float) or not 0 <= moment < 1e15:
        problem = f"expected microseconds >= 0 as ts, got {format_value(moment)}"
        raise ConfigError(str(event.get("name", "E")), problem, str(path))
    return float(moment)


def _size_in(arguments: Any) -> float | None:
    """The bytes of a tensor, from the type and the shape at the end of its reduction."""
    if not isinstance(arguments, Mapping):
        return None
    shape = SHAPE.fullmatch(str(arguments.get("shape", "")))
    if shape is None:
        return None
    kind = str(arguments.get("dtype", ""))
    bits = BITS.match(kind)
    if bits is not None:
        element = int(bits[1]) / 8
    elif kind in BYTES_OF:
        element = BYTES_OF[kind]
    else:
        return None
    return element * math.prod(int(size) for size in shape[1].split(",") if size.strip())


def _steps(path: Path, tensors: Mapping[str, Sequence[Occurrence]]) -> list[list[Occurrence]]:
    """The reductions of each whole step: the k-th of each tensor."""
    counts = Counter(map(len, tensors.values()))
    # A file that was cut off lacks the last sums of some tensors, be they few or most of them: a
    # tensor of each step has `begun` sums or one less, and most tensors are of that kind.
    tensors_up_to = {number: counts[number - 1] + counts[number] for number in counts}
    begun = max(counts, key=lambda number: (tensors_up_to[number], counts[number]))
    regular = {name: seen for name, seen in tensors.items() if len(seen) in (begun - 1, begun)}
    others = sorted(set(tensors) - set(regular))
    if others:
        problem = f"{len(others)} tensors are not summed in each step, and left out: {others[0]}"
        if len(others) > 1:
            problem += ", ..."
        warnings.warn(f"{path}: {problem}", stacklevel=3)
    whole = min(map(len, regular.values()))
    steps = [[seen[number] for seen in regular.values()] for number in range(whole)]
    ranks = set(steps[0][0].ready) if steps else set()
    if len(steps) < 2 or ranks != set(range(len(ranks))) or not ranks:
        problem = "expected at least two steps, with ticks of ranks 0, 1, 2, ... under each tensor"
        got = f"{len(steps)} steps of ranks {sorted(ranks)}"
        raise ConfigError(NEGOTIATION, f"{problem}, got {got}", str(path))
    for number, step in enumerate(steps):
        for occurrence in step:
            if set(occurrence.ready) != ranks:
                problem = f"expected ticks of ranks {sorted(ranks)} in step {number}"
                got = f"got {sorted(occurrence.ready)}"
                raise ConfigError(NEGOTIATION, f"{problem}, {got}", str(path))
    return steps


def _fused(step: Sequence[Occurrence]) -> list[tuple[float, float]]:
    """Seconds and bytes of each sum of a step; tensors in one buffer are reduced at one time."""
    groups: list[list[Occurrence]] = []
    for occurrence in sorted(step, key=lambda occurrence: occurrence.start):
        if groups and occurrence.start < max(member.end for member in groups[-1]):
            groups[-1].append(occurrence)
        else:
            groups.append([occurrence])
    sums = []
    for group in groups:
        seconds = max(member.end for member in group) - group[0].start
        sizes = [member.size for member in group if member.size is not None]
        size = math.fsum(sizes) if len(sizes) == len(group) else math.nan
        sums.append((seconds / 1e6, size))
    return sums
