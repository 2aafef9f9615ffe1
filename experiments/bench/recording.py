"""Memory that recorded updates take, over what ten million of them in 1 GiB may take, 107 bytes each.

A run of `delayed` without learning, from its config to its files, in a process of its own: what that grows by at its
peak, per update. It is one figure, not one of several rounds.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

from experiments.bench.alternation import Late, peak_memory
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings

ALLOWED = 2**30 / 10**7
"""Bytes an update, where ten million fill 1 GiB."""


class Recorded(NamedTuple):
    """Bytes in memory at the peak, bytes on disk, and seconds of process time that a run's record took."""

    memory: int
    disk: int
    seconds: float


def measure(settings: Settings) -> Iterator[Entry]:
    """One entry."""
    updates = 10**6 if settings.quick else 10**7
    case: dict[str, str | int] = {"run": "delayed, no learning", "updates": updates}
    try:
        recorded = settings.children.run(record, updates)
    except Late as late:
        yield Entry(measure="recording", case=case, note=str(late))
        return
    yield Entry(
        measure="recording",
        case=case,
        ratio=Ratio.of([recorded.memory / updates / ALLOWED]),
        rates={
            "memory (MiB)": recorded.memory / 2**20,
            "memory (bytes/update)": recorded.memory / updates,
            "disk (bytes/update)": recorded.disk / updates,
            "updates/s": updates / recorded.seconds,
        },
    )


def record(updates: int) -> Recorded:
    """Run so many updates without learning, and keep the result for a moment."""
    from experiments import run
    from experiments.grid import filled

    document = {
        "name": "recorded",
        "cluster": {"workers": 1},
        "algorithm": {"name": "delayed", "delay": 15},
        "task": {"model": "timing"},
        "evaluate": {"every_updates": 10 * updates},
    }
    with TemporaryDirectory() as out:
        run(filled({**document, "stop": {"updates": 100}}), out)  # the imports that a first run makes
        before, start = peak_memory(), process_time()
        result = run(filled({**document, "stop": {"updates": updates}}), out)
        disk = sum(file.stat().st_size for file in Path(result.path).iterdir())
        return Recorded(peak_memory() - before, disk, process_time() - start)
