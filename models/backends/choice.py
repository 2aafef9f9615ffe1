"""Which backend takes a run's gradients: one that is named, or the fastest that suits the module and the device."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn

from models.backends.backend import Backend, Loss
from models.backends.batched import Batched
from models.backends.chunked import Chunked, CudaMemory
from models.backends.compiled import Compiled
from models.backends.fastest import Fastest, settled
from models.backends.graphs import Graphs
from models.backends.threads import Threads
from models.backends.unfolded import Unfolded, unfoldable

BATCHED: Mapping[str, Callable[[nn.Module, Loss], Backend]] = {
    "unfold": Unfolded,
    "vmap": Batched,
    "unfold-graphs": lambda module, loss: Graphs(Unfolded(module, loss)),
    "vmap-graphs": lambda module, loss: Graphs(Batched(module, loss)),
    "unfold-compile": lambda module, loss: Compiled(Unfolded(module, loss)),
    "vmap-compile": lambda module, loss: Compiled(Batched(module, loss)),
    "unfold-compile-graphs": lambda module, loss: Graphs(Compiled(Unfolded(module, loss))),
    "vmap-compile-graphs": lambda module, loss: Graphs(Compiled(Batched(module, loss))),
}
"""All models in one call, by name."""

NAMES = ("auto", "threads", *BATCHED)

RACING = ("unfold-graphs", "vmap-graphs", "unfold", "vmap")
"""What "auto" tries on a GPU; `torch.compile` would take minutes of a sweep, and must be named."""


def choose(
    name: str, module: nn.Module, loss: Loss, device: torch.device, threads: int | None = None, chunk: int | None = None
) -> Backend:
    """The backend called `name` for a module on `device`; "auto" is threads on a CPU, and on a GPU the fastest.

    Args:
        threads: of a CPU; None for one per core.
        chunk: models in one batched call at most; None for as many as fit into memory.

    Raises:
        ValueError: an unknown name, or the module is none that the backend can take.
    """
    if name not in NAMES:
        raise ValueError(f"backend = {name!r}: expected {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    on_gpu = device.type == "cuda"
    if name == "threads" or (name == "auto" and not on_gpu):
        return Threads(module, loss, threads)

    def made(name: str) -> Backend:
        return Chunked(BATCHED[name](module, loss), chunk, CudaMemory(device) if on_gpu else None)

    if name != "auto":
        return made(name)
    suited = [name for name in RACING if not name.startswith("unfold") or unfoldable(module)]
    return Fastest({name: partial(made, name) for name in suited}, settled)
