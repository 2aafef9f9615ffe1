"""Each run and member in a number: how well it ended, how soon it got somewhere, how stale it was."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.errors import meant
from experiments.results import Results
from experiments.store import Result

if TYPE_CHECKING:
    import pandas as pd


class Measure(NamedTuple):
    """A number of a run's member: the column that has it, its scale and unit in tables, and its title."""

    column: str
    scale: float
    unit: str
    title: str


MEASURES = {
    "accuracy": Measure("test_accuracy", 100, "%", "test accuracy"),
    "loss": Measure("test_loss", 1, "", "test loss"),
    "train_loss": Measure("train_loss", 1, "", "training loss"),
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
"""Of a member at its end; `_to`, at its first evaluation at a target; of a run, its applied gradients and workers."""


def is_seed(key: str) -> bool:
    """Whether a dotted key only seeds random numbers."""
    return key.rpartition(".")[2] == "seed"


def measured(results: Sequence[Result], value: str, target: float | None = None) -> "pd.DataFrame":
    """A row per run and member: `run`, the swept keys, `member`, `value`, `followed` (until when it was seen, on the
    axis of a `_to`), `never` (it ended for good: it diverged or stalled) and `diverged`.

    Args:
        target: where a `_to` wants to get: a test accuracy (0 to 1), or where none is measured a test loss; by default
            the configs' `evaluate.target_accuracy`. Not reached: NaN.

    Raises:
        ValueError: no such value, none of the runs has it, or there is no target.
    """
    if value not in MEASURES:
        hint = meant(value, MEASURES) or f"expected one of {', '.join(MEASURES)}"
        raise ValueError(f"{value}: no such value; {hint}")
    results = of(results)
    final, column = results.final, MEASURES[value].column
    never = final["status"] != "finished"
    found = final[["run", *results.keys, "member"]].assign(never=never, diverged=final["status"] == "diverged")
    if value.endswith("_to"):
        first = _first(results, target)[["run", "member", column]].rename(columns={column: "value"})
        first["run"] = first["run"].astype(str)
        found["run"] = found["run"].astype(str)
        return found.assign(followed=final[column]).merge(first, on=["run", "member"], how="left")
    if value in ("staleness", "max_staleness", "waiting"):
        return found.assign(value=found["run"].astype(str).map(_of_runs(results, value)), followed=final["time"])
    if column not in final:
        raise ValueError(f"{value}: none of the runs measured it")
    ended = final[column].astype(float)
    return found.assign(value=ended.where(~found["diverged"] | (column in AXES)), followed=final["time"])


def goal(results: Sequence[Result], target: float | None = None) -> tuple[str, float]:
    """What is to be reached: the measure's column, and how much of it; an accuracy from below, a loss from above.

    Raises:
        ValueError: no target was given and the configs have none, or not the same one.
    """
    column = "test_accuracy" if "test_accuracy" in of(results).metrics else "test_loss"
    if target is None:
        own = {result.config.evaluate.target_accuracy for result in results} if column == "test_accuracy" else {None}
        if len(own) > 1 or own == {None}:
            problem = "the configs have different ones" if len(own) > 1 else "the configs have none that applies"
            raise ValueError(f"target: expected a {column.replace('_', ' ')} to reach, for {problem}")
        (target,) = own
    return column, float(target)


def of(results: Sequence[Result]) -> Results:
    """The same runs as `Results`."""
    return results if isinstance(results, Results) else Results(results)


def groups(table: "pd.DataFrame", keys: Sequence[str]) -> list[tuple[tuple[Any, ...], "pd.DataFrame"]]:
    """The rows at each setting of `keys`, in the order in which they come; a key that a run has not is a setting too.

    A missing setting is None, so that it equals itself.
    """
    if not keys:
        return [((), table)]
    found = table.groupby(list(keys), dropna=False, sort=False, observed=True)
    return [(tuple(None if value != value else value for value in setting), rows) for setting, rows in found]


def said(value: Any) -> str:
    """A setting in a table; `-` where a run has none."""
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


AXES = ("time", "updates", "samples", "epoch")


def _first(results: Results, target: float | None) -> "pd.DataFrame":
    """Of each member that reached the target, its first evaluation there."""
    column, target = goal(results, target)
    metrics = results.metrics
    there = metrics[column] >= target if column == "test_accuracy" else metrics[column] <= target
    return metrics[there].drop_duplicates(["run", "member"])


def _of_runs(results: Results, value: str) -> dict[str, float]:
    if value == "waiting":
        spent = results.scan("workers").groupby("run", observed=True)[["computing", "sending", "waiting", "down"]].sum()
        return (spent["waiting"] / spent.sum(axis=1)).to_dict()
    stale = results.scan("updates", columns=["run", "staleness"], where={"status": "applied"})
    groups = stale.groupby("run", observed=True)["staleness"]
    return (groups.max() if value == "max_staleness" else groups.mean()).to_dict()
