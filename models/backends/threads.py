"""A pool of threads over the gradients in flight: the backend of a CPU, and the memory that its
process keeps.
"""

import copy
import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import nan
from typing import TypeVar

import torch
from torch import Tensor, nn

from laggard.memory import new_tensor
from laggard.models.backends.autograd import Autograd, Loss
from laggard.models.backends.background import BackgroundGradients
from laggard.models.backends.batched import exact_arithmetic
from laggard.models.backends.compiled.network import Network
from laggard.models.variants import Indexable, tensor_of

T = TypeVar("T")

# samples in one forward pass of an evaluation; more outgrow a CPU's cache, 1,000 take twice the
# time
THREAD_SAMPLES = 96


def cores() -> int:
    """The number of cores that this process may use: by its affinity, if it has one, and not by
    quotas of CPU time.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Threads:
    """A pool of threads; every model is a separate job.

    A network of known layers is compiled (`compiled`), and its threads do not hold the
    interpreter's lock; of another module each thread has a copy for autograd. A job uses its own
    row only, so that results are bitwise independent of grouping and of thread. Two jobs per thread
    shorten the wait for the slowest thread (by 2 to 4 % on two cores). A model whose last weight is
    NaN has diverged: its gradient is NaN throughout, and takes no time.

    Sets torch's intra-op threads to one for the whole process: gradients run in parallel, which
    needs no synchronisation (two intra-op threads made a step forty times slower on a busy
    machine).

    Raises:
        ValueError: fewer than one thread.
    """

    name = "threads"

    def __init__(self, module: nn.Module, loss: Loss, threads: int | None = None) -> None:
        threads = cores() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads = {threads}: expected at least 1, or None for one per core")
        torch.set_num_threads(1)
        self.lanes = 2 * threads
        self._threads = threads
        self._module, self._loss = module, loss
        self._network = Network(module, loss)
        self._own = threading.local()
        self._pool = self._idle_pool()
        # The thread that waits for a gradient computes as well (`BackgroundGradients`).
        self._background = ThreadPoolExecutor(max(1, threads - 1), "background")

    def arithmetic(self, x: Indexable) -> str:
        """A description of the code that computes gradients of samples `x`. The call compiles the
        network.
        """
        return self._network.arithmetic(tensor_of(x))

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        gradients = new_tensor(weights.shape, weights)
        losses = weights.new_empty(len(weights))

        def by_autograd(row: int) -> None:
            samples = index[row]
            inputs = x.index_select(0, samples)
            targets = y.index_select(0, samples)
            gradients[row], losses[row] = self._mine().gradient(weights[row], inputs, targets)

        job = self._network.differentiate([weights], x, y, index, gradients, losses) or by_autograd
        rows = _leave_out_lost(weights[:, -1], gradients, losses)
        with exact_arithmetic(weights.is_cuda):
            self._each(lambda place: job(rows[place]), len(rows))
        return gradients, losses

    def submit(
        self, weights: Sequence[Tensor], x: Indexable, y: Indexable, index: Tensor
    ) -> BackgroundGradients | None:
        """Start `gradients` in the background at each of the `weights` `(members, params)`.

        None with one thread, or where threads would hold the interpreter's lock: then the caller's
        Python would wait for them.
        """
        if self._threads == 1 or x is not tensor_of(x):
            return None
        first, models = weights[0], len(index)
        members, params = first.shape
        gradients = new_tensor((models, params), first)
        losses = first.new_empty(models)
        job = self._network.differentiate(weights, x, y, index, gradients, losses)
        if job is None:
            return None
        last = torch.cat([part[:, -1] for part in weights])
        rows = _leave_out_lost(last, gradients, losses)
        return BackgroundGradients(self._background, job, rows, gradients, losses, members)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        starts = range(0, len(x), THREAD_SAMPLES)

        def by_autograd(row: int, samples: slice) -> Tensor:
            return self._mine().outputs(weights[row], x[samples])

        predict = self._network.predict(weights, x) or by_autograd

        def job(number: int) -> Tensor:
            row, chunk = divmod(number, len(starts))
            return predict(row, slice(starts[chunk], starts[chunk] + THREAD_SAMPLES))

        with exact_arithmetic(weights.is_cuda):
            pieces = self._each(job, len(weights) * len(starts))
        outputs: Tensor = torch.cat(pieces).unflatten(0, (len(weights), len(x)))
        return outputs

    def _each(self, job: Callable[[int], T], count: int) -> list[T]:
        """The results of `job` for 0 to `count` - 1; inline where a second thread would have no
        work.
        """
        if min(self._threads, count) == 1:
            return list(map(job, range(count)))
        try:
            return list(self._pool.map(job, range(count)))
        # Ctrl-C while jobs are submitted: else Python exits only after the last of them
        except BaseException:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._idle_pool()
            raise

    def _idle_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(
            self._threads, "gradient", initializer=torch.set_num_threads, initargs=(1,)
        )

    def _mine(self) -> Autograd:
        """This thread's own instance, with a copy of the module."""
        if not hasattr(self._own, "autograd"):
            keep_freed_memory()
            self._own.autograd = Autograd(copy.deepcopy(self._module), self._loss)
        own: Autograd = self._own.autograd
        return own


def _leave_out_lost(last: Tensor, gradients: Tensor, losses: Tensor) -> Sequence[int]:
    """The rows to be computed; those of diverged models, whose `last` weight is NaN, become NaN."""
    lost = last.isnan()  # a loss that is NaN makes it so, as that of the output's bias
    if not lost.any():
        return range(len(last))
    gradients[lost] = losses[lost] = nan
    rows: list[int] = (~lost).nonzero().flatten().tolist()
    return rows


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt(3)
# the largest values that mallopt accepts
MAX_FREE = 2**31 - 1  # bytes free at the heap's end before any go back to the system
LARGE = 32 * 2**20  # bytes from which a block always goes back to the system


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for the next gradient; return whether its C
    library can (glibc).

    A gradient by autograd frees its activations, which glibc gives back to the system and asks for
    again, a page at a time: 6,000 page faults, a tenth of the time of a mini-batch of 32 through
    ResNet-20.

    Source: mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, macOS, Windows
        return False
    return all(
        mallopt(parameter, size) == 1
        for parameter, size in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, MAX_FREE))
    )
