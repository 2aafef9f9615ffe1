"""The progress of runs: written to a file in their folders, and shown on a terminal.

A thread beside the simulation reads it: an update costs nothing more, and results do not change.
"""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.store import private_folder
from laggard.experiments.running.estimate import nearest_limit, rough_seconds
from laggard.simulator import Stop

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from laggard.experiments.running.sweep import RunEnd
    from laggard.simulator.engine.simulation import Simulation

PROGRESS_FILE = "underway.json"
"""The file in a run's private folder to which it writes its progress."""
STALE_SECONDS = 15.0
"""Age of that file at which its process counts as dead."""
PERIOD = 1.0
"""Seconds between two writes of a run's progress, and two reads of a sweep's."""
BAR_PERIOD = 0.1
"""Seconds between two states of a bar."""
START = "starting; a network that is new here is compiled first"
MAX_LINES, MAX_TITLE = 16, 48
"""The number of a sweep's runs that are shown, and the length of their titles."""


class Advance(NamedTuple):
    """The progress of a run towards a limit.

    Attributes:
        limit: the limit, a key of `stop`; the run has reached `reached` of `total`.
        seconds: wall time since the run was begun.
    """

    limit: str
    reached: float
    total: float
    seconds: float

    @property
    def share(self) -> float:
        """The share of the limit that is reached, 0 to 1."""
        return min(1.0, self.reached / self.total)

    @property
    def time_left(self) -> str:
        """The remaining time at the mean speed, as `, 0:01:02 left`; empty at the start."""
        if self.share == 0:
            return ""
        left = self.seconds * (1 / self.share - 1)
        return f", {timedelta(seconds=round(left))} left"

    def __str__(self) -> str:
        if not self.reached:
            return START
        reached, total = f"{self.reached:.3g}", f"{self.total:.3g}"
        if self.limit in ("updates", "gradients"):
            reached, total = f"{self.reached:,.0f}", f"{self.total:,.0f}"
        unit = self.limit
        if unit == "time":
            unit = "s simulated"
        return f"{self.share:.0%}, {reached} of {total} {unit}{self.time_left}"


class Observer:
    """Reports the progress of a simulation once it has begun."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._start = perf_counter()
        self._simulation: Simulation | None = None

    def observe(self, simulation: "Simulation") -> None:
        """Observe this simulation from now on."""
        self._simulation = simulation

    def advance(self) -> Advance | None:
        """Progress towards the nearest limit; None before the simulation begins."""
        if self._simulation is None:
            return None
        limit = nearest_limit(self._stop, self._simulation.progress())
        return Advance(*limit, perf_counter() - self._start)


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
    observer = Observer(spec.config.stop.build())
    file = private_folder(spec, out) / PROGRESS_FILE

    def write() -> None:
        advance = observer.advance()
        if advance is not None:
            with suppress(OSError):  # the file serves the display only
                file.write_text(json.dumps(advance), encoding="utf-8")

    try:
        with call_every(PERIOD, write):
            yield observer
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def read_progress(path: Path) -> dict[str, Advance]:
    """The progress of the runs under way in `<out>/<name>`, by run id.

    Files of dead processes and files written in part are left out.
    """
    advances = {}
    for file in path.glob(f".*/{PROGRESS_FILE}"):
        run = file.parent.name.split(".")[1]
        with suppress(OSError, ValueError, TypeError):
            if time.time() - file.stat().st_mtime < STALE_SECONDS:
                advances[run] = Advance(*json.loads(file.read_text(encoding="utf-8")))
    return advances


def display(file: TextIO, shown: bool = True) -> "Progress":
    """A display of rows, each a bar and a label; it shows nothing unless `shown`.

    The rows are erased at the end.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(file=file, highlight=False)
    label = TextColumn("{task.description}", markup=False)
    return Progress(BarColumn(16), label, console=console, transient=True, disable=not shown)


@contextmanager
def bar(spec: RunSpec) -> Iterator[Observer]:
    """A progress bar around a simulation."""
    observer = Observer(spec.config.stop.build())
    with display(sys.stderr) as rows:
        row = rows.add_task(spec.config.name, total=1.0)

        def show() -> None:
            advance = observer.advance()
            if advance is not None:
                text = f"{spec.config.name[:MAX_TITLE]}: {advance}"
                rows.update(row, completed=advance.share, description=text)

        with call_every(BAR_PERIOD, show):
            yield observer
        show()


class SweepDisplay(ExitStack):
    """A line for each run of a sweep that has ended and, on a terminal, bars.

    The first bar is for the whole sweep, weighted by the rough seconds of each run; the others are
    for the runs under way.

    Args:
        folder: `<out>/<name>`, where runs are stored.
        quiet: whether to print a line only for runs that failed or diverged.
    """

    def __init__(self, planned: Sequence[RunSpec], folder: Path, file: TextIO, quiet: bool) -> None:
        super().__init__()
        self._folder = folder
        self._quiet = quiet
        self._runs = len(planned)
        self._titles = {spec.id: spec.title for spec in planned}
        self._work = {spec.id: rough_seconds(spec) for spec in planned}
        self._shown = file.isatty() and not quiet and len(planned) > 1
        self._rows = display(file, self._shown)
        self._total = self._rows.add_task("", total=None)
        self._lines: dict[str, TaskID] = {}
        self._existing = 0  # results that existed already and are not printed yet
        self._ended = 0
        self._work_done = 0.0
        self._start = perf_counter()

    def __enter__(self) -> Self:
        self.enter_context(self._rows)
        if not self._shown and self._runs > 1:
            self._print(f"{self._runs} runs in {self._folder}")
        if self._shown:
            self.enter_context(call_every(PERIOD, self.refresh))
        return self

    def report(self, end: "RunEnd") -> None:
        """Print how a run ended; runs whose results existed already share one line."""
        self._ended += 1
        if end.seconds is None:
            self._existing += 1
            self._work[end.run.id] = 0.0  # a run that existed already
        else:
            self._work_done += self._work[end.run.id]
        if self._existing and (end.seconds is not None or self._existing == self._runs):
            self._print(f"{self._existing} of {self._runs} runs already exist")
            self._existing = 0
        if end.seconds is not None:
            self._print_end(end, end.seconds)

    def _print_end(self, end: "RunEnd", seconds: float) -> None:
        text = f"{self._ended} of {self._runs}: run {end.run.id} ({end.run.title})"
        if end.result is None:
            self._print(f"{text} failed: {end.failure}", important=True)
            return
        status = end.result.manifest["status"]
        text = f"{text} {status}"
        if not math.isnan(seconds):
            text = f"{text} in {seconds:.1f} s"
        self._print(text, important=status == "diverged")

    def refresh(self) -> None:
        """Draw the current state of the bars."""
        advances = read_progress(self._folder)
        running = {run: advances[run] for run in sorted(advances) if run in self._titles}
        done = self._work_done
        for run, advance in running.items():
            done += self._work[run] * advance.share
        work = sum(self._work.values()) or 1.0
        whole = Advance("", done, work, perf_counter() - self._start)
        text = f"{self._ended} of {self._runs} runs{whole.time_left}"
        self._rows.update(self._total, total=1.0, completed=whole.share, description=text)
        for run in self._lines.keys() - running.keys():
            self._rows.remove_task(self._lines.pop(run))
        for run in list(running)[:MAX_LINES]:
            if run not in self._lines:
                self._lines[run] = self._rows.add_task("", total=1.0)
            text = f"{self._titles[run][:MAX_TITLE]}: {running[run]}"
            self._rows.update(self._lines[run], completed=running[run].share, description=text)
        self._rows.refresh()

    def _print(self, line: str, important: bool = False) -> None:
        if important or not self._quiet:
            self._rows.console.print(line, markup=False, emoji=False, soft_wrap=True)
