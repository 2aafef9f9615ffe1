"""Every gradient in flight, evaluated together.

A gradient depends only on the weights it was asked at and on its mini-batch, so its arithmetic can wait until
somebody needs the value, and then every other gradient in flight can be evaluated beside it. A gradient that
nobody asks for costs nothing.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simulator.gradients import APPLIED, IN_FLIGHT, Gradient, Settled
from simulator.task import Task
from simulator.weights import Model

AHEAD = 4  # times the lanes: a call's threads wait for each other at its end, so that longer calls are cheaper
VAIN = 0.05  # of the gradients evaluated, that may have been evaluated for nothing where calls are that long


class GradientPool:
    """Every gradient in flight, evaluated together when the first value is needed.

    Args:
        task: gives the arithmetic.
        start: weights `(ensemble, params)` of the shape to come; with zero parameters nothing is ever evaluated.
        settled: told of every gradient, or piece of one, whose fate has become known, of the whole gradient, and
            whether that one's is known by it.
        memory: bytes of promises not yet evaluated, weights and gradients to come, above which some are early.
        defer: False evaluates each promise when it is made, for comparison.
    """

    def __init__(
        self,
        task: Task,
        start: Tensor,
        settled: Callable[[Settled, Gradient, bool], None],
        memory: float = 4 * 2**30,
        defer: bool = True,
    ) -> None:
        self._task, self._settled, self._defer = task, settled, defer
        self._ensemble, params = start.shape
        self._nothing = torch.zeros(self._ensemble, dtype=start.dtype) if params == 0 else None
        self._most = max(1, int(memory // max(1, 2 * start.numel() * start.element_size())))
        self._pending: dict[Gradient, None] = {}
        self.share = task.batch / task.epoch
        self.evaluated = self.vain = 0
        self.calls = 0

    def promise(self, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor | None = None) -> Gradient:
        """A gradient of `batch` at `weights`, read by worker `worker`, whose value is evaluated later or never.

        Where `weights` have moved away from what was read, `read` is that.
        """
        gradient = Gradient(self, worker, reader, weights, batch, weights if read is None else read)
        if self._nothing is not None:
            gradient._value, gradient._losses = weights, self._nothing
            return gradient
        if len(self._pending) >= self._most:
            self.evaluate(self._soonest(1))
        self._pending[gradient] = None
        if not self._defer:
            self._evaluate([gradient])
        return gradient

    def evaluate(self, asked: Sequence[Gradient]) -> None:
        """Evaluate `asked`, and if lanes would stay empty, of the others as many as are worth it, soonest due first."""
        wanted = list(dict.fromkeys(gradient for gradient in asked if gradient._value is None))
        if wanted:
            self._evaluate(wanted + self._fill(wanted))

    def settle(self, gradient: Settled, status: str) -> Gradient | None:
        """Fix the fate of `gradient`, or of a piece of one; the gradient whose fate is known by it, if any.

        A promise still pending is withdrawn.

        Raises:
            RuntimeError: it already has another fate. Being applied again, by another node, is none.
        """
        if gradient.status is not IN_FLIGHT:
            if gradient.status == status == APPLIED:
                return None
            raise RuntimeError(f"a gradient of worker {gradient.worker} is to be {status}, but was {gradient.status}")
        gradient._staleness, gradient._mixings = gradient.staleness, gradient.mixings
        gradient.status, whole, first = status, gradient.whole, True
        if gradient is not whole:
            first = whole.status is IN_FLIGHT and (status == APPLIED or whole.forsaken)
            if first:
                whole._staleness, whole._mixings, whole.status = gradient._staleness, gradient._mixings, status
        if first and self._nothing is None:
            if whole in self._pending:
                del self._pending[whole]
            elif status != APPLIED:
                self.vain += 1
        self._settled(gradient, whole, first)
        return whole if first else None

    def _fill(self, wanted: list[Gradient]) -> list[Gradient]:
        if len(wanted) >= self._task.lanes:
            return []
        calls = AHEAD if self.vain <= VAIN * self.evaluated else 1
        return self._soonest(max(0, calls * self._task.lanes // self._ensemble - len(wanted)), frozenset(wanted))

    def _soonest(self, count: int, apart: frozenset[Gradient] = frozenset()) -> list[Gradient]:
        others = (gradient for gradient in self._pending if gradient not in apart)
        return heapq.nsmallest(count, others, key=lambda gradient: gradient.due) if count else []

    def _evaluate(self, gradients: list[Gradient]) -> None:
        for gradient in gradients:
            if gradient.weights._version != gradient._changes:
                raise RuntimeError(
                    f"the weights at which worker {gradient.worker} computes since {gradient.started:g} s were changed "
                    "in place while their gradient is promised; weights are values: write `weights = weights + step`"
                )
            self._pending.pop(gradient, None)
        weights = [gradient.weights for gradient in gradients]
        stacked = weights[0].unsqueeze(0) if len(weights) == 1 else torch.stack(weights)  # an ensemble can be large
        values, losses = self._task.gradients(stacked, [gradient.batch for gradient in gradients])
        for gradient, value, loss in zip(gradients, values, losses, strict=True):
            gradient._value, gradient._losses = value, loss
        self.evaluated += len(gradients)
        self.calls += 1
