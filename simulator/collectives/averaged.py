"""What comes out of a collective, as a rule takes it."""

from torch import Tensor

from simulator.gradients import Gradient
from simulator.promises import Derived, Promise


class Averaged(Derived):
    """The mean of the gradients that `workers` nodes took at the same weights: one gradient of all their mini-batches.

    It is as stale as the node's own, which is one of them, and keeps its worker.
    """

    __slots__ = ("own", "workers")

    def __init__(self, total: Promise, own: Gradient, workers: int) -> None:
        super().__init__((total,), lambda value: value / workers if workers > 1 else value)
        self.own, self.workers = own, workers

    @property
    def share(self) -> float:
        """The part of an epoch that the mini-batches are."""
        return self.workers * self.own.share

    @property
    def staleness(self) -> int:
        """Updates of the model read since it was read."""
        return self.own.staleness

    @property
    def weights(self) -> Tensor:
        """The weights `(ensemble, params)` at which it was taken."""
        return self.own.weights

    @property
    def worker(self) -> int:
        """The rank of the node that has it."""
        return self.own.worker
