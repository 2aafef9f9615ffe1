"""Measuring in turn: on a machine that is shared, only what was measured in the same round can be compared."""

import gc
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from time import process_time

import numpy as np
import simpy

Speed = Callable[[], float]
"""Does some work, and answers how much of it was done a second."""


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

    def _waiting(self) -> Iterator[simpy.Event]:
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


class Late(Exception):
    """What was to be done has taken too long."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `Late` if what is done here takes more than `seconds` of process time; in a main thread, on POSIX."""

    def late(*_: object) -> None:
        raise Late(f"not done in {seconds:g} s of process time")

    with ringing(late):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield


@contextmanager
def ringing(call: Callable[..., None]) -> Iterator[None]:
    """Have the timer of process time call `call`; afterwards it rings no more."""
    before = signal.signal(signal.SIGPROF, call)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak_memory() -> int:
    """The most bytes that this process has had in memory at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
