"""The error about a setting: it names the field, what was expected and what was given."""

import math
from typing import Any


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
    """Raise `InvalidSettingError` unless `owner.field` lies in the range; a tensor must lie in it with every element.

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
    wanted = " and ".join(f"{sign}{limit:g}" for sign, limit, _ in limits if limit is not None)
    if whole and not isinstance(value, int):
        raise InvalidSettingError(type(owner).__name__, field, f"a whole number {wanted}", value)
    finite = math.isfinite(smallest) and math.isfinite(largest)  # a tensor with a NaN has NaN for its minimum
    if not (finite and all(holds for _, _, holds in limits)):
        raise InvalidSettingError(type(owner).__name__, field, f"a number {wanted}".rstrip(), value)
