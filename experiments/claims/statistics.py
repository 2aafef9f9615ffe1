"""The statistics that claims are decided by: numbers over settings and seeds, as arrays with named
dimensions.

A dimension is a swept key, called by its last part (`delay`, `lr`, `seed`); an axis of named
variants has its own name. A member that diverged has accuracy 0 and infinite loss, and what is
probed of it is infinite; a run that never reached a target took infinitely long.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import digamma

from laggard.experiments.claims.arrays import statistic
from laggard.experiments.results.measures import measure_runs
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import as_results

SEED = "seed"
NO_KEYS = ("run", "member", "value", "followed", "never", "diverged", "number")


@statistic
def final(results: Sequence[Result], value: str, target: float | None = None) -> xr.DataArray:
    """A value of `laggard table` (accuracy, loss, staleness, time_to, ...) of every setting and
    seed.

    Raises:
        ValueError: no such value, or runs that are no grid: a setting is there twice.
    """
    table = measure_runs(results, value, target)
    number = table["value"].astype(float)
    lost = table["never"] if value.endswith("_to") else table["diverged"]
    number = number.mask(lost & number.isna(), 0.0 if value == "accuracy" else np.inf)
    return array(table, number.fillna(np.inf) if value.endswith("_to") else number)


@statistic
def per_update(results: Sequence[Result]) -> xr.DataArray:
    """Virtual seconds per update of the model: those of the whole run over its updates."""
    return _pace(results, "updates")


@statistic
def per_sample(results: Sequence[Result]) -> xr.DataArray:
    """Virtual seconds per sample of the mini-batches whose gradients were applied."""
    return _pace(results, "samples")


@statistic
def curve(results: Sequence[Result], measure: str, along: str = "time") -> xr.DataArray:
    """A column of `metrics` (test_loss, consensus, ...) at every evaluation, with the axis `along`
    as a dimension.

    Args:
        along: time (s) or updates, at which all runs have to be evaluated alike
            (`evaluate.every_seconds`). Where a run has no evaluation that others have, the value is
            missing.
    """
    runs = as_results(results)
    rows = runs.metrics.drop_duplicates(["run", "member", along], keep="last")
    return array(
        rows[["run", *runs.keys, along]].assign(**{along: rows[along].round(9)}), rows[measure]
    )


@statistic
def staleness(results: Sequence[Result], after: float = 0.0) -> xr.DataArray:
    """The mean staleness of applied gradients, in updates.

    Args:
        after: the share of a run's applied gradients, the first ones, that is left out: staleness
            begins at 0.

    Source: by Little's law (P - 1) / K where K gradients make an update and every worker always
    computes one.
    """
    return _summarise_applied(results, after, pd.Series.mean)


@statistic
def staleness_by(results: Sequence[Result], node: str, after: float = 0.0) -> xr.DataArray:
    """The mean staleness of each node's applied gradients, in updates, with the dimension `node`.

    Args:
        node: which node of an update tells them apart: `worker`, who computed the gradient, or
            `target`, whose model is updated, as a stage of a pipeline.
        after: the share of a node's applied gradients, the first ones, that is left out.
    """
    table = measure_runs(results, "updates").drop(columns="value")
    columns = ["run", node, "staleness"]
    applied = as_results(results).scan("updates", columns=columns, where={"status": "applied"})
    groups = applied.groupby(["run", node], observed=True)["staleness"]
    means = groups.agg(lambda stale: stale.iloc[int(after * len(stale)) :].mean())
    each = means.rename("stale").rename_axis(["run", "node"]).reset_index()
    rows = table.astype({"run": str}).merge(each.astype({"run": str}), on="run")
    return array(rows.drop(columns="stale"), rows["stale"])


@statistic
def staler(results: Sequence[Result], than: float, after: float = 0.0) -> xr.DataArray:
    """The share of applied gradients whose staleness is greater than a bound; `after` as in
    `staleness`.
    """
    return _summarise_applied(results, after, lambda stale: float((stale > than).mean()))


def array(table: Any, number: Any) -> xr.DataArray:
    """Numbers, a row of `table` each, as an array over the swept keys among its columns, called by
    their last parts.

    Raises:
        ValueError: a setting is there twice.
    """
    keys = [key for key in table.columns if key not in NO_KEYS]
    names = {key: key.rpartition(".")[2] for key in keys}
    twice = [name for name in names.values() if list(names.values()).count(name) > 1]
    names = {key: key.replace(".", "_") if name in twice else name for key, name in names.items()}
    rows = table[keys].rename(columns=names).assign(number=np.asarray(number, float))
    if not keys:
        return xr.DataArray(float(rows["number"].iloc[0]))
    settings = rows.set_index(list(names.values()))["number"]
    if settings.index.has_duplicates:
        raise ValueError("a setting is there twice: name what tells the runs apart in the sweep")
    found: xr.DataArray = settings.to_xarray()
    # names are no categories
    found = found.assign_coords({name: found[name].values.tolist() for name in found.dims})
    order = {name: rows[name].drop_duplicates().tolist() for name in names.values()}
    return found.reindex({name: values for name, values in order.items() if not _numeric(values)})


def at(values: xr.DataArray, **where: Any) -> xr.DataArray:
    """The values at some settings: `at(accuracy, delay=128)`; of a list of them, those.

    What `sel` does, but for a dimension called `method`, which `sel` takes for an argument of its
    own.

    Raises:
        ValueError: no such dimension or setting.
    """
    for name, setting in where.items():
        if name not in values.dims:
            raise ValueError(
                f"at: no dimension {name!r}; there are {', '.join(map(str, values.dims))}"
            )
        try:
            values = values.sel({name: setting}, drop=True)
        except KeyError:
            there = ", ".join(map(str, values[name].values.tolist()))
            raise ValueError(f"at: no {name} = {setting}; there are {there}") from None
    return values


def relabel(values: xr.DataArray, over: str, shown: Mapping[str, str]) -> xr.DataArray:
    """The values with the settings of a dimension called as a figure or a table shows them."""
    return values.assign_coords(
        {over: [shown.get(name, name) for name in values[over].values.tolist()]}
    )


def between(values: xr.DataArray, over: str, low: float, high: float) -> xr.DataArray:
    """The values at the settings of `over` from `low` to `high`.

    Raises:
        ValueError: there are none.
    """
    found = values.sel({over: (values[over] >= low) & (values[over] <= high)})
    if not found.sizes[over]:
        raise ValueError(f"between: no {over} from {low:g} to {high:g}")
    return found


def rises(values: xr.DataArray, along: str) -> xr.DataArray:
    """The greatest rise between neighbours along a dimension; not above 0 where the values never
    rise.

    NaN where a value is missing.
    """
    return values.diff(along).max(along, skipna=False)


def slope(
    values: xr.DataArray, along: str, scale: float = 1.0, offset: float = 0.0
) -> xr.DataArray:
    """The least-squares slope of log(values) against log(scale x + offset), x the settings of
    `along`.

    NaN where a value is missing.
    """
    x, y = log(scale * values[along].astype(float) + offset), log(values)
    x = x - x.mean()
    return (x * (y - mean(y, along))).sum(along, skipna=False) / (x**2).sum()


def last(values: xr.DataArray, over: str, part: float = 0.25) -> xr.DataArray:
    """The mean over the last part of the settings of a dimension: what a curve ends at."""
    return values.isel({over: slice(-max(1, round(part * values.sizes[over])), None)}).mean(over)


def mean(values: xr.DataArray, over: str = SEED) -> xr.DataArray:
    """The mean over a dimension, by default the seeds; none where a value is missing."""
    return values.mean(over, skipna=False)


def stack_arrays(**parts: xr.DataArray) -> xr.DataArray:
    """Several arrays as one, told apart along the dimension `of`, for example measured and
    theory.
    """
    bare = xr.broadcast(*(part.reset_coords(drop=True) for part in parts.values()))
    return xr.concat(bare, xr.Variable("of", list(parts)))


def log(values: xr.DataArray) -> xr.DataArray:
    """The natural logarithm."""
    return values.copy(data=np.log(values.values))


def harmonic(n: xr.DataArray | float) -> xr.DataArray:
    """The harmonic number H_n = 1 + 1/2 + ... + 1/n, with H_0 = 0: E[max of n exponential times of
    mean 1].
    """
    found: xr.DataArray = xr.apply_ufunc(
        lambda count: digamma(np.asarray(count, float) + 1) + np.euler_gamma, n
    )
    return found


def _pace(results: Sequence[Result], of_what: str) -> xr.DataArray:
    table = measure_runs(results, of_what)
    return array(table, measure_runs(results, "time")["value"] / table["value"])


def _summarise_applied(
    results: Sequence[Result], after: float, number: Callable[[pd.Series], float]
) -> xr.DataArray:
    table = measure_runs(results, "updates")
    applied = as_results(results).scan(
        "updates", columns=["run", "staleness"], where={"status": "applied"}
    )
    groups = applied.groupby("run", observed=True)["staleness"]
    each = {str(run): number(stale.iloc[int(after * len(stale)) :]) for run, stale in groups}
    return array(table, table["run"].astype(str).map(each))


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
