"""One batched matrix product a layer, for networks that are plain sequences of layers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from laggard.models.backends.autograd import Loss
from laggard.models.backends.batched import EVERYTHING, exact_arithmetic
from laggard.models.flat import shapes, unflatten
from laggard.models.variants import Indexable

POOLS = (nn.MaxPool2d, nn.AvgPool2d)
POINTWISE = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
)
"""Layers that act on every number alone, so that they can be applied to all models at once."""

# every parameter (models, ...), x (models, batch, ...) -> the same
LayerStep = Callable[[Sequence[Tensor], Tensor], Tensor]
Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # x, weight, bias -> their product


class Unfolded:
    """All models at once, layer by layer: a convolution is a batched product with its windows.

    With windows X (channels x kernel, batch x places) of one model's maps, and its weights W (maps,
    channels x kernel): Y = W X + b, a product that a GPU batches over all models; it has no fast
    kernels for many groups of small convolutions. The windows take the memory of a map times the
    size of a kernel. Maps are stored channel by channel, so that nothing is transposed between
    layers. The last digits may differ, since sums have another order.

    Raises:
        ValueError: the module is not a sequence of convolutions, poolings, activations, `Flatten`
            and `Linear`, all without hooks.
    """

    lanes = EVERYTHING
    name = "unfold"

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        places: dict[Tensor, int] = {}
        for number, parameter in enumerate(module.parameters()):
            places[parameter] = number
        self._steps = [_step(layer, places) for layer in _sequence(module)]
        self._loss = loss
        self._shapes = shapes(module)

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        index = index.long()  # once, not at each use

        def total(weights: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self._forward(weights, x[index])
            losses = torch.vmap(self._loss)(outputs, y[index])
            # The gradient of the sum with respect to one model's weights is that of its own loss.
            return losses.sum(), losses

        with exact_arithmetic(weights.is_cuda):
            gradients, (_, losses) = torch.func.grad_and_value(total, has_aux=True)(weights)
        return gradients, losses

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        with exact_arithmetic(weights.is_cuda), torch.no_grad():
            return self._forward(weights, x.expand(len(weights), *x.shape))

    def _forward(self, weights: Tensor, x: Tensor) -> Tensor:
        parameters = unflatten(weights, self._shapes)
        for step in self._steps:
            x = step(parameters, x)
        return x


def unfoldable(module: nn.Module) -> bool:
    """Whether `Unfolded` can take the module."""
    try:
        Unfolded(module, lambda outputs, targets: outputs)
    except ValueError:
        return False
    return True


def _sequence(module: nn.Module) -> list[nn.Module]:
    """The layers of a module and of the sequences within it, in the order of their calls."""
    forward_hooks = module._forward_hooks or module._forward_pre_hooks
    backward_hooks = module._backward_hooks or module._backward_pre_hooks
    if forward_hooks or backward_hooks or "forward" in vars(module):
        problem = f"backend 'unfold' does not support {module}, which has hooks or its own forward"
        raise ValueError(f"{problem}: use 'vmap'")
    if type(module) is not nn.Sequential:
        return [module]
    return [layer for child in module for layer in _sequence(child)]


def _step(layer: nn.Module, places: dict[Tensor, int]) -> LayerStep:
    """The function of `layer` on all parameters, which lie at `places`.

    Raises:
        ValueError: an unknown layer. A subclass of a known one may compute something else.
    """
    kind = type(layer)
    if kind in POINTWISE:
        return lambda parameters, x: layer(x)
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return lambda parameters, x: x.flatten(2)
    if kind in POOLS and not getattr(layer, "return_indices", False):
        return lambda parameters, x: _pool_channels(layer, x)
    if type(layer) is nn.Linear:
        return _with_parameters(_linear, layer, places)
    if type(layer) is nn.Conv2d and _has_plain_windows(layer):
        return _with_parameters(_convolution(layer), layer, places)
    problem = f"backend 'unfold' does not support {layer}"
    raise ValueError(f"{problem}: use 'vmap', which supports any module")


def _with_parameters(
    product: Product, layer: nn.Linear | nn.Conv2d, places: dict[Tensor, int]
) -> LayerStep:
    """A product with a layer's weight and bias."""
    weight = places[layer.weight]
    if layer.bias is None:
        return lambda parameters, x: product(x, parameters[weight], None)
    bias = places[layer.bias]
    return lambda parameters, x: product(x, parameters[weight], parameters[bias])


def _has_plain_windows(layer: nn.Conv2d) -> bool:
    if layer.groups != 1 or layer.dilation != (1, 1):
        return False
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _pool_channels(layer: nn.Module, x: Tensor) -> Tensor:
    """Pool the channels of all models as if they were one model's."""
    maps = _maps(x)
    pooled: Tensor = layer(maps.flatten(0, 1))
    outputs: Tensor = pooled.unflatten(0, maps.shape[:2]).transpose(1, 2)
    return outputs


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`weight` `(models, out, in)` on `x` `(models, ..., in)`."""
    rows = x.flatten(1, -2)
    transposed = weight.transpose(1, 2)
    if bias is None:
        product = torch.bmm(rows, transposed)
    else:
        product = torch.baddbmm(bias.unsqueeze(1), rows, transposed)
    outputs: Tensor = product.unflatten(1, x.shape[1:-1])
    return outputs


def _convolution(layer: nn.Conv2d) -> Product:
    """The convolution of `x` `(models, batch, channels, ...)` with `weight` `(models, ...)`."""
    height, width = layer.kernel_size
    down, right = layer.stride
    assert not isinstance(layer.padding, str)  # see `_has_plain_windows`
    above, beside = layer.padding

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        maps = pad(_maps(x), (beside, beside, above, above))
        windows = maps.unfold(3, height, down).unfold(4, width, right)
        # (models, channels, height, width, batch, down, right): kernels before places
        windows = windows.permute(0, 1, 5, 6, 2, 3, 4)
        columns = windows.flatten(4).flatten(1, 3)
        places = windows.shape[4:]
        rows = weight.flatten(2)
        if bias is None:
            product = torch.bmm(rows, columns)
        else:
            product = torch.baddbmm(bias.unsqueeze(2), rows, columns)
        outputs: Tensor = product.unflatten(2, places).transpose(1, 2)
        return outputs

    return convolve


def _maps(x: Tensor) -> Tensor:
    """Images `(models, batch, channels, ...)` as maps `(models, channels, batch, ...)`."""
    if x.dim() != 5:
        expected = "expected images (channels, height, width)"
        raise ValueError(f"backend 'unfold' {expected}, got {tuple(x.shape[2:])}")
    return x.transpose(1, 2)
