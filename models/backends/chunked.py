"""Calls in pieces that fit into memory."""

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
    """The memory of a GPU in bytes, of which torch reserves some that it does not use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """The free memory, with what is reserved but unused."""
        unused = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(
            self._device
        )
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

    The first call starts with a small piece, on which the memory per model is measured. A piece
    that runs out of memory is halved, and larger ones are not tried again. Pieces are about equal,
    so that there are few sizes. Of a backend that records its calls, that small piece is not
    recorded, since it does not come again. An evaluation takes 250 samples at a time, and where
    memory is measured, from the second on as many times 250 as fit.

    Args:
        most: models in a piece at most; None for as many as fit.
        memory: of the device; None where it is not measured.

    Raises:
        torch.OutOfMemoryError: not even one model fits.
        ValueError: `most` is below 1.
    """

    def __init__(
        self, backend: Backend, most: int | None = None, memory: CudaMemory | None = None
    ) -> None:
        if most is not None and most < 1:
            raise ValueError(
                f"chunk = {most}: expected at least 1, or None for as many models as fit "
                "into memory"
            )
        self.lanes = backend.lanes
        self._backend, self._memory = backend, memory
        self._most = most or (ON_CPU if memory is None else 1 << 30)
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

        first: Backend = getattr(self._backend, "unrecorded", self._backend)
        pieces = self._pieces(
            ("gradients", index.shape[1]), len(weights), piece, partial(piece, backend=first)
        )
        if len(pieces) == 1:
            return pieces[0]
        gradients, losses = zip(*pieces, strict=True)
        return torch.cat(gradients), torch.cat(losses)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        samples = self._evaluated(len(weights), len(x))

        def piece(rows: slice) -> Tensor:
            return torch.cat(
                [self._backend.outputs(weights[rows], chunk) for chunk in x.split(samples)], dim=1
            )

        return torch.cat(
            self._pieces(("outputs", min(samples, len(x))), len(weights), piece, piece)
        )

    def _evaluated(self, models: int, samples: int) -> int:
        """How many samples one forward pass of so many models takes, in an evaluation on
        `samples`.
        """
        measured = self._calls.get(("outputs", min(EVALUATED, samples)))
        if self._memory is None or measured is None or not measured.bytes:
            return EVALUATED
        if models not in self._samples:
            times = int(SHARE * self._memory.free() / (measured.bytes * models))
            self._samples[models] = EVALUATED * min(max(1, times), -(-samples // EVALUATED))
            each = measured.bytes * self._samples[models] / EVALUATED
            kind = ("outputs", min(self._samples[models], samples))
            self._calls.setdefault(kind, Pieces(self._most, self._memory, each))
        return self._samples[models]

    def _pieces(
        self,
        kind: tuple[str, int],
        count: int,
        piece: Callable[[slice], T],
        first: Callable[[slice], T],
    ) -> list[T]:
        """The results of `piece` for all of `count` rows, in order; `first` makes the piece that is
        measured.
        """
        return self._calls.setdefault(kind, Pieces(self._most, self._memory)).run(
            count, piece, first
        )


class Pieces:
    """One kind of call, for as many models at once as fit into memory, by measurement.

    Attributes:
        bytes: what a model takes; 0 where that is not known yet.
    """

    def __init__(self, most: int, memory: CudaMemory | None, each: float = 0.0) -> None:
        self._most, self._memory = most, memory
        self.bytes = each
        self._seen = 0  # the largest piece that has fitted: no need to check smaller ones

    def run(self, count: int, piece: Callable[[slice], T], first: Callable[[slice], T]) -> list[T]:
        """The results of `piece` for all of `count` rows, in order; `first` does the same where
        nothing is known yet.

        Raises:
            torch.OutOfMemoryError: not even one model fits.
        """
        done: list[T] = []
        start = 0
        while start < count:
            size = self._next_size(count - start)
            call = piece if self.bytes or self._memory is None else first
            try:
                done.append(self._measure(size, partial(call, slice(start, start + size))))
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
            if self.bytes:
                fits = int(SHARE * self._memory.free() / self.bytes)
            else:
                fits = TRIED
            most = min(most, max(1, self._seen, fits))
        return -(-left // -(-left // most))

    def _measure(self, size: int, call: Callable[[], T]) -> T:
        """The result of `call`; memory is measured the first time `size` is this large."""
        if self._memory is None or size <= self._seen:
            return call()
        answer, peak = self._memory.peak(call)
        self.bytes, self._seen = max(1.0, peak / size), size
        return answer
