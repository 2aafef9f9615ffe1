"""Adam's step of a large model in three passes over its entries, where torch makes twelve."""

from collections.abc import Iterator
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

import laggard.simulator.learning.rules.adam_loops as adam_loops
from laggard.compiled_cache import compile_cached, compile_functions, decorate_functions
from laggard.memory import new_tensor
from laggard.simulator.learning.rules.scalars import NUMBER, Scalar, double

if TYPE_CHECKING:
    from torch import Tensor

MIN_ENTRIES = 2**16
"""The least `ensemble x params`; for a single LeNet-5 the calls cost the time that passes save."""
LOOPS_HEADER = """
from numba import njit

entry = njit(nogil=True, error_model="numpy", cache=CACHED)
"""
LOOPS_ENTRIES = {
    "update_means": "void(f4[::1], f4[::1], f4[::1], f4[::1], f4[::1], f4[::1])",
    "divide_by_roots": "void(f4[::1], f4[::1], f4[::1])",
}
"""The functions of `adam_loops`, and the types of their arguments."""


def loops_for(gradient: "Tensor") -> ModuleType | None:
    """The compiled loops for a step by `gradient` `(ensemble, params)`.

    None where they do not pay, for other precisions and devices, or without a numba that works
    here: operations of torch give the same bits.
    """
    import torch

    if gradient.numel() < MIN_ENTRIES:
        return None
    if gradient.device.type != "cpu" or gradient.dtype != torch.float32:
        return None
    return compile_loops()


@cache
def compile_loops() -> ModuleType | None:
    """The module `adam_loops`, compiled; None where numba fails."""
    decorators = dict.fromkeys(LOOPS_ENTRIES, "@entry")
    lines = [LOOPS_HEADER, *decorate_functions(adam_loops, decorators)]
    try:
        return compile_cached(
            "\n".join(lines) + "\n", partial(compile_functions, signatures=LOOPS_ENTRIES)
        )
    except Exception:  # whatever numba raises: it is not needed
        return None


def step_in_loops(
    loops: ModuleType,
    gradient: "Tensor",
    means: "tuple[Tensor, Tensor]",
    decays: tuple[Scalar, ...],
    sizes: tuple[Scalar, ...],
) -> "tuple[Tensor, Tensor, Tensor]":
    """The running means of g and g^2, and the change of the weights, each `(ensemble, params)`.

    Square roots are torch's, of which one in 150 is not the nearest number.

    Args:
        means: the running means so far.
        decays: beta1, 1 - beta1, beta2 and 1 - beta2.
        sizes: -lr / (1 - beta1^t), sqrt(1 - beta2^t) and eps.
    """
    import torch

    first, second, change = (new_tensor(gradient.shape, gradient) for _ in range(3))
    inputs = _arrays(gradient, *means)
    outputs = _arrays(first, second)
    for row, numbers in _numbers_by_row(gradient, decays):
        loops.update_means(*_of(row, inputs), numbers, *_of(row, outputs))
    torch.sqrt(second, out=change)
    from_mean, to_change = _arrays(first, change)
    for row, numbers in _numbers_by_row(gradient, sizes):
        loops.divide_by_roots(from_mean[row], numbers, to_change[row])
    return first, second, change


def _numbers_by_row(like: "Tensor", scalars: tuple[Scalar, ...]) -> Iterator[tuple[int, Any]]:
    """Each member's row and its float32 values of `scalars`, which are rounded once."""
    members = len(like)
    if all(isinstance(scalar, NUMBER) for scalar in scalars):
        shared = np.array(scalars, np.float32)
        return ((row, shared) for row in range(members))
    columns = [np.broadcast_to(double(scalar).numpy().ravel(), members) for scalar in scalars]
    return enumerate(np.stack(columns, axis=1).astype(np.float32))


def _arrays(*tensors: "Tensor") -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _of(row: int, arrays: list[Any]) -> list[Any]:
    """One member's row of each array."""
    return [array[row] for array in arrays]
