"""Where the wall time of `laggard run` goes: one stopwatch, handed from room to room at a few entry points.

    python -m experiments.bench.stopwatch BEGAN FILE CONFIG [key=value ...]

BEGAN is `time.monotonic()` before the process was started; FILE receives the seconds of each room as JSON.
"""

import gc
import json
import sys
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

ROOMS = {
    "gradients": ("models.task:Supervised.gradients", "simulator.pool:GradientPool.evaluate"),
    "rules": ("simulator.rules:Rule.update", "simulator.rules:Rule.step"),
    "evaluation": ("models.task:Supervised.evaluate",),
    "recording": (
        "experiments.record:begin", "experiments.record:finish", "experiments.record:publish",
        "experiments.store:load_result",
    ),
    "figure": ("experiments.commands.simulating:report",),
}  # fmt: skip
"""What a room's time is spent in, nested calls of other rooms left out."""
BEFORE, AFTER, UPDATE = "start-up", "clock", "simulator.rules:Rule.update"
"""Whose time the rest is before the first update, and after it."""


class Stopwatch:
    """Seconds by room: at every moment one room's time goes by, the one that was entered last.

    Only the thread that made it enters rooms: what threads of a pool do is the room's that waits for them.
    """

    def __init__(self, began: float, room: str) -> None:
        self.seconds: dict[str, float] = {room: 0.0}
        self._rooms, self._since, self._thread = [room], began, threading.get_ident()

    def enter(self, room: str) -> None:
        """From now on it is the time of `room`."""
        self._pass()
        self._rooms.append(room)

    def leave(self) -> None:
        """From now on it is the time of the room before again."""
        self._pass()
        self._rooms.pop()

    def rename(self, room: str) -> None:
        """From now on the rest is the time of `room`."""
        if len(self._rooms) == 1:
            self._pass()
        self._rooms[0] = room

    def stop(self) -> dict[str, float]:
        """The seconds of each room until now."""
        self._pass()
        return self.seconds

    def during(self, room: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose time is that of `room`."""

        @wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*given, **named)
            self.enter(room)
            try:
                return function(*given, **named)
            finally:
                self.leave()

        return timed

    def _pass(self) -> None:
        now = monotonic()
        self.seconds[self._rooms[-1]] = self.seconds.get(self._rooms[-1], 0.0) + now - self._since
        self._since = now


def found(place: str) -> tuple[Any, str]:
    """What holds `package.module:Name` or `package.module:Class.method`, a module or class, and the name there."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, name


def main(began: float, file: str, arguments: Sequence[str]) -> int:
    """Carry out `laggard run` with `arguments`, and write where its time went; its exit code."""
    watch, first = Stopwatch(began, BEFORE), []
    for room, places in ROOMS.items():
        for place in places:
            owner, name = found(place)
            setattr(owner, name, watch.during(room, getattr(owner, name)))
    owner, name = found(UPDATE)
    update = getattr(owner, name)

    def first_update(*given: Any, **named: Any) -> Any:
        setattr(owner, name, update)
        try:
            return update(*given, **named)
        finally:
            first.append(monotonic() - began)
            watch.rename(AFTER)

    setattr(owner, name, first_update)
    from experiments.cli import main as laggard

    with TemporaryDirectory() as out:
        code = laggard(["run", *arguments, "--out", out, "--quiet"])
        seconds = watch.stop()
    Path(file).write_text(json.dumps({"seconds": seconds, "first update": first[0] if first else None}))
    gc.freeze()  # as the command line does at its end
    return code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
