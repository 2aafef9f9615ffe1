"""Counts of gradients, messages and updates."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from laggard.simulator.learning.gradients import (
    APPLIED,
    DROPPED,
    IN_FLIGHT,
    Gradient,
    GradientPromise,
    check_is_gradient,
)
from laggard.simulator.learning.task import Task


class RunProgress(NamedTuple):
    """The progress of a simulation on each axis.

    Attributes:
        time: virtual seconds.
        updates: updates of the model; where each of P nodes keeps a model, an update of one counts
            1/P.
        samples: samples in the mini-batches whose gradients were applied.
        epochs: samples over the size of the training set.
        gradients: computed gradients, whatever their status.
    """

    time: float
    updates: float
    samples: int
    epochs: float
    gradients: int


class Counters:
    """The counters of a simulation.

    Attributes:
        started, computed: gradients whose computation began, and ended.
        most_computed: the limit on `computed`.
        sent, delivered, lost: messages.
        models_sent: the sizes of the messages that were sent, in models.
        applies: updates of single models.
        applied: gradients applied by an update.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.started = self.computed = 0
        self.most_computed = math.inf
        self.sent = self.delivered = self.lost = 0
        self.models_sent = 0.0
        self.applies = self.applied = 0

    def apply(self, gradients: Sequence[GradientPromise]) -> list[Gradient]:
        """Count an update of one model, and resolve its gradients; return the gradients that were
        not applied before.
        """
        fresh = []
        for gradient in gradients:
            check_is_gradient("node.apply", gradient)
            whole = gradient.resolve(APPLIED)
            if whole is not None:
                fresh.append(whole)
        self.applies += 1
        self.applied += len(fresh)
        return fresh

    def lose(self, content: Any, worker: int | None) -> None:
        """Count a lost message; the gradients in it that `worker` had computed are dropped."""
        self.lost += 1
        for gradient in gradients_in(content):
            if gradient.worker == worker and gradient.status == IN_FLIGHT:
                gradient.resolve(DROPPED)

    def progress(self, time: float, models: int) -> RunProgress:
        """The progress at `time` (s), where an update of one of `models` counts 1 / models."""
        return self.at(self.applies, self.applied, models)._replace(
            time=time, gradients=self.computed
        )

    def at(self, applies: int, applied: int, models: int) -> RunProgress:
        """The progress at these counts of updates and applied gradients, without time."""
        samples = applied * self._task.batch
        return RunProgress(0.0, applies / models, samples, samples / self._task.epoch, 0)

    def messages(self) -> dict[str, int]:
        """Counts `sent`, `delivered`, `lost`, `in flight`."""
        under_way = self.sent - self.delivered - self.lost
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "lost": self.lost,
            "in flight": under_way,
        }

    def gradients(self, statuses: Mapping[str, int]) -> dict[str, int]:
        """Counts `started`, those of the `statuses`, `in flight`."""
        return {
            "started": self.started,
            **statuses,
            "in flight": self.started - sum(statuses.values()),
        }


def gradients_in(content: Any) -> Iterator[GradientPromise]:
    """The gradients in the content of a message, itself or in lists and tuples."""
    if isinstance(content, GradientPromise):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from gradients_in(part)
