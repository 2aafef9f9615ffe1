"""Measuring in turn: on a machine that is shared, only what was measured in the same round can be
compared.

pytest-benchmark measures one contestant after the other, and what a machine's neighbours do between
them is in its ratios; so these rounds are our own.
"""

import gc
import resource
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from statistics import median
from time import process_time
from typing import ParamSpec, TypeVar

import numpy as np
import simpy

Speed = Callable[[], float]
"""Does some work, and answers how much of it was done a second."""
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Row:
    """One case of a measure: a ratio of each round, and the speed behind it, on this machine at
    that hour.

    Attributes:
        measure: what is divided by what.
        case: what was measured.
        speed: the median speed with its unit, or what else stands behind the ratio.
    """

    measure: str
    case: str
    ratios: Sequence[float]
    speed: str

    @classmethod
    def between(
        cls, measure: str, case: str, mine: Sequence[float], theirs: Sequence[float], unit: str
    ) -> "Row":
        """Of the speeds `mine` over `theirs`, round by round."""
        ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
        return cls(measure, case, ratios, f"{rounded(median(mine))} {unit}")

    def __str__(self) -> str:
        """The row of a Markdown table: median, least and most ratio."""
        numbers = map(rounded, (median(self.ratios), min(self.ratios), max(self.ratios)))
        return f"| {' | '.join([self.measure, self.case, *numbers, self.speed])} |"


HEAD = (
    "| measure | case | ratio | least | most | speed |\n| --- | --- | ---: | ---: | ---: | ---: |"
)


def rounded(number: float) -> str:
    """Three digits, with commas where there are more before the point."""
    if abs(number) >= 100:
        return f"{round(number, 3 - len(str(int(abs(number))))):,.0f}"
    return f"{number:.3g}"


def alternate(contestants: Mapping[str, Speed], rounds: int) -> dict[str, list[float]]:
    """The speeds of each of `contestants`, who take turns, round after round."""
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, speed in contestants.items():
            speeds[name].append(speed())
    return speeds


class BareSimPy:
    """SimPy and nothing else: so many processes, each of which waits for one timeout after another.

    Delays are exponential with mean 1, from a table, so that drawing them costs nothing.
    """

    def __init__(self, processes: int) -> None:
        self._env = simpy.Environment()
        self._delays = cycle(np.random.default_rng(0).exponential(size=1009).tolist())
        for _ in range(processes):
            self._env.process(self._waiting())
        for _ in range(2 * processes):  # everybody's start and first timeout
            self._env.step()

    def speed(self, seconds: float) -> float:
        """Timeouts per second of process time, over `seconds` of it.

        No garbage is collected meanwhile, since that would go through what others have in memory.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            return speed_of(self._env.step, seconds)
        finally:
            if collects:
                gc.enable()

    def _waiting(self) -> Generator[simpy.Event, None, None]:
        for delay in self._delays:
            yield self._env.timeout(delay)


def speed_of(step: Callable[[], object], seconds: float) -> float:
    """Calls of `step` per second of process time, over `seconds` of it and 32 calls at least."""
    calls, start = 0, process_time()
    while (spent := process_time() - start) < seconds or not calls:
        for _ in range(32):
            step()
        calls += 32
    return calls / spent


def in_a_process(
    function: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs
) -> Answer:
    """What `function` answers in a process of its own, forked from one that has imports only."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["laggard.simulator", function.__module__])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *given, **named).result()


def peak_memory() -> int:
    """The most bytes that this process has had in memory at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
