"""The layers of a network, for pipelines to cut: their parameters, work and activations."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn


class Layer(NamedTuple):
    """A part of a model that a pipeline does not cut.

    Attributes:
        name: its name in a cut.
        params: entries of the parameter vector; the layers' follow each other.
        activations: numbers that one mini-batch sends on to the next layer.
        work: multiplications of one forward pass of a sample, or its outputs where there are none.
    """

    name: str
    params: int
    activations: float
    work: float


class Description(NamedTuple):
    """What is known of a network without building it.

    Attributes:
        layers: those of its module; activations of one sample.
        labels: the shape of the labels that it predicts, `()` or `(positions,)`.
        unfolds: whether the backend `unfold` can take it.
    """

    layers: list[Layer]
    labels: tuple[int, ...] = ()
    unfolds: bool = True

    @property
    def params(self) -> int:
        """The entries of the parameter vector."""
        return sum(layer.params for layer in self.layers)


def linear(name: str, inputs: int, outputs: int, rows: int = 1) -> Layer:
    """A linear layer with a bias that takes `rows` vectors of a sample."""
    return Layer(name, outputs * (inputs + 1), float(rows * outputs), float(rows * outputs * inputs))


def pointwise(name: str, outputs: int, params: int = 0) -> Layer:
    """A layer whose work are its outputs, as pooling, ReLU or normalisation."""
    return Layer(name, params, float(outputs), float(outputs))


def merge(name: str, parts: Sequence[Layer]) -> Layer:
    """Layers that follow each other as one."""
    return Layer(name, sum(part.params for part in parts), parts[-1].activations, sum(part.work for part in parts))


def layers(module: "nn.Module", shape: tuple[int, ...], batch: int) -> list[Layer]:
    """The layers of an `nn.Sequential`, whose inputs have `shape`; another module is one layer.

    One sample of zeros passes through them with weights of zero; the module may be on the meta device, and does not
    change. Propagating shapes alone would take a second, since torch then imports its compiler.
    """
    import torch
    from torch import nn

    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("model", module)]
    found, x = [], torch.zeros(1, *shape)
    for name, part in parts:
        x, work = _forward(part, x)
        params = sum(parameter.numel() for parameter in part.parameters())
        found.append(Layer(name, params, float(batch * math.prod(x.shape)), float(work)))
    return found


def labels_of(module: "nn.Module", shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the labels that a module predicts for one input of `shape`: `()`, or `(positions,)`."""
    import torch

    return tuple(_forward(module, torch.zeros(1, *shape))[0].shape[1:-1])


def describe_module(module: "nn.Module", shape: tuple[int, ...]) -> Description:
    """The description of a module, whose inputs have `shape`; it may be on the meta device.

    Raises:
        ValueError: its output is not a function of its parameters and its input alone.
    """
    from laggard.models.backends.unfolded import unfoldable
    from laggard.models.flat import check_pure

    check_pure(module)
    return Description(layers(module, shape, batch=1), labels_of(module, shape), unfoldable(module))


def check_labels(rows: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Raise for a network without one row of logits per label, such as a classifier where texts are learnt.

    Args:
        rows: the shape of the labels that the network predicts.
        labels: the shape of those that a sample has, `()` where there is one.

    Raises:
        ValueError: they differ.
    """
    if rows != labels:
        whole, each = "one label for an input", "a label for each position"
        has, gives = (each, whole) if labels else (whole, each)
        remedy = "transformer" if labels else "lenet5, mlp or logistic"
        raise ValueError(f"model: expected one that predicts {has}, as the data has them, got {gives}: use {remedy}")


def _forward(part: "nn.Module", x: "Tensor") -> "tuple[Tensor, int]":
    """The output of `part` on `x`, and its work."""
    import torch

    counts: list[int] = []
    zeros = {name: torch.zeros(parameter.shape) for name, parameter in part.named_parameters()}
    leaves = [leaf for leaf in part.modules() if not list(leaf.children())]
    hooks = [leaf.register_forward_hook(lambda leaf, _, y: counts.append(multiplications(leaf, y))) for leaf in leaves]
    try:
        with torch.no_grad():
            return torch.func.functional_call(part, zeros, (x,)), sum(counts)
    finally:
        for hook in hooks:
            hook.remove()


def multiplications(leaf: "nn.Module", output: "Tensor") -> int:
    """The multiplications of a layer: one per output and entry of a row of its weights."""
    from torch import Tensor

    weight = getattr(leaf, "weight", None)
    each = weight[0].numel() if isinstance(weight, Tensor) and weight.dim() > 1 else 1
    return output.numel() * each
