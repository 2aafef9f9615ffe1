"""When a simulation stops, and when it is evaluated."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Annotated

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.errors import (
    HUGE,
    InvalidSettingError,
    Positive,
    Range,
    Settings,
    check_duration,
)
from laggard.simulator.recording.counters import Counters, RunProgress
from laggard.simulator.timing.distributions.distribution import mean_of
from laggard.simulator.timing.slowdowns import Factor, Markov, Recorded, Window


@dataclass(frozen=True)
class Stop(Settings):
    """The limits of a simulation; the first reached wins. All are counted from its start.

    Attributes:
        epochs: samples of the mini-batches whose gradients were applied, over the size of the
            training set.
        updates: updates of the model; where each of P nodes keeps a model, an update of one counts
            1/P.
        gradients: computed gradients; the last one is counted but not applied.
        time: virtual time (s); events of that very instant still take place.
        accuracy: test accuracy (0 to 1). It is reached once every member of an ensemble has had it
            at an evaluation, or has diverged. It needs a second limit, since a run may never reach
            it.
    """

    epochs: Annotated[float, Range(above=0, most=1e6)] | None = None
    updates: Annotated[int, Range(above=0, most=1e9)] | None = None
    gradients: Annotated[int, Range(above=0, most=1e9)] | None = None
    time: Positive | None = None
    accuracy: Annotated[float, Range(above=0, most=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if all(limit is None for field, limit in vars(self).items() if field != "accuracy"):
            expected = "at least one of epochs, updates, gradients, time"
            if self.accuracy:
                expected += " besides accuracy"
            raise InvalidSettingError("Stop", "epochs", expected, None)

    def reached(self, progress: RunProgress) -> str | None:
        """The limit that has been reached, if any."""
        if self.updates is not None and progress.updates >= self.updates:
            return "updates"
        # Epochs are sums of fractions, which may be a few roundings below the limit.
        if self.epochs is not None and progress.epochs >= self.epochs * (1 - 1e-9):
            return "epochs"
        if self.gradients is not None and progress.gradients >= self.gradients:
            return "gradients"
        return None


@dataclass(frozen=True)
class Evaluate(Settings):
    """The period of evaluations. They take no virtual time; one is at the start, one at the end.

    An evaluation comes after all other events of its instant.

    Attributes:
        every_epochs: epochs from one evaluation to the next; 1 without another period.
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
        periods = []
        for name in ("every_epochs", "every_updates", "every_seconds"):
            if getattr(self, name) is not None:
                periods.append(name)
        if len(periods) > 1:
            first, second, *_ = periods
            got = getattr(self, second)
            raise InvalidSettingError("Evaluate", second, f"none together with {first}", got)
        if not periods:
            object.__setattr__(self, "every_epochs", 1.0)

    def period(self, progress: RunProgress) -> int:
        """The number of whole periods of updates or epochs; 0 where seconds are the axis."""
        if self.every_updates is not None:
            return math.floor(progress.updates / self.every_updates + 1e-9)
        if self.every_epochs is not None:
            return math.floor(progress.epochs / self.every_epochs + 1e-9)
        return 0


# Above these limits a run would practically never end.
MAX_EVALUATIONS = 10**5  # of a run, by seconds
MAX_BATCHES = 10**8  # of a worker
MAX_CHANGES = 10**4  # of a Markov chain in a mini-batch


def check_periods(stop: Stop, evaluate: Evaluate, cluster: Cluster) -> None:
    """Raise `InvalidSettingError` where a period is so short that a run would never end."""
    mean = cluster.compute.mean
    if not isinstance(mean, Real):
        expected = "a number of seconds (a method needs @property)"
        raise InvalidSettingError(repr(cluster.compute), "mean", expected, type(mean).__name__)
    check_duration(mean, repr(cluster.compute), "mean")
    shortest, longest = _batch_seconds(cluster)
    if not 0 < shortest <= longest < math.inf:
        expected = "factors that leave seconds > 0"
        raise InvalidSettingError("Cluster", "slowdowns", expected, "a factor out of that range")
    for index, slowdown in enumerate(cluster.slowdowns):
        if not isinstance(slowdown, Markov):
            continue
        if longest > MAX_CHANGES * (slowdown.slow_for + slowdown.fast_for):
            least = f"at least {longest / MAX_CHANGES:g} s together with fast_for"
            expected = f"{least}: {MAX_CHANGES:,} changes a batch"
            key = f"slowdowns.{index}.slow_for"
            raise InvalidSettingError("Cluster", key, expected, slowdown.slow_for)
    time, period = stop.time or 0.0, evaluate.every_seconds
    if period is not None:
        # the run, and its longest spans without another event, hold at most MAX_EVALUATIONS
        gap = max(time, longest * MAX_EVALUATIONS / MAX_CHANGES, _longest_pause(cluster))
        if gap > MAX_EVALUATIONS * period:
            expected = f"at least {gap / MAX_EVALUATIONS:g} s"
            raise InvalidSettingError("Evaluate", "every_seconds", expected, period)
    if time > MAX_BATCHES * shortest:
        most = f"at most {MAX_BATCHES * shortest:g} s"
        expected = f"{most}, in which a worker makes {MAX_BATCHES:,} mini-batches"
        raise InvalidSettingError("Stop", "time", expected, time)


def _batch_seconds(cluster: Cluster) -> tuple[float, float]:
    """The mean seconds of a mini-batch: on the fastest worker at its fastest, and the slowest."""
    mean = cluster.compute.mean
    fast = defaultdict[int, float](lambda: mean)  # by rank
    slow = defaultdict[int, float](lambda: mean)
    for slowdown in cluster.slowdowns:
        if isinstance(slowdown, Factor | Window | Markov):
            for rank in slowdown.ranks:
                fast[rank] *= min(slowdown.factor, 1.0)
                slow[rank] *= max(slowdown.factor, 1.0)
        elif isinstance(slowdown, Recorded):
            for rank, factor in slowdown.by_worker.items():  # 1 before the first row
                fast[rank] *= min(factor.values)
                slow[rank] *= max(factor.values)
    return min(fast.values(), default=mean), max(slow.values(), default=mean)


def _longest_pause(cluster: Cluster) -> float:
    """The longest time (s) in which the cluster's settings allow no event except evaluations."""
    network = cluster.network
    pauses = [mean_of(network.latency), mean_of(network.latency_from(-1))]
    for seconds in (cluster.apply_seconds, cluster.receive_seconds, cluster.reply_seconds):
        pauses.append(mean_of(seconds))
    pauses.append(mean_of(cluster.members.start))
    if cluster.members.downtime is not None:
        pauses.append(mean_of(cluster.members.downtime))
    for crash in cluster.crashes:
        pauses.append(crash.back or crash.at)
    for server_crash in cluster.server_crashes:
        pauses.append(server_crash.first + server_crash.restore_seconds)
    if network.changes is not None:
        for row in network.changes.rows:
            pause = row.latency or 0.0
            if row.bandwidth == 0:  # nothing passes before the row ends
                pause += row.end
            pauses.append(pause)
    return max(pauses)


def first(due: Callable[[int], bool], now: int) -> float:
    """The first count after `now` at which `due` holds, and holds from then on; inf without one.

    It is computed once per criterion reached, so that an update compares two numbers only.

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
    """The next limit and the next evaluation, as counts; an update of one model counts 1 / models.

    Attributes:
        applies, applied: the counts of updates, and of applied gradients, at which a limit or an
            evaluation is due next.
    """

    def __init__(self, stop: Stop, evaluate: Evaluate, counts: Counters, models: int) -> None:
        self._stop = stop
        self._evaluate = evaluate
        self._counts = counts
        self._models = models
        self._periods = 0
        # At 0 the first update computes both.
        self.applies = self.applied = 0.0

    def take(self, progress: RunProgress) -> tuple[str | None, bool]:
        """The limit reached at `progress`, if any, and whether an evaluation is due.

        Afterwards `applies` and `applied` are the counts of the next limit or evaluation.
        """
        limit = self._stop.reached(progress)
        periods = self._evaluate.period(progress)
        evaluation = periods > self._periods
        self._periods = max(periods, self._periods)
        counts, models = self._counts, self._models
        self.applies = first(lambda count: self._due(counts.at(count, 0, models)), counts.applies)
        self.applied = first(lambda count: self._due(counts.at(0, count, models)), counts.applied)
        return limit, evaluation

    def _due(self, progress: RunProgress) -> bool:
        if self._stop.reached(progress) is not None:
            return True
        return self._evaluate.period(progress) > self._periods
