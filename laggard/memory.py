"""Memory of large tensors, such as the models `(ensemble, params)` of an ensemble.

`simulator` and `models` share this module; it imports neither.

torch aligns its memory to 64 bytes. For that glibc takes 96 bytes more than a tensor needs and
frees them at once. Small objects settle there, so that the block of a tensor that was freed is too
short for the next one of that size, and the heap grows with every update. What numpy asks for has
no such alignment, and takes the place of what was freed.

glibc gives memory back to the system only above the last block in use. So a process that has run
a large ensemble keeps the memory of its peak, through all later runs, unless it asks for more.

Source: glibc 2.36, malloc/malloc.c, `_int_memalign`, `systrim` and `malloc_trim`.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MIN_LARGE = 2**18
"""Entries from which a tensor is large: a model of LeNet-5 has fewer, where this costs a tenth."""


def new_tensor(shape: Sequence[int], like: "Tensor") -> "Tensor":
    """A tensor with the type and the device of `like`; its entries are not set."""
    if _is_small(like):
        return like.new_empty(shape)
    import numpy as np
    import torch

    count = int(np.prod(shape))
    memory = torch.from_numpy(np.empty(count * like.element_size(), np.uint8))
    return memory.view(like.dtype).view(*shape)


def add(one: "Tensor", other: "Tensor") -> "Tensor":
    """`one + other`, where `other` has the shape of `one` or is broadcast to it."""
    if _is_small(one):
        return one + other
    import torch

    if torch.result_type(one, other) != one.dtype:
        return one + other
    return torch.add(one, other, out=new_tensor(one.shape, one))


def multiply(one: "Tensor", other: "Tensor | float") -> "Tensor":
    """`one * other`, where `other` is a number, or has the shape of `one` or is broadcast to it."""
    if _is_small(one):
        return one * other
    import torch

    if torch.result_type(one, other) != one.dtype:
        return one * other
    return torch.mul(one, other, out=new_tensor(one.shape, one))


def release_freed(entries: int) -> None:
    """Give freed memory back to the system, after a run of models of `entries` entries.

    Models in reference cycles are freed first. Both take tens of milliseconds, which does not pay
    after a run of small models.
    """
    if entries < MIN_LARGE or not sys.platform.startswith("linux"):
        return
    import ctypes
    import gc

    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # other C libraries lack it
        library.malloc_trim(0)


def _is_small(tensor: "Tensor") -> bool:
    """Whether torch's own allocator is good enough: always, except for a large tensor on a CPU."""
    return tensor.device.type != "cpu" or tensor.numel() < MIN_LARGE
