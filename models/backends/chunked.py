"""Calls in pieces that fit into memory."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from laggard.models.backends.batched import EVALUATED, Backend

T = TypeVar("T")

SHARE = 0.5  # of the free memory, for one piece; later weights and recordings need the rest
TRIED = 32  # models in the first piece, on which memory is measured
ON_CPU = 256  # models in a piece on a CPU


class CudaMemory:
    """The memory of a GPU in bytes, of which torch reserves some that it does not use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """The free memory, with what is reserved but unused."""
        unused = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return int(torch.cuda.mem_get_info(self._device)[0]) + unused

    def peak(self, call: Callable[[], T]) -> tuple[T, int]:
        """The result of `call`, and the memory that it took at its peak."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        answer = call()
        return answer, torch.cuda.max_memory_allocated(self._device) - before

    def release(self) -> None:
        """Release memory that is reserved but unused."""
        torch.cuda.empty_cache()


class Chunked:
    """Another backend, called for as many models at a time as fit into free memory.

    The first call starts with a small piece, on which the memory per model is measured. A piece that runs out of memory
    is halved, and larger ones are not tried again. Pieces are about equal, so that there are few sizes. An evaluation
    takes 250 samples at a time.

    Args:
        most: models in a piece at most; None for as many as fit.
        memory: of the device; None where it is not measured.

    Raises:
        torch.OutOfMemoryError: not even one model fits.
        ValueError: `most` is below 1.
    """

    def __init__(self, backend: Backend, most: int | None = None, memory: CudaMemory | None = None) -> None:
        if most is not None and most < 1:
            raise ValueError(f"chunk = {most}: expected at least 1, or None for as many models as fit into memory")
        self.lanes = backend.lanes
        self._backend, self._memory = backend, memory
        self._most = most or (ON_CPU if memory is None else 1 << 30)
        self._calls: dict[tuple[str, int], Pieces] = {}

    @property
    def name(self) -> str:
        return self._backend.name

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        def piece(rows: slice) -> tuple[Tensor, Tensor]:
            return self._backend.gradients(weights[rows], x, y, index[rows])

        pieces = self._pieces(("gradients", index.shape[1]), len(weights), piece)
        if len(pieces) == 1:
            return pieces[0]
        gradients, losses = zip(*pieces, strict=True)
        return torch.cat(gradients), torch.cat(losses)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        def piece(rows: slice) -> Tensor:
            return torch.cat([self._backend.outputs(weights[rows], chunk) for chunk in x.split(EVALUATED)], dim=1)

        return torch.cat(self._pieces(("outputs", min(EVALUATED, len(x))), len(weights), piece))

    def _pieces(self, kind: tuple[str, int], count: int, piece: Callable[[slice], T]) -> list[T]:
        """The results of `piece` for all of `count` rows, in order."""
        return self._calls.setdefault(kind, Pieces(self._most, self._memory)).run(count, piece)


class Pieces:
    """One kind of call, for as many models at once as fit into memory, by measurement."""

    def __init__(self, most: int, memory: CudaMemory | None) -> None:
        self._most, self._memory = most, memory
        self._bytes = 0.0  # per model
        self._seen = 0  # the largest piece that has fitted: no need to check smaller ones

    def run(self, count: int, piece: Callable[[slice], T]) -> list[T]:
        """The results of `piece` for all of `count` rows, in order.

        Raises:
            torch.OutOfMemoryError: not even one model fits.
        """
        done: list[T] = []
        start = 0
        while start < count:
            size = self._next_size(count - start)
            try:
                done.append(self._measure(size, partial(piece, slice(start, start + size))))
                start += size
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self._most = size // 2
                self._seen = min(self._seen, self._most)
                if self._memory is not None:
                    self._memory.release()
        return done

    def _next_size(self, left: int) -> int:
        """The size of the next piece when `left` rows remain."""
        most = min(left, self._most)
        if self._memory is not None and most > self._seen:
            fits = int(SHARE * self._memory.free() / self._bytes) if self._bytes else TRIED
            most = min(most, max(1, self._seen, fits))
        return -(-left // -(-left // most))

    def _measure(self, size: int, call: Callable[[], T]) -> T:
        """The result of `call`; memory is measured the first time `size` is this large."""
        if self._memory is None or size <= self._seen:
            return call()
        answer, peak = self._memory.peak(call)
        self._bytes, self._seen = max(1.0, peak / size), size
        return answer
