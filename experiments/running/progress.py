"""The progress of runs in any process: written to a file in their folders, and shown on a terminal.

A thread beside the simulation looks at it: an update costs nothing more, and results do not change.
"""

import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.store import private_folder
from laggard.experiments.running.estimate import rough_seconds
from laggard.simulator import RunProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from laggard.experiments.running.sweep import RunEnd
    from laggard.simulator.engine.simulation import Simulation

NOTE, FRESH = "underway.json", 15.0
"""The file in which a run writes its progress, and the seconds after which its writer counts as
dead.
"""
PERIOD, BAR_PERIOD = 1.0, 0.1
"""Seconds between two writes of a run's progress, or two reads of a sweep's; and between two states
of a bar.
"""
LIMITS = ("epochs", "updates", "gradients", "time")
START = "starting; a network that is new here is compiled first"
LINES, NAME = 16, 48
"""The number of a sweep's runs that are shown, and the length of their names."""


class Advance(NamedTuple):
    """The progress of a run towards a limit.

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

    def __str__(self) -> str:
        unit = "s simulated" if self.limit == "time" else self.limit
        reached, total = (
            f"{n:,.0f}" if self.limit in ("updates", "gradients") else f"{n:.3g}" for n in self[1:3]
        )
        return (
            f"{self.share:.0%}, {reached} of {total} {unit}{self.time_left}"
            if self.reached
            else START
        )

    @property
    def time_left(self) -> str:
        """`, 0:01:02 left`, or nothing where that is not known yet."""
        return "" if self.left == float("inf") else f", {timedelta(seconds=round(self.left))} left"


def describe_progress(progress: RunProgress, seconds: float) -> str:
    """The progress after `seconds` of wall time, in one line."""
    rate = progress.updates / seconds
    far = f"{progress.time:.4g} s simulated, {progress.updates:,.0f} updates, {rate:,.0f} updates/s"
    return far if progress.time else START


class Observer:
    """Observes a simulation once it begins, and reports its progress."""

    def __init__(self, config: Config) -> None:
        self.totals = {limit: total for limit in LIMITS if (total := getattr(config.stop, limit))}
        self._began = perf_counter()
        self._simulation: Simulation | None = None

    def observe(self, simulation: "Simulation") -> None:
        """Observe this simulation from now on."""
        self._simulation = simulation

    def progress(self) -> tuple[RunProgress, float] | None:
        """The progress, and the seconds of wall time up to now; None before the simulation
        begins.
        """
        if self._simulation is None:
            return None
        return self._simulation.progress(), perf_counter() - self._began

    def advance(self) -> Advance | None:
        """Progress towards the nearest limit; None before the start, or where only an accuracy
        stops the run.
        """
        if (now := self.progress()) is None:
            return None
        progress, seconds = now
        each = [
            Advance(limit, getattr(progress, limit), total, seconds)
            for limit, total in self.totals.items()
        ]
        return max(each, key=lambda advance: advance.share, default=None)


@contextmanager
def call_every(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call a function every `seconds` seconds in a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def heartbeat(spec: RunSpec, out: str | Path) -> Iterator[Observer]:
    """Write the progress of a simulation to its folder in `out`, while the context lasts."""
    observer, file = Observer(spec.config), private_folder(spec, out) / NOTE

    def note() -> None:
        if advance := observer.advance():
            with suppress(OSError):  # the file serves the display only
                file.write_text(json.dumps(advance), encoding="utf-8")

    try:
        with call_every(PERIOD, note):
            yield observer
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def read_progress(path: Path) -> dict[str, Advance]:
    """The progress of the running runs in a folder `<out>/<name>`, by run id; files half written
    are left out.
    """
    found = {}
    for note in path.glob(f".*/{NOTE}"):
        run = re.match(r"\.([0-9a-f]{12})\.", note.parent.name)
        with suppress(OSError, ValueError, TypeError):
            if run and time.time() - note.stat().st_mtime < FRESH:
                found[run[1]] = Advance(*json.loads(note.read_text(encoding="utf-8")))
    return found


def display(file: TextIO, shown: bool = True) -> "Progress":
    """Rows of a bar and a label if `shown`; they are erased afterwards."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(16), TextColumn("{task.description}", markup=False)
    return Progress(
        *columns, console=Console(file=file, highlight=False), transient=True, disable=not shown
    )


@contextmanager
def bar(spec: RunSpec) -> Iterator[Observer]:
    """A progress bar around a simulation; progress towards an accuracy is unknown."""
    observer = Observer(spec.config)
    with display(sys.stderr) as rows:
        row = rows.add_task(spec.config.name, total=1.0 if observer.totals else None)

        def look() -> None:
            if now := observer.progress():
                advance = observer.advance()
                text = f"{spec.config.name[:12]}: {describe_progress(*now)}{advance.time_left if advance else ''}"
                rows.update(row, completed=advance.share if advance else 0.0, description=text)

        with call_every(BAR_PERIOD, look):
            yield observer
        look()


class SweepDisplay(ExitStack):
    """A line for each run of a sweep that is over and, on a terminal, a bar for all and for each
    one under way.

    The first bar goes by the work that each run is roughly expected to be, of those under way by
    their share of it.

    Args:
        folder: `<out>/<name>`, where runs are stored.
        quiet: only of runs that failed or diverged.
    """

    def __init__(self, planned: Sequence[RunSpec], folder: Path, file: TextIO, quiet: bool) -> None:
        super().__init__()
        self._folder, self._quiet, self._runs = folder, quiet, len(planned)
        self._titles = {spec.id: spec.title for spec in planned}
        self._work = {spec.id: rough_seconds(spec) for spec in planned}
        self._shown = file.isatty() and not quiet and len(planned) > 1
        self._rows = display(file, self._shown)
        self._total = self._rows.add_task("", total=None)
        self._lines: dict[str, TaskID] = {}
        self._present = self._over = 0
        self._done, self._began = 0.0, perf_counter()  # of the work, by runs that are over

    def __enter__(self) -> Self:
        self.enter_context(self._rows)
        if not self._shown and self._runs > 1:
            self._print(f"{self._runs} runs in {self._folder}")
        if self._shown:
            self.enter_context(call_every(PERIOD, self.refresh))
        return self

    def report(self, ended: "RunEnd") -> None:
        """Print how a run ended; runs whose results existed already are counted and printed in one
        line.
        """
        self._over += 1
        if ended.seconds is None:
            self._present += 1
            self._work[ended.run.id] = 0.0  # it took no time
        else:
            self._done += self._work[ended.run.id]
        if self._present and (ended.seconds is not None or self._present == self._runs):
            self._print(f"{self._present} of {self._runs} runs already exist")
            self._present = 0
        if ended.result is None or ended.seconds is not None:
            status = ended.result.manifest["status"] if ended.result else "failed"
            known = ended.seconds is not None and not math.isnan(ended.seconds)
            how = f"{status} in {ended.seconds:.1f} s" if known and ended.result else status
            how += f": {ended.failure}" * (not ended.result)
            line = f"{self._over} of {self._runs}: run {ended.run.id} ({ended.run.title}) {how}"
            self._print(line, status in ("failed", "diverged"))

    def refresh(self) -> None:
        """Draw the current state of the bars."""
        ways = {run: way for run, way in read_progress(self._folder).items() if run in self._titles}
        begun = sum(self._work[run] * way.share for run, way in ways.items())
        whole = Advance(
            "", self._done + begun, sum(self._work.values()) or 1.0, perf_counter() - self._began
        )
        text = f"{self._over} of {self._runs} runs{whole.time_left}"
        self._rows.update(self._total, total=1.0, completed=whole.share, description=text)
        for run in self._lines.keys() - ways.keys():
            self._rows.remove_task(self._lines.pop(run))
        for run, way in sorted(ways.items())[:LINES]:
            if run not in self._lines:
                self._lines[run] = self._rows.add_task("", total=1.0)
            self._rows.update(
                self._lines[run],
                completed=way.share,
                description=f"{self._titles[run][:NAME]}: {way}",
            )
        self._rows.refresh()

    def _print(self, line: str, bad: bool = False) -> None:
        if bad or not self._quiet:
            self._rows.console.print(line, markup=False, emoji=False, soft_wrap=True)
