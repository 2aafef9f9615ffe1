"""Gradients as promises, and the pool that evaluates those in flight together.

A gradient depends only on the weights it was asked at and on its mini-batch, so its arithmetic can wait until
somebody needs the value, and then every other gradient in flight can be evaluated beside it. A gradient that
nobody asks for costs nothing.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simulator.promises import Derived, Leaf, together
from simulator.task import Task
from simulator.weights import Model, Piece, pieces_of, stamp_of

IN_FLIGHT, APPLIED, DROPPED, CANCELLED = "in flight", "applied", "dropped", "cancelled"
FATES = (APPLIED, DROPPED, CANCELLED)


class Read:
    """What a gradient and a piece of one have in common: they were taken at a model that goes on changing."""

    __slots__ = ()

    _owner: Model
    _staleness: int | None
    _mixings: int | None
    version_read: int
    mixed_read: int

    @property
    def staleness(self) -> int:
        """Updates that the model read has received since; fixed once the fate is known."""
        return self._owner.version - self.version_read if self._staleness is None else self._staleness

    @property
    def mixings(self) -> int:
        """How often the model read has been averaged with others' since; fixed once the fate is known."""
        return self._owner.mixings - self.mixed_read if self._mixings is None else self._mixings

    @property
    def version(self) -> int:
        """The version of the model that was read, as of now or of the fate."""
        return self.version_read + self.staleness

    @property
    def target(self) -> int:
        """The rank of the node at whose model it was taken, and whose updates make it stale."""
        return self._owner.rank


class Gradient(Leaf, Read):
    """The promise of one mini-batch's gradient `(ensemble, params)`.

    Attributes:
        worker: the rank that computes it.
        weights: the weights `(ensemble, params)` it is taken at.
        version_read: the version of their owner's model when it was read.
        mixed_read: how often their owner's model had been averaged with others' when it was read.
        batch: the mini-batch.
        share: the part of an epoch that the mini-batch is.
        started, due: virtual seconds at which its computation starts and is expected to end.
        computed: virtual seconds at which the computation ended; NaN until then.
        status: in flight, applied, dropped or cancelled.
    """

    __slots__ = (
        "_changes", "_losses", "_mixings", "_owner", "_pieces", "_pool", "_staleness",
        "batch", "computed", "due", "mixed_read", "share", "started", "status", "version_read", "weights", "worker",
    )  # fmt: skip

    def __init__(
        self, pool: "GradientPool", worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor
    ) -> None:
        self._pool, self.worker, self.weights, self.batch = pool, worker, weights, batch
        self._owner, self.version_read, self.mixed_read = stamp_of(read, reader)
        self._pieces = {piece.stamp.owner.rank: GradientPiece(self, piece) for piece in pieces_of(read)}
        self._changes = weights._version
        self._staleness: int | None = None
        self._mixings: int | None = None
        self._value: Tensor | None = None
        self._losses: Tensor | None = None
        self.share = pool.share
        self.started = self.due = self.computed = float("nan")
        self.status = IN_FLIGHT

    @property
    def whole(self) -> "Gradient":
        """Itself; of a piece, the gradient that it is a piece of."""
        return self

    def piece(self, rank: int) -> "Settled":
        """The promise of the slice that belongs to node `rank`; all of it, where the weights are one node's alone."""
        return self._pieces[rank] if self._pieces else self

    @property
    def losses(self) -> Tensor:
        """The mini-batch loss `(ensemble,)` at the weights."""
        together([self])
        assert self._losses is not None
        return self._losses

    @property
    def forsaken(self) -> bool:
        """Whether it has pieces, and every one of them has met its fate."""
        return all(piece.status != IN_FLIGHT for piece in self._pieces.values())

    def evaluate(self, leaves: Sequence["Gradient"]) -> None:
        self._pool.evaluate(leaves)

    def settle(self, status: str) -> None:
        """Fix its fate: applied, dropped or cancelled."""
        self._pool.settle(self, status)

    def cancel(self) -> None:
        """Withdraw the promise of a computation that was interrupted."""
        self.settle(CANCELLED)

    def drop(self) -> None:
        """Discard the gradient: it counts as dropped, and is never evaluated unless it already was."""
        self.settle(DROPPED)


class GradientPiece(Derived, Read):
    """The promise of the slice of a gradient that belongs to one of several owners: a shard, a pipeline's stage.

    It has a read, a staleness and a fate of its own; the first piece that is applied makes its gradient applied.

    Attributes:
        whole: the gradient that it is a piece of.
        version_read, mixed_read, status: as of a `Gradient`, with respect to the piece's owner.
    """

    __slots__ = ("_mixings", "_owner", "_slice", "_staleness", "mixed_read", "status", "version_read", "whole")

    def __init__(self, whole: Gradient, piece: Piece) -> None:
        self._slice = slice(piece.start, piece.stop)
        super().__init__((whole,), lambda value: value[:, self._slice])
        self._owner, self.version_read, self.mixed_read = piece.stamp
        self._staleness: int | None = None
        self._mixings: int | None = None
        self.whole, self.status = whole, IN_FLIGHT

    @property
    def weights(self) -> Tensor:
        """The slice `(ensemble, n)` of the weights at which the gradient was taken."""
        return self.whole.weights[:, self._slice]

    @property
    def worker(self) -> int:
        """The rank that computes the gradient."""
        return self.whole.worker

    @property
    def share(self) -> float:
        """The part of an epoch that the mini-batch is."""
        return self.whole.share

    def settle(self, status: str) -> None:
        """Fix its fate: applied or dropped."""
        self.whole._pool.settle(self, status)

    def drop(self) -> None:
        """Discard the piece; the gradient is dropped once all of its pieces are."""
        self.settle(DROPPED)


Settled = Gradient | GradientPiece
"""What has a fate: a gradient, or the piece of one that belongs to one of several owners."""


class GradientPool:
    """Every gradient in flight, evaluated together when the first value is needed.

    Args:
        task: gives the arithmetic.
        start: weights `(ensemble, params)` of the shape to come; with zero parameters nothing is ever evaluated.
        settled: told of every gradient, or piece of one, whose fate has become known, and whether the gradient's is
            known by it.
        memory: bytes of promises not yet evaluated, weights and gradients to come, above which some are early.
        defer: False evaluates each promise when it is made, for comparison.
    """

    def __init__(
        self,
        task: Task,
        start: Tensor,
        settled: Callable[[Settled, bool], None],
        memory: float = 4 * 2**30,
        defer: bool = True,
    ) -> None:
        self._task, self._settled, self._defer = task, settled, defer
        self._ensemble, params = start.shape
        self._nothing = torch.zeros(self._ensemble, dtype=start.dtype) if params == 0 else None
        self._most = max(1, int(memory // max(1, 2 * start.numel() * start.element_size())))
        self._pending: dict[Gradient, None] = {}
        self.share = task.batch / task.epoch
        self.evaluated = 0
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
        """Evaluate `asked`, and of the others, soonest due first, what fits into lanes that would stay empty."""
        wanted = list(dict.fromkeys(gradient for gradient in asked if gradient._value is None))
        if wanted:
            self._evaluate(wanted + self._fill(wanted))

    def settle(self, gradient: Settled, status: str) -> None:
        """Fix the fate of `gradient`; a promise still pending is withdrawn.

        Raises:
            RuntimeError: it already has another fate. Being applied again, by another node, is none.
        """
        if gradient.status == status == APPLIED:
            return
        if gradient.status != IN_FLIGHT:
            raise RuntimeError(f"a gradient of worker {gradient.worker} is to be {status}, but was {gradient.status}")
        gradient._staleness, gradient._mixings, gradient.status = gradient.staleness, gradient.mixings, status
        whole = gradient.whole
        first = gradient is whole or (whole.status == IN_FLIGHT and (status == APPLIED or whole.forsaken))
        if first:
            whole._staleness, whole._mixings, whole.status = gradient._staleness, gradient._mixings, status
            self._pending.pop(whole, None)
        self._settled(gradient, first)

    def _fill(self, wanted: list[Gradient]) -> list[Gradient]:
        free = max(0, self._task.lanes - len(wanted) * self._ensemble)
        return self._soonest(free // self._ensemble, frozenset(wanted))

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
        weights = torch.stack([gradient.weights for gradient in gradients])
        values, losses = self._task.gradients(weights, [gradient.batch for gradient in gradients])
        for gradient, value, loss in zip(gradients, values, losses, strict=True):
            gradient._value, gradient._losses = value, loss
        self.evaluated += len(gradients)
        self.calls += 1
