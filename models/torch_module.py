"""Classes that derive from `nn.Module`, as they are, as networks."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn


class TorchModule(Protocol):
    """What a class that derives from `nn.Module` has; the arguments of its `__init__` are config keys.

    Two are none: `shape` is that of one input, `classes` their number.
    """

    forward: Any
    named_parameters: Any
    named_buffers: Any


@dataclass(frozen=True)
class ModuleNetwork:
    """A network that is built by a class which derives from `nn.Module`."""

    make: "Callable[..., nn.Module]"

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh module; it is told the shape of an input and the number of classes where it asks for them."""
        known = {"shape": shape, "classes": classes}
        return self.make(**{key: known[key] for key in signature(self.make).parameters if key in known})
