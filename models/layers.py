"""The layers of a network, for pipelines to cut: their parameters, work and activations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn


class Layer(NamedTuple):
    """A part of a model that a pipeline does not cut.

    Attributes:
        name: its name in a cut.
        params: entries of the parameter vector; the layers' follow each other.
        activations: numbers that one mini-batch sends on to the next layer.
        work: multiplications in the forward pass of one sample; the number of outputs for a layer
            without any.
    """

    name: str
    params: int
    activations: float
    work: float


class Description(NamedTuple):
    """The sizes of a network, known without building it.

    Attributes:
        layers: the layers of its module, with the activations of one sample.
        labels: the shape of the labels that it predicts, `()` or `(positions,)`.
        unfolds: whether the backend `unfold` can take it.
        least: the least size of a mini-batch: 2 under batch normalisation.
    """

    layers: list[Layer]
    labels: tuple[int, ...] = ()
    unfolds: bool = True
    least: int = 1

    @property
    def params(self) -> int:
        """The number of parameters."""
        return sum(layer.params for layer in self.layers)


def linear(name: str, inputs: int, outputs: int, rows: int = 1) -> Layer:
    """A linear layer with a bias that takes `rows` vectors of a sample."""
    return Layer(
        name, outputs * (inputs + 1), float(rows * outputs), float(rows * outputs * inputs)
    )


def pointwise(name: str, outputs: int, params: int = 0) -> Layer:
    """A layer with one operation for each output, such as pooling, ReLU or normalisation."""
    return Layer(name, params, float(outputs), float(outputs))


def merge(name: str, parts: Sequence[Layer]) -> Layer:
    """Merge consecutive layers into one."""
    return Layer(
        name,
        sum(part.params for part in parts),
        parts[-1].activations,
        sum(part.work for part in parts),
    )


def convolution(name: str, inputs: int, outputs: int, kernel: int, places: int) -> Layer:
    """A convolution without a bias, with square kernels, at `places` of a sample."""
    params = outputs * inputs * kernel**2
    return Layer(name, params, float(outputs * places), float(params * places))


def layers(module: "nn.Module", shape: tuple[int, ...], batch: int) -> list[Layer]:
    """The layers of an `nn.Sequential`, whose inputs have `shape`; another module is one layer.

    Two samples of zeros pass through them with weights of zero; the module may be on the meta
    device, and does not change. Propagating shapes alone would take a second, since torch then
    imports its compiler.

    Raises:
        ValueError: its output is not a function of its parameters and its input alone.
    """
    from torch import nn

    if isinstance(module, nn.Sequential):
        parts = list(module.named_children())
    else:
        parts = [("model", module)]
    result, x = [], _samples(shape)
    for name, part in parts:
        x, work = _forward(part, x)
        params = sum(parameter.numel() for parameter in part.parameters())
        activations = float(batch * math.prod(x.shape[1:]))
        result.append(Layer(name, params, activations, float(work)))
    return result


def output_shape(module: "nn.Module", shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """The shape of a module's output for one input: `(logits,)` or `(positions, logits)`.

    Raises:
        ValueError: it has no logit for each class, or is not a function of its parameters and its
            input alone.
    """
    x = _samples(shape)
    output = _forward(module, x)[0]
    if output.dim() < 2 or len(output) != len(x) or output.shape[-1] < classes:
        got = f"{tuple(output.shape)} for {len(x)} inputs"
        raise ValueError(
            f"{type(module).__name__}: expected {classes} logits, a number for each class, "
            f"got {got}"
        )
    return tuple(output.shape[1:])


def describe_module(module: "nn.Module", shape: tuple[int, ...], classes: int) -> Description:
    """The description of a module, whose inputs have `shape`; it may be on the meta device.

    Its batch normalisation keeps no statistics from now on, and its dropout is laggard's own.

    Raises:
        ValueError: it has no logit for each class, or is not a function of its parameters and its
            input alone.
    """
    from laggard.models.backends.unfolded import unfoldable
    from laggard.models.modules import replace_dropout
    from laggard.models.recalibration import batch_norms, remove_statistics

    check_parameters(module)
    remove_statistics(module)
    replace_dropout(module)
    labels = output_shape(module, shape, classes)[:-1]
    least = 2 if batch_norms(module) else 1
    return Description(layers(module, shape, batch=1), labels, unfoldable(module), least)


def check_parameters(module: "nn.Module") -> None:
    """Check that a module has parameters, and that all of them are trained.

    Raises:
        ValueError: it has none, or some are frozen.
    """
    name = type(module).__name__
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ValueError(f"{name}: expected parameters to train, got none: it may need a layer")
    frozen = [key for key, parameter in parameters.items() if not parameter.requires_grad]
    if frozen:
        got = ", ".join(frozen)
        raise ValueError(
            f"{name}: expected parameters that are all trained, got frozen ones ({got:.80}): "
            "register them as buffers"
        )


def check_labels(rows: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Raise for a network without one row of logits per label, such as a classifier for texts.

    Args:
        rows: the shape of the labels that the network predicts.
        labels: the shape of a sample's labels, `()` for a single one.

    Raises:
        ValueError: they differ.
    """
    if rows != labels:
        has, gives = "one label for an input", "a label for each position"
        remedy = "lenet5, mlp or logistic"
        if labels:
            has, gives = gives, has
            remedy = "transformer"
        raise ValueError(
            f"model: expected one that predicts {has}, as the labels of the data set, got {gives}: "
            f"use {remedy}"
        )


def _samples(shape: tuple[int, ...]) -> "Tensor":
    """Two inputs of zeros: batch normalisation takes no mini-batch of one."""
    import torch

    return torch.zeros(2, *shape)


def _forward(part: "nn.Module", x: "Tensor") -> "tuple[Tensor, int]":
    """The output of `part` on `x` `(samples, ...)`, and its work for a sample.

    Raises:
        ValueError: the pass draws random numbers or changes a buffer, or its result is no tensor.
    """
    import torch

    counts: list[int] = []
    tensors = [*part.named_parameters(), *part.named_buffers()]
    zeros = {}
    for name, tensor in tensors:
        if tensor.is_floating_point():
            zeros[name] = torch.zeros(tensor.shape)
        else:
            zeros[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
    leaves = [leaf for leaf in part.modules() if not list(leaf.children())]
    hooks = [
        leaf.register_forward_hook(lambda leaf, _, y: counts.append(multiplications(leaf, y)))
        for leaf in leaves
    ]
    try:
        with torch.no_grad(), check_pass(part, zeros):
            output = torch.func.functional_call(part, zeros, (x,))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"{type(part).__name__}: expected a tensor as output, got {type(output).__name__}"
        )
    return output, sum(counts) // len(x)


@contextmanager
def check_pass(module: "nn.Module", tensors: "Mapping[str, Tensor]") -> Iterator[None]:
    """Check a forward pass of a module with new `tensors` for its parameters and buffers, by name.

    Raises:
        ValueError: it draws from torch's random state, or changes a buffer: its output is not a
            function of its parameters and its input alone.
    """
    import torch
    from torch.nn.modules.dropout import _DropoutNd

    before_pass = dict(tensors)
    name = type(module).__name__
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        yield
        drew = not torch.equal(before, torch.get_rng_state())
    if drew:
        dropouts = [
            part
            for part, layer in module.named_modules()
            if isinstance(layer, _DropoutNd) and layer.p > 0
        ]
        which = f" ({', '.join(dropouts)})" if dropouts else ""
        raise ValueError(
            f"{name} draws random numbers in its forward pass{which}, but the same weights "
            "and mini-batch must give "
            "the same gradient, whenever it is asked for: leave them out, or draw them by "
            "nn.Dropout or nn.Dropout1d "
            "to 3d alone"
        )
    changed = []
    for key, _ in module.named_buffers():
        if tensors[key] is not before_pass[key] or before_pass[key]._version:
            changed.append(key)
    if changed:
        raise ValueError(
            f"{name} changes buffers in its forward pass ({', '.join(changed)}), but a "
            "model here is its parameters "
            "and nothing else: use BatchNorm, or a layer without state, such as GroupNorm"
        )


def multiplications(leaf: "nn.Module", output: Any) -> int:
    """The multiplications of a layer: one per output and entry of a row of its weights.

    A recurrent layer has one per position and entry of its matrices. A layer whose output is no
    tensor counts nothing.
    """
    from torch import Tensor, nn

    outputs = output[0] if isinstance(output, tuple) else output
    if not isinstance(outputs, Tensor):
        return 0
    if isinstance(leaf, nn.RNNBase):
        return math.prod(outputs.shape[:-1]) * sum(
            each.numel() for each in leaf.parameters() if each.dim() > 1
        )
    weight = getattr(leaf, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() < 2 or isinstance(leaf, nn.Embedding):
        return outputs.numel()
    return outputs.numel() * weight[0].numel()
