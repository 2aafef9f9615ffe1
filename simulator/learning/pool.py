"""Every gradient in flight, evaluated together.

A gradient depends only on its weights and its mini-batch, so its arithmetic can wait until the
value is first needed, and then other gradients in flight can be evaluated with it. A gradient whose
value is never needed costs nothing.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from laggard.simulator.learning.gradients import APPLIED, IN_FLIGHT, WHOLE, Gradient, GradientPiece
from laggard.simulator.learning.task import BackgroundCall, Task, submit
from laggard.simulator.learning.weights import Model, Piece, Stamp

# times the lanes: threads wait for each other at the end of a call, so that longer calls are
# cheaper
AHEAD = 4
MEMORY = 4.0 * 2**30  # bytes
PROMISE_SHARE = 0.25  # of a GPU's free memory, for promises; calls take half of what is left
FREE: dict[str, Callable[[torch.device], float]] = {
    "cuda": lambda device: torch.cuda.mem_get_info(device)[0]
}
"""Free bytes of a type of device."""
# the largest share of evaluated but unused gradients at which calls are that long
UNUSED_SHARE = 0.05


def memory_for(start: Tensor) -> float:
    """Bytes for promises whose weights lie where `start` does: 4 GiB, and on a GPU a share of what
    is free now.
    """
    free = FREE.get(start.device.type)
    if free is None:
        return MEMORY
    return PROMISE_SHARE * free(start.device)


class GradientPool:
    """Every gradient in flight, evaluated together when the first value is needed.

    Args:
        task: computes gradients.
        start: weights `(ensemble, params)` give the shape; with zero parameters nothing is
            evaluated.
        on_resolved: called when a gradient or a piece of one gets its final status, with it, the
            whole gradient, and whether this makes the status of the whole final.
        memory: bytes of promised weights and gradients above which some are evaluated early;
            `memory_for` by default.
        defer: False evaluates each promise when it is made, for comparison.
    """

    def __init__(
        self,
        task: Task,
        start: Tensor,
        on_resolved: Callable[[Gradient | GradientPiece, Gradient, bool], None],
        memory: float | None = None,
        defer: bool = True,
    ) -> None:
        self.task, self.on_resolved, self._defer = task, on_resolved, defer
        self._ensemble, params = start.shape
        self.learns = params > 0
        if self.learns:
            self.no_losses = None
        else:
            self.no_losses = torch.zeros(self._ensemble, dtype=start.dtype)
        if not self.learns:  # every value is known, so that there is nothing else to do
            self.promise = self._new_gradient  # type: ignore[method-assign]
        memory = memory_for(start) if memory is None else memory
        self._most = max(1, int(memory // max(1, 2 * start.numel() * start.element_size())))
        self._pending: dict[Gradient, None] = {}
        # of one call, and their places in it
        self._background: dict[Gradient, tuple[BackgroundCall, int]] = {}
        self.share = task.batch / task.epoch
        self.evaluated = self.unused = 0
        self.calls = 0

    def promise(
        self, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor | None = None
    ) -> Gradient:
        """A gradient of `batch` at `weights`, read by worker `worker`, whose value is evaluated
        later or never.

        `read` is the model that was read, where `weights` have changed since.
        """
        gradient = self._new_gradient(worker, reader, weights, batch, read)
        if len(self._pending) >= self._most:
            self.evaluate(self._soonest(1))
        self._pending[gradient] = None
        if not self._defer:
            self._evaluate([gradient], [])
        return gradient

    def evaluate(self, asked: Sequence[Gradient]) -> None:
        """Evaluate `asked`, and to fill the lanes others in flight, soonest due first.

        These may be under way when it returns: then a later call waits for them, at the latest the
        next that begins others. Which gradients a call is for does not depend on how far they are.
        """
        self._take(asked)
        wanted = list(dict.fromkeys(gradient for gradient in asked if gradient._value is None))
        if wanted:
            self.finish()
            self._evaluate(wanted, self._fill(wanted))
            self._take(wanted)

    def finish(self) -> None:
        """Wait for all gradients that are evaluated in the background."""
        self._take(list(self._background))

    def cancel(self) -> None:
        """Evaluate nothing more in the background, but for what is asked for."""
        for call, _ in self._background.values():
            call.cancel()

    def withdraw(self, gradient: Gradient) -> None:
        """Forget a gradient whose status is final: nobody needs its value, unless it has been
        evaluated or applied.
        """
        if gradient in self._pending:
            del self._pending[gradient]
        elif gradient.status != APPLIED:
            self.unused += 1

    def _new_gradient(
        self, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor | None = None
    ) -> Gradient:
        """The gradient in flight; made here, since a class with an `__init__` takes Python 3.11
        longer to call.
        """
        if read is None:
            read = weights
        gradient = Gradient()
        gradient._pool, gradient.worker, gradient.weights = self, worker, weights
        gradient.batch, gradient._changes = batch, weights._version
        stamp: Stamp = getattr(read, "stamp", None) or (reader, reader.version, reader.mixings)
        gradient._owner, gradient.version_read, gradient.mixed_read = stamp
        pieces: Sequence[Piece] = getattr(read, "pieces", ())  # slices with different owners
        if pieces:
            gradient._pieces = {
                part.stamp[0].rank: GradientPiece(gradient, part) for part in pieces
            }
        else:
            gradient._pieces = WHOLE
        gradient._value, gradient._losses = None if self.learns else weights, self.no_losses
        gradient.started = gradient.due = gradient.computed = math.nan
        gradient.status = IN_FLIGHT
        return gradient

    def _fill(self, wanted: list[Gradient]) -> list[Gradient]:
        if len(wanted) >= self.task.lanes:
            return []
        if self.unused <= UNUSED_SHARE * self.evaluated:
            calls = AHEAD
        else:
            calls = 1
        return self._soonest(
            max(0, calls * self.task.lanes // self._ensemble - len(wanted)), frozenset(wanted)
        )

    def _soonest(self, count: int, apart: frozenset[Gradient] = frozenset()) -> list[Gradient]:
        others = (gradient for gradient in self._pending if gradient not in apart)
        if count:
            return heapq.nsmallest(count, others, key=lambda gradient: gradient.due)
        return []

    def _take(self, gradients: Sequence[Gradient]) -> None:
        """Wait for those of `gradients` that are in the background."""
        for gradient in gradients:
            if gradient in self._background:
                call, number = self._background[gradient]
                gradient._value, gradient._losses = call.result(number)
                del self._background[gradient]

    def _evaluate(self, wanted: list[Gradient], others: list[Gradient]) -> None:
        """Evaluate all, or begin to evaluate them where some can wait."""
        gradients = wanted + others
        for gradient in gradients:
            if gradient.weights._version != gradient._changes:
                raise RuntimeError(
                    f"the weights at which worker {gradient.worker} computes since "
                    f"{gradient.started:g} s were changed "
                    "in place while their gradient is promised; weights are values: write "
                    "`weights = weights + step`"
                )
            self._pending.pop(gradient, None)
        weights = [gradient.weights for gradient in gradients]
        # an ensemble can be large
        if len(weights) == 1:
            stacked = weights[0].unsqueeze(0)
        else:
            stacked = torch.stack(weights)
        batches = [gradient.batch for gradient in gradients]
        if call := submit(self.task, stacked, batches) if others else None:
            self._background = {
                gradient: (call, number) for number, gradient in enumerate(gradients)
            }
        else:
            values, losses = self.task.gradients(stacked, batches)
            for gradient, value, loss in zip(gradients, values, losses, strict=True):
                gradient._value, gradient._losses = value, loss
        self.evaluated += len(gradients)
        self.calls += 1
