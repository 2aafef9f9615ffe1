"""The weights of no parameters, for runs without learning."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class EmptyWeights:
    """A tensor `(ensemble, 0)` whose arithmetic makes no calls of torch, which would cost time and
    compute nothing.

    It behaves like a tensor; operations that are rare for weights are done on a real tensor.

    Example:
        >>> 0.5 * EmptyWeights(3) + EmptyWeights(3)
        EmptyWeights(3)
        >>> torch.stack([EmptyWeights(3), EmptyWeights(3)]).shape
        torch.Size([2, 3, 0])
    """

    __slots__ = ("pieces", "shape", "stamp")

    _version = 0  # of a tensor's changes in place
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
        alias.shape, alias.stamp, alias.pieces = self.shape, None, ()
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


def _asked(name: str) -> Any:
    """The property or method `name` of a real tensor."""

    def ask(empty: EmptyWeights) -> Any:
        asked = getattr(empty.tensor(), name)
        if callable(asked):
            return lambda *args, **named: _like(asked(*_real(args), **_real(named)))
        return asked

    return property(ask)


# `__getattr__` would make each attribute take three times as long, also those above
for _name in dir(Tensor):
    if not _name.startswith("_") and not hasattr(EmptyWeights, _name):
        setattr(EmptyWeights, _name, _asked(_name))


def _real(given: Any) -> Any:
    """`given` with real tensors for `EmptyWeights`, also in tuples, lists and dicts."""
    if isinstance(given, EmptyWeights):
        return given.tensor()
    if isinstance(given, tuple | list):
        return type(given)(_real(part) for part in given)
    if isinstance(given, dict):
        return {name: _real(part) for name, part in given.items()}
    return given


def _like(answer: Any) -> Any:
    """`EmptyWeights` where torch's answer has the shape and type of such weights."""
    weights = (
        isinstance(answer, Tensor)
        and answer.ndim == 2
        and answer.shape[1] == 0
        and answer.dtype == torch.float32
    )
    if weights:
        return EmptyWeights(answer.shape[0])
    return answer
