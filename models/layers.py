"""The layers of a network, for pipelines to cut: their parameters, work and activations."""

import math
from typing import NamedTuple

import torch
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


def layers(module: nn.Module, shape: tuple[int, ...], batch: int) -> list[Layer]:
    """The layers of an `nn.Sequential`, whose inputs have `shape`; another module is one layer.

    One sample of zeros passes through them with weights of zero; the module may be on the meta device, and does not
    change. Propagating shapes alone would take a second, since torch then imports its compiler.
    """
    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("model", module)]
    found, x = [], torch.zeros(1, *shape)
    for name, part in parts:
        x, work = _passed(part, x)
        params = sum(parameter.numel() for parameter in part.parameters())
        found.append(Layer(name, params, float(batch * math.prod(x.shape)), float(work)))
    return found


def check_labels(module: nn.Module, shape: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Raise for a module without one row of logits per label, such as a classifier where texts are learnt.

    Args:
        shape: of one input.
        labels: the shape of its labels, `()` where there is one.

    Raises:
        ValueError: the logits of one input are not `(*labels, classes)`.
    """
    rows = tuple(_passed(module, torch.zeros(1, *shape))[0].shape[1:-1])
    if rows != labels:
        whole, each = "one label for an input", "a label for each position"
        has, gives = (each, whole) if labels else (whole, each)
        remedy = "transformer" if labels else "lenet5, mlp or logistic"
        raise ValueError(f"model: expected one that predicts {has}, as the data has them, got {gives}: use {remedy}")


@torch.no_grad()
def _passed(part: nn.Module, x: Tensor) -> tuple[Tensor, int]:
    """The output of `part` on `x`, and its work."""
    counts: list[int] = []
    zeros = {name: torch.zeros(parameter.shape) for name, parameter in part.named_parameters()}
    leaves = [leaf for leaf in part.modules() if not list(leaf.children())]
    hooks = [leaf.register_forward_hook(lambda leaf, _, y: counts.append(_work(leaf, y))) for leaf in leaves]
    try:
        return torch.func.functional_call(part, zeros, (x,)), sum(counts)
    finally:
        for hook in hooks:
            hook.remove()


def _work(leaf: nn.Module, output: Tensor) -> int:
    """The multiplications of a layer: one per output and entry of a row of its weights."""
    weight = getattr(leaf, "weight", None)
    each = weight[0].numel() if isinstance(weight, Tensor) and weight.dim() > 1 else 1
    return output.numel() * each
