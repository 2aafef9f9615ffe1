"""Errors of settings and deadlocks; ranges of settings, and their checks."""

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from laggard.errors import InvalidSettingError as InvalidSettingError
from laggard.errors import check_members
from laggard.units import OWN_UNITS, quantities_of


class Deadlock(RuntimeError):
    """No event is left, and the simulation has not reached its end."""


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
    """Raise `InvalidSettingError` unless `owner.field` is in range; of a tensor or a list, each
    item.

    With `whole` it must be a whole number.

    Example:
        >>> from laggard.simulator.timing.distributions import Constant
        >>> Constant(mean=-1.0)
        Traceback (most recent call last):
        ...
        laggard.errors.InvalidSettingError: Constant.mean: expected a number > 0 (seconds), got -1.0
    """
    value: Any = getattr(owner, field)
    limits = Range(above, least, below, most, whole)
    if not isinstance(value, list | tuple):
        _check_number(owner, field, field, value, limits)
        return
    for index, item in enumerate(value):
        _check_number(owner, field, f"{field}.{index}", item, limits)


def _check_number(owner: object, field: str, place: str, value: Any, limits: "Range") -> None:
    """Raise `InvalidSettingError` with the key `place` unless `value` is in range."""
    name = type(owner).__name__
    if isinstance(value, str):
        raise InvalidSettingError(name, place, f"a number{_unit(owner, field)}", value)
    above, least, below, most, whole = limits
    smallest = largest = value
    if hasattr(value, "min"):
        smallest = value.min()
        largest = value.max()
    sides = [
        ("> ", above, above is None or smallest > above),
        (">= ", least, least is None or smallest >= least),
        ("< ", below, below is None or largest < below),
        ("<= ", most, most is None or largest <= most),
    ]
    # A tensor with a NaN has NaN for its minimum.
    valid = math.isfinite(smallest) and math.isfinite(largest)
    texts = []
    for sign, limit, holds in sides:
        valid = valid and holds
        # Very large limits are left out, unless the value exceeds them.
        if limit is not None and (limit < MOST_COUNT or largest > limit):
            texts.append(f"{sign}{limit:g}")
    expected = " and ".join(texts)
    if whole and not isinstance(value, int):
        raise InvalidSettingError(name, place, f"a whole number {expected}", value)
    if not valid:
        expected = f"a number {expected}".rstrip() + _unit(owner, field)
        raise InvalidSettingError(name, place, expected, value)


def _unit(owner: object, field: str) -> str:
    """The unit of a field that has one, in words."""
    kind: Any = type(owner)
    quantity = quantities_of(kind).get(field)
    if quantity is None:
        return ""
    return f" ({OWN_UNITS[quantity]})"


class Range(NamedTuple):
    """The range of a setting, in the annotation of its field; see `bounded`."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    whole: bool = False


MOST_COUNT = 100_000
"""The limit on counts that take memory or time: workers, steps of delay, micro-batches."""
HUGE = 1e30
"""The largest setting, so that sums and products are finite."""
Positive = Annotated[float, Range(above=0, most=HUGE)]
NonNegative = Annotated[float, Range(least=0, most=HUGE)]
Ratio = Annotated[float, Range(least=1e-15, most=1e15)]
PositiveInt = Annotated[int, Range(least=1, most=MOST_COUNT, whole=True)]
NonNegativeInt = Annotated[int, Range(least=0, most=MOST_COUNT, whole=True)]
NumberOrShare = Annotated[int | float, Range(above=0, most=MOST_COUNT)]
"""A number of items, or below 1 the share of all."""
Counted = Annotated[int, Range(least=1, most=10**9, whole=True)]
"""A count in a run: updates, samples."""


class Settings:
    """The base class of dataclasses whose fields are checked by their annotations.

    A value must lie in the `Range` of its annotation, unless it is None, be one of the choices of a
    `Literal`, and have the members of a protocol.

    Raises:
        InvalidSettingError: a value is invalid.

    Example:
        >>> from laggard.simulator.algorithms import KAsync
        >>> KAsync(rule=None, wait_for=0)
        Traceback (most recent call last):
        ...
        laggard.errors.InvalidSettingError: KAsync.wait_for: expected a number >= 1, got 0
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)  # which mypy does not take to be hashable
        for name, choices, limits in limits_of(kind):
            value = getattr(self, name)
            if choices and value not in choices:
                *others, last = choices
                expected = f"{', '.join(others)} or {last}"
                raise InvalidSettingError(type(self).__name__, name, expected, value)
            if limits and value is not None:
                bounded(self, name, **limits._asdict())
        for name in quantities_of(kind):
            value = getattr(self, name, None)
            if isinstance(value, str):
                expected = f"a number{_unit(self, name)}"
                raise InvalidSettingError(type(self).__name__, name, expected, value)
        for name, protocols, usual, is_sequence in _protocols_of(kind):
            value = getattr(self, name)
            if not is_sequence:
                value = [value]
            elif not isinstance(value, Sequence):
                raise InvalidSettingError(type(self).__name__, name, "a list", value)
            for index, item in enumerate(value):
                if not isinstance(item, usual):
                    place = f"{name}.{index}" if is_sequence else name
                    check_members(self, place, item, *protocols)


@cache
def limits_of(settings: Any) -> list[tuple[str, tuple[str, ...], Range | None]]:
    """The name, the choices and the range of each field of a dataclass."""
    limits = []
    for field in fields(settings):
        choices: tuple[Any, ...] = ()
        if get_origin(field.type) is Literal:
            choices = get_args(field.type)
        limits.append((field.name, choices, _first_range(field.type)))
    return limits


def _first_range(hint: Any) -> Range | None:
    """The first range in `Annotated[...]`, in one of several types or in the items of a list."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Range):
            return mark
    for part in get_args(hint):
        limits = _first_range(part)
        if limits is not None:
            return limits
    return None


@cache
def _protocols_of(settings: Any) -> list[tuple[str, list[Any], tuple[type, ...], bool]]:
    """The fields that objects of users may fill: name, protocols that such an object may fulfil,
    other types of the annotation, and whether the field holds a sequence of them.
    """
    result = []
    for field in fields(settings):
        hint = field.type
        is_sequence = get_origin(hint) is Sequence
        if is_sequence:
            (hint,) = get_args(hint)
        branches: list[Any] = [hint]
        if get_origin(hint) in (Union, UnionType):
            branches = list(get_args(hint))
        protocols = [kind for kind in branches if getattr(kind, "_is_protocol", False)]
        classes = [kind for kind in branches if isinstance(kind, type)]
        others = [kind for kind in classes if kind not in protocols]
        if float in others:
            others.append(int)
        if protocols:
            result.append((field.name, protocols, tuple(others), is_sequence))
    return result
