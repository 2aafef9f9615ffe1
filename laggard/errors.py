"""Refused settings, and objects of users that lack members of a protocol."""

from functools import cache
from inspect import isclass, isfunction
from typing import Any, Protocol


class InvalidSettingError(ValueError):
    """A setting out of its range, or in conflict with another one.

    Attributes:
        owner: the name of the class with the setting.
        field: the name of the setting.
        expected: a description of valid values.
        got: the invalid value.
    """

    def __init__(self, owner: str, field: str, expected: str, got: object) -> None:
        super().__init__(owner, field, expected, got)
        self.owner = owner
        self.field = field
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"{self.owner}.{self.field}: expected {self.expected}, got {self.got!r}"


@cache
def members_of(kind: type) -> list[str]:
    """The members that an object needs to serve as `kind`, a protocol or a class.

    A member with a value in the body of a protocol has that as its default.

    Example:
        >>> from laggard.simulator.timing.distributions import Distribution
        >>> members_of(Distribution)
        ['mean', 'std', 'draw']
    """
    names: dict[str, None] = {}
    special = ("__call__", "__hash__") if getattr(kind, "_is_protocol", False) else ("__call__",)
    for base in reversed(kind.__mro__):
        if base in (object, Protocol):
            continue
        for name in [*vars(base).get("__annotations__", {}), *vars(base)]:
            value = vars(base).get(name, ...)
            is_public = name in special or not name.startswith("_")
            needed = value is ... or isfunction(value) or isinstance(value, property)
            if is_public and needed:
                names[name] = None
    return list(names)


def lacks(value: Any, member: str) -> bool:
    """Whether an object lacks a member; properties are not computed."""
    for base in type(value).__mro__:
        if member in vars(base):
            # a class whose objects can be compared but not hashed has `__hash__ = None`
            return member == "__hash__" and vars(base)[member] is None
    return not hasattr(value, member)


def check_members(owner: object, field: str, value: Any, *kinds: type) -> None:
    """Raise `InvalidSettingError` unless a value is an object that can serve as one of `kinds`.

    The error names a member that the value lacks.
    """
    missing = {kind: [name for name in members_of(kind) if lacks(value, name)] for kind in kinds}
    if isclass(value) or all(missing.values()):
        kind = min(kinds, key=lambda kind: len(missing[kind]))
        expected = f"an object that serves as {kind.__name__}"
        if isclass(value):
            expected = f"{expected}, as {value.__name__}(...)"
        else:
            expected = f"{expected}, with a member {missing[kind][0]}"
        if not isinstance(owner, str):
            owner = type(owner).__name__
        raise InvalidSettingError(owner, field, expected, value)
