"""Statistics of arrays: settings that are picked, best ones, extremes, slopes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import xarray as xr

SEED = "seed"
_draw: ContextVar[int | None] = ContextVar("draw", default=None)


@contextmanager
def drawn(draw: int) -> Iterator[None]:
    """Let `mean` take the seeds of one bootstrap sample, the one with this number, in place of all."""
    before = _draw.set(draw)
    try:
        yield
    finally:
        _draw.reset(before)


def at(values: xr.DataArray, **where: Any) -> xr.DataArray:
    """The values at some settings: `at(accuracy, delay=128)`; of a list of them, those.

    Raises:
        ValueError: no such dimension or setting.
    """
    for name, setting in where.items():
        if name not in values.dims:
            raise ValueError(f"at: no dimension {name!r}; there are {', '.join(map(str, values.dims))}")
        try:
            values = values.sel({name: setting}, drop=True)
        except KeyError:
            there = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values[name].values)
            raise ValueError(f"at: no {name} = {setting}; there are {there}") from None
    return values


def largest(condition: xr.DataArray, over: str) -> xr.DataArray:
    """The largest setting of `over` at which `condition` holds; half of the least one where it holds at none.

    That half is a bound and no measurement: `nowhere` says how often it stands in.
    """
    settings = condition[over].astype(float)
    found = settings.where(condition).max(over)
    return found.fillna(float(settings.min()) / 2)


def nowhere(condition: xr.DataArray, over: str) -> xr.DataArray:
    """1 where `condition` holds at no setting of `over`, so that `largest` has nothing to find, else 0."""
    return (~condition).all(over).astype(float)


def best(values: xr.DataArray, over: str, chosen_on: int = 0, lowest: bool = False) -> xr.DataArray:
    """`values` at the setting of `over` whose mean is best; that chosen on the first seeds, the others are left.

    Args:
        chosen_on: how many seeds choose; 0 lets each seed choose for itself, which flatters, and the more so the more
            settings there are.
        lowest: the least is the best.
    """
    if not chosen_on:
        return values.min(over) if lowest else values.max(over)
    chosen = choice(values, over, chosen_on, lowest)
    return values.isel({SEED: slice(chosen_on, None)}).sel({over: chosen}).drop_vars(over)


def choice(values: xr.DataArray, over: str, chosen_on: int, lowest: bool = False) -> xr.DataArray:
    """The setting of `over` at which the mean of the first `chosen_on` seeds is best: what `best` then reports on."""
    choosing = values.isel({SEED: slice(None, chosen_on)}).mean(SEED, skipna=False)
    return (-choosing if lowest else choosing).idxmax(over)


def nearest(values: xr.DataArray, over: str, setting: xr.DataArray | float) -> xr.DataArray:
    """`values` at the setting of `over` that is nearest to `setting` on a log axis, each seed's own."""
    distance = np.abs(np.log(values[over].astype(float)) - np.log(setting))
    return values.sel({over: distance.idxmin(over)}).drop_vars(over)


def pick(values: xr.DataArray, over: str, by: xr.DataArray) -> xr.DataArray:
    """`values` at the setting of `over` at which `by` is greatest, each seed for itself."""
    return values.sel({over: by.idxmax(over)}).drop_vars(over)


def rises(values: xr.DataArray, along: str) -> xr.DataArray:
    """The greatest rise between neighbours along a dimension; not above 0 where the values never rise."""
    return values.diff(along).max(along)


def slope(values: xr.DataArray, along: str, scale: float = 1.0, offset: float = 0.0) -> xr.DataArray:
    """The least-squares slope of log(values) against log(scale x + offset), x the settings of `along`."""
    x = np.log(scale * values[along].astype(float) + offset)
    x = x - x.mean()
    y = np.log(values)
    return (x * (y - y.mean(along))).sum(along) / (x**2).sum()


def share(condition: xr.DataArray) -> xr.DataArray:
    """The share of these seeds for which a condition holds: a count, and no estimate for others."""
    return condition.astype(float).mean(SEED)


def mean(values: xr.DataArray, over: str = SEED) -> xr.DataArray:
    """The mean over a dimension, by default the seeds; none where a value is missing."""
    if over == SEED and (draw := _draw.get()) is not None:
        count = values.sizes[SEED]
        values = values.isel({SEED: np.random.default_rng([draw, count]).integers(count, size=count)})
    return values.mean(over, skipna=False)


def smallest(values: xr.DataArray, over: str) -> xr.DataArray:
    """The least of the values along a dimension."""
    return values.min(over)


def greatest(values: xr.DataArray, over: str) -> xr.DataArray:
    """The greatest of the values along a dimension."""
    return values.max(over)


def where_least(values: xr.DataArray, over: str) -> xr.DataArray:
    """The setting of `over` at which the values are least."""
    return values.idxmin(over)


def setting(values: xr.DataArray, over: str) -> xr.DataArray:
    """The settings of a dimension themselves, as numbers along it: theory is a function of them."""
    return values[over].astype(float)


def between(values: xr.DataArray, over: str, low: float, high: float) -> xr.DataArray:
    """The values at the settings of `over` from `low` to `high`.

    Raises:
        ValueError: there are none.
    """
    found = values.sel({over: (values[over] >= low) & (values[over] <= high)})
    if not found.sizes[over]:
        raise ValueError(f"between: no {over} from {low:g} to {high:g}")
    return found


def last(values: xr.DataArray, over: str, part: float = 0.25) -> xr.DataArray:
    """The mean over the last part of the settings of a dimension: what a curve ends at."""
    count = max(1, round(part * values.sizes[over]))
    return values.isel({over: slice(-count, None)}).mean(over)


def together(**parts: xr.DataArray) -> xr.DataArray:
    """Several arrays as one, told apart along the dimension `of`: what was measured and what theory says, say."""
    bare = [part.reset_coords(drop=True) for part in parts.values()]
    return xr.concat(xr.broadcast(*bare), xr.Variable("of", list(parts)))
