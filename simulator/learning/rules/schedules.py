"""Learning-rate schedules: a factor on the learning rate, by progress in updates or epochs."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

from laggard.simulator.errors import Range, Settings
from laggard.simulator.learning.rules.scalars import PositiveScalar, Scalar, double

if TYPE_CHECKING:
    from torch import Tensor

Unit = Literal["updates", "epochs"]


class Progress(NamedTuple):
    """An optimiser's progress: updates made, and epochs of mini-batches applied, before this one."""

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
    """`factor` times the learning rate after every `every` updates or epochs: factor^floor(progress / every).

    Attributes:
        every: the length of a step, in `unit`.
        factor: of the learning rate after a step over the one before it.
        unit: in what progress is counted.
    """

    every: PositiveScalar
    factor: PositiveScalar = 0.1
    unit: Unit = "epochs"

    def __call__(self, progress: Progress) -> Scalar:
        steps: Tensor = (getattr(progress, self.unit) / double(self.every) + 1e-9).floor()
        factor: Tensor = double(self.factor) ** steps
        return factor


@dataclass(frozen=True)
class WarmUp(Settings):
    """From `start` times the learning rate linearly to all of it, over `length` updates or epochs.

    factor = start + (1 - start) min(1, progress / length).

    Source: Goyal et al. (2017), arXiv 1706.02677, section 2.2.

    Attributes:
        length: of the warm-up, in `unit`.
        start: the factor at the start.
        unit: in what progress is counted.
    """

    length: PositiveScalar
    start: Annotated[Scalar, Range(least=0, most=1)] = 0.0
    unit: Unit = "epochs"

    def __call__(self, progress: Progress) -> Scalar:
        share: Tensor = (getattr(progress, self.unit) / double(self.length)).clamp(max=1.0)
        return self.start + (1 - self.start) * share


@dataclass(frozen=True)
class Cosine(Settings):
    """Half a cosine from the learning rate down to `floor` times it, over `length` updates or epochs.

    factor = floor + (1 - floor) (1 + cos(pi min(1, progress / length))) / 2.

    Source: Loshchilov & Hutter (2017), arXiv 1608.03983, without restarts.

    Attributes:
        length: of the descent, in `unit`.
        floor: the factor at its end, and from then on.
        unit: in what progress is counted.
    """

    length: PositiveScalar
    floor: Annotated[Scalar, Range(least=0, most=1)] = 0.0
    unit: Unit = "epochs"

    def __call__(self, progress: Progress) -> Scalar:
        share: Tensor = (getattr(progress, self.unit) / double(self.length)).clamp(max=1.0)
        return self.floor + (1 - self.floor) * (1 + (math.pi * share).cos()) / 2


SCHEDULES: dict[str, type] = {"constant": Constant, "step": Step, "warmup": WarmUp, "cosine": Cosine}
