"""One table, a row per run and member: final metrics, time to a target, staleness and waiting."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from laggard.experiments.config.errors import suggest
from laggard.experiments.results.result import Result, describe_versions
from laggard.experiments.results.results import Results
from laggard.simulator.learning.task import ACCURACY_ROUNDING

if TYPE_CHECKING:
    import pandas as pd


class Measure(NamedTuple):
    """A number of a run's member: the column that has it, its scale and unit in tables, and its
    title.
    """

    column: str
    scale: float
    unit: str
    title: str


MEASURES = {
    "accuracy": Measure("test_accuracy", 100, "%", "test accuracy"),
    "loss": Measure("test_loss", 1, "", "test loss"),
    "train_loss": Measure("train_loss", 1, "", "training loss"),
    "consensus": Measure("consensus", 1, "", "consensus distance"),
    "time": Measure("time", 1, "s", "virtual time"),
    "updates": Measure("updates", 1, "", "updates"),
    "samples": Measure("samples", 1, "", "samples"),
    "epochs": Measure("epoch", 1, "", "epochs"),
    "time_to": Measure("time", 1, "s", "time to {target}"),
    "updates_to": Measure("updates", 1, "", "updates to {target}"),
    "samples_to": Measure("samples", 1, "", "samples to {target}"),
    "epochs_to": Measure("epoch", 1, "", "epochs to {target}"),
    "staleness": Measure("staleness", 1, "", "mean staleness"),
    "max_staleness": Measure("staleness", 1, "", "max staleness"),
    "waiting": Measure("waiting", 100, "%", "waiting"),
}
"""Of a member at its end; `_to`, at its first evaluation at a target; of a run, its applied
gradients and workers.
"""
CURVES = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "consensus": "consensus distance",
}
"""What curves show: a column of the metrics -> the title of its axis."""
AXES = "time", "updates", "samples", "epoch"
STATES = ("computing", "sending", "waiting", "down")


def measure_runs(
    results: Sequence[Result], value: str, target: float | None = None
) -> "pd.DataFrame":
    """A row per run and member: `run`, the swept keys, `member`, `value`, `followed` (until when it
    was seen, on the
    axis of a `_to`), `never` (it ended for good: it diverged or stalled) and `diverged`.

    Args:
        target: where a `_to` wants to get: a test accuracy (0 to 1), or where none is measured a
            test loss; by default the configs' `evaluate.target_accuracy`. Not reached: NaN.

    Raises:
        ValueError: no such value, none of the runs has it, or there is no target.
    """
    if value not in MEASURES:
        hint = suggest(value, MEASURES) or f"expected one of {', '.join(MEASURES)}"
        raise ValueError(f"{value}: no such value; {hint}")
    results = as_results(results)
    final, column = results.final, MEASURES[value].column
    diverged, followed = final["status"] == "diverged", final["time"]
    if value.endswith("_to"):
        where, least = goal(results, target)
        number, followed = (
            first_at_target(results, where, dict.fromkeys(results.names, least), column),
            final[column],
        )
    elif column == "staleness":
        number = (
            final["run"]
            .astype(str)
            .map(staleness(results)[{"staleness": "mean"}.get(value, "max")])
        )
    elif column == "waiting":
        number = final["run"].astype(str).map(waiting(results))
    elif column in final:
        number = final[column].astype(float).where(~diverged | (column in AXES))
    else:
        raise ValueError(f"{value}: none of the runs measured it")
    rows = final[["run", *results.keys, "member"]].assign(run=final["run"].astype(str))
    return rows.assign(
        never=final["status"] != "finished", diverged=diverged, followed=followed, value=number
    )


def first_at_target(
    results: Results, where: str, targets: Mapping[str, float | None], column: str
) -> "pd.Series":
    """`column` at each member's first evaluation at its run's target, as a row of `Results.final`
    each; else NaN.

    Args:
        where: the measure that has a target; an accuracy is reached from below, a loss from above.
        targets: by the name of the run.
    """
    metrics = results.metrics.assign(run=lambda table: table["run"].astype(str))
    least = metrics["run"].map(targets).astype(float)
    there = (
        metrics[where] >= least - ACCURACY_ROUNDING
        if where == "test_accuracy"
        else metrics[where] <= least
    )
    first = (
        metrics[there]
        .drop_duplicates(["run", "member"])
        .set_index(["run", "member"])[column]
        .astype(float)
    )
    members = results.final[["run", "member"]].astype({"run": str})
    return first.reindex(members.set_index(["run", "member"]).index).set_axis(members.index)


def staleness(results: Results) -> "pd.DataFrame":
    """The staleness of each run's applied gradients: `mean` and `max`, by the name of the run."""
    applied = results.scan("updates", columns=["run", "staleness"], where={"status": "applied"})
    found: pd.DataFrame = applied.groupby(applied["run"].astype(str))["staleness"].agg(
        ["mean", "max"]
    )
    return found


def waiting(results: Results) -> "pd.Series":
    """The share (0 to 1) of their time that each run's workers waited, by the name of the run."""
    workers = results.scan("workers")
    return shares(workers.groupby(workers["run"].astype(str))[list(STATES)].sum())["waiting"]


def shares(seconds: "pd.DataFrame") -> "pd.DataFrame":
    """The seconds in each of `STATES`, a column each, as shares (0 to 1) of their sum; NaN where
    that is 0.
    """
    spent = seconds[list(STATES)]
    return spent.div(spent.sum(axis=1), axis=0)


def summary(results: Sequence[Result], target: float | None = None) -> "pd.DataFrame":
    """One row per run and member: what was swept, how fast it was, how well it learnt, how stale
    its gradients were.

    Columns: the swept keys (without any, `method`); `time_to_target` (virtual seconds, NaN where it
    is not reached) where there is an accuracy and a target; `accuracy` (0 to 1) or `loss` at the
    end; `laggard`, the version, where another one made some; `time` (s); `updates`; `staleness` and
    `max_staleness` of applied gradients; `waiting`, the share of the workers' time; `status`.

    Args:
        target: a test accuracy (0 to 1); by default each config's `evaluate.target_accuracy`.
    """
    results = as_results(results)
    final, named = results.final, list(zip(results.names, results, strict=True))
    run = final["run"].astype(str)
    found = final[results.keys].astype(
        {key: object for key in results.keys if final[key].dtype == "category"}
    )
    if not results.keys:
        found["method"] = run.map({name: method(result) for name, result in named})
    if "test_accuracy" in final:
        own = {
            name: result.config.evaluate.target_accuracy if target is None else check_target(target)
            for name, result in named
        }
        if set(own.values()) != {None}:
            found["time_to_target"] = first_at_target(results, "test_accuracy", own, "time")
        found["accuracy"] = final["test_accuracy"]
    without = (
        ~run.isin(run[final["test_accuracy"].notna()]) if "test_accuracy" in final else run.notna()
    )
    if "test_loss" in final and without.any():
        found["loss"] = final["test_loss"].where(without)
    stale = staleness(results)
    at = [f" at update {update:g}" if update == update else "" for update in final["diverged_at"]]
    made = (
        {"laggard": run.map({name: of.version for name, of in named})}
        if describe_versions(results)
        else {}
    )
    return found.assign(
        **made,
        time=final["time"],
        updates=final["updates"],
        staleness=run.map(stale["mean"]),
        max_staleness=run.map(stale["max"]),
        waiting=run.map(waiting(results)),
        status=final["status"] + at,
    )


def is_seed(key: str) -> bool:
    """Whether a dotted key only seeds random numbers."""
    return key.rpartition(".")[2] == "seed"


def goal(results: Sequence[Result], target: float | None = None) -> tuple[str, float]:
    """The target: the measure's column and its value; an accuracy is reached from below, a loss
    from above.

    Raises:
        ValueError: no target was given and the configs have none, or not the same one.
    """
    metrics = as_results(results).metrics
    column = "test_accuracy" if "test_accuracy" in metrics else "test_loss"
    if column not in metrics:
        raise ValueError("target: none of the runs measured a test accuracy or a test loss")
    if target is None:
        own = (
            {result.config.evaluate.target_accuracy for result in results}
            if column == "test_accuracy"
            else set()
        )
        if len(own) != 1 or None in own:
            problem = (
                "the configs have different ones"
                if len(own) > 1
                else "the configs have none that applies"
            )
            raise ValueError(
                f"target: expected a {column.replace('_', ' ')} to reach, for {problem}"
            )
        target = own.pop()
    return column, check_target(target, column)


def check_target(target: float, column: str = "test_accuracy") -> float:
    """`target`, if a test accuracy or a test loss can be that.

    Raises:
        ValueError: it cannot.
    """
    if column == "test_accuracy" and not 0 < target <= 1:
        raise ValueError(
            f"target: expected a test accuracy above 0 and at most 1, as in 0.9, got {target:g}"
        )
    if not math.isfinite(target):
        raise ValueError(f"target: expected a finite test loss, got {target:g}")
    return float(target)


def as_results(results: Sequence[Result] | Result) -> Results:
    """The same runs as `Results`."""
    return (
        results
        if isinstance(results, Results)
        else Results([results] if isinstance(results, Result) else results)
    )


def groups(
    table: "pd.DataFrame", keys: Sequence[str]
) -> list[tuple[tuple[Any, ...], "pd.DataFrame"]]:
    """The rows at each setting of `keys`, in order of first appearance; a key that a run lacks is a
    setting too.

    A missing setting is None, so that it equals itself.
    """
    if not keys:
        return [((), table)]
    found = table.groupby(list(keys), dropna=False, sort=False, observed=True)
    return [
        (tuple(None if value != value else value for value in setting), rows)
        for setting, rows in found
    ]


def method(result: Result) -> str:
    """The name of a run's method: algorithm, and compensation if there is one."""
    names = [result.config.algorithm.name, result.config.learning.compensation.name]
    return " + ".join(name for name in names if name != "none")


def names(results: Sequence[Result]) -> dict[Path, str]:
    """A name for each result outside a sweep, by its path: its method, and its run id where that is
    ambiguous.
    """
    said = [method(result) for result in results]
    if len(set(said)) < len(said):
        said = [
            f"{name} {result.manifest['run']}" for result, name in zip(results, said, strict=True)
        ]
    return dict(zip((result.path for result in results), said, strict=True))
