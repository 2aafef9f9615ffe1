"""Rescaled ASGD: slow workers, whose gradients are rare, make longer steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from laggard.simulator.errors import InvalidSettingError, Positive
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar

if TYPE_CHECKING:
    from torch import Tensor


class ComputeTime(NamedTuple):
    """The mean of a worker's compute times (s), and their number."""

    mean: float
    number: int


@dataclass(frozen=True)
class Rescaled(Uncompensated):
    """A gradient is weighted by its worker's compute time, over the mean of all workers' times.

        w <- w - lr (tau_i / mean_j tau_j) g_i(w_read)

    with tau_i the compute time of worker i. So each worker contributes equally per second. Where
    workers' losses differ, w tends to the minimum of their mean up to O(lr). With equal times it is
    plain ASGD. It is for servers that take gradients of any age: where each update has one gradient
    of every worker, it would weight slow workers more. Without a server it has no effect.

    Source: arXiv 2605.13434 (2026), rescaled asynchronous SGD.

    Attributes:
        times: tau_i (s) of each worker; null takes the running mean of the compute times of worker
            i, over the workers that have sent a gradient so far.
    """

    shared: ClassVar[bool] = True

    times: Sequence[Positive] | None = None

    def init(self, weights: "Tensor") -> Any:
        return {}

    def correct(
        self,
        value: "Tensor",
        gradient: GradientPromise,
        weights: "Tensor",
        state: Mapping[int, ComputeTime],
        lr: Scalar,
    ) -> "tuple[Tensor, Any]":
        if self.times is not None:
            mean = math.fsum(self.times) / len(self.times)
            return value * (self.times[gradient.worker] / mean), state
        earlier = state.get(gradient.worker, ComputeTime(0.0, 0))
        number = earlier.number + 1
        seconds = gradient.whole.computed - gradient.whole.started
        # Not a sum over a count: the mean of equal times is that time, bit for bit.
        own = ComputeTime(earlier.mean + (seconds - earlier.mean) / number, number)
        times = {**state, gradient.worker: own}
        total = math.fsum(time.mean for time in times.values())
        return value * (own.mean * len(times) / total), times

    def check_workers(self, workers: int) -> None:
        """Raise `InvalidSettingError` where the given times are not one for each worker."""
        if self.times is not None and len(self.times) != workers:
            expected = f"{workers}, one for each worker"
            raise InvalidSettingError(type(self).__name__, "times", expected, list(self.times))
