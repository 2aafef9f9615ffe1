"""Arithmetic on a GPU that is the same every time, and in full single precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact() -> Iterator[None]:
    """Full float32 and the same kernels every time, on a GPU; nothing on a CPU."""
    before = torch.get_float32_matmul_precision()
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
