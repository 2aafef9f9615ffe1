"""Which modules are chains of layers whose gradient can be written out."""

from itertools import pairwise

from torch import nn

ELEMENTWISE = (nn.ELU, nn.GELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh)
KNOWN = (nn.Conv2d, nn.Flatten, nn.Linear, nn.MaxPool2d, nn.ReLU, *ELEMENTWISE)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "forward")
FEW = 8  # channels: with fewer, torch's convolutions leave their vectors half empty; with as many they are the faster


class Pooled(nn.Module):
    """A convolution and the max-pooling by two that follows it, as one layer."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution


def chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a chain, in order, or None: the module is something else, or autograd is the faster.

    A chain is an `nn.Sequential`, of others if need be, of known layers (no classes derived from them) with nothing
    hooked to them, all of whose parameters learn and belong to one layer. ReLU before max-pooling comes back after
    it, where it is the same function and has a quarter of the work.
    """
    layers = _unpacked(module)
    parameters = list(module.parameters())
    owned = [parameter for layer in layers for parameter in layer.parameters()]
    if [id(parameter) for parameter in owned] != [id(parameter) for parameter in parameters]:
        return None
    if not all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in parameters):
        return None
    return _joined(layers) if all(_known(layer) for layer in layers) else None


def _unpacked(module: nn.Module) -> list[nn.Module]:
    if type(module) is not nn.Sequential or _touched(module):
        return [module]
    return [layer for part in module for layer in _unpacked(part)]


def _touched(layer: nn.Module) -> bool:
    """Whether a layer does more than its class says."""
    return any(layer.__dict__.get(hook) for hook in HOOKS)


def _known(layer: nn.Module) -> bool:
    if type(layer) not in KNOWN or _touched(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        simple = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        return simple and isinstance(layer.padding, tuple) and layer.in_channels < FEW and layer.out_channels <= 2 * FEW
    if isinstance(layer, nn.MaxPool2d):
        square = [_pair(sides) for sides in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        return square == [(2, 2), (2, 2), (0, 0), (1, 1)] and not layer.ceil_mode and not layer.return_indices
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return isinstance(layer, nn.ReLU) or not getattr(layer, "inplace", False)


def _pair(sides: int | tuple[int, ...]) -> tuple[int, ...]:
    return (sides, sides) if isinstance(sides, int) else tuple(sides)


def _joined(layers: list[nn.Module]) -> list[nn.Module]:
    """The same function, where a convolution takes in its pooling."""
    layers = list(layers)
    for at, (one, other) in enumerate(pairwise(list(layers))):
        if isinstance(one, nn.ReLU) and isinstance(other, nn.MaxPool2d):
            layers[at : at + 2] = other, one
    joined: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.MaxPool2d) and joined and isinstance(joined[-1], nn.Conv2d):
            joined[-1] = Pooled(joined[-1])
        else:
            joined.append(layer)
    return joined
