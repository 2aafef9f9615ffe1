"""Learning-rate schedules: a factor on the learning rate, by progress in updates or epochs."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch

from laggard.simulator.errors import InvalidSettingError, bounded
from laggard.simulator.learning.rules.optimizers import Scalar, double

Unit = Literal["updates", "epochs"]


class Progress(NamedTuple):
    """An optimiser's progress: updates made, and epochs of mini-batches applied, before this one."""

    updates: int = 0
    epochs: float = 0.0


class Schedule(Protocol):
    """The factor on the learning rate of the next update."""

    def __call__(self, progress: Progress) -> Scalar: ...


def check_unit(schedule: object, unit: str) -> None:
    """Raise `InvalidSettingError` unless `unit` is a unit of progress."""
    if unit not in Progress._fields:
        raise InvalidSettingError(type(schedule).__name__, "unit", " or ".join(Progress._fields), unit)


@dataclass(frozen=True)
class Constant:
    """A constant learning rate."""

    def __call__(self, progress: Progress) -> Scalar:
        return 1.0


@dataclass(frozen=True)
class Step:
    """`factor` times the learning rate after every `every` updates or epochs: factor^floor(progress / every)."""

    every: Scalar
    factor: Scalar = 0.1
    unit: Unit = "epochs"

    def __post_init__(self) -> None:
        bounded(self, "every", above=0)
        bounded(self, "factor", above=0)
        check_unit(self, self.unit)

    def __call__(self, progress: Progress) -> Scalar:
        return double(self.factor) ** torch.floor(getattr(progress, self.unit) / double(self.every) + 1e-9)


@dataclass(frozen=True)
class WarmUp:
    """From `start` times the learning rate linearly to all of it, over `length` updates or epochs.

    factor = start + (1 - start) min(1, progress / length).

    Source: Goyal et al. (2017), arXiv 1706.02677, section 2.2.
    """

    length: Scalar
    start: Scalar = 0.0
    unit: Unit = "epochs"

    def __post_init__(self) -> None:
        bounded(self, "length", above=0)
        bounded(self, "start", least=0, most=1)
        check_unit(self, self.unit)

    def __call__(self, progress: Progress) -> Scalar:
        share = torch.clamp(getattr(progress, self.unit) / double(self.length), max=1.0)
        return self.start + (1 - self.start) * share


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from the learning rate down to `floor` times it, over `length` updates or epochs.

    factor = floor + (1 - floor) (1 + cos(pi min(1, progress / length))) / 2.

    Source: Loshchilov & Hutter (2017), arXiv 1608.03983, without restarts.
    """

    length: Scalar
    floor: Scalar = 0.0
    unit: Unit = "epochs"

    def __post_init__(self) -> None:
        bounded(self, "length", above=0)
        bounded(self, "floor", least=0, most=1)
        check_unit(self, self.unit)

    def __call__(self, progress: Progress) -> Scalar:
        share = torch.clamp(getattr(progress, self.unit) / double(self.length), max=1.0)
        return self.floor + (1 - self.floor) * (1 + torch.cos(math.pi * share)) / 2


SCHEDULES: dict[str, type] = {"constant": Constant, "step": Step, "warmup": WarmUp, "cosine": Cosine}
