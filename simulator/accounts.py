"""How much of everything there was: gradients, messages, updates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.gradients import APPLIED, DROPPED, IN_FLIGHT, Gradient, GradientPiece, Settled
from simulator.milestones import Mileage
from simulator.task import Task


class Accounts:
    """The books of a simulation.

    Attributes:
        started, computed: gradients whose computation began, and ended.
        sent, delivered, lost: messages.
        applies: updates of single models.
        applied: gradients that made part of an update.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.started = self.computed = 0
        self.sent = self.delivered = self.lost = 0
        self.applies = self.applied = 0

    def apply(self, gradients: Sequence[Settled]) -> list[Gradient]:
        """Note an update of one model and fix the fate of its `gradients`; those that were part of no update before."""
        fresh = [whole for gradient in gradients if (whole := gradient.settle(APPLIED)) is not None]
        self.applies += 1
        self.applied += len(fresh)
        return fresh

    def lose(self, content: Any, crashed: int | None) -> None:
        """Note a message that will never arrive; the gradients in it that node `crashed` had computed are dropped."""
        self.lost += 1
        for gradient in gradients_in(content):
            if gradient.worker == crashed and gradient.status == IN_FLIGHT:
                gradient.settle(DROPPED)

    def mileage(self, time: float, models: int) -> Mileage:
        """How far the simulation has come at `time` (s), where an update of one of `models` counts 1 / models."""
        return self.at(self.applies, self.applied, models)._replace(time=time, gradients=self.computed)

    def at(self, applies: int, applied: int, models: int) -> Mileage:
        """The mileage, but for time and computations, of so many updates by so many gradients."""
        samples = applied * self._task.batch
        return Mileage(0.0, applies / models, samples, samples / self._task.epoch, 0)

    def messages(self) -> dict[str, int]:
        """Counts `sent`, `delivered`, `lost`, `in flight`."""
        under_way = self.sent - self.delivered - self.lost
        return {"sent": self.sent, "delivered": self.delivered, "lost": self.lost, "in flight": under_way}

    def gradients(self, fates: Mapping[str, int]) -> dict[str, int]:
        """Counts `started`, those of the `fates`, `in flight`."""
        return {"started": self.started, **fates, "in flight": self.started - sum(fates.values())}


def gradients_in(content: Any) -> Iterator[Settled]:
    """The gradients in what a message says, itself or in lists and tuples."""
    if isinstance(content, Gradient | GradientPiece):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from gradients_in(part)
