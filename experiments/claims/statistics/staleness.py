"""Statistics of staleness: of the gradients that were applied, from some point of a run on."""

from collections.abc import Callable, Sequence

import pandas as pd
import xarray as xr

from experiments.claims.statistics.runs import array
from experiments.measures import measured, of
from experiments.store import Result


def staleness(results: Sequence[Result], after: float = 0.0) -> xr.DataArray:
    """The mean staleness of applied gradients, in updates.

    Args:
        after: the share of a run's applied gradients, the first ones, that is left out: staleness begins at 0.

    Source: by Little's law (P - 1) / K where K gradients make an update and every worker always computes one.
    """
    return _of_each(results, after, pd.Series.mean)


def staler(results: Sequence[Result], than: float, after: float = 0.0) -> xr.DataArray:
    """The share of applied gradients whose staleness is greater than a bound; `after` as in `staleness`."""
    return _of_each(results, after, lambda stale: float((stale > than).mean()))


def _of_each(results: Sequence[Result], after: float, number: Callable[[pd.Series], float]) -> xr.DataArray:
    table = measured(results, "updates")
    applied = of(results).scan("updates", columns=["run", "staleness"], where={"status": "applied"})
    groups = applied.groupby("run", observed=True)["staleness"]
    each = {str(run): number(stale.iloc[int(after * len(stale)) :]) for run, stale in groups}
    return array(table, table["run"].astype(str).map(each))
