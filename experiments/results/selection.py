"""The best of a grid: methods are compared each at its own best learning rate, chosen on other
seeds than reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from laggard.experiments.results.formats import format_setting
from laggard.experiments.results.measures import as_results, groups, is_seed, measure_runs
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results

CRITERIA = {"accuracy": "accuracy", "loss": "loss", "time": "time_to", "updates": "updates_to"}
"""Criterion -> the measure that it uses."""


@dataclass(frozen=True)
class Best:
    """The chosen settings, and how they were chosen.

    Attributes:
        over: the keys that were chosen.
        results: the chosen settings alone, at the seeds that report.
        table: a row per setting of the keys that were not chosen: those keys, what was chosen,
            `edge` (the chosen keys that lie at an end of their grid: the optimum may lie beyond)
            and `tied` (how many others did as well).
        selecting: the seeds that chose.
        reporting: the seeds that are left to report.
        notes: what a reader must know: edges, ties, shared seeds.
    """

    over: tuple[str, ...]
    results: Results
    table: pd.DataFrame
    selecting: tuple[Any, ...]
    reporting: tuple[Any, ...]
    notes: tuple[str, ...]

    @property
    def choices(self) -> list[str]:
        """A line per chosen setting: the settings of the other keys that it was chosen for."""
        others = [key for key in self.table if key not in (*self.over, "edge", "tied")]
        return [
            f"{what}: {who}"
            for what, who in _group_choices(
                self.table.to_dict("records"), others, self.over
            ).items()
        ]


def best(
    results: Sequence[Result],
    over: str | Sequence[str] = "learning.lr",
    by: str | None = None,
    target: float | None = None,
    select_seeds: Sequence[int] | None = None,
) -> Best:
    """For each setting of the other keys, the best over the keys `over`, chosen on some seeds and
    reported on others.

    The seeds are the values of `seed`, or else of the first swept key so called. By default the
    first half of them chooses and the rest report; where there is one seed it does both, which
    flatters, and a note says so.

    By `accuracy` and `loss`: the best mean at the end, where a member that diverged has accuracy 0
    and infinite loss.
    By `time` and `updates`: the most seeds that reached the target, then the least mean of theirs.
    Of ties the first.

    Args:
        by, target: accuracy (the default where it is measured), loss, time or updates; as in
            `measure_runs`.

    Raises:
        ValueError: nothing was swept so, or no such criterion or seed.
    """
    results, keys = as_results(results), [over] if isinstance(over, str) else list(over)
    by = by or ("accuracy" if "test_accuracy" in results.metrics else "loss")
    if by not in CRITERIA:
        raise ValueError(f"{by}: expected one of {', '.join(CRITERIA)} to choose by")
    for key in keys:
        if key not in results.keys or is_seed(key):
            raise ValueError(
                f"{key}: expected a swept key that is no seed, to choose the best over"
            )
    table = measure_runs(results, CRITERIA[by], target)
    seed, selecting, reporting = _selection_seeds(table, results.keys, select_seeds)
    judged = table[table[seed].isin(selecting)] if seed else table
    others = [key for key in results.keys if key not in keys and not is_seed(key)]
    every = groups(judged, others)
    rows = [
        dict(zip(others, at, strict=True)) | _choose_setting(of_group, keys, by)
        for at, of_group in every
    ]
    chosen = [{key: row[key] for key in (*others, *keys)} for row in rows]
    reported = table[table[seed].isin(reporting)] if seed else table
    notes = _notes(rows, others, keys, by, seed, selecting, reporting)
    return Best(
        tuple(keys),
        _restrict(results, reported, chosen),
        pd.DataFrame(rows),
        selecting,
        reporting,
        notes,
    )


def _selection_seeds(
    table: pd.DataFrame, keys: Sequence[str], select: Sequence[int] | None
) -> tuple[str | None, tuple[Any, ...], tuple[Any, ...]]:
    """The key of the seeds, the seeds that choose, and the seeds that report."""
    swept = [key for key in keys if is_seed(key)]
    seed = "seed" if "seed" in swept else swept[0] if swept else None
    values = sorted(table[seed].dropna().unique().tolist()) if seed else []
    if select is None:
        half = values[: len(values) // 2]
        return seed, tuple(half or values), tuple(values[len(half) :])
    for value in select:
        if value not in values:
            there = ", ".join(f"{value:g}" for value in values) or "none"
            raise ValueError(f"seed {value}: expected seeds that were swept to choose by: {there}")
    return (
        seed,
        tuple(select),
        tuple(value for value in values if value not in select) or tuple(values),
    )


def _choose_setting(table: pd.DataFrame, keys: Sequence[str], by: str) -> dict[str, Any]:
    """The best setting of `keys` in a table of members, and remarks on it."""
    scored = [
        (_score(of["value"].to_numpy(float), by), setting) for setting, of in groups(table, keys)
    ]
    top = max(score for score, _ in scored)
    ties = [setting for score, setting in scored if score == top]
    settings = dict(zip(keys, ties[0], strict=True))
    edges = []
    for key in keys:
        grid = table[key].dropna().unique()
        numbers = len(grid) > 1 and all(
            isinstance(value, int | float | np.number) for value in grid
        )
        edges += [key] * bool(numbers and settings[key] in (min(grid), max(grid)))
    return {**settings, "edge": ", ".join(edges), "tied": len(ties) - 1}


def _score(values: np.ndarray, by: str) -> tuple[float, float]:
    """The score of a value: greater is better."""
    there = np.isfinite(values)
    if by == "accuracy":
        return float(np.where(there, values, 0).mean()), 0.0
    if by == "loss":
        return -float(np.where(there, values, np.inf).mean()), 0.0
    return float(there.mean()), -float(values[there].mean()) if there.any() else 0.0


def _restrict(
    results: Results, table: pd.DataFrame, chosen: Sequence[Mapping[str, Any]]
) -> Results:
    """The members of `results` that stand in `table` at one of the `chosen` settings."""
    fine = pd.Series(data=False, index=table.index)
    for settings in chosen:
        here = pd.Series(data=True, index=table.index)
        for key, value in settings.items():
            here &= table[key].isna() if pd.isna(value) else table[key] == value
        fine |= here
    members = table[fine].groupby("run", observed=True)["member"].agg(tuple).to_dict()
    named = zip(results.names, results, strict=True)
    return Results(replace(result, only=members[name]) for name, result in named if name in members)


def _notes(
    rows: Sequence[Mapping[str, Any]],
    others: Sequence[str],
    keys: Sequence[str],
    by: str,
    seed: str | None,
    selecting: Sequence[Any],
    reporting: Sequence[Any],
) -> tuple[str, ...]:
    over = ", ".join(keys)
    seeds = (
        f"chosen on {seed or 'seed'} {_list_seeds(selecting)}, reported on {_list_seeds(reporting)}"
    )
    notes = [f"best over {over} by {by}, {seeds}"]
    if set(selecting) & set(reporting) or not seed:
        notes.append(
            "warning: the seeds that chose also report, which flatters the choice: sweep more seeds"
        )
    for edge in dict.fromkeys(row["edge"] for row in rows if row["edge"]):
        for what, who in _group_choices(
            [row for row in rows if row["edge"] == edge], others, keys
        ).items():
            notes.append(
                f"warning: {who}: {what} lies at the edge of its grid ({edge}): the best may lie beyond"
            )
    for tied in dict.fromkeys(row["tied"] for row in rows if row["tied"]):
        for what, who in _group_choices(
            [row for row in rows if row["tied"] == tied], others, keys
        ).items():
            notes.append(f"warning: {who}: {what} is tied with {tied} more; the first was taken")
    return tuple(notes)


def _group_choices(
    rows: Sequence[Mapping[str, Any]], others: Sequence[str], keys: Sequence[str]
) -> dict[str, str]:
    """Chosen setting -> the settings of the other keys that it was chosen for."""
    found: dict[str, list[str]] = {}
    for row in rows:
        what = ", ".join(f"{key} = {format_setting(row[key])}" for key in keys)
        who = (
            ", ".join(format_setting(row[key]) for key in others if format_setting(row[key]) != "-")
            or "all"
        )
        found.setdefault(what, []).append(who)
    return {what: "; ".join(who) for what, who in found.items()}


def _list_seeds(seeds: Sequence[Any]) -> str:
    return ", ".join(f"{seed:g}" for seed in seeds) or "the one there is"
