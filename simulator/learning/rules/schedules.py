"""Learning-rate schedules: a factor on the learning rate, by progress in updates or epochs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import mul
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

from laggard.simulator.errors import HUGE, InvalidSettingError, Range, Settings
from laggard.simulator.learning.rules.scalars import (
    NonNegativeScalar,
    PositiveScalar,
    Scalar,
    double,
)

if TYPE_CHECKING:
    from torch import Tensor

Unit = Literal["updates", "epochs"]
TOLERANCE = 1e-9  # of an epoch's end: epochs are sums of many shares


class Progress(NamedTuple):
    """An optimiser's progress before an update: updates, and epochs of applied mini-batches."""

    updates: int = 0
    epochs: float = 0.0


class Schedule(Protocol):
    """The factor on the learning rate of the next update."""

    def __call__(self, progress: Progress) -> Scalar: ...


@dataclass(frozen=True)
class Constant:
    """A constant learning rate."""

    def __call__(self, progress: Progress) -> Scalar:
        return 1.0


@dataclass(frozen=True)
class Step(Settings):
    """`factor` times the learning rate after every `every` updates or epochs, or each in `at`.

    factor^floor(progress / every), or factor^n where n numbers in `at` are at most the progress.

    Attributes:
        every: the length of a step, in `unit`.
        factor: the learning rate after a step over that before it.
        unit: the unit of progress: updates or epochs.
        at: increasing numbers instead of `every`; they are the same for all members of an ensemble.

    Source: `torch.optim.lr_scheduler.StepLR`, `MultiStepLR`.
    """

    every: PositiveScalar | None = None
    factor: PositiveScalar = 0.1
    unit: Unit = "epochs"
    at: Sequence[float] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.every is None) == (not self.at):
            expected = "a number, or instead of it a list `at`"
            if self.at:
                expected = "null where `at` is a list"
            raise InvalidSettingError("Step", "every", expected, self.every)
        if not all(number < following for number, following in pairwise([0, *self.at, HUGE])):
            raise InvalidSettingError("Step", "at", "increasing numbers > 0", list(self.at))

    def __call__(self, progress: Progress) -> Scalar:
        done = getattr(progress, self.unit)
        steps: Scalar
        if self.every is None:
            steps = float(sum(place <= done * (1 + TOLERANCE) for place in self.at))
        else:
            steps = (done / double(self.every) + TOLERANCE).floor()
        factor: Tensor = double(self.factor) ** steps
        return factor


@dataclass(frozen=True)
class WarmUp(Settings):
    """Warm-up: the learning rate rises linearly from `start` times its value to all of it, over
    `length`.

        factor = start + (1 - start) min(1, progress / length)

    Source: Goyal et al. (2017), arXiv 1706.02677, section 2.2.

    Attributes:
        length: the length of the warm-up, in `unit`.
        start: the factor at the start.
        unit: the unit of progress: updates or epochs.
    """

    length: PositiveScalar
    start: Annotated[Scalar, Range(least=0, most=1)] = 0.0
    unit: Unit = "epochs"

    def __call__(self, progress: Progress) -> Scalar:
        share: Tensor = (getattr(progress, self.unit) / double(self.length)).clamp(max=1.0)
        return self.start + (1 - self.start) * share


@dataclass(frozen=True)
class Cosine(Settings):
    """Cosine decay: the learning rate falls along half a cosine to `floor` times its value, over
    `length`.

        factor = floor + (1 - floor) (1 + cos(pi x)) / 2

    with x = (progress - after) / length, from 0 to 1.

    Source: Loshchilov & Hutter (2017), arXiv 1608.03983, without restarts.

    Attributes:
        length: the length of the descent, in `unit`.
        floor: the factor at its end, and from then on.
        unit: the unit of progress: updates or epochs.
        after: updates or epochs before it begins, such as the length of a warm-up.
    """

    length: PositiveScalar
    floor: Annotated[Scalar, Range(least=0, most=1)] = 0.0
    unit: Unit = "epochs"
    after: NonNegativeScalar = 0.0

    def __call__(self, progress: Progress) -> Scalar:
        done: Tensor = getattr(progress, self.unit) - double(self.after)
        share = (done / double(self.length)).clamp(min=0.0, max=1.0)
        return self.floor + (1 - self.floor) * (1 + (math.pi * share).cos()) / 2


@dataclass(frozen=True)
class Chained(Settings):
    """Several schedules at once: the product of their factors, each by the whole progress.

    factor = s_1(progress) s_2(progress) ...; a warm-up and a step after it, or a cosine that begins
    `after` it, follow each other, since each leaves the learning rate as it is where the other
    changes it.

    Source: `torch.optim.lr_scheduler.ChainedScheduler`; with `after`, `SequentialLR`.
    """

    schedules: Sequence[Schedule]

    def __call__(self, progress: Progress) -> Scalar:
        return reduce(mul, [schedule(progress) for schedule in self.schedules])


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "step": Step,
    "warmup": WarmUp,
    "cosine": Cosine,
}
"""By name; a list of them is `Chained`."""
