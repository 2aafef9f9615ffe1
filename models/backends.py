"""Two ways to take the gradients of many models at once, with the same result: threads, and one batched call."""

import copy
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from models.flat import Bound, flatten, shapes, unflatten

T = TypeVar("T")
Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (batch, classes), targets (batch,) -> their mean loss, a scalar

EVALUATED = 250  # samples in one forward pass of an evaluation; 1,000 outgrow a CPU's cache and take twice the time
EVERYTHING = 1 << 20  # lanes of hardware that is never full


class Backend(Protocol):
    """Arithmetic on many models at once: one module, and a row of weights per model.

    Attributes:
        lanes: how many gradients keep the hardware busy at once.
    """

    lanes: int

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients `(models, params)` and losses `(models,)` at `weights` `(models, params)`.

        A model's mini-batch is its row of `index` `(models, batch)` into `x` `(samples, ...)` and `y` `(samples,)`.
        """
        ...

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(models, samples, classes)` of `weights` `(models, params)` on all of `x` `(samples, ...)`."""
        ...


class Threads:
    """A pool of threads with one copy of the module each; every model is a job of its own.

    A job sees its own row and nothing else, so that results are bitwise independent of grouping and of thread.
    Two jobs a thread at once keep the pool from waiting for its slowest thread (2 to 4 % on two cores).

    Sets torch's intra-op threads to one for the whole process: the parallelism lies across gradients, where it
    costs no synchronisation (two intra-op threads made a step forty times slower on a busy machine).

    Raises:
        ValueError: fewer than one thread.
    """

    def __init__(self, module: nn.Module, loss: Loss, threads: int | None = None) -> None:
        threads = (os.cpu_count() or 1) if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads = {threads}: expected at least 1, or None for one per core")
        torch.set_num_threads(1)
        self.lanes = 2 * threads
        self._threads = threads
        self._module, self._loss = module, loss
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(threads, "gradient", initializer=torch.set_num_threads, initargs=(1,))

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        gradients, losses = torch.empty_like(weights), weights.new_empty(len(weights))

        @torch.enable_grad()
        def job(row: int) -> None:
            bound, samples = self._bound(), index[row]
            loss = self._loss(bound.load(weights[row])(x[samples]), y[samples])
            gradients[row] = flatten(torch.autograd.grad(loss, bound.parameters, materialize_grads=True))
            losses[row] = loss.detach()

        self._each(job, len(weights))
        return gradients, losses

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        chunks = x.split(EVALUATED)

        @torch.no_grad()
        def job(number: int) -> Tensor:
            row, chunk = divmod(number, len(chunks))
            return self._bound().load(weights[row])(chunks[chunk])

        return torch.cat(self._each(job, len(weights) * len(chunks))).unflatten(0, (len(weights), len(x)))

    def _each(self, job: Callable[[int], T], count: int) -> list[T]:
        """The results of `job` for 0 to `count` - 1; inline where a second thread would find nothing to do."""
        each = map if min(self._threads, count) == 1 else self._pool.map
        return list(each(job, range(count)))

    def _bound(self) -> Bound:
        """This thread's own copy of the module."""
        if not hasattr(self._own, "bound"):
            self._own.bound = Bound(copy.deepcopy(self._module))
        return self._own.bound


class Batched:
    """One call for all models: `vmap` over the gradient of a functional module, in chunks that bound its memory.

    Meant for a GPU. On a CPU, convolutions are up to three times slower than in a loop, and small full layers up
    to seven times faster. Kernels are deterministic and keep full float32 (no TF32), but grouping may change the
    last digits.
    """

    lanes = EVERYTHING

    def __init__(self, module: nn.Module, loss: Loss, chunk: int | None = 256) -> None:
        self._module, self._loss, self._chunk = module, loss, chunk
        self._names, self._shapes = [name for name, _ in module.named_parameters()], shapes(module)

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        def loss(flat: Tensor, samples: Tensor) -> Tensor:
            return self._loss(self._forward(flat, x[samples]), y[samples])

        with _exact():
            return torch.vmap(torch.func.grad_and_value(loss), chunk_size=self._chunk)(weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        forward = torch.vmap(self._forward, in_dims=(0, None), chunk_size=self._chunk)
        with _exact(), torch.no_grad():
            return torch.cat([forward(weights, chunk) for chunk in x.split(EVALUATED)], dim=1)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parameters = dict(zip(self._names, unflatten(flat, self._shapes), strict=True))
        return torch.func.functional_call(self._module, parameters, (x,))


def _exact() -> AbstractContextManager[None]:
    """Full float32 and the same kernels every time, on a GPU; nothing on a CPU."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes the GPU where there is one.

    Raises:
        ValueError: an unknown name, or "cuda" where torch sees no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r}: expected 'auto', 'cpu' or 'cuda'")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = 'cuda', but torch sees no GPU here: use 'auto' or 'cpu', or install a CUDA torch")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
