"""Gradients as promises: at which weights, by whom, how stale, with what fate; and what evaluates them."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from simulator.promises import Derived, Leaf, together
from simulator.weights import Model, Piece, stamp_of

IN_FLIGHT, APPLIED, DROPPED, CANCELLED = "in flight", "applied", "dropped", "cancelled"
FATES = (APPLIED, DROPPED, CANCELLED)


WHOLE: "dict[int, GradientPiece]" = {}  # the pieces of a gradient that has none


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


class Pool(Protocol):
    """What a gradient needs of the one who made it."""

    share: float

    def evaluate(self, asked: "Sequence[Gradient]") -> None: ...

    def settle(self, gradient: "Settled", status: str) -> "Gradient | None": ...


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

    def __init__(self, pool: Pool, worker: int, reader: Model, weights: Tensor, batch: Any, read: Tensor) -> None:
        self._pool, self.worker, self.weights, self.batch = pool, worker, weights, batch
        self._owner, self.version_read, self.mixed_read = stamp_of(read, reader)
        pieces: Sequence[Piece] = getattr(read, "pieces", ())  # slices with owners of their own
        self._pieces = {piece.stamp[0].rank: GradientPiece(self, piece) for piece in pieces} if pieces else WHOLE
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

    def settle(self, status: str) -> "Gradient | None":
        """Fix its fate: applied, dropped or cancelled; itself, if its fate was open."""
        return self._pool.settle(self, status)

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

    def settle(self, status: str) -> Gradient | None:
        """Fix its fate: applied or dropped; the gradient, if that makes its fate."""
        return self.whole._pool.settle(self, status)

    def drop(self) -> None:
        """Discard the piece; the gradient is dropped once all of its pieces are."""
        self.settle(DROPPED)


Settled = Gradient | GradientPiece
"""What has a fate: a gradient, or the piece of one that belongs to one of several owners."""
