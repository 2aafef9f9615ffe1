"""Statistics of runs: a number of each setting and seed, as an array with named dimensions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from experiments.measures import MEASURES, measured, of
from experiments.store import Result

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


def curve(results: Sequence[Result], measure: str, along: str = "time") -> xr.DataArray:
    """A column of `metrics` (test_loss, consensus, ...) at every evaluation, with the axis `along` as a dimension.

    Args:
        along: time (s) or updates, at which all runs have to be evaluated alike (`evaluate.every_seconds`). Where a run
            has no evaluation that others have, the value is missing.
    """
    runs = of(results)
    rows = runs.metrics.drop_duplicates(["run", "member", along], keep="last")
    table = rows[["run", *runs.keys, along]].assign(**{along: rows[along].round(9)})
    return array(table, rows[measure])


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
