"""How far the runs of a sweep are, whichever process simulates them.

A run notes it once a second in a file of its own folder, which nobody else reads and which is gone before the run has
its name. A thread does that, beside the simulation: an update costs nothing more, and results know nothing of it.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from experiments import record
from experiments.config import Config

if TYPE_CHECKING:
    from simulator.simulation import Simulation

NOTE, PERIOD, FRESH = "underway.json", 1.0, 15.0
"""The file; seconds between two notes; seconds after which its writer is taken for dead."""
LIMITS = ("epochs", "updates", "gradients", "time")


class Way(NamedTuple):
    """How far a run is towards the limit that it is nearest to.

    Attributes:
        limit: of `stop`; `reached` of `total` are behind it.
        seconds: of wall time since it was begun.
    """

    limit: str
    reached: float
    total: float
    seconds: float

    @property
    def share(self) -> float:
        """0 to 1."""
        return min(1.0, self.reached / self.total)

    @property
    def left(self) -> float:
        """Seconds of wall time that are left at the speed up to now; infinite at the start."""
        return self.seconds * (1 / self.share - 1) if self.share else float("inf")


class Noting:
    """Notes how far a simulation is, until it is told to `end`."""

    def __init__(self, config: Config, path: Path) -> None:
        self._totals = {limit: total for limit in LIMITS if (total := getattr(config.stop, limit))}
        self._path, self._began, self._over = path, perf_counter(), threading.Event()
        self._thread: threading.Thread | None = None

    def observe(self, simulation: "Simulation") -> None:
        """This is what it looks at."""
        if self._totals:  # an accuracy is no way of which one knows how much is left
            self._thread = threading.Thread(target=self._note, args=(simulation,), daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Note no more, and leave nothing behind."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _note(self, simulation: "Simulation") -> None:
        while not self._over.wait(PERIOD):
            mileage, seconds = simulation.mileage(), perf_counter() - self._began
            ways = [Way(limit, getattr(mileage, limit), total, seconds) for limit, total in self._totals.items()]
            with suppress(OSError):  # it is for the eye alone
                self._path.write_text(json.dumps(max(ways, key=lambda way: way.share)), encoding="utf-8")


@contextmanager
def noting(config: Config, out: str | Path) -> Iterator[Noting]:
    """Around a simulation whose folder has been begun in `out`."""
    notes = Noting(config, record.private(config, out) / NOTE)
    try:
        yield notes
    finally:
        notes.end()


def underway(path: Path) -> dict[str, Way]:
    """The runs under way in a folder `<out>/<name>`, by their ids; what is being written at the moment is left out."""
    found = {}
    for note in path.glob(f".*/{NOTE}"):
        run = re.match(r"\.([0-9a-f]{12})\.", note.parent.name)
        with suppress(OSError, ValueError, TypeError):
            if run and time.time() - note.stat().st_mtime < FRESH:
                found[run[1]] = Way(*json.loads(note.read_text(encoding="utf-8")))
    return found
