"""The numbers of a question: a row for each run, member and measure.

A measure is one of `laggard table` (`accuracy`, `loss`, `updates_to`, `staleness`, ...), or

    seconds_per_sample, seconds_per_update    virtual time of the run over its samples or updates
    accuracy_by_epoch, loss_by_epoch          a row per evaluation, named `accuracy_at_2.5`
    loss_by_time                              a row per evaluation, named `loss_at_0.1s`

A measure that waits for a target has a row for each target of the config's `tune`, or else for its
`evaluate.target_accuracy`, and is named `epochs_to_0.98`. It is infinite where a run missed it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from laggard.experiments.config.config import Config
from laggard.experiments.results.measures import is_seed, measure_runs
from laggard.experiments.results.results import Results

if TYPE_CHECKING:
    import pandas as pd

PACES = {"seconds_per_sample": "samples", "seconds_per_update": "updates"}
CURVE_MEASURES = {
    "accuracy_by_epoch": ("accuracy_at_{:g}", "test_accuracy", "epoch"),
    "loss_by_epoch": ("loss_at_{:g}", "test_loss", "epoch"),
    "loss_by_time": ("loss_at_{:g}s", "test_loss", "time"),
}
"""Curve -> the name of an evaluation's measure, the column of its value, and that of its x axis."""


def take(
    results: Results, measures: Sequence[str], targets: Sequence[float] = ()
) -> "pd.DataFrame":
    """The numbers of runs, with the columns `seed`, `measure`, `value`, `lost`, `run` and `device`.

    Each swept key has a column too, named by its last part: `lr` for `learning.lr`.

    Args:
        targets: the targets of the measures that wait for one, such as `epochs_to`.

    Raises:
        ValueError: a measure is unknown, lacks a target, or was not measured.
    """
    import pandas as pd

    tables = [
        table.assign(measure=name)
        for measure in measures
        for name, table in _measure_tables(results, measure, targets)
    ]
    numbers = pd.concat(tables, ignore_index=True)
    names = settings_names(results.keys)
    numbers = numbers.rename(columns=names)
    seed = next((names[key] for key in results.keys if is_seed(key)), None)
    numbers["seed"] = results[0].config.seed if seed is None else numbers[seed]
    devices = dict(zip(results.names, (run.manifest["device"] for run in results), strict=True))
    numbers["device"] = numbers["run"].map(devices)
    ids = dict(zip(results.names, (run.manifest["run"] for run in results), strict=True))
    numbers["run"] = numbers["run"].map(ids)
    settings = [name for name in names.values() if name != "seed"]
    columns = [*settings, "seed", "measure", "value", "lost", "run", "device"]
    return numbers[columns]


def settings_names(keys: Sequence[str]) -> dict[str, str]:
    """The column of each swept key: its last part, or the whole key if two last parts agree."""
    names = {}
    for key in keys:
        last_part = key.rpartition(".")[2]
        names[key] = "seed" if is_seed(key) else last_part
    known = list(names.values())
    for key, name in names.items():
        if name != "seed" and known.count(name) > 1:
            names[key] = key.replace(".", "_")
    return names


def task_of(config: Config) -> dict[str, str]:
    """The columns `dataset` and `model` of a table of numbers."""
    dataset = getattr(config.task, "dataset", None)
    name = ""
    if dataset is not None:
        name = str(getattr(dataset, "name", dataset))
    return {"dataset": name, "model": str(config.task.model)}


def _measure_tables(
    results: Results, measure: str, targets: Sequence[float]
) -> Iterator[tuple[str, "pd.DataFrame"]]:
    """The tables of a measure with their names: one per target, one per evaluation, or one."""
    if measure in PACES:
        seconds = measure_runs(results, "time")
        number = measure_runs(results, PACES[measure])["value"]
        pace = seconds["value"] / number
        yield measure, _rows(seconds.assign(value=pace.where(~seconds["diverged"])))
    elif measure in CURVE_MEASURES:
        yield from _curve(results, measure)
    elif measure.endswith("_to"):
        if not targets:
            raise ValueError(f"{measure}: expected evaluate.target_accuracy or tune.targets")
        for target in targets:
            table = measure_runs(results, measure, target)
            missed = table["value"].isna() & ~table["diverged"]
            table["value"] = table["value"].where(~missed, np.inf)
            yield f"{measure}_{target:g}", _rows(table)
    else:
        yield measure, _rows(measure_runs(results, measure))


def _rows(table: "pd.DataFrame") -> "pd.DataFrame":
    return table.rename(columns={"diverged": "lost"}).drop(columns=["member", "never", "followed"])


def _curve(results: Results, measure: str) -> Iterator[tuple[str, "pd.DataFrame"]]:
    """The rows of each evaluation of a curve, with its name.

    A member that diverged has no rows from then on. Its earlier rows are marked as lost, too.
    """
    name, column, axis = CURVE_MEASURES[measure]
    metrics = results.metrics
    diverged = measure_runs(results, "updates")
    lost = diverged.set_index(["run", "member"])["diverged"]
    keys = ["run", *results.keys, "member", axis]
    table = metrics[[*keys, column]].rename(columns={column: "value"})
    table["run"] = table["run"].astype(str)
    table["lost"] = lost.reindex(list(zip(table["run"], table["member"], strict=True))).to_numpy()
    table = table.dropna(subset=["value"])
    for place, rows in table.groupby(table[axis].round(3)):
        yield name.format(place), rows.drop(columns=["member", axis])


def targets_of(config: Config) -> list[float]:
    """The targets of a config: those of its `tune`, or else its `evaluate.target_accuracy`."""
    if config.tune is not None and config.tune.targets is not None:
        return list(config.tune.targets)
    if config.evaluate.target_accuracy is None:
        return []
    return [config.evaluate.target_accuracy]
