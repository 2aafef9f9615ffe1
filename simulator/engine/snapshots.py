"""Snapshots of a run, from which it continues after its process has ended.

Roles are generators, which cannot be stored. But no event time depends on a tensor. So a run
continues in three steps: all its events are repeated, with gradients of zeros; at the moment of the
snapshot every tensor that the simulation can still use gets its stored value; from then on
gradients are computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.engine.reaching import Reached
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.learning.task import Task, samples_of
from laggard.simulator.recording.outcome import Outcome

MAX_TIME_SHARE = 0.05
"""The largest share of the wall time that snapshots may take."""


class SnapshotError(ValueError):
    """A run cannot continue from a snapshot."""


class Snapshot(NamedTuple):
    """A run at the end of an instant.

    Attributes:
        updates: the updates of single models before the snapshot.
        fingerprint: the fingerprint of all but the tensors' values, see `Reached`.
        tensors: the values, in the order of `Reached`; at first the simulation's own tensors.
    """

    updates: int
    fingerprint: str
    tensors: Sequence[Tensor]


class Snapshots:
    """Takes snapshots of a run, and continues it from an earlier one.

    They change neither its events nor its values. A run without learning has none: it is repeated
    as a whole.

    Args:
        save: called with each snapshot, to write or copy it at once.
        every: wall time (s) from one snapshot to the next; longer where they would take more than a
            twentieth of the time.
        start: the snapshot from which the run continues; None simulates it from its start.

    Attributes:
        replays: whether the run repeats the events up to `start`.
    """

    def __init__(
        self, save: Callable[[Snapshot], None], every: float, start: Snapshot | None = None
    ) -> None:
        self._save = save
        self._start = start
        self._every = every
        self._due = monotonic() + every
        self.replays = False

    def run(self, simulation: Simulation) -> Outcome:
        """Run the simulation to the end.

        Raises:
            SnapshotError: the events up to the snapshot differ from the run's earlier events, or
                the roles depend on values of tensors.
        """
        if not simulation.pool.learns:
            return simulation.run()
        self._simulation = simulation
        simulation.snapshots = self
        if self._start is not None:
            self.replays = True
            self._task = simulation.pool.task
            self._learn(Replayed(self._task))
        try:
            outcome = simulation.run()
        except SnapshotError:
            raise
        except Exception as error:
            if self.replays:
                raise SnapshotError(f"its events cannot be repeated: {error}") from error
            raise
        if self.replays:
            raise SnapshotError("the run ends before it")
        return outcome

    def applied(self) -> None:
        """Take a snapshot, or continue from `start`, if due, at the end of this instant."""
        updates = self._simulation.counters.applies
        clock = self._simulation.env
        if self._start is not None:
            if updates == self._start.updates:
                clock.at_end_of_instant(partial(self._restore, self._start))
        elif monotonic() >= self._due:
            self._due = inf  # until it is taken
            clock.at_end_of_instant(partial(self._take, updates))

    def _take(self, updates: int) -> None:
        begun = monotonic()
        self._simulation.pool.finish()
        try:
            reached = Reached(self._simulation)
        except TypeError:  # the algorithm keeps objects in a set, whose order does not repeat
            return
        self._save(Snapshot(updates, reached.fingerprint, reached.tensors))
        self._due = monotonic() + max(self._every, (monotonic() - begun) / MAX_TIME_SHARE)

    def _restore(self, start: Snapshot) -> None:
        try:
            reached = Reached(self._simulation)
        except TypeError as error:
            raise SnapshotError(str(error)) from None
        if reached.fingerprint != start.fingerprint:
            raise SnapshotError(
                f"after {start.updates} updates the run differs from that of the snapshot"
            )
        for tensor, value in zip(reached.tensors, start.tensors, strict=True):
            # Through `data`, which does not count as a change in place: promises at these weights
            # would refuse one.
            tensor.data.copy_(value)
        self._learn(self._task)
        self._start, self.replays = None, False
        self._due = monotonic() + self._every

    def _learn(self, task: Task) -> None:
        self._simulation.pool.task = self._simulation._learning.task = task


class Replayed:
    """Stands for `task` while events are repeated: its gradients, losses and measures are zeros.

    It computes one gradient and one evaluation of `task`, which give the types of the zeros.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.batch = task.batch
        self.epoch = task.epoch
        self.lanes = task.lanes
        self._gradients: tuple[Tensor, Tensor] | None = None
        self._measures: Mapping[str, Tensor] | None = None

    def start(self, seeds: Sequence[int]) -> Tensor:
        return self._task.start(seeds)

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Any]:
        return self._task.batches(rank, rngs)

    def samples(self, rank: int) -> int:
        return samples_of(self._task, rank)

    def gradients(self, weights: Tensor, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        if self._gradients is None:
            self._gradients = self._task.gradients(weights[:1], batches[:1])
        values, losses = self._gradients
        return values.new_zeros(weights.shape), losses.new_zeros(weights.shape[:2])

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        if self._measures is None:
            self._measures = self._task.evaluate(weights)
        return {name: torch.zeros_like(measure) for name, measure in self._measures.items()}
