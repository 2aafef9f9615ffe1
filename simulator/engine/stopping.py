"""When a simulation stops, and when it is evaluated."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.errors import HUGE, InvalidSettingError, Positive, Range, Settings
from laggard.simulator.recording.counters import Counters, RunProgress
from laggard.simulator.timing.distributions.distribution import mean_of
from laggard.simulator.timing.slowdowns import Factor, Markov, Recorded, Window


@dataclass(frozen=True)
class Stop(Settings):
    """The limits of a simulation; the first reached wins. All are counted from its start.

    Attributes:
        epochs: samples of the mini-batches whose gradients were applied, over the size of the
            training set.
        updates: of the model; where P nodes keep models of their own, each of their updates counts
            1/P.
        gradients: computed; the last one is counted but not applied.
        time: virtual time (s); events of that very instant still take place.
        accuracy: test accuracy (0 to 1) of the best member of an ensemble, at an evaluation; beside
            another limit, since a run may never reach it.
    """

    epochs: Annotated[float, Range(above=0, most=1e6)] | None = None
    updates: Annotated[int, Range(above=0, most=1e9)] | None = None
    gradients: Annotated[int, Range(above=0, most=1e9)] | None = None
    time: Positive | None = None
    accuracy: Annotated[float, Range(above=0, most=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if all(limit is None for field, limit in vars(self).items() if field != "accuracy"):
            expected = (
                "at least one of epochs, updates, gradients, time"
                + " beside accuracy" * bool(self.accuracy)
            )
            raise InvalidSettingError("Stop", "epochs", expected, None)

    def reached(self, progress: RunProgress) -> str | None:
        """The limit that has been reached, if any. Epochs are sums of fractions: a billionth less
        is enough.
        """
        if self.updates is not None and progress.updates >= self.updates:
            return "updates"
        if self.epochs is not None and progress.epochs >= self.epochs * (1 - 1e-9):
            return "epochs"
        if self.gradients is not None and progress.gradients >= self.gradients:
            return "gradients"
        return None


@dataclass(frozen=True)
class Evaluate(Settings):
    """How often the model is evaluated, besides at the start and at the end; it costs no virtual
    time.

    Attributes:
        every_epochs: epochs from one evaluation to the next; 1 where no other period is given.
        every_updates: updates from one to the next, instead.
        every_seconds: virtual time from one to the next (s), instead.
        nodes: whether every node's model is measured beside their mean, where nodes have models of
            their own.
        keep_models: whether the evaluated models are kept.
    """

    every_epochs: Annotated[float, Range(least=1e-9, most=HUGE)] | None = None
    every_updates: Annotated[float, Range(least=1e-9, most=HUGE)] | None = None
    every_seconds: Positive | None = None
    nodes: bool = False
    keep_models: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        axes = [
            axis
            for axis in ("every_epochs", "every_updates", "every_seconds")
            if getattr(self, axis) is not None
        ]
        if len(axes) > 1:
            raise InvalidSettingError(
                "Evaluate", axes[1], f"none beside {axes[0]}", getattr(self, axes[1])
            )
        if not axes:
            object.__setattr__(self, "every_epochs", 1.0)

    def period(self, progress: RunProgress) -> int:
        """How many times the axis of updates or epochs has passed its period; 0 where seconds are
        the axis.
        """
        if self.every_updates is not None:
            return math.floor(progress.updates / self.every_updates + 1e-9)
        if self.every_epochs is not None:
            return math.floor(progress.epochs / self.every_epochs + 1e-9)
        return 0


MOST_EVALUATIONS, MOST_BATCHES, MOST_CHANGES = 10**5, 10**8, 10**4
"""In a run, of a worker in a run, and in a mini-batch: beyond that a run would practically never
end.
"""


def check_periods(stop: Stop, evaluate: Evaluate, cluster: Cluster) -> None:
    """Raise `InvalidSettingError` where a period is so short that its repetitions would take for
    ever.
    """
    mean = cluster.compute.mean
    fast, slow = (defaultdict[int, float](lambda: mean) for _ in range(2))  # seconds by rank
    for one in cluster.slowdowns:
        if isinstance(one, Factor | Window | Markov):
            for rank in one.ranks:
                fast[rank] *= min(one.factor, 1.0)
                slow[rank] *= max(one.factor, 1.0)
        elif isinstance(one, Recorded):
            for rank, factor in one.by_worker.items():  # 1 before the first row
                fast[rank] *= min(factor.values)
                slow[rank] *= max(factor.values)
    shortest, longest = min(fast.values(), default=mean), max(slow.values(), default=mean)
    if not 0 < shortest <= longest < math.inf:
        raise InvalidSettingError(
            "Cluster", "slowdowns", "factors that leave seconds > 0", "one that is too extreme"
        )
    for index, one in enumerate(cluster.slowdowns):
        if isinstance(one, Markov) and longest > MOST_CHANGES * (one.slow_for + one.fast_for):
            expected = (
                f"at least {longest / MOST_CHANGES:g} s together with fast_for: "
                f"{MOST_CHANGES:,} changes a batch"
            )
            raise InvalidSettingError(
                "Cluster", f"slowdowns.{index}.slow_for", expected, one.slow_for
            )
    time, period = stop.time or 0.0, evaluate.every_seconds
    waits = (
        cluster.network.latency,
        cluster.network.latency_from(-1),
        cluster.apply_seconds,
        cluster.receive_seconds,
        cluster.reply_seconds,
    )
    moments = [one.back or one.at for one in cluster.crashes]
    moments += [crash.first + crash.restore_seconds for crash in cluster.server_crashes]
    if cluster.network.changes is not None:
        for row in cluster.network.changes.rows:
            moment = row.latency or 0.0
            if row.bandwidth == 0:  # nothing passes before the row ends
                moment += row.end
            moments.append(moment)
    ahead = max(time, longest * MOST_EVALUATIONS / MOST_CHANGES, *map(mean_of, waits), *moments)
    if period is not None and ahead > MOST_EVALUATIONS * period:
        raise InvalidSettingError(
            "Evaluate", "every_seconds", f"at least {ahead / MOST_EVALUATIONS:g} s", period
        )
    if time > MOST_BATCHES * shortest:
        expected = (
            f"at most {MOST_BATCHES * shortest:g} s, in which a worker makes {MOST_BATCHES:,} "
            "mini-batches"
        )
        raise InvalidSettingError("Stop", "time", expected, time)


def first(due: Callable[[int], bool], now: int) -> float:
    """The first count after `now` at which something is `due`, and stays due from then on; infinite
    if there is none.

    Computed once per criterion reached, so that an update compares two numbers only.

    Example:
        >>> first(lambda count: count >= 1000, 10)
        1000
    """
    step = 1
    while not due(now + step):
        step *= 2
        if step > 2**52:
            return math.inf
    return bisect_left(range(now + step), True, lo=now + 1, key=due)


class StoppingCriteria:
    """The next limit and the next evaluation, on the axes of updates, of which one of `models`
    counts 1 / models.

    Attributes:
        applies, applied: the counts at which the next of them may be due.
    """

    def __init__(self, stop: Stop, evaluate: Evaluate, counts: Counters, models: int) -> None:
        self._stop, self._evaluate, self._counts, self._models = stop, evaluate, counts, models
        self._periods = 0
        self.applies = self.applied = 0.0

    def take(self, progress: RunProgress) -> tuple[str | None, bool]:
        """The limit reached at `progress`, if any, and whether an evaluation is due; then find the
        next counts.
        """
        limit, periods = self._stop.reached(progress), self._evaluate.period(progress)
        evaluation, self._periods = periods > self._periods, max(periods, self._periods)
        counts, models = self._counts, self._models
        self.applies = first(lambda count: self._due(counts.at(count, 0, models)), counts.applies)
        self.applied = first(lambda count: self._due(counts.at(0, count, models)), counts.applied)
        return limit, evaluation

    def _due(self, progress: RunProgress) -> bool:
        return (
            self._stop.reached(progress) is not None
            or self._evaluate.period(progress) > self._periods
        )
