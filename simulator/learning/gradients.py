"""Gradients as promises: their weights, worker, staleness, status, and derived values."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from laggard.simulator.learning.promises import Derived, Promise, evaluate
from laggard.simulator.learning.weights import Model, Piece, form_of, mean

if TYPE_CHECKING:
    from torch import Tensor

    from laggard.simulator.learning.pool import GradientPool

IN_FLIGHT, APPLIED, DROPPED, CANCELLED = "in flight", "applied", "dropped", "cancelled"
STATUSES = (APPLIED, DROPPED, CANCELLED)

RELEASED = -1
"""The `_changes` of a gradient that was released."""
WHOLE: "dict[int, GradientPiece]" = {}  # the pieces of an undivided gradient; shared, never filled


class GradientPromise(Promise):
    """The promise of a gradient, of a piece of one, or of a value derived from one.

    Attributes:
        worker: the rank that computes it.
        weights: the weights `(ensemble, n)` at which it is taken.
        version_read: the version of that model when it was read.
        mixed_read: the averaging steps of that model when it was read.
        share: its mini-batches as a fraction of an epoch.
        status: in flight, applied, dropped or cancelled.
        columns: the parameters with respect to which it is the gradient.
        whole: the gradient itself, or the gradient from which it is cut or derived.
        staleness: updates that the model read has received since; fixed once the status is final.
        mixings: averaging steps of that model since the read; fixed likewise.
        target: the rank of the node whose model was read, and whose updates make it stale.
    """

    __slots__ = ()

    worker: int
    weights: "Tensor"
    version_read: int
    mixed_read: int
    share: float
    status: str
    columns: slice
    whole: "Gradient"
    staleness: int
    mixings: int
    target: int

    @property
    def version(self) -> int:
        """The version of the model that was read, now or when the status became final."""
        return self.version_read + self.staleness

    def piece(self, rank: int) -> "GradientPromise":
        """The promise of the slice that belongs to node `rank`; itself where a node owns all."""
        return self

    def resolve(self, status: str) -> "Gradient | None":
        """Make the status final: applied, dropped or cancelled.

        Returns:
            The whole gradient, if this makes its status final.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Discard it: it counts as dropped, and is never evaluated unless it already was."""
        self.resolve(DROPPED)

    def map(
        self, function: "Callable[..., Tensor]", *promises: Promise, batches: float = 1
    ) -> "GradientPromise":
        """This gradient with another value: `function(own, *theirs)` of values `(ensemble, n)`.

        A worker uses it to compress, clip, correct or average a gradient before it sends it.
        `function` is pure and called at most once, when the value is first needed. State, such as
        the error in error feedback, is passed in `promises`, since values may be computed late,
        together, or never.

        Args:
            function: computes the new value from the gradient's value and the values of `promises`.
            promises: the other promises on which the value depends.
            batches: the number of mini-batches that the value represents, over the gradient's.
        """
        if batches == 1 and not self.weights.shape[1]:
            return self  # no value is asked for, and a chain of memories would grow without end
        return MappedGradient(self, (self, *promises), function, batches * self.share)


class Read(GradientPromise):
    """A gradient or a piece of one, taken at a model that may change afterwards."""

    __slots__ = ()

    _owner: Model
    _staleness: int  # set when the status becomes final, as `_mixings`
    _mixings: int

    @property
    def staleness(self) -> int:  # type: ignore[override]
        if self.status is IN_FLIGHT:
            return self._owner.version - self.version_read
        return self._staleness

    @property
    def mixings(self) -> int:  # type: ignore[override]
        if self.status is IN_FLIGHT:
            return self._owner.mixings - self.mixed_read
        return self._mixings

    @property
    def target(self) -> int:  # type: ignore[override]
        return self._owner.rank


class Gradient(Read):
    """The promise of one mini-batch's gradient `(ensemble, params)`.

    Attributes:
        batch: the mini-batch.
        started, due: virtual seconds at which its computation starts and is expected to end.
        computed: virtual seconds at which the computation ended; NaN until then.
    """

    columns = slice(None)
    __slots__ = (
        "_changes",
        "_losses",
        "_mixings",
        "_owner",
        "_pieces",
        "_pool",
        "_staleness",
        "batch",
        "computed",
        "due",
        "mixed_read",
        "started",
        "status",
        "version_read",
        "weights",
        "worker",
    )

    _changes: int  # in place, of the weights when they were read; `RELEASED` afterwards
    _losses: "Tensor | None"
    _pieces: "dict[int, GradientPiece]"
    _pool: "GradientPool"
    batch: Any
    computed: float
    due: float
    started: float

    @property
    def whole(self) -> "Gradient":  # type: ignore[override]  # an attribute would be a reference cycle
        return self

    @property
    def share(self) -> float:  # type: ignore[override]
        return self._pool.share

    def piece(self, rank: int) -> GradientPromise:
        if self._pieces:
            return self._pieces[rank]
        return self

    @property
    def losses(self) -> "Tensor":
        """The mini-batch loss `(ensemble,)` at the weights."""
        return losses_of([self])[0]

    def release(self) -> None:
        """Free the memory of weights and value, which are not needed again.

        Otherwise a worker would hold the memory of all its local steps until its gradients are
        applied. The losses stay; `weights` are `(ensemble, 0)` then.
        """
        if self._value is None or not self._pool.releases:
            return
        self.weights = self.weights.new_empty((self.weights.shape[0], 0))
        self._value = None
        self._changes = RELEASED

    def evaluate(self, leaves: Sequence["Gradient"]) -> None:
        self._pool.evaluate(leaves)

    def resolve(self, status: str) -> "Gradient | None":
        if self.status is not IN_FLIGHT:
            check_repeated(self, status)
            return None
        owner, pool = self._owner, self._pool
        self._staleness = owner.version - self.version_read
        self._mixings = owner.mixings - self.mixed_read
        self.status = status
        if pool.learns:
            pool.withdraw(self)
        on_resolved = pool.on_resolved
        on_resolved(self, self, True)
        return self

    def cancel(self) -> None:
        """Withdraw the promise of an interrupted computation; a final status stays."""
        if self.status == IN_FLIGHT:
            self.resolve(CANCELLED)


class GradientPiece(Derived, Read):
    """The promise of one owner's slice of a gradient: a shard's, or a pipeline stage's.

    A piece has its own read, staleness and status. The first piece that is applied makes the whole
    gradient applied; the gradient is dropped once all of its pieces are.
    """

    __slots__ = (
        "_mixings",
        "_owner",
        "_staleness",
        "columns",
        "mixed_read",
        "share",
        "status",
        "version_read",
        "whole",
        "worker",
    )

    def __init__(self, whole: Gradient, piece: Piece) -> None:
        self.columns, stamp = piece
        super().__init__((whole,), lambda value: value[:, self.columns])
        self._owner, self.version_read, self.mixed_read = stamp
        self.whole = whole
        self.worker = whole.worker
        self.share = whole.share
        self.status = IN_FLIGHT

    @property
    def weights(self) -> "Tensor":  # type: ignore[override]  # a view made when it is needed
        return self.whole.weights[:, self.columns]

    def resolve(self, status: str) -> Gradient | None:
        if self.status is not IN_FLIGHT:
            check_repeated(self, status)
            return None
        whole, pool = self.whole, self.whole._pool
        # Read before the status changes: afterwards the two properties answer the stored values.
        self._staleness = self.staleness
        self._mixings = self.mixings
        self.status = status
        last = all(piece.status != IN_FLIGHT for piece in whole._pieces.values())
        first = whole.status is IN_FLIGHT and (status == APPLIED or last)
        if first:
            whole._staleness = self._staleness
            whole._mixings = self._mixings
            whole.status = status
            if pool.learns:
                pool.withdraw(whole)
        pool.on_resolved(self, whole, first)
        if first:
            return whole
        return None


def check_is_gradient(place: str, gradient: object) -> None:
    """Raise TypeError for another object than a gradient at `place`.

    Arithmetic on a gradient makes a promise without a worker and a status; `map` keeps them.
    """
    if not isinstance(gradient, GradientPromise):
        expected = "a gradient, of `node.compute` or `gradient.map`"
        raise TypeError(f"{place}: expected {expected}, got {form_of(gradient)}")


def check_repeated(gradient: Gradient | GradientPiece, status: str) -> None:
    """Check a second final status: only a gradient that was applied may be applied again.

    Raises:
        RuntimeError: another status, before or now.
    """
    if not gradient.status == status == APPLIED:
        raise RuntimeError(
            f"a gradient of worker {gradient.worker} is to be {status}, but was {gradient.status}"
        )


class MappedGradient(Derived, GradientPromise):
    """The result of `GradientPromise.map`: another value; everything else is the original's."""

    __slots__ = ("_of", "share")

    def __init__(
        self,
        of: GradientPromise,
        sources: tuple[Promise, ...],
        function: "Callable[..., Tensor]",
        share: float,
    ) -> None:
        super().__init__(sources, function)
        self._of, self.share = of, share

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._of, name)

    def piece(self, rank: int) -> GradientPromise:
        piece = self._of.piece(rank)
        if piece is self._of:
            return self
        return MappedGradient(piece, (self,), lambda value: value[:, piece.columns], self.share)

    def resolve(self, status: str) -> Gradient | None:
        return self._of.resolve(status)


def losses_of(gradients: Sequence[Gradient]) -> "list[Tensor]":
    """The mini-batch losses `(ensemble,)` of all; gradients without them are evaluated together."""
    evaluate([gradient for gradient in gradients if gradient._losses is None])
    return [gradient._losses for gradient in gradients]  # type: ignore[misc]


def mean_gradient(gradients: Sequence[Gradient]) -> GradientPromise:
    """The mean of one worker's gradients; it counts as many mini-batches as are in flight."""
    new = sum(gradient.status == IN_FLIGHT for gradient in gradients)
    return gradients[0].map(lambda *values: mean(values), *gradients[1:], batches=new)
