"""Gradients that threads compute in the background while their caller goes on."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor

from torch import Tensor


class BackgroundGradients:
    """Gradients of a call that is under way: `laggard.simulator.learning.task.BackgroundCall`.

    Threads begin the rows in their order. A caller that waits for a row computes rows that no
    thread has begun, so that `threads` - 1 threads and the caller keep `threads` cores busy.

    Args:
        job: writes one row of `gradients` and of `losses`.
        rows: the rows to be computed.
        gradients: the output, `(k x members, params)`, `members` rows for each of k gradients.
        losses: the output, `(k x members,)`.
    """

    def __init__(
        self,
        executor: Executor,
        job: Callable[[int], object],
        rows: Iterable[int],
        gradients: Tensor,
        losses: Tensor,
        members: int,
    ) -> None:
        self._job = job
        self._gradients = gradients
        self._losses = losses
        self._members = members
        self._futures = {row: executor.submit(job, row) for row in rows}

    def result(self, number: int) -> tuple[Tensor, Tensor]:
        """Gradient `number` of the call, `(members, params)`, and its losses `(members,)`."""
        rows = slice(number * self._members, (number + 1) * self._members)
        for row in range(rows.start, rows.stop):
            self._wait(row)
        return self._gradients[rows], self._losses[rows]

    def cancel(self) -> None:
        """Have threads begin no further row; those asked for are still computed."""
        for future in self._futures.values():
            future.cancel()

    def _wait(self, row: int) -> None:
        """Return once `row` is computed; meanwhile compute what no thread has begun."""
        while row in self._futures and not self._compute(row):
            # `any` stops at the first row computed here, which leaves the dictionary: hence a list.
            if self._futures[row].done() or not any(map(self._compute, list(self._futures))):
                self._futures[row].result()
                del self._futures[row]

    def _compute(self, row: int) -> bool:
        """Compute `row` here; False where a thread has begun it."""
        if not self._futures[row].cancel():
            return False
        self._job(row)
        del self._futures[row]
        return True
