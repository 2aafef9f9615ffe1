"""What a pipeline must know of a network before it cuts it: layers, their parameters, their work, what leaves them."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Layer(NamedTuple):
    """A part of a model that a pipeline does not cut.

    Attributes:
        name: what a cut calls it.
        params: entries of the parameter vector; the layers' follow each other.
        activations: numbers that one mini-batch sends on to the next layer.
        work: multiplications of one forward pass of a sample, or its outputs where it multiplies nothing.
    """

    name: str
    params: int
    activations: float
    work: float


def layers(module: nn.Module, shape: tuple[int, ...], batch: int) -> list[Layer]:
    """The layers of an `nn.Sequential`, whose inputs have `shape`; another module is one layer.

    One sample of zeros passes through them at weights of zero; the module itself may lie on the meta device, and loses
    nothing. Shapes alone would take a second: there torch imports its compiler for the first activation.
    """
    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("model", module)]
    found, x = [], torch.zeros(1, *shape)
    for name, part in parts:
        x, work = _passed(part, x)
        params = sum(parameter.numel() for parameter in part.parameters())
        found.append(Layer(name, params, float(batch * math.prod(x.shape)), float(work)))
    return found


def check_labels(module: nn.Module, shape: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Refuse a module that does not answer one row of logits for each label: a classifier where texts are learnt.

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
    """What `part` makes of `x`, and the work of it."""
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
    """An output of a convolution or a full layer costs as many multiplications as a row of its weights has entries."""
    weight = getattr(leaf, "weight", None)
    each = weight[0].numel() if isinstance(weight, Tensor) and weight.dim() > 1 else 1
    return output.numel() * each
