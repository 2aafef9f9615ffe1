"""Measures of runs, a row per member: final metrics, time to a target, staleness, waiting."""

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import laggard
from laggard.experiments.config.errors import suggest
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results, as_results
from laggard.simulator.learning.task import ACCURACY_ROUNDING

if TYPE_CHECKING:
    import pandas as pd


class Measure(NamedTuple):
    """A number of a member: its column, its scale and unit in tables, and its title.

    Attributes:
        is_share: whether it is at most 1, by definition.
    """

    column: str
    scale: float
    unit: str
    title: str
    is_share: bool = False


MEASURES = {
    "accuracy": Measure("test_accuracy", 100, "%", "test accuracy", is_share=True),
    "loss": Measure("test_loss", 1, "", "test loss"),
    "train_loss": Measure("train_loss", 1, "", "training loss"),
    "consensus": Measure("consensus", 1, "", "consensus distance"),
    "time": Measure("time", 1, "s", "virtual time"),
    "updates": Measure("updates", 1, "", "updates"),
    "samples": Measure("samples", 1, "", "samples"),
    "epochs": Measure("epoch", 1, "", "epochs"),
    "bytes": Measure("bytes", 1e-6, "MB", "bytes sent"),
    "time_to": Measure("time", 1, "s", "time to {target}"),
    "updates_to": Measure("updates", 1, "", "updates to {target}"),
    "samples_to": Measure("samples", 1, "", "samples to {target}"),
    "epochs_to": Measure("epoch", 1, "", "epochs to {target}"),
    "bytes_to": Measure("bytes", 1e-6, "MB", "bytes sent to {target}"),
    "cost_to": Measure("time", 1, "s", "worker-seconds to {target}"),
    "speedup": Measure("time", 1, "", "speedup"),
    "efficiency": Measure("time", 100, "%", "efficiency"),
    "staleness": Measure("staleness", 1, "", "mean staleness"),
    "max_staleness": Measure("staleness", 1, "", "max staleness"),
    "waiting": Measure("waiting", 100, "%", "waiting", is_share=True),
    "up": Measure("down", 1, "", "workers up"),
    "goodput": Measure("samples", 100, "%", "goodput"),
    "throughput": Measure("samples", 1, "samples/s", "throughput"),
}
"""At the end of the run; `..._to` at the first evaluation that reaches the target.

`bytes` are those of all messages of all nodes, and `cost_to` is P times `time_to`. With T(P) the
`time_to` of P workers, and P' the fewest that were swept, `speedup` is T(P') / T(P) and
`efficiency` P' / P times that, at the same seed. `up` is the mean number of workers that are not
down; `goodput` the mini-batches that were applied, over those that all P workers had time for,
each at the mean compute time. An `efficiency` and a `goodput` may exceed 1. `throughput` is the
samples of applied mini-batches a virtual second, over the whole run.
"""
CURVES = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "consensus": "consensus distance",
}
"""Columns of the metrics that curves show -> the title of the axis."""
NO_BYTES = "a run is of a version that did not count bytes: simulate it again, with --force"
AXES = "time", "updates", "samples", "epoch", "bytes"
STATES = ("computing", "sending", "waiting", "down")


def measure_runs(
    results: Sequence[Result], value: str, target: float | None = None
) -> "pd.DataFrame":
    """A row per run and member: `run`, the swept keys, `member`, `value`, `followed` (the length of
    its observation, on the axis of a `..._to`, else in virtual seconds), `never` (it diverged or
    stalled) and `diverged`.

    Args:
        value: a key of `MEASURES`.
        target: a test accuracy (0 to 1), or where none is measured a test loss, for a `..._to`.
            Default: the configs' `evaluate.target_accuracy`. A member that misses it has NaN.

    Raises:
        ValueError: the value is unknown, none of the runs has it, or there is no target.
    """
    if value not in MEASURES:
        hint = suggest(value, MEASURES) or f"expected one of {', '.join(MEASURES)}"
        raise ValueError(f"{value}: unknown measure; {hint}")
    results = as_results(results)
    final = results.final
    if value in ("speedup", "efficiency"):
        return _compare_workers(results, value, target)
    column = MEASURES[value].column
    if column == "bytes" and (column not in final or final[column].isna().any()):
        raise ValueError(f"{value}: {NO_BYTES}")
    run = final["run"].astype(str)
    diverged = final["status"] == "diverged"
    followed = final["time"]
    if value.endswith("_to"):
        measure, limit = goal(results, target)
        followed = final[column]
        number = first_at_target(results, measure, dict.fromkeys(results.names, limit), column)
        if value == "cost_to":
            workers = run.map(workers_of(results))
            number, followed = number * workers, followed * workers
    elif value == "staleness":
        number = run.map(staleness(results)["mean"])
    elif value == "max_staleness":
        number = run.map(staleness(results)["max"])
    elif value == "waiting":
        number = run.map(waiting(results))
    elif value == "up":
        number = run.map(workers_of(results)) * (1 - run.map(state_shares(results)["down"]))
    elif value == "goodput":
        number = run.map({name: goodput(result) for name, result in named_results(results)})
    elif value == "throughput":
        number = final["samples"] / final["time"].where(final["time"] > 0)
    elif column not in final:
        raise ValueError(f"{value}: none of the runs measured it")
    else:
        number = final[column].astype(float)
        # The times and counts of a diverged member are valid, its measures are not.
        if column not in AXES:
            number = number.where(~diverged)
    rows = final[["run", *results.keys, "member"]].assign(run=run)
    never = final["status"] != "finished"
    return rows.assign(never=never, diverged=diverged, followed=followed, value=number)


def _compare_workers(results: Results, value: str, target: float | None) -> "pd.DataFrame":
    """`measure_runs` of a `speedup` or an `efficiency`: 0 where only the fewest workers reach the
    target, NaN where these miss it. At several learning rates the fewest workers have their best.
    """
    key = "cluster.workers"
    if key not in results.keys:
        raise ValueError(f"{value}: expected {key} among the swept keys")
    table = measure_runs(results, "time_to", target)
    workers = table[key].astype(float)
    rates = [name for name in results.keys if name.startswith("learning.") and not is_seed(name)]
    shared = [name for name in results.keys if name != key and name not in rates]
    # Where no other key was swept, a constant makes one group of all rows.
    setting = [table[name].astype(object) for name in shared] or [workers.map(lambda _: 0)]
    fewest = workers.groupby(setting, dropna=False).transform("min")
    at_fewest = table["value"].where(workers == fewest)
    reference = at_fewest.groupby(setting, dropna=False).transform("min")
    number = reference / table["value"].fillna(math.inf)
    if value == "efficiency":
        number = number * fewest / workers
    return table.assign(value=number)


def workers_of(results: Results) -> dict[str, int]:
    """The number of workers of each run, by the name of the run."""
    return {name: result.setting("cluster.workers") for name, result in named_results(results)}


def named_results(results: Results) -> "Iterator[tuple[str, Result]]":
    """The names of the runs, each with its result."""
    return zip(results.names, results, strict=True)


def goodput(result: Result) -> float:
    """The number of applied mini-batches, over the number that workers compute without a pause."""
    cluster = result.config.build_cluster()
    seconds: float = result.manifest["mileage"]["time"]
    applied: int = result.manifest["gradients"]["applied"]
    if seconds == 0:
        return math.nan
    return applied * cluster.compute.mean / (cluster.workers * seconds)


def first_at_target(
    results: Results, measure: str, targets: Mapping[str, float | None], column: str
) -> "pd.Series":
    """`column` at each member's first evaluation that reaches its run's target, else NaN.

    The rows are those of `Results.final`.

    Args:
        measure: `test_accuracy`, reached from below, or a loss, reached from above.
        targets: the targets by the name of the run.
    """
    key = ["run", "member"]
    metrics = results.metrics.assign(run=lambda table: table["run"].astype(str))
    limits = metrics["run"].map(targets).astype(float)
    reached = metrics[measure] <= limits
    if measure == "test_accuracy":
        reached = metrics[measure] >= limits - ACCURACY_ROUNDING
    first = metrics[reached].drop_duplicates(key).set_index(key)[column].astype(float)
    members = results.final[key].astype({"run": str})
    return first.reindex(members.set_index(key).index).set_axis(members.index)


def staleness(results: Results) -> "pd.DataFrame":
    """The staleness of each run's applied gradients: `mean` and `max`, by the name of the run."""
    applied = results.scan("updates", columns=["run", "staleness"], where={"status": "applied"})
    groups = applied.groupby(applied["run"].astype(str))
    table: pd.DataFrame = groups["staleness"].agg(["mean", "max"])
    return table


def waiting(results: Results) -> "pd.Series":
    """The share (0 to 1) of time that each run's workers waited, by the name of the run."""
    return state_shares(results)["waiting"]


def state_shares(results: Results) -> "pd.DataFrame":
    """The share (0 to 1) of time that each run's workers spent in each of `STATES`."""
    workers = results.scan("workers")
    seconds = workers.groupby(workers["run"].astype(str))[list(STATES)].sum()
    return shares(seconds)


def shares(seconds: "pd.DataFrame") -> "pd.DataFrame":
    """The seconds in each of `STATES` as shares (0 to 1) of their sum; NaN where the sum is 0."""
    columns = seconds[list(STATES)]
    return columns.div(columns.sum(axis=1), axis=0)


def summary(results: Sequence[Result], target: float | None = None) -> "pd.DataFrame":
    """A row per run and member: swept keys, speed, quality of the model, staleness.

    Columns: the swept keys (without any, `method`); `time_to_target` (virtual seconds, NaN where it
    is not reached) where there is an accuracy and a target; `accuracy` (0 to 1) or `loss` at the
    end; `laggard`, where another version simulated some runs; `time` (s); `updates`; `staleness`
    and `max_staleness` of applied gradients; `waiting`, the share of the workers' time; `status`.

    Args:
        target: a test accuracy (0 to 1). Default: each config's `evaluate.target_accuracy`.
    """
    results = as_results(results)
    final = results.final
    run = final["run"].astype(str)
    categories = [key for key in results.keys if final[key].dtype == "category"]
    table = final[results.keys].astype(dict.fromkeys(categories, object))
    by_name = dict(zip(results.names, results, strict=True))
    if not results.keys:
        table["method"] = run.map({name: method(result) for name, result in by_name.items()})
    without_accuracy = run.notna()
    if "test_accuracy" in final:
        targets = _targets(by_name, target)
        if any(limit is not None for limit in targets.values()):
            table["time_to_target"] = first_at_target(results, "test_accuracy", targets, "time")
        table["accuracy"] = final["test_accuracy"]
        # a run that measured an accuracy at any member shows it for all of them
        without_accuracy = ~run.isin(run[final["test_accuracy"].notna()])
    if "test_loss" in final and without_accuracy.any():
        table["loss"] = final["test_loss"].where(without_accuracy)
    if any(result.version != laggard.__version__ for result in results):
        table["laggard"] = run.map({name: result.version for name, result in by_name.items()})
    stale = staleness(results)
    return table.assign(
        time=final["time"],
        updates=final["updates"],
        staleness=run.map(stale["mean"]),
        max_staleness=run.map(stale["max"]),
        waiting=run.map(waiting(results)),
        status=_statuses(final),
    )


def _targets(by_name: Mapping[str, Result], target: float | None) -> dict[str, float | None]:
    if target is not None:
        return dict.fromkeys(by_name, check_target(target))
    return {name: result.setting("evaluate.target_accuracy") for name, result in by_name.items()}


def _statuses(final: "pd.DataFrame") -> list[str]:
    statuses = []
    for status, update in zip(final["status"], final["diverged_at"], strict=True):
        if not math.isnan(update):
            status = f"{status} at update {update:g}"
        statuses.append(status)
    return statuses


def is_seed(key: str) -> bool:
    """Whether a dotted key only seeds random numbers."""
    return key.rpartition(".")[2] == "seed"


def goal(results: Sequence[Result], target: float | None = None) -> tuple[str, float]:
    """The column of the measure with a target, and the target.

    An accuracy is reached from below, a loss from above.

    Raises:
        ValueError: no target was given and the configs have none, or different ones.
    """
    metrics = as_results(results).metrics
    column = "test_accuracy" if "test_accuracy" in metrics else "test_loss"
    if column not in metrics:
        raise ValueError("target: none of the runs measured a test accuracy or a test loss")
    if target is not None:
        return column, check_target(target, column)
    targets = set[float | None]()
    if column == "test_accuracy":
        targets = {result.setting("evaluate.target_accuracy") for result in results}
    if len(targets) == 1:
        (common,) = targets
        if common is not None:
            return column, check_target(common, column)
    problem = "got none: the configs set none that applies"
    if len(targets) > 1:
        problem = "got none: the configs set different ones"
    raise ValueError(f"target: expected a {column.replace('_', ' ')}, {problem}")


def check_target(target: float, column: str = "test_accuracy") -> float:
    """`target`, if a test accuracy or a test loss can have that value.

    Raises:
        ValueError: the target is no number, or out of range.
    """
    if isinstance(target, bool) or not isinstance(target, Real):
        raise ValueError(f"target: expected a number, got {target!r}")
    if column == "test_accuracy" and not 0 < target <= 1:
        expected = "a test accuracy above 0 and at most 1, as in 0.9"
        raise ValueError(f"target: expected {expected}, got {target:g}")
    if not math.isfinite(target):
        raise ValueError(f"target: expected a finite test loss, got {target:g}")
    return float(target)


def groups(
    table: "pd.DataFrame", keys: Sequence[str]
) -> list[tuple[tuple[Any, ...], "pd.DataFrame"]]:
    """The rows at each setting of `keys`, in order of first appearance.

    A key that a run lacks is a setting too: None, which, unlike NaN, equals itself.
    """
    if not keys:
        return [((), table)]
    pairs = []
    for setting, rows in table.groupby(list(keys), dropna=False, sort=False, observed=True):
        pairs.append((tuple(map(_none_for_nan, setting)), rows))
    return pairs


def _none_for_nan(value: Any) -> Any:
    return value if value == value else None


def method(result: Result) -> str:
    """The name of a run's method: the algorithm, and the compensation if there is one."""
    config = result.config
    names = [config.algorithm.name]
    if config.learning.compensation.name != "none":
        names.append(config.learning.compensation.name)
    return " + ".join(names)


def names(results: Sequence[Result]) -> dict[Path, str]:
    """A name for each result outside a sweep, by its path: the method, with run ids where two
    results have the same method.
    """
    titles = [method(result) for result in results]
    if len(set(titles)) < len(titles):
        titles = [f"{method(result)} {result.manifest['run']}" for result in results]
    paths = [result.path for result in results]
    return dict(zip(paths, titles, strict=True))
