"""When a simulation stops, and when it is evaluated."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

from simulator.bounds import Invalid, bounded


class Mileage(NamedTuple):
    """How far a simulation has come, on each axis.

    Attributes:
        time: virtual seconds.
        updates: of the model; where P nodes keep models of their own, each of their updates counts 1/P.
        samples: of the mini-batches whose gradients were applied.
        epochs: samples over the size of the training set.
        gradients: computed to the end, whatever became of them.
    """

    time: float
    updates: float
    samples: int
    epochs: float
    gradients: int


@dataclass(frozen=True)
class Stop:
    """The limits of a simulation; the first reached wins. All are counted from its start.

    Attributes:
        epochs, updates: as in `Mileage`.
        gradients: computed to the end; the last of them is counted, and not applied any more.
        time: virtual seconds; what happens at that very instant still happens.
        accuracy: of the first member of an ensemble that gets there, on the test set (0 to 1), at an evaluation.
    """

    epochs: float | None = None
    updates: int | None = None
    gradients: int | None = None
    time: float | None = None
    accuracy: float | None = None

    def __post_init__(self) -> None:
        limits = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if not limits:
            raise Invalid("Stop", "epochs", "at least one of epochs, updates, gradients, time, accuracy", None)
        for limit in limits:
            bounded(self, limit, above=0, most=1 if limit == "accuracy" else None)

    def reached(self, mileage: Mileage) -> str | None:
        """The limit that has been reached, if any. Epochs are sums of fractions: a billionth short is there."""
        if self.updates is not None and mileage.updates >= self.updates:
            return "updates"
        if self.epochs is not None and mileage.epochs >= self.epochs * (1 - 1e-9):
            return "epochs"
        if self.gradients is not None and mileage.gradients >= self.gradients:
            return "gradients"
        return None


@dataclass(frozen=True)
class Evaluate:
    """How often the model is evaluated, besides at the start and at the end; it costs no virtual time.

    Attributes:
        every_epochs, every_updates: the axis; once an epoch by default.
        every_seconds: virtual seconds.
        nodes: whether every node's model is measured beside their mean, where nodes have models of their own.
        keep_models: whether the models evaluated are kept, as a loss landscape needs them.
    """

    every_epochs: float | None = None
    every_updates: float | None = None
    every_seconds: float | None = None
    nodes: bool = False
    keep_models: bool = False

    def __post_init__(self) -> None:
        axes = [axis for axis in ("every_epochs", "every_updates", "every_seconds") if getattr(self, axis) is not None]
        if len(axes) > 1:
            raise Invalid("Evaluate", axes[1], f"none beside {axes[0]}", getattr(self, axes[1]))
        if not axes:
            object.__setattr__(self, "every_epochs", 1.0)
        for axis in axes:
            bounded(self, axis, above=0)

    def period(self, mileage: Mileage) -> int:
        """How many times the axis of updates or epochs has passed its period; 0 where seconds are the axis."""
        if self.every_updates is not None:
            return math.floor(mileage.updates / self.every_updates + 1e-9)
        if self.every_epochs is not None:
            return math.floor(mileage.epochs / self.every_epochs + 1e-9)
        return 0


def first(due: Callable[[int], bool], now: int) -> float:
    """The first count after `now` at which something is `due`, which stays due from there on; infinite if none is.

    Asked once a milestone, so that an update compares two numbers only.

    Example:
        >>> first(lambda count: count >= 1000, 10)
        1000
    """
    step = 1
    while not due(now + step):
        step *= 2
        if step > 2**52:
            return math.inf
    return bisect_left(range(now + step), True, lo=now + 1, key=due)
