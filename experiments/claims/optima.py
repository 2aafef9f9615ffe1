"""The best of a grid, and the largest setting at which something holds, as arrays with named
dimensions.

What the grid does not have is NaN, which leaves a criterion open.
"""

import numpy as np
import xarray as xr

from laggard.experiments.claims.statistics import SEED, log, mean


def largest(condition: xr.DataArray, over: str, tried: xr.DataArray | bool = True) -> xr.DataArray:
    """The largest setting of `over` at which `condition` holds; NaN where the grid does not have
    it.

    It holds at none, or at the last one too, so that the largest lies beyond an end of the grid.

    Args:
        tried: where the condition is known, if not everywhere.
    """
    settings = condition[over].astype(float)
    found = settings.where(condition & tried).max(over)
    return found.where(found < settings.where(tried).max(over))


def cliff_setting(accuracy: xr.DataArray, over: str = "lr", below: float = 0.01) -> xr.DataArray:
    """The largest setting of `over` at which the accuracy is at most `below` under the best, each
    seed's own.
    """
    return largest(accuracy >= best_setting(accuracy, over) - below, over, tried=accuracy.notnull())


def best_setting(
    values: xr.DataArray, over: str, chosen_on: int = 0, lowest: bool = False
) -> xr.DataArray:
    """`values` at the setting of `over` whose mean is best; that chosen on the first seeds, the
    others are left.

    Args:
        chosen_on: how many seeds choose; 0 lets each seed choose for itself, which flatters, and
            the more so the more settings there are.
        lowest: the least is the best.
    """
    if not chosen_on:
        return values.min(over) if lowest else values.max(over)
    reporting = values.isel({SEED: slice(chosen_on, None)})
    return reporting.sel({over: choice(values, over, chosen_on, lowest)}).drop_vars(over)


def best_inside(
    values: xr.DataArray, over: str, chosen_on: int, lowest: bool = False
) -> xr.DataArray:
    """What `best_setting` reports; NaN where an end of the grid was chosen, for the best may lie
    beyond.
    """
    chosen = inside(choice(values, over, chosen_on, lowest), values[over])
    return best_setting(values, over, chosen_on, lowest).where(chosen.notnull())


def choice(values: xr.DataArray, over: str, chosen_on: int, lowest: bool = False) -> xr.DataArray:
    """The setting of `over` at which the mean of the first `chosen_on` seeds is best: what `best`
    then reports on.
    """
    choosing = mean(values.isel({SEED: slice(None, chosen_on)}))
    return (-choosing if lowest else choosing).idxmax(over)


def inside(chosen: xr.DataArray, grid: xr.DataArray) -> xr.DataArray:
    """What was chosen of a grid of numbers; NaN where that is the least or the greatest of them."""
    return chosen.where(~chosen.isin([grid.values.min(), grid.values.max()]))


def best_of_others(values: xr.DataArray, over: str, of: xr.DataArray | None = None) -> xr.DataArray:
    """`values` of each seed at the setting of `over` at which the other seeds have the best mean.

    NaN where that setting lies at an end of the grid, for the best may lie beyond, and where there
    is one seed.

    Args:
        of: what is best, where that is another array than `values`.
    """
    judged = values if of is None else of
    found = []
    for seed in values[SEED].values:
        others = judged.sel({SEED: judged[SEED] != seed})
        if not others.sizes[SEED]:
            found.append(values.sel({SEED: seed}).isel({over: 0}, drop=True) * np.nan)
            continue
        chosen = others.mean(SEED).idxmax(over)
        own = values.sel({SEED: seed, over: chosen}).drop_vars(over)
        found.append(own.where(inside(chosen, judged[over]).notnull()))
    return xr.concat(found, SEED)


def nearest(values: xr.DataArray, over: str, setting: xr.DataArray | float) -> xr.DataArray:
    """`values` at the setting of `over` that is nearest to `setting` on a log axis, each seed's
    own.

    NaN where `setting` is, as a cliff that the grid does not have.
    """
    wanted = xr.DataArray(setting)
    distance = abs(log(values[over].astype(float)) - np.log(wanted.fillna(1.0)))
    return values.sel({over: distance.idxmin(over)}).drop_vars(over).where(wanted.notnull())
