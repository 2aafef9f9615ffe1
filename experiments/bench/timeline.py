"""One timeline without learning, sampled while it runs, in turn with bare SimPy in the same process."""

import signal
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

from experiments.bench.alternation import BareSimPy, Late, peak_memory, ringing, within
from simulator import ALGORITHMS, Cluster, Evaluate, Rule, Stop, Timing
from simulator.laws import Exponential
from simulator.simulation import Seeds, Simulation


class Sampled(NamedTuple):
    """What was seen of a timeline.

    Attributes:
        cycles, bare: a turn each: cycles per second of process time, timeouts of bare SimPy.
        memory: bytes by which the process grew until every worker had computed once.
        begun: seconds of process time until then, without making the cluster; None if that was not waited for.
    """

    cycles: list[float]
    bare: list[float]
    memory: int
    begun: float | None


class Sampling:
    """Interrupts a run after each turn, has bare SimPy take its own, and ends the run after the last.

    A turn is over after `turn` seconds of process time and two cycles of every worker, so that it sees whole rounds
    of a synchronous method, but after ten times as long in any case. Before the first, every worker
    is to have computed once, for which it waits `patience` seconds at most.
    """

    def __init__(
        self, simulation: Simulation, cycles: Callable[[], float], turn: float, turns: int, patience: float
    ) -> None:
        self._simulation, self._cycles = simulation, cycles
        self._turn, self._turns, self._patience = turn, turns, patience
        self._workers = simulation.cluster.workers
        self._before = peak_memory()
        self._rival: BareSimPy | None = None
        self.sampled = Sampled([], [], 0, None)
        self._start = self._began = process_time()
        self._count = 0.0

    def run(self) -> None:
        """Run the simulation until all turns were taken."""
        with ringing(self.ring):
            self._wait(self._turn / 4)
            self._simulation.run()

    def ring(self, *_: object) -> None:
        """The timer: begin the first turn, end one that is long enough, or go on."""
        now, count = process_time(), self._cycles()
        spent = now - self._start
        late = spent >= (self._patience if self._rival is None else 10 * self._turn)
        if self._rival is None:
            begun = self._simulation.books.computed >= self._workers
            if begun or late:
                memory = peak_memory() - self._before
                self.sampled = self.sampled._replace(memory=memory, begun=now - self._began if begun else None)
                self._rival = BareSimPy(self._workers)
                self._rival.speed(self._turn / 4)
                self._next()
        elif (spent >= self._turn and count - self._count >= 2 * self._workers) or late:
            self.sampled.cycles.append((count - self._count) / spent)
            self.sampled.bare.append(self._rival.speed(self._turn))
            self._next()
        if len(self.sampled.bare) < self._turns:
            self._wait(self._turn / 4 if spent < self._turn else self._turn)
        else:
            self._simulation.end("time")

    def _next(self) -> None:
        self._start, self._count = process_time(), self._cycles()

    def _wait(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)


def sample(method: str, workers: int, turn: float, turns: int, patience: float) -> Sampled:
    """The speed of `method` with so many workers, exponential compute times, and a free network.

    A cycle is a worker's: it computes, sends, receives. An all-reduce's is a node's round, which is 2 (P - 1)
    messages sent and as many received; there, cycles are the messages delivered over 2 (P - 1).

    Raises:
        Late: the cluster was not made in `patience` seconds of process time.
    """
    cluster = Cluster(workers, Exponential(mean=1.0))
    before = peak_memory()
    with within(patience):
        stop, evaluate = Stop(updates=10**12), Evaluate(every_updates=10**12)
        simulation = Simulation(cluster, ALGORITHMS[method](Rule()), Timing(), stop, evaluate, Seeds(0, [0]))
    books = simulation.books

    def cycles() -> float:
        return books.delivered / (2 * (workers - 1)) if method == "all_reduce" else books.computed

    sampling = Sampling(simulation, cycles, turn, turns, patience / 4)
    made = peak_memory() - before
    sampling.run()
    if len(sampling.sampled.bare) < turns:
        raise Late("the run ended before it was sampled")
    return sampling.sampled._replace(memory=sampling.sampled.memory + made)
