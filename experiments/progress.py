"""How far a simulation has come, on a terminal."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NoReturn, Self, TextIO

from experiments.config import Config
from experiments.forecasts import rough
from experiments.grid import Run
from experiments.grid import said as said_of
from experiments.identity import run_id
from experiments.sweeps import Ended
from experiments.underway import Way, underway
from simulator import Mileage

if TYPE_CHECKING:
    from tqdm import tqdm

PERIOD = 0.1  # seconds of wall time between two looks: drawing may not slow the simulation down
LOOK, LINES, NAME = 1.0, 16, 48
"""Seconds between two looks at a sweep; how many of its runs are shown, and how much of their names."""


@contextmanager
def bar(config: Config) -> Iterator[Callable[[Mileage], None]]:
    """A progress bar in the unit of the first limit that `stop` sets; yields what is to be told the mileage.

    How far it is to an accuracy nobody knows: without another limit, updates are counted and there is no bar.
    """
    from tqdm import tqdm

    limits = ("epochs", "updates", "gradients", "time")
    unit = next((limit for limit in limits if getattr(config.stop, limit)), "updates")
    total = getattr(config.stop, unit)
    shape = (
        "{desc} {percentage:3.0f}%|{bar:6}| {elapsed}<{remaining}{postfix}" if total else "{desc} {elapsed}{postfix}"
    )
    look = {"total": total, "desc": config.name[:12], "bar_format": shape}  # so that it fits in 100 columns
    with tqdm(**look, mininterval=0, leave=False) as drawn:
        start = last = perf_counter()

        def watch(mileage: Mileage) -> None:
            nonlocal last
            now = perf_counter()
            if now - last < PERIOD:
                return
            last = now
            drawn.set_postfix_str(said(mileage, now - start), refresh=False)
            drawn.update(min(getattr(mileage, unit), total or math.inf) - drawn.n)

        yield watch


def said(mileage: Mileage, seconds: float) -> str:
    """The mileage after so many `seconds` of wall time, in few words."""
    rate = mileage.updates / seconds
    return f"{mileage.time:.4g} s simulated, {mileage.updates:,.0f} updates, {rate:,.0f} updates/s"


class Sweeping:
    """A line for each run of a sweep that is over and, on a terminal, a bar with the time that is left below them.

    The bar goes by the work that each run is roughly expected to be, of those under way by their share of it. Below it
    each of these has a line: how far it is, and what is left.

    Args:
        folder: `<out>/<name>`, where runs are kept.
        quiet: only of runs that failed or diverged.
    """

    def __init__(self, planned: Sequence[Run], folder: Path, file: TextIO, quiet: bool) -> None:
        self._folder, self._file, self._quiet, self._runs = folder, file, quiet, len(planned)
        self._names = {run_id(run.config): said_of(run) for run in planned}
        self._work = {run_id(run.config): rough(run.config) for run in planned}
        self._kept = self._over = 0
        self._done = 0.0  # of the work, by runs that are over
        self._drawn: tqdm[NoReturn] | None = None
        self._lines: list[tqdm[NoReturn]] = []
        self._left, self._looks = threading.Event(), threading.Thread(target=self._look_again, daemon=True)

    def __enter__(self) -> Self:
        from tqdm import tqdm

        if self._file.isatty() and not self._quiet and self._runs > 1:
            shape = "{percentage:3.0f}%|{bar:20}| {elapsed}<{remaining}{postfix}"
            total = sum(self._work.values())
            self._drawn = tqdm(total=total, bar_format=shape, smoothing=0, mininterval=0, leave=False, file=self._file)
            self._looks.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn is not None:
            self._left.set()
            self._looks.join()
            for line in (*self._lines, self._drawn):
                line.close()

    def tell(self, ended: Ended) -> None:
        """Say how a run ended; runs whose results were there already are counted, and told together."""
        self._over += 1
        work = self._work[run_id(ended.run.config)]
        if ended.seconds is None:
            self._kept += 1
            if self._kept == self._runs:
                self._tell_kept()
        else:
            self._tell_kept()
        if ended.result is None or ended.seconds is not None:
            self._say(f"{self._over} of {self._runs}: {how(ended)}", bad=ended.result is None or _diverged(ended))
        if self._drawn is None:
            return
        if ended.seconds is None:
            self._drawn.total -= work  # it costs no time now
        else:
            self._done += work
            self._drawn.n = max(self._drawn.n, self._done)
        self._drawn.set_postfix_str(f"{self._over} of {self._runs} runs")

    def look(self) -> None:
        """Draw the bar, and the runs under way below it, as they are now."""
        from tqdm import tqdm

        assert self._drawn is not None
        ways = {run: way for run, way in underway(self._folder).items() if run in self._names}
        begun = sum(self._work[run] * way.share for run, way in ways.items())
        self._drawn.n = min(self._drawn.total, max(self._drawn.n, self._done + begun))
        self._drawn.refresh()
        shown = [f"  {self._names[run][:NAME]}: {how_far(way)}" for run, way in sorted(ways.items())][:LINES]
        while len(self._lines) < len(shown):
            place = len(self._lines) + 1
            self._lines.append(tqdm(bar_format="{desc}", position=place, leave=False, file=self._file))
        for line, text in zip_longest(self._lines, shown, fillvalue=""):
            line.set_description_str(text)

    def _look_again(self) -> None:
        while not self._left.wait(LOOK):
            self.look()

    def _tell_kept(self) -> None:
        if self._kept:
            self._say(f"{self._kept} of {self._runs} runs are there already")
            self._kept = 0

    def _say(self, line: str, bad: bool = False) -> None:
        from tqdm import tqdm

        if bad or not self._quiet:
            tqdm.write(line, file=self._file)


def how_far(way: Way) -> str:
    """How far a run is, in few words."""
    left = "" if way.left == float("inf") else f", {timedelta(seconds=round(way.left))} left"
    unit = "s simulated" if way.limit == "time" else way.limit
    reached, total = (f"{n:,.0f}" if way.limit in ("updates", "gradients") else f"{n:.3g}" for n in way[1:3])
    return f"{way.share:.0%}, {reached} of {total} {unit}{left}"


def how(ended: Ended) -> str:
    """How a run of a sweep ended, in one line."""
    run = f"run {run_id(ended.run.config)} ({said_of(ended.run)})"
    if ended.result is None:
        return f"{run} failed: {ended.failure}"
    took = "" if ended.seconds is None or ended.seconds != ended.seconds else f" in {ended.seconds:.1f} s"
    return f"{run} {ended.result.manifest['status']}{took}"


def _diverged(ended: Ended) -> bool:
    return ended.result is not None and ended.result.manifest["status"] == "diverged"
