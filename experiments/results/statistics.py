"""Statistics over the seeds of a setting: a mean and its interval, or the time to a target that not
all reach.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A number over `n` seeds, as far as they allow one.

    Attributes:
        value: a mean; or of the time that it takes to get somewhere the median, or a bound.
        half: half the width of the mean's 95 % interval; NaN where there is none.
        kind: what `value` is: a mean; a median, where some did not get there; a bound below the
            median (`more`), where half of them or more did not; `never`, where all diverged or
            stalled before; `none`, where nothing is known.
        n: how many seeds there are, those that diverged included.
        reached: how many of them got there; None where there is nowhere to get.
        diverged: how many of them diverged.
    """

    value: float
    half: float
    kind: Literal["mean", "median", "more", "never", "none"]
    n: int
    reached: int | None
    diverged: int


def mean(values: Sequence[float], diverged: int = 0) -> Estimate:
    """The mean of independent seeds and its 95 % interval, m -/+ t(0.975, n - 1) s / sqrt(n).

    Values that are not finite have no mean: they are left out of it, and counted in `n` and, given
    as such, in `diverged`. One value has no interval.
    """
    every = np.asarray(values, float)
    finite = every[np.isfinite(every)]
    if not len(finite):
        return Estimate(math.nan, math.nan, "none", len(every), None, diverged)
    return Estimate(
        float(finite.mean()), _half_interval(finite), "mean", len(every), None, diverged
    )


def time_to_reach(
    times: Sequence[float], followed: Sequence[float], never: Sequence[bool], diverged: int = 0
) -> Estimate:
    """How long it takes to get somewhere, from seeds of which not all got there before they ended.

    Where all got there, the mean of their times and its interval. Else the median of the
    Kaplan-Meier estimate S(t) = prod over times t_i <= t of (1 - got there at t_i / on their way
    just before), the least t with S(t) <= 1/2: a seed that ended on its way counts as on its way
    until then, and one that diverged or stalled for ever. Where S stays above 1/2, all that can be
    said is that the median lies beyond the longest time that was seen. That seeds which ended early
    would have done as the others is the estimate's assumption.

    Args:
        times: when each got there; NaN where it did not.
        followed: until when each was seen.
        never: which can never get there.

    Source: Kaplan, Meier (1958), Journal of the American Statistical Association 53.
    """
    at, seen, hopeless = (
        np.asarray(times, float),
        np.asarray(followed, float),
        np.asarray(never, bool),
    )
    there = np.isfinite(at)
    known = {"n": len(at), "reached": int(there.sum()), "diverged": diverged}
    if there.all():
        return Estimate(float(at.mean()), _half_interval(at), "mean", **known)
    if (hopeless & ~there).all():
        return Estimate(math.inf, math.nan, "never", **known)
    if (median := _median(at, seen, hopeless)) is not None:
        return Estimate(median, math.nan, "median", **known)
    last = np.where(there, at, seen)[there | ~hopeless]
    return Estimate(float(last.max()), math.nan, "more", **known)


def _median(at: np.ndarray, seen: np.ndarray, hopeless: np.ndarray) -> float | None:
    there = np.isfinite(at)
    until = np.concatenate([at[there], np.where(hopeless, math.inf, seen)[~there]])
    survival = 1.0
    for time in np.unique(at[there]):
        survival *= 1 - (at == time).sum() / (until >= time).sum()
        if survival <= 0.5 + 1e-12:
            return float(time)
    return None


def half_width(deviation: Any, n: Any) -> Any:
    """Half the 95 % interval of the mean of n values with that standard deviation, t_(n-1, 0.975) s
    / sqrt(n).

    Source: Student (1908).
    """
    from scipy.special import stdtrit

    return stdtrit(np.maximum(n - 1, 1), 0.975) * deviation / np.sqrt(n)


def _half_interval(values: np.ndarray) -> float:
    return float(half_width(values.std(ddof=1), len(values))) if len(values) > 1 else math.nan


def format_estimate(
    estimate: Estimate, scale: float = 1.0, unit: str = "", counted: bool = True
) -> str:
    """An estimate as a table shows it, its value times `scale`; `counted` tells n, where that is
    not said elsewhere.

    Example:
        >>> format_estimate(Estimate(0.9836, 0.0012, "mean", 5, None, 0), 100, "%")
        '98.36 ± 0.12 % (n = 5)'
        >>> format_estimate(Estimate(7.5, float("nan"), "more", 5, 1, 2), 1, "s")
        '> 7.5 s (1 of 5, 2 diverged)'
        >>> format_estimate(Estimate(0.96, 0.19, "mean", 3, None, 0), 100, "%", counted=False)
        '96 (77 to 100) %'
    """
    value, half, kind, n, reached, diverged = estimate
    said = (
        [f"n = {n}"] * counted
        if reached is None or (reached == n and kind == "mean")
        else [f"{reached} of {n}"]
    )
    said += [f"{diverged} diverged"] * (diverged > 0)
    tail = f" ({', '.join(said)})" if said else ""
    if kind in ("none", "never"):
        return {"none": "-", "never": "never"}[kind] + tail
    low, high = interval(estimate, unit == "%")
    if low > value - half or high < value + half:
        middle = _digits(value * scale, half * scale).partition(" ")[0]
        return f"{middle} ({low * scale:.3g} to {high * scale:.3g}) {unit}{tail}"
    sign = {"mean": "", "median": "median ", "more": "> "}[kind]
    return f"{sign}{_digits(value * scale, half * scale)}{f' {unit}' * bool(unit)}{tail}"


def interval(estimate: Estimate, share: bool) -> tuple[float, float]:
    """The ends of the 95 % interval; of shares and accuracies those from 0 to 1, which the mean
    lies in too.
    """
    low, high = estimate.value - estimate.half, estimate.value + estimate.half
    return (max(low, 0.0), min(high, 1.0)) if share else (low, high)


def _digits(value: float, half: float) -> str:
    """A number with as many digits as its interval warrants: two of the interval's."""
    if not (math.isfinite(half) and half > 0):
        return (f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}") + (
            " ± 0" if half == 0 else ""
        )
    places = max(0, 1 - math.floor(math.log10(half)))
    if places > 6 or half >= 1e6:
        return f"{value:.4g} ± {half:.2g}"
    return f"{value:.{places}f} ± {half:.{places}f}"
