"""A pool of the gradients in flight, which it evaluates together.

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

from laggard.memory import new_tensor
from laggard.simulator.learning.gradients import (
    APPLIED,
    IN_FLIGHT,
    RELEASED,
    WHOLE,
    Gradient,
    GradientPiece,
)
from laggard.simulator.learning.task import BackgroundCall, Task, submit
from laggard.simulator.learning.weights import Model, Piece, Stamp

CALLS_AHEAD = 4
"""The size of a call in multiples of the task's lanes, while few gradients go unused."""
MEMORY = 4.0 * 2**30  # bytes
PROMISE_SHARE = 0.25  # of a GPU's free memory, for promises; calls take half of the rest
FREE: dict[str, Callable[[torch.device], float]] = {
    "cuda": lambda device: torch.cuda.mem_get_info(device)[0]
}
"""Free bytes of a type of device."""
MAX_UNUSED_SHARE = 0.05
"""The largest share of evaluated but unused gradients at which a call has that size."""


def memory_for(start: Tensor) -> float:
    """Bytes for promises on the device of `start`: 4 GiB, or a share of a GPU's free memory."""
    free = FREE.get(start.device.type)
    if free is None:
        return MEMORY
    return PROMISE_SHARE * free(start.device)


class GradientPool:
    """Holds every gradient in flight, and evaluates them together when a value is needed.

    Args:
        task: computes gradients.
        start: weights `(ensemble, params)` give the shape; with zero parameters nothing is
            evaluated.
        on_resolved: called when a gradient or a piece of one gets its final status, with it, the
            whole gradient, and whether this makes the status of the whole final.
        memory: bytes of promised weights and gradients above which some are evaluated early;
            `memory_for` by default.
        defer: False evaluates each promise when it is made, for comparison.

    Attributes:
        releases: whether `Gradient.release` frees anything; not where all values are compared at
            the end.
    """

    def __init__(
        self,
        task: Task,
        start: Tensor,
        on_resolved: Callable[[Gradient | GradientPiece, Gradient, bool], None],
        memory: float | None = None,
        defer: bool = True,
    ) -> None:
        self.task = task
        self.on_resolved = on_resolved
        self._defer = defer
        self._ensemble, params = start.shape
        self.learns = self.releases = params > 0
        self.no_losses = None
        if not self.learns:
            self.no_losses = torch.zeros(self._ensemble, dtype=start.dtype)
            # Every value is known: nothing is pending, and a run of the clock skips `promise`.
            self.promise = self._new_gradient  # type: ignore[method-assign]
        if memory is None:
            memory = memory_for(start)
        bytes_per_promise = 2 * start.numel() * start.element_size()  # weights and gradient
        self._max_pending = max(1, int(memory // max(1, bytes_per_promise)))
        self._pending: dict[Gradient, None] = {}  # a dict: a set has no order that repeats
        self._background: dict[Gradient, tuple[BackgroundCall, int]] = {}  # and the place in a call
        self.share = task.batch / task.epoch
        self.evaluated = self.unused = 0
        self.calls = 0

    def promise(
        self, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor | None = None
    ) -> Gradient:
        """A gradient of `batch` at `weights`, whose value is evaluated later or never.

        `read` is the model that the worker has read, where `weights` have changed since.
        """
        gradient = self._new_gradient(worker, reader, weights, batch, read)
        if len(self._pending) >= self._max_pending:
            # The same call evaluates other pending gradients, which frees their places too.
            self.evaluate(self._soonest(1))
        self._pending[gradient] = None
        if not self._defer:
            self._evaluate([gradient], [])
        return gradient

    def evaluate(self, asked: Sequence[Gradient]) -> None:
        """Evaluate `asked`, and others in flight to fill the lanes, the soonest due first.

        The others may still be computed in the background when this returns: a later call waits for
        them. The choice of gradients does not depend on the progress of threads, so that a run is
        the same each time.
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
        """Stop background evaluation; requested values are still computed."""
        for call, _ in self._background.values():
            call.cancel()

    def withdraw(self, gradient: Gradient) -> None:
        """Remove a gradient with a final status from the gradients in flight: its value is not
        needed.
        """
        if gradient in self._pending:
            del self._pending[gradient]
        # It has been evaluated, or is being evaluated, for nothing.
        elif gradient.status != APPLIED:
            self.unused += 1

    def _new_gradient(
        self, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor | None = None
    ) -> Gradient:
        """A gradient in flight; filled here, since Python 3.11 calls an `__init__` more slowly."""
        if read is None:
            read = weights
        gradient = Gradient()
        gradient._pool = self
        gradient.worker = worker
        gradient.weights = weights
        gradient.batch = batch
        gradient._changes = weights._version
        stamp: Stamp = getattr(read, "stamp", None) or (reader, reader.version, reader.mixings)
        gradient._owner, gradient.version_read, gradient.mixed_read = stamp
        gradient._pieces = WHOLE
        pieces: Sequence[Piece] = getattr(read, "pieces", ())  # slices with different owners
        if pieces:
            gradient._pieces = {}
            for piece in pieces:
                _, (owner, _, _) = piece
                gradient._pieces[owner.rank] = GradientPiece(gradient, piece)
        # Without parameters the weights are the gradient too: both have no entries.
        gradient._value = None if self.learns else weights
        gradient._losses = self.no_losses
        gradient.started = gradient.due = gradient.computed = math.nan
        gradient.status = IN_FLIGHT
        return gradient

    def _fill(self, wanted: list[Gradient]) -> list[Gradient]:
        if len(wanted) >= self.task.lanes:
            return []
        # Threads wait for each other at the end of a call, so longer calls are cheaper. But they
        # evaluate gradients that may be dropped later: only while few evaluated ones went unused.
        few_unused = self.unused <= MAX_UNUSED_SHARE * self.evaluated
        calls = CALLS_AHEAD if few_unused else 1
        spare = calls * self.task.lanes // self._ensemble - len(wanted)
        return self._soonest(max(0, spare), frozenset(wanted))

    def _soonest(self, count: int, exclude: frozenset[Gradient] = frozenset()) -> list[Gradient]:
        if not count:
            return []
        others = (gradient for gradient in self._pending if gradient not in exclude)
        return heapq.nsmallest(count, others, key=lambda gradient: gradient.due)

    def _take(self, gradients: Sequence[Gradient]) -> None:
        """Wait for the `gradients` that are computed in the background."""
        for gradient in gradients:
            if gradient in self._background:
                call, number = self._background[gradient]
                gradient._value, gradient._losses = call.result(number)
                del self._background[gradient]

    def _evaluate(self, wanted: list[Gradient], others: list[Gradient]) -> None:
        """Evaluate all: several in the background where the task can, else at once."""
        gradients = wanted + others
        for gradient in gradients:
            if gradient._changes == RELEASED:
                raise RuntimeError(
                    f"the gradient that worker {gradient.worker} computed since "
                    f"{gradient.started:g} s was released: ask for its value before"
                )
            if gradient.weights._version != gradient._changes:
                weights_of = f"the weights at which worker {gradient.worker} computes"
                raise RuntimeError(
                    f"{weights_of} since {gradient.started:g} s were changed in place while their "
                    "gradient is promised; weights are values: write `weights = weights + step`"
                )
            self._pending.pop(gradient, None)
        weights = [gradient.weights for gradient in gradients]
        batches = [gradient.batch for gradient in gradients]
        call = None
        if len(gradients) > 1:  # a single gradient leaves nothing for the background
            call = submit(self.task, weights, batches)
        if call is not None:
            for number, gradient in enumerate(gradients):
                self._background[gradient] = call, number
        else:
            values, losses = self.task.gradients(_stack_weights(weights), batches)
            for gradient, value, loss in zip(gradients, values, losses, strict=True):
                gradient._value = value
                gradient._losses = loss
        self.evaluated += len(gradients)
        self.calls += 1


def _stack_weights(weights: Sequence[Tensor]) -> Tensor:
    """The models `(ensemble, params)` as one tensor `(k, ensemble, params)`."""
    if len(weights) == 1:
        return weights[0].unsqueeze(0)  # no copy: an ensemble can be large
    shape = (len(weights), *weights[0].shape)
    return torch.stack(list(weights), out=new_tensor(shape, weights[0]))
