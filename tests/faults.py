"""Faults for a test to find: functions of the product are replaced by wrong ones while the test
runs.
"""

import sys
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

Wrong = Callable[[Any], Any]
"""From the right function to the wrong one."""


@dataclass(frozen=True)
class Replaced:
    """A function, method, property or entry of a table, in whose place a wrong one is put.

    Attributes:
        owner: the class, module or table that holds it under `name`.
        wrong: makes the wrong one of the right one; of a property, of its getter.
    """

    owner: Any
    name: str
    wrong: Wrong

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the wrong one there."""
        if isinstance(self.owner, MutableMapping):
            monkeypatch.setitem(self.owner, self.name, self.wrong(self.owner[self.name]))
            return
        right = vars(self.owner)[self.name]
        wrong = (
            property(self.wrong(right.fget)) if isinstance(right, property) else self.wrong(right)
        )
        monkeypatch.setattr(self.owner, self.name, wrong)


def settings(**changes: Callable[[Any], Any]) -> Wrong:
    """A method of a frozen dataclass as another one's, some of whose fields are functions of the
    right one's.
    """

    def wrong(right: Callable[..., Any]) -> Callable[..., Any]:
        def other(self: Any, *given: Any, **named: Any) -> Any:
            return right(
                replace(self, **{name: of(self) for name, of in changes.items()}), *given, **named
            )

        return other

    return wrong


class Spoilt:
    """A node some of whose verbs do something else; everything else is the node's own."""

    def __init__(self, node: Any, **verbs: Any) -> None:
        vars(self).update(_node=node, **verbs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._node, name, value)


def on_spoilt(verbs: Callable[[Any], dict[str, Any]]) -> Wrong:
    """A role on a node of which `verbs` gives other verbs, by name."""
    return lambda right: lambda self, node, *given: right(self, Spoilt(node, **verbs(node)), *given)


@pytest.fixture
def fresh_caches() -> Iterator[None]:
    """Nothing that the product has worked out once remains from before a fault to after it, or
    back.
    """
    modules = [module for name, module in list(sys.modules.items()) if "simulator" in name]
    values = (value for module in modules for value in vars(module).values())
    caches = [
        value for value in values if hasattr(value, "cache_clear") and not isinstance(value, type)
    ]
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()
