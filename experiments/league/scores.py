"""The scores of a league: median seconds to the target, and places by paired differences."""

from collections.abc import Mapping, Sequence

import numpy as np

from laggard.experiments.results.statistics import median_interval

TimesToTarget = Mapping[str, Sequence[float]]
"""Seconds to the target by entrant, in the order of the seeds; a miss is infinite."""


def rank_entrants(times: TimesToTarget) -> dict[str, int]:
    """The place of each entrant, the best first.

    The entrant with the smallest median leads. Another shares the leader's place if the 95 %
    interval of its paired differences from the leader contains 0. The rest are ranked in the same
    way, from the next place on. So a tie is always with a leader, and two entrants that share a
    place may differ from each other.
    """
    unplaced = sorted(times, key=lambda name: (*_median_then_mean(times[name]), name))
    result: dict[str, int] = {}
    while unplaced:
        leader = unplaced[0]
        others = [name for name in unplaced[1:] if is_tied(times[name], times[leader])]
        shared = [leader, *others]
        place = len(result) + 1
        result |= dict.fromkeys(shared, place)
        unplaced = [name for name in unplaced if name not in shared]
    return result


def is_tied(times: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the 95 % interval of the median paired difference contains 0."""
    _, low, high = median_interval(paired_differences(times, others))
    return low <= 0 <= high


def paired_differences(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """The differences of two methods' seconds, seed by seed; 0 where both missed the target."""
    differences = []
    for time, other in zip(times, others, strict=True):
        if np.isinf(time) and np.isinf(other):
            differences.append(0.0)
        else:
            differences.append(time - other)
    return differences


def _median_then_mean(times: Sequence[float]) -> tuple[float, float]:
    """A sort key: the median, then the mean of the seeds that reached the target."""
    finite = [time for time in times if np.isfinite(time)]
    mean = float(np.mean(finite)) if finite else np.inf
    return median_interval(times)[0], mean
