"""Which modules are chains of layers that can be compiled."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torch import nn

from laggard.models.backends.compiled import kernels

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "forward",
)
ACTIVATIONS = (nn.ELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.Tanh)
KNOWN_LAYERS = (nn.Conv2d, nn.Flatten, nn.Linear, nn.MaxPool2d, *ACTIVATIONS)


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


def chain_of(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain, in order: an `nn.Sequential`, possibly nested, of known layers, or one
    of them.

    None is a subclass or has hooks; all parameters are trainable and belong to one layer each. ReLU
    before max-pooling is moved after it, which is the same function for a quarter of the work.

    Raises:
        NotCompiledError: the module is no such chain.
    """
    layers = _unpack(module)
    parameters = [id(parameter) for parameter in module.parameters()]
    both = [layer._parameters.get(name) for layer in layers for name in ("weight", "bias")]
    owned = [id(parameter) for parameter in both if parameter is not None]
    require(parameters and owned == parameters)
    require(
        all(
            parameter.requires_grad and parameter.device.type == "cpu"
            for parameter in module.parameters()
        )
    )
    require(all(_is_known(layer) for layer in layers))
    layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
    for at, (one, other) in enumerate(pairwise(list(layers))):
        if isinstance(one, nn.ReLU) and isinstance(other, nn.MaxPool2d):
            layers[at : at + 2] = other, one
    return layers


def activation_of(layer: nn.Module) -> Activation | None:
    """The unit that a layer is, whose derivative is a function of its output; None for other
    layers.
    """
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


def _unpack(module: nn.Module) -> list[nn.Module]:
    if type(module) is not nn.Sequential or _is_hooked(module):
        return [module]
    return [layer for part in module for layer in _unpack(part)]


def _is_hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks or a replaced `forward`."""
    return any(layer.__dict__.get(hook) for hook in HOOKS)


def _is_known(layer: nn.Module) -> bool:
    if type(layer) not in KNOWN_LAYERS or _is_hooked(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        shared = (layer.groups, layer.stride, layer.dilation, layer.padding_mode) == (
            1,
            (1, 1),
            (1, 1),
            "zeros",
        )
        return shared and isinstance(layer.padding, tuple)
    if isinstance(layer, nn.MaxPool2d):
        square = [
            _pair(sides)
            for sides in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        ]
        return (
            square == [(2, 2), (2, 2), (0, 0), (1, 1)]
            and not layer.ceil_mode
            and not layer.return_indices
        )
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return isinstance(layer, nn.Linear | nn.Identity) or activation_of(layer) is not None


def _pair(sides: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(sides, int):
        return (sides, sides)
    return tuple(sides)
