"""A backend that evaluates as many models at a time as fit into memory."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from laggard.models.backends.batched import EVALUATED, Backend
from laggard.models.variants import Indexable

T = TypeVar("T")

SHARE = 0.5  # of the free memory, for one piece; later weights and recordings need the rest
TRIED = 32  # models in the first piece, on which memory is measured
ON_CPU = 256  # models in a piece on a CPU


class CudaMemory:
    """The memory of a GPU in bytes; torch reserves some that it does not use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """The free memory, including memory that torch has reserved but does not use."""
        unused = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(
            self._device
        )
        return int(torch.cuda.mem_get_info(self._device)[0]) + unused

    def peak(self, call: Callable[[], T]) -> tuple[T, int]:
        """The result of `call`, and its peak memory."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        answer = call()
        return answer, torch.cuda.max_memory_allocated(self._device) - before

    def release(self) -> None:
        """Release memory that is reserved but unused."""
        torch.cuda.empty_cache()


class Chunked:
    """Another backend, called for as many models at a time as fit into free memory.

    The first call starts with a small piece, on which the memory per model is measured. A piece
    that runs out of memory is halved, and larger ones are not tried again. Pieces are about equal,
    so that there are few sizes. Of a backend that records its calls, that small piece is not
    recorded, since it does not come again. An evaluation takes 250 samples at a time, and where
    memory is measured, from the second on as many times 250 as fit.

    Args:
        most: largest number of models in a piece; None for as many as fit.
        memory: the memory of the device; None if it is not measured.

    Raises:
        torch.OutOfMemoryError: not even one model fits.
        ValueError: `most` is below 1.
    """

    def __init__(
        self, backend: Backend, most: int | None = None, memory: CudaMemory | None = None
    ) -> None:
        if most is not None and most < 1:
            expected = "at least 1, or None for as many models as fit into memory"
            raise ValueError(f"chunk = {most}: expected {expected}")
        self.lanes = backend.lanes
        self._backend = backend
        self._memory = memory
        self._most = 1 << 30
        if most is not None:
            self._most = most
        elif memory is None:
            self._most = ON_CPU
        self._calls: dict[tuple[str, int], Pieces] = {}
        # in one forward pass of an evaluation, by the number of models
        self._samples: dict[int, int] = {}

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def preparation(self) -> float:
        """Seconds that the backend's last recording took; 0 where it records nothing."""
        return float(getattr(self._backend, "preparation", 0.0))

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        def piece(rows: slice, backend: Backend = self._backend) -> tuple[Tensor, Tensor]:
            return backend.gradients(weights[rows], x, y, index[rows])

        unrecorded: Backend = getattr(self._backend, "unrecorded", self._backend)
        call = self._call("gradients", index.shape[1])
        pieces = call.run(len(weights), piece, partial(piece, backend=unrecorded))
        if len(pieces) == 1:
            return pieces[0]
        gradients, losses = zip(*pieces, strict=True)
        return torch.cat(gradients), torch.cat(losses)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        samples = self._evaluated(len(weights), len(x))

        def piece(rows: slice) -> Tensor:
            outputs = [self._backend.outputs(weights[rows], chunk) for chunk in x.split(samples)]
            return torch.cat(outputs, dim=1)

        call = self._call("outputs", min(samples, len(x)))
        return torch.cat(call.run(len(weights), piece, piece))

    def _evaluated(self, models: int, samples: int) -> int:
        """The samples of one forward pass of `models` models, in an evaluation on `samples`."""
        measured = self._calls.get(("outputs", min(EVALUATED, samples)))
        if self._memory is None or measured is None or not measured.bytes:
            return EVALUATED
        if models not in self._samples:
            fits = int(SHARE * self._memory.free() / (measured.bytes * models))
            times = min(max(1, fits), math.ceil(samples / EVALUATED))
            size = EVALUATED * times
            self._samples[models] = size
            self._call("outputs", min(size, samples), measured.bytes * times)
        return self._samples[models]

    def _call(self, kind: str, size: int, bytes_per_model: float = 0.0) -> "Pieces":
        """The pieces of calls of one kind and size."""
        pieces = Pieces(self._most, self._memory, bytes_per_model)
        return self._calls.setdefault((kind, size), pieces)


class Pieces:
    """One kind of call, for as many models at once as fit into memory, by measurement.

    Attributes:
        bytes: memory of a model; 0 before it is measured.
    """

    def __init__(self, most: int, memory: CudaMemory | None, bytes_per_model: float) -> None:
        self._most, self._memory = most, memory
        self.bytes = bytes_per_model
        self._seen = 0  # the largest piece that has fitted: no need to check smaller ones

    def run(self, count: int, piece: Callable[[slice], T], first: Callable[[slice], T]) -> list[T]:
        """The results of `piece` for `count` rows, in order; `first` makes the measured piece.

        Raises:
            torch.OutOfMemoryError: not even one model fits.
        """
        done: list[T] = []
        start = 0
        while start < count:
            size = self._next_size(count - start)
            rows = slice(start, start + size)
            call = piece
            if self._memory is not None and not self.bytes:
                call = first
            try:
                done.append(self._measure(size, partial(call, rows)))
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
        largest = min(left, self._most)
        if self._memory is not None and largest > self._seen:
            fits = TRIED
            if self.bytes:
                fits = int(SHARE * self._memory.free() / self.bytes)
            largest = min(largest, max(1, self._seen, fits))
        pieces = math.ceil(left / largest)
        # nearly equal pieces, since each further size is traced or recorded once more
        return math.ceil(left / pieces)

    def _measure(self, size: int, call: Callable[[], T]) -> T:
        """The result of `call`; memory is measured the first time `size` is this large."""
        if self._memory is None or size <= self._seen:
            return call()
        answer, peak = self._memory.peak(call)
        self.bytes = max(1.0, peak / size)
        self._seen = size
        return answer
