"""The choice of the backend that computes a run's gradients: by name, or by device and network."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from laggard.models.backends import BACKEND_NAMES
from laggard.models.backends.autograd import Loss
from laggard.models.backends.batched import Backend, Batched
from laggard.models.backends.chunked import Chunked, CudaMemory
from laggard.models.backends.graphs import Graphs
from laggard.models.backends.threads import Threads
from laggard.models.backends.unfolded import Unfolded, unfoldable

BATCHED: Mapping[str, Callable[[nn.Module, Loss], Backend]] = {
    "unfold": Unfolded,
    "vmap": Batched,
    "unfold-graphs": lambda module, loss: Graphs(Unfolded(module, loss)),
    "vmap-graphs": lambda module, loss: Graphs(Batched(module, loss)),
}
"""The backends that compute all models in one call, by name."""


def choose(
    name: str,
    module: nn.Module,
    loss: Loss,
    device: torch.device,
    threads: int | None = None,
    chunk: int | None = None,
) -> Backend:
    """The backend called `name` for a module on `device`.

    "auto" is threads on a CPU. On a GPU it is a recording: of `unfold` for a chain of known layers,
    which takes half the time of `vmap`, else of `vmap`.

    Args:
        threads: the number of CPU threads; None for one per core.
        chunk: models in one batched call at most; None for as many as fit into memory.

    Raises:
        ValueError: an unknown name, or the backend does not support the module.
    """
    if name not in BACKEND_NAMES:
        names = f"{', '.join(BACKEND_NAMES[:-1])} or {BACKEND_NAMES[-1]}"
        raise ValueError(f"backend = {name!r}: expected {names}")
    on_gpu = device.type == "cuda"
    if name == "threads" or (name == "auto" and not on_gpu):
        return Threads(module, loss, threads)
    if name == "auto":
        name = "vmap-graphs"
        if unfoldable(module):
            name = "unfold-graphs"
    memory = CudaMemory(device) if on_gpu else None
    return Chunked(BATCHED[name](module, loss), chunk, memory)
