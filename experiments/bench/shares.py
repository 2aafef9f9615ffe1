"""Where the time of `laggard run` goes: each room's share of the wall time of its process.

Start-up is all before the first update but gradients and evaluation; figure the table and the figure at the end; clock
what remains: the events, the network, promises and books; exit the end of the process. Shares add up to 1.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from experiments.bench.images import mnist_is_here
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.bench.stopwatch import AFTER, BEFORE, ROOMS

CONFIGS = Path(__file__).parents[2] / "configs"
SHAPED = "task.dataset={name: 'experiments.bench.images:mnist_shaped'}"
COUNTED = (BEFORE, *ROOMS, AFTER, "exit")


class Failed(RuntimeError):
    """A run did not go well."""


def cases(quick: bool) -> dict[str, tuple[list[str], int]]:
    """The arguments of `laggard run` and the rounds, by the case's name."""
    mnist = [str(CONFIGS / "mnist_async.yaml"), "device=cpu"] + [SHAPED] * (not mnist_is_here())
    short = ["sweep={}", "stop={epochs: 2}", "device=cpu"]
    return {
        "quickstart, 2 epochs": ([str(CONFIGS / "quickstart.yaml"), *short], 1 if quick else 3),
        "mnist_async" + ", 0.25 epochs" * quick: (mnist + ["stop.epochs=0.25"] * quick, 1),
    }


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a run and room."""
    for run, (arguments, rounds) in cases(settings.quick).items():
        if not Path(arguments[0]).is_file():
            note = f"{Path(arguments[0]).name} is part of laggard's repository, not of its package"
            yield Entry(measure="shares", case={"run": run, "room": AFTER}, note=note)
            continue
        try:
            timed = [seconds_by_room(arguments) for _ in range(rounds)]
        except Failed as error:
            yield Entry(measure="shares", case={"run": run, "room": AFTER}, note=str(error))
            continue
        for room in COUNTED:
            parts = [seconds.get(room, 0.0) / sum(seconds.values()) for seconds, _ in timed]
            rates = {"seconds": median(seconds.get(room, 0.0) for seconds, _ in timed)}
            if room == BEFORE:
                rates["seconds to the first update"] = median(first for _, first in timed)
            yield Entry(measure="shares", case={"run": run, "room": room}, ratio=Ratio.of(parts), rates=rates)


def seconds_by_room(arguments: Sequence[str]) -> tuple[dict[str, float], float]:
    """The seconds of each room in a `laggard run` of its own process, and those to its first update.

    Raises:
        Failed: it did not end well.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "seconds.json"
        began = time.monotonic()
        command = [sys.executable, "-m", "experiments.bench.stopwatch", str(began), str(file), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not file.is_file():
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise Failed(f"laggard run ended with exit code {done.returncode}: {lines[-1]}")
        wall, found = time.monotonic() - began, json.loads(file.read_text())
        inside = found["seconds"]
        return {**inside, "exit": max(0.0, wall - sum(inside.values()))}, found["first update"]
