"""Promised tensors: sliced, added and scaled now, and computed when a value is first needed."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Promise:
    """A tensor `(ensemble, n)` whose value is computed when it is first needed, or never.

    `(p + q)[0:3] * 0.5` is a promise as well.

    Attributes:
        sources: the promises from which it is computed; none once it has a value.
    """

    __slots__ = ("_value",)

    _value: "Tensor | None"
    sources: tuple["Promise", ...] = ()

    @property
    def value(self) -> "Tensor":
        """The tensor; its sources are evaluated together when it is first needed."""
        return evaluate([self])[0]

    def evaluate(self, leaves: Sequence[Any]) -> None:
        """Compute the values of `leaves`, promises without sources, this one among them."""
        raise NotImplementedError

    def __getitem__(self, part: slice) -> "Promise":
        """The promise of its columns `part`."""
        return Derived((self,), lambda value: value[:, part])

    def __iter__(self) -> Iterator["Promise"]:
        # Otherwise Python iterates by `__getitem__`, which raises for no index: for ever.
        got = type(self).__name__
        raise TypeError(f"expected a sequence of promises, as [gradient], got one {got}")

    def __add__(self, other: "Promise") -> "Promise":
        return Derived((self, other), lambda one, two: one + two)

    def __mul__(self, factor: float) -> "Promise":
        return Derived((self,), lambda value: value * factor)

    __rmul__ = __mul__


class Derived(Promise):
    """The result of an operation on other promises, which are released once it is computed."""

    __slots__ = ("_operation", "sources")

    def __init__(self, sources: tuple[Promise, ...], operation: "Callable[..., Tensor]") -> None:
        self._value = None
        self.sources = sources
        self._operation = operation

    def compute_value(self) -> None:
        """Compute the value from the values of its sources, which are all known."""
        self._value = self._operation(*(source._value for source in self.sources))
        self.sources = ()


class Later(Derived):
    """A placeholder for a later promise, from which others can be derived already."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__((), lambda value: value)

    def become(self, promise: Promise) -> None:
        """Stand for `promise` from now on."""
        self.sources = (promise,)


def known(value: "Tensor") -> Promise:
    """A promise with a value."""
    promise = Promise()
    promise._value = value
    return promise


def concatenate(promises: Sequence[Promise]) -> Promise:
    """The columns of all `promises`, side by side."""
    if len(promises) == 1:
        return promises[0]
    return Derived(tuple(promises), _side_by_side)


def _side_by_side(*values: "Tensor") -> "Tensor":
    import torch

    return torch.cat(values, dim=1)


def total(promises: Sequence[Promise]) -> Promise:
    """The sum of `promises`, added in their order."""
    if len(promises) == 1:
        return promises[0]
    return Derived(tuple(promises), lambda *values: reduce(add, values))


def evaluate(promises: Sequence[Promise]) -> "list[Tensor]":
    """The values of all `promises`, whose sources are evaluated together."""
    order = topological_order([promise for promise in promises if promise._value is None])
    leaves = [promise for promise in order if not isinstance(promise, Derived)]
    if leaves:  # one call for all: their arithmetic is batched
        leaves[0].evaluate(leaves)
    for promise in order:
        if isinstance(promise, Derived) and promise._value is None:
            promise.compute_value()
    return [promise._value for promise in promises]  # type: ignore[misc]


def topological_order(promises: Sequence[Promise]) -> list[Promise]:
    """`promises` and all their sources without a value, sources first."""
    order: dict[Promise, None] = {}
    pending = list(reversed(promises))
    while pending:  # not by recursion: the sum of a ring of P nodes is nested P deep
        promise = pending[-1]
        missing = []
        for source in promise.sources:
            if source._value is None and source not in order:
                missing.append(source)
        pending.extend(missing)
        if not missing:
            order[pending.pop()] = None
    return list(order)
