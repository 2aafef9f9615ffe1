"""Weights without parameters, for runs without learning."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class EmptyWeights:
    """A tensor `(ensemble, 0)` whose arithmetic makes no calls of torch: they would only cost time.

    It behaves like a tensor; operations that are rare for weights are done on a real tensor.

    Example:
        >>> 0.5 * EmptyWeights(3) + EmptyWeights(3)
        EmptyWeights(3)
        >>> torch.stack([EmptyWeights(3), EmptyWeights(3)]).shape
        torch.Size([2, 3, 0])
    """

    __slots__ = ("pieces", "shape", "stamp")

    _version = 0  # number of changes in place, as tensors count it
    dtype, device, ndim = torch.float32, torch.device("cpu"), 2

    def __init__(self, ensemble: int) -> None:
        self.shape = torch.Size((ensemble, 0))
        self.stamp: Any = None
        self.pieces: Any = ()

    def __repr__(self) -> str:
        return f"EmptyWeights({self.shape[0]})"

    def detach(self) -> "EmptyWeights":
        """An alias."""
        alias = object.__new__(EmptyWeights)
        alias.shape = self.shape
        alias.stamp = None
        alias.pieces = ()
        return alias

    def numel(self) -> int:
        return 0

    def tensor(self) -> Tensor:
        """A real tensor of the same shape."""
        return torch.empty(self.shape)

    def __neg__(self) -> "EmptyWeights":
        return self

    def _same(self, _: Any) -> "EmptyWeights":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _same
    )

    def __getitem__(self, index: Any) -> Any:
        return _like(self.tensor()[index])

    def __len__(self) -> int:
        return self.shape[0]

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Apply functions of torch to a real tensor."""
        return _like(function(*_real(args), **_real(named or {})))


def _delegate(name: str) -> Any:
    """The property or method `name` of a real tensor."""

    def get(empty: EmptyWeights) -> Any:
        attribute = getattr(empty.tensor(), name)
        if callable(attribute):
            return lambda *args, **named: _like(attribute(*_real(args), **_real(named)))
        return attribute

    return property(get)


# Not `__getattr__`: with it every attribute, also those above, would take three times as long.
for _name in dir(Tensor):
    if not _name.startswith("_") and not hasattr(EmptyWeights, _name):
        setattr(EmptyWeights, _name, _delegate(_name))


def _real(value: Any) -> Any:
    """`value` with real tensors for `EmptyWeights`, also in tuples, lists and dicts."""
    if isinstance(value, EmptyWeights):
        return value.tensor()
    if isinstance(value, tuple | list):
        return type(value)(_real(part) for part in value)
    if isinstance(value, dict):
        return {name: _real(part) for name, part in value.items()}
    return value


def _like(result: Any) -> Any:
    """`EmptyWeights` where a result of torch has the shape and type of such weights."""
    if not isinstance(result, Tensor) or result.dtype != torch.float32:
        return result
    if result.ndim == 2 and result.shape[1] == 0:
        return EmptyWeights(result.shape[0])
    return result
