"""The table that answers a config's question: one row per run and member."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.store import Result

if TYPE_CHECKING:
    import pandas as pd


def summary(results: Sequence[Result], target: float | None = None) -> "pd.DataFrame":
    """One row per run and member: what was swept, how fast it was, how well it learnt, how stale its gradients were.

    Columns: the swept keys (without any, `method`); `time_to_target` (virtual seconds to the first evaluation at
    `target`, NaN where it is not reached) where there is an accuracy and a target; `accuracy` (0 to 1) or `loss` at
    the end; `time` (s); `updates`; `staleness` and `max_staleness` of applied gradients; `waiting`, the share of
    their time that workers waited; `status`.

    Args:
        target: a test accuracy (0 to 1); by default each config's `evaluate.target_accuracy`.
    """
    import pandas as pd

    labelled = any(result.labels or result.config.sweep for result in results)
    rows = [row for result in results for row in _rows(result, target, labelled)]
    table = pd.DataFrame(rows)
    swept = dict.fromkeys(key for result in results for key in result.members if key != "member")
    return table[[*(key for key in swept if key in table), *(name for name in table if name not in swept)]]


def best(table: "pd.DataFrame", by: str) -> "pd.DataFrame":
    """Of the rows of a summary that have the same value of `by`, the one that reached the target first.

    Where none did, the most accurate, or the one with the least loss. The order of the values stays.
    """
    goals = {"time_to_target": True, "accuracy": False, "loss": True}
    columns = [column for column in goals if column in table]
    ranked = table.sort_values(columns, ascending=[goals[column] for column in columns], kind="stable")
    return ranked.groupby(by, sort=False).head(1).sort_index().reset_index(drop=True)


def as_text(table: "pd.DataFrame") -> str:
    """The table, aligned for a terminal: texts to the left, numbers to the right."""
    columns = []
    for name in table:
        texts = isinstance(table[name].iloc[0], str)
        cells = [name.replace("_", " "), *(_cell(name, value) for value in table[name])]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if texts else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def method(result: Result) -> str:
    """The method that a run used, as a reader would call it: algorithm, and compensation if there is one."""
    names = [result.config.algorithm.name, result.config.learning.compensation.name]
    return " + ".join(name for name in names if name != "none")


def names(results: Sequence[Result]) -> dict[Path, str]:
    """A name for each result that stands in no sweep, by its path: its method, and its run where that is not enough."""
    said = [method(result) for result in results]
    unique = len(set(said)) == len(said)
    return {
        result.path: name if unique else f"{name} {result.manifest['run']}"
        for result, name in zip(results, said, strict=True)
    }


def _rows(result: Result, target: float | None, labelled: bool) -> list[dict[str, Any]]:
    target = result.config.evaluate.target_accuracy if target is None else target
    applied = result.updates.loc[result.updates["status"] == "applied", "staleness"]
    spent = result.workers[["computing", "sending", "waiting", "down"]].sum()
    after = {
        "updates": result.manifest["mileage"]["updates"],
        "staleness": applied.mean(),
        "max_staleness": applied.max() if len(applied) else 0,
        "waiting": spent["waiting"] / spent.sum() if spent.sum() else math.nan,
    }
    diverged = {entry["member"]: entry["updates"] for entry in result.manifest["diverged"]}
    rows = []
    for swept, (_, curve) in zip(result.members.to_dict("records"), result.metrics.groupby("member"), strict=True):
        member = swept.pop("member")
        status = f"diverged at update {diverged[member]:g}" if member in diverged else result.manifest["status"]
        labels = swept if labelled else {"method": method(result)}
        rows.append({**labels, **_learnt(curve, target), **after, "status": status})
    return rows


def _learnt(curve: "pd.DataFrame", target: float | None) -> dict[str, Any]:
    """How well one member learnt, and how fast."""
    last: dict[str, Any] = {}
    if "test_accuracy" in curve:
        if target is not None:
            there = curve.loc[curve["test_accuracy"] >= target, "time"]
            last["time_to_target"] = there.iloc[0] if len(there) else math.nan
        last["accuracy"] = curve["test_accuracy"].iloc[-1]
    elif "test_loss" in curve:
        last["loss"] = curve["test_loss"].iloc[-1]
    return {**last, "time": curve["time"].iloc[-1]}


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, int | np.integer) and name not in WRITTEN:
        return str(value)  # seeds and sizes in full
    if value is None or math.isnan(value):
        return "not reached" if name == "time_to_target" else "-"
    return WRITTEN.get(name, "{:g}").format(value)


WRITTEN = {
    "time_to_target": "{:.4g} s",
    "accuracy": "{:.2%}",
    "loss": "{:.4g}",
    "time": "{:.4g} s",
    "updates": "{:,.10g}",
    "staleness": "{:.2f}",
    "waiting": "{:.0%}",
}
"""How the columns of a summary are written."""
