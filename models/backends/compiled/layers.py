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
    """The layers of a chain, in order: known layers in (nested) `nn.Sequential`s.

    None is a subclass or has hooks; all parameters are trainable and belong to one layer each. ReLU
    before max-pooling is moved after it, which is the same function for a quarter of the work.

    Raises:
        NotCompiledError: the module is not such a chain.
    """
    layers = _unpack(module)
    parameters = list(module.parameters())
    owned: list[nn.Parameter] = []
    for layer in layers:
        require(_is_known(layer))
        for name in ("weight", "bias"):
            parameter = layer._parameters.get(name)
            if parameter is not None:
                owned.append(parameter)
    # Parameters shared by two layers appear once in the module, twice in its layers.
    require(parameters and list(map(id, owned)) == list(map(id, parameters)))
    for parameter in parameters:
        require(parameter.requires_grad and parameter.device.type == "cpu")
    layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
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
        if layer.groups != 1 or layer.stride != (1, 1) or layer.dilation != (1, 1):
            return False
        return layer.padding_mode == "zeros" and isinstance(layer.padding, tuple)
    if isinstance(layer, nn.MaxPool2d):
        if layer.ceil_mode or layer.return_indices:
            return False
        if _pair(layer.padding) != (0, 0) or _pair(layer.dilation) != (1, 1):
            return False
        return _pair(layer.kernel_size) == (2, 2) and _pair(layer.stride) == (2, 2)
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return isinstance(layer, nn.Linear | nn.Identity) or activation_of(layer) is not None


def _pair(sides: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(sides, int):
        return (sides, sides)
    return tuple(sides)
