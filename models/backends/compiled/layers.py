"""Which modules and layers can be compiled."""

from itertools import pairwise
from typing import Any, NamedTuple

from torch import nn

from laggard.models.backends.compiled import kernels
from laggard.models.modules import BasicBlock

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "forward",
)
ACTIVATIONS = (nn.ELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.Tanh)
POOLINGS = (nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.MaxPool2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
KNOWN = (
    nn.Conv2d,
    nn.Flatten,
    nn.Linear,
    *POOLINGS,
    *NORMS,
    *ACTIVATIONS,
    nn.Sequential,
    BasicBlock,
)


class NotCompiledError(ValueError):
    """A module or a shape that is not compiled: autograd takes it, and raises if it is invalid."""


class Activation(NamedTuple):
    """An elementwise function, and its parameters."""

    kind: int = kernels.IDENTITY
    low: float = 0.0
    high: float = 0.0


def require(condition: Any) -> None:
    """Raise where something cannot be compiled.

    Raises:
        NotCompiledError: the condition is false.
    """
    if not condition:
        raise NotCompiledError


def layers_in_order(chain: nn.Sequential) -> list[nn.Module]:
    """The layers of a chain, in order.

    ReLU before max-pooling is moved after it, which is the same function for a part of the work.
    """
    layers = list(chain)
    for place, (layer, after) in enumerate(pairwise(list(layers))):
        if isinstance(layer, nn.ReLU) and isinstance(after, nn.MaxPool2d):
            layers[place : place + 2] = after, layer
    return layers


def activation_of(layer: nn.Module) -> Activation | None:
    """The activation of a layer, whose derivative is a function of its output; None for others."""
    match layer:
        case nn.ReLU():
            return Activation(kernels.RELU)
        case nn.LeakyReLU(negative_slope=slope) if slope >= 0:
            return Activation(kernels.LEAKY_RELU, slope)
        case nn.Sigmoid():
            return Activation(kernels.SIGMOID)
        case nn.Tanh():
            return Activation(kernels.TANH)
        case nn.ELU(alpha=alpha) if alpha >= 0:
            return Activation(kernels.ELU, alpha)
        case nn.Hardtanh(min_val=low, max_val=high):
            return Activation(kernels.HARDTANH, low, high)
    return None


def is_known(module: nn.Module) -> bool:
    """Whether a module, apart from those within it, can be compiled.

    It is not a subclass of a known one, has no hooks and no `forward` of its own.
    """
    if type(module) not in KNOWN or any(module.__dict__.get(hook) for hook in HOOKS):
        return False
    match module:
        case nn.Conv2d():
            has_borders = isinstance(module.padding, tuple) and module.padding_mode == "zeros"
            return module.groups == 1 and has_borders
        case nn.MaxPool2d():
            is_plain = not module.ceil_mode and not module.return_indices
            return is_plain and pair_of(module.padding) == (0, 0)
        case nn.AvgPool2d():
            is_plain = not module.ceil_mode and module.divisor_override is None
            return is_plain and pair_of(module.padding) == (0, 0)
        case nn.AdaptiveAvgPool2d():
            return pair_of(module.output_size) == (1, 1)
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return module.running_mean is None  # then the layer uses the mini-batch's statistics
        case nn.Flatten():
            return (module.start_dim, module.end_dim) == (1, -1)
        case nn.LeakyReLU() | nn.ELU():
            return activation_of(module) is not None
    return True


def pair_of(sides: Any) -> tuple[int, ...]:
    """Two sides, given as one number or as two."""
    if isinstance(sides, int):
        return (sides, sides)
    return tuple(sides)
