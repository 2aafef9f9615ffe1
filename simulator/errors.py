"""The errors of a setting, which names what was expected and what was given, and of a deadlock;
ranges of settings.
"""

import math
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin


class InvalidSettingError(ValueError):
    """A setting out of its range, or in conflict with another one.

    Attributes:
        owner: the name of the class that has the setting.
        field: the setting, as its dataclass spells it.
        expected: what would have been accepted.
        got: what was given instead.
    """

    def __init__(self, owner: str, field: str, expected: str, got: object) -> None:
        super().__init__(owner, field, expected, got)
        self.owner, self.field, self.expected, self.got = owner, field, expected, got

    def __str__(self) -> str:
        return f"{self.owner}.{self.field}: expected {self.expected}, got {self.got!r}"


class Deadlock(RuntimeError):
    """Nothing can happen any more, and the simulation has not reached its end."""


def check_duration(seconds: float, owner: str, what: str) -> float:
    """`seconds`, if it is a valid duration.

    Raises:
        InvalidSettingError: negative, infinite or not a number.
    """
    if not 0 <= seconds < math.inf:
        raise InvalidSettingError(owner, what, "a finite duration >= 0 s", seconds)
    return seconds


def bounded(
    owner: object,
    field: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """Raise `InvalidSettingError` unless `owner.field` lies in the range; a tensor must lie in it
    with every element.

    With `whole` it must be a whole number.

    Example:
        >>> from laggard.simulator.timing.distributions import Constant
        >>> Constant(mean=-1.0)
        Traceback (most recent call last):
        ...
        laggard.simulator.errors.InvalidSettingError: Constant.mean: expected a number > 0, got -1.0
    """
    value: Any = getattr(owner, field)
    smallest, largest = (value.min(), value.max()) if hasattr(value, "min") else (value, value)
    limits = [
        ("> ", above, above is None or smallest > above),
        (">= ", least, least is None or smallest >= least),
        ("< ", below, below is None or largest < below),
        ("<= ", most, most is None or largest <= most),
    ]
    # the largest numbers that there may be are only named to those who exceed them
    named = (
        each
        for each in limits
        if each[1] is not None and (each[1] < MOST_COUNT or largest > each[1])
    )
    wanted = " and ".join(f"{sign}{limit:g}" for sign, limit, _ in named)
    if whole and not isinstance(value, int):
        raise InvalidSettingError(type(owner).__name__, field, f"a whole number {wanted}", value)
    # a tensor with a NaN has NaN for its minimum
    finite = math.isfinite(smallest) and math.isfinite(largest)
    if not (finite and all(holds for _, _, holds in limits)):
        raise InvalidSettingError(type(owner).__name__, field, f"a number {wanted}".rstrip(), value)


class Range(NamedTuple):
    """The range of a setting, in the annotation of its field; see `bounded`."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    whole: bool = False


MOST_COUNT = 100_000
"""As many as there may be of anything that takes memory or time: workers, steps of delay,
micro-batches.
"""
HUGE = 1e30
"""The largest number, so that sums and products are finite."""
Positive = Annotated[float, Range(above=0, most=HUGE)]
NonNegative = Annotated[float, Range(least=0, most=HUGE)]
Ratio = Annotated[float, Range(least=1e-15, most=1e15)]
PositiveInt = Annotated[int, Range(least=1, most=MOST_COUNT, whole=True)]
NonNegativeInt = Annotated[int, Range(least=0, most=MOST_COUNT, whole=True)]
NumberOrShare = Annotated[int | float, Range(above=0, most=MOST_COUNT)]
"""So many of something, or below 1 the share of all."""
Counted = Annotated[int, Range(least=1, most=10**9, whole=True)]
"""What is counted while a run goes on: updates, samples."""


class Settings:
    """The base class of dataclasses whose fields are checked when one is made, by their
    annotations.

    A value must lie in the `Range` of its annotation, unless it is None, and be one of the choices
    of a `Literal`.

    Raises:
        InvalidSettingError: it is not.

    Example:
        >>> from laggard.simulator.algorithms import KAsync
        >>> KAsync(rule=None, wait_for=0)
        Traceback (most recent call last):
        ...
        laggard.simulator.errors.InvalidSettingError: KAsync.wait_for: expected a number >= 1, got 0
    """

    def __post_init__(self) -> None:
        for name, choices, limits in limits_of(type(self)):  # type: ignore[arg-type]  # mypy: a class is hashable
            value = getattr(self, name)
            if choices and value not in choices:
                *others, last = choices
                raise InvalidSettingError(
                    type(self).__name__, name, f"{', '.join(others)} or {last}", value
                )
            if limits and value is not None:
                bounded(self, name, **limits._asdict())


@cache
def limits_of(settings: Any) -> list[tuple[str, tuple[str, ...], Range | None]]:
    """Of each field of a dataclass: its name, the choices that it has, and its range."""
    found = []
    for field in fields(settings):
        if get_origin(field.type) is Literal:
            choices = get_args(field.type)
        else:
            choices = ()
        marks = [
            mark
            for hint in (field.type, *get_args(field.type))
            for mark in getattr(hint, "__metadata__", ())
        ]
        found.append(
            (field.name, choices, next((mark for mark in marks if isinstance(mark, Range)), None))
        )
    return found
