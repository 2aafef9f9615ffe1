"""The statistics that claims are decided by: numbers over settings and seeds, as arrays with named dimensions.

A dimension is a swept key, called by its last part (`delay`, `lr`, `seed`); an axis of named variants has its own name.
A member that diverged has accuracy 0 and infinite loss; who never reached a target took infinitely long.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from experiments.measures import MEASURES, measured, of
from experiments.store import Result

SEED = "seed"
NO_KEYS = ("run", "member", "value", "followed", "never", "diverged", "number")


def final(results: Sequence[Result], value: str, target: float | None = None) -> xr.DataArray:
    """A value of `laggard table` (accuracy, loss, staleness, time_to, ...) of every setting and seed.

    Raises:
        ValueError: no such value, or runs that are no grid: a setting is there twice.
    """
    table = measured(results, value, target)
    number = table["value"].astype(float)
    lost = table["never"] if value.endswith("_to") else table["diverged"]
    worst = 0.0 if value == "accuracy" else np.inf
    number = number.mask(lost & number.isna(), worst)
    if value.endswith("_to"):
        number = number.fillna(np.inf)
    return array(table, number)


def when(results: Sequence[Result], value: str, epoch: float) -> xr.DataArray:
    """accuracy, loss or train_loss at the last evaluation up to an epoch, of every setting and seed.

    Raises:
        ValueError: none was made until then.
    """
    found = of(results)
    metrics = found.metrics[found.metrics["epoch"] <= epoch * (1 + 1e-9)]
    rows = metrics.drop_duplicates(["run", "member"], keep="last")[
        ["run", *found.keys, "member", MEASURES[value].column]
    ]
    if rows.empty:
        raise ValueError(f"when: nothing was evaluated until epoch {epoch:g}")
    number = rows[MEASURES[value].column].astype(float)
    return array(rows[["run", *found.keys, "member"]], number.fillna(0.0 if value == "accuracy" else np.inf))


def per_update(results: Sequence[Result]) -> xr.DataArray:
    """Virtual seconds per update of the model: those of the whole run over its updates."""
    table = measured(results, "updates")
    return array(table, measured(results, "time")["value"] / table["value"])


def per_sample(results: Sequence[Result]) -> xr.DataArray:
    """Virtual seconds per sample of the mini-batches whose gradients were applied."""
    table = measured(results, "samples")
    return array(table, measured(results, "time")["value"] / table["value"])


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
    """The largest setting of `over` at which `condition` holds; half of the least one where it holds at none."""
    settings = condition[over].astype(float)
    found = settings.where(condition).max(over)
    return found.fillna(float(settings.min()) / 2)


def best(values: xr.DataArray, over: str, chosen_on: int = 0, lowest: bool = False) -> xr.DataArray:
    """`values` at the setting of `over` whose mean is best; that chosen on the first seeds, the others are left.

    Args:
        chosen_on: how many seeds choose; 0 lets each seed choose for itself, which flatters all alike.
        lowest: the least is the best.
    """
    signed = -values if lowest else values
    if not chosen_on:
        return -signed.max(over) if lowest else signed.max(over)
    choosing = signed.isel({SEED: slice(None, chosen_on)}).mean(SEED)
    return values.isel({SEED: slice(chosen_on, None)}).sel({over: choosing.idxmax(over)}).drop_vars(over)


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
    """The share of seeds for which a condition holds."""
    return condition.astype(float).mean(SEED)


def mean(values: xr.DataArray, over: str = SEED) -> xr.DataArray:
    """The mean over a dimension, by default the seeds."""
    return values.mean(over)


def smallest(values: xr.DataArray, over: str) -> xr.DataArray:
    """The least of the values along a dimension."""
    return values.min(over)


def greatest(values: xr.DataArray, over: str) -> xr.DataArray:
    """The greatest of the values along a dimension."""
    return values.max(over)


def where_least(values: xr.DataArray, over: str) -> xr.DataArray:
    """The setting of `over` at which the values are least."""
    return values.idxmin(over)


STATISTICS: Mapping[str, Callable[..., Any]] = {
    "final": final,
    "per_update": per_update,
    "per_sample": per_sample,
    "at": at,
    "largest": largest,
    "best": best,
    "pick": pick,
    "nearest": nearest,
    "when": when,
    "rises": rises,
    "slope": slope,
    "share": share,
    "mean": mean,
    "smallest": smallest,
    "greatest": greatest,
    "where_least": where_least,
    "log": np.log,
    "abs": np.abs,
}
"""What expressions may call."""


def array(table: Any, number: Any) -> xr.DataArray:
    """Numbers, a row of `table` each, as an array over the swept keys among its columns, called by their last parts.

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
    found = settings.to_xarray()
    order = {name: rows[name].drop_duplicates().tolist() for name in names.values()}
    return found.reindex({name: values for name, values in order.items() if not _numeric(values)})


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
