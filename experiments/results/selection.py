"""The best setting of a grid: each method at its own best learning rate, chosen on some seeds and
reported on others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.results.formats import format_setting
from laggard.experiments.results.measures import groups, is_seed, measure_runs
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results, as_results

CRITERIA = {"accuracy": "accuracy", "loss": "loss", "time": "time_to", "updates": "updates_to"}
"""Criterion -> the measure that it compares."""


@dataclass(frozen=True)
class Best:
    """The chosen settings, and how they were chosen.

    Attributes:
        over: the keys of which the best setting was chosen.
        results: the runs and members at the chosen settings, with the reporting seeds.
        table: a row per setting of the other keys: these keys, the chosen settings, `edge` (chosen
            keys at an end of their grid: the optimum may lie beyond) and `tied` (number of other
            settings that did as well).
        selecting: the seeds that chose.
        reporting: the seeds that report.
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
        """A line per chosen setting, with the settings of the other keys for which it is best."""
        others = [key for key in self.table if key not in (*self.over, "edge", "tied")]
        choices = _group_choices(self.table.to_dict("records"), others, self.over)
        return [f"{chosen}: {setting}" for chosen, setting in choices.items()]


class SeedSplit(NamedTuple):
    """The key of the seeds, if one was swept; the seeds that choose; those that report."""

    key: str | None
    selecting: tuple[Any, ...]
    reporting: tuple[Any, ...]

    def rows(self, table: pd.DataFrame, seeds: Sequence[Any]) -> pd.DataFrame:
        """The rows of a table at these seeds; all where no seed was swept."""
        if self.key is None:
            return table
        return table[table[self.key].isin(seeds)]


def best(
    results: Sequence[Result],
    over: str | Sequence[str] = "learning.lr",
    by: str | None = None,
    target: float | None = None,
    select_seeds: Sequence[int] | None = None,
) -> Best:
    """Choose the best `over` for each setting of the other keys; report it on other seeds.

    The seeds are the values of `seed`, or else of the first swept key that ends so. A single seed
    both chooses and reports, which flatters; a note says so. Of equal settings the first is chosen.

    Args:
        over: one swept key, or several; none may be a seed.
        by: `accuracy` or `loss`: the best mean at the end, where a diverged member has accuracy 0
            and infinite loss. `time` or `updates`: the most seeds that reach the target, then the
            least mean of these. Default: accuracy if measured, else loss.
        target: as in `measure_runs`.
        select_seeds: seeds that choose; the others report. Default: the first half.

    Raises:
        ValueError: `over` was not swept, or `by` or a seed is unknown.
    """
    results = as_results(results)
    keys = [over] if isinstance(over, str) else list(over)
    if by is None:
        by = "accuracy" if "test_accuracy" in results.metrics else "loss"
    if by not in CRITERIA:
        raise ValueError(f"{by}: expected one of {', '.join(CRITERIA)} to choose by")
    for key in keys:
        if key not in results.keys or is_seed(key):
            problem = "expected a swept key that is no seed, to choose the best over"
            raise ValueError(f"{key}: {problem}")
    table = measure_runs(results, CRITERIA[by], target)
    seeds = _split_seeds(table, results.keys, select_seeds)
    others = [key for key in results.keys if key not in keys and not is_seed(key)]
    rows = []
    chosen = []
    for setting, members in groups(seeds.rows(table, seeds.selecting), others):
        other_settings = dict(zip(others, setting, strict=True))
        choice = _choose_setting(members, keys, by)
        rows.append({**other_settings, **choice})
        chosen.append({**other_settings, **{key: choice[key] for key in keys}})
    reported = seeds.rows(table, seeds.reporting)
    return Best(
        over=tuple(keys),
        results=_restrict(results, reported, chosen),
        table=pd.DataFrame(rows),
        selecting=seeds.selecting,
        reporting=seeds.reporting,
        notes=_choice_notes(rows, others, keys, by, seeds),
    )


def _split_seeds(
    table: pd.DataFrame, keys: Sequence[str], select: Sequence[int] | None
) -> SeedSplit:
    swept = [key for key in keys if is_seed(key)]
    key = None
    values = []
    if swept:
        key = "seed" if "seed" in swept else swept[0]
        values = sorted(table[key].dropna().unique().tolist())
    if select is None:
        half = len(values) // 2
        selecting = values[:half] or values  # one seed does both
        return SeedSplit(key, tuple(selecting), tuple(values[half:]))
    for value in select:
        if value not in values:
            swept_values = ", ".join(f"{value:g}" for value in values) or "none"
            problem = f"expected seeds that were swept to choose by: {swept_values}"
            raise ValueError(f"seed {value}: {problem}")
    reporting = [value for value in values if value not in select]
    return SeedSplit(key, tuple(select), tuple(reporting or values))


def _choose_setting(table: pd.DataFrame, keys: Sequence[str], by: str) -> dict[str, Any]:
    """The best setting of `keys` in a table of members, with `edge` and `tied`."""
    scores = {}
    for setting, members in groups(table, keys):
        scores[setting] = _score(members["value"].to_numpy(float), by)
    top = max(scores.values())
    ties = [setting for setting, score in scores.items() if score == top]
    settings = dict(zip(keys, ties[0], strict=True))
    edges = [key for key in keys if _is_at_edge(settings[key], table[key])]
    return {**settings, "edge": ", ".join(edges), "tied": len(ties) - 1}


def _is_at_edge(value: Any, column: pd.Series) -> bool:
    """Whether a setting is the least or the greatest of two or more numbers."""
    grid = column.dropna().unique()
    if len(grid) < 2 or not all(isinstance(point, int | float | np.number) for point in grid):
        return False
    return bool(value == min(grid) or value == max(grid))


def _score(values: np.ndarray, by: str) -> tuple[float, float]:
    """The score of a setting's members: greater is better."""
    finite = np.isfinite(values)
    if by == "accuracy":
        return float(np.where(finite, values, 0).mean()), 0.0
    if by == "loss":
        return -float(np.where(finite, values, np.inf).mean()), 0.0
    if not finite.any():
        return 0.0, 0.0
    return float(finite.mean()), -float(values[finite].mean())


def _restrict(
    results: Results, table: pd.DataFrame, chosen: Sequence[Mapping[str, Any]]
) -> Results:
    """The members of `results` that are in `table` at one of the chosen settings."""
    selected = pd.Series(data=False, index=table.index)
    for settings in chosen:
        matches = pd.Series(data=True, index=table.index)
        for key, value in settings.items():
            matches &= table[key].isna() if pd.isna(value) else table[key] == value
        selected |= matches
    members = table[selected].groupby("run", observed=True)["member"].agg(tuple).to_dict()
    parts = []
    for name, result in zip(results.names, results, strict=True):
        if name in members:
            parts.append(replace(result, only=members[name]))
    return Results(parts)


def _choice_notes(
    rows: Sequence[Mapping[str, Any]],
    others: Sequence[str],
    keys: Sequence[str],
    by: str,
    seeds: SeedSplit,
) -> tuple[str, ...]:
    key = seeds.key or "seed"
    selecting, reporting = _list_seeds(seeds.selecting), _list_seeds(seeds.reporting)
    over = ", ".join(keys)
    notes = [f"best over {over} by {by}, chosen on {key} {selecting}, reported on {reporting}"]
    if seeds.key is None or set(seeds.selecting) & set(seeds.reporting):
        problem = "the seeds that chose also report, which flatters the choice"
        notes.append(f"warning: {problem}: sweep more seeds")
    for edge in _distinct(rows, "edge"):
        problem = f"lies at the edge of its grid ({edge}): the best may lie beyond"
        for chosen, setting in _group_choices(_at(rows, "edge", edge), others, keys).items():
            notes.append(f"warning: {setting}: {chosen} {problem}")
    for tied in _distinct(rows, "tied"):
        problem = f"is tied with {tied} more; the first was taken"
        for chosen, setting in _group_choices(_at(rows, "tied", tied), others, keys).items():
            notes.append(f"warning: {setting}: {chosen} {problem}")
    return tuple(notes)


def _distinct(rows: Iterable[Mapping[str, Any]], remark: str) -> list[Any]:
    """The remarks of the rows that have one."""
    return list(dict.fromkeys(row[remark] for row in rows if row[remark]))


def _at(rows: Iterable[Mapping[str, Any]], remark: str, value: Any) -> list[Mapping[str, Any]]:
    return [row for row in rows if row[remark] == value]


def _group_choices(
    rows: Sequence[Mapping[str, Any]], others: Sequence[str], keys: Sequence[str]
) -> dict[str, str]:
    """The chosen setting -> the settings of the other keys for which it was chosen."""
    choices: dict[str, list[str]] = {}
    for row in rows:
        chosen = ", ".join(f"{key} = {format_setting(row[key])}" for key in keys)
        settings = [format_setting(row[key]) for key in others]
        present = [setting for setting in settings if setting != "-"]
        choices.setdefault(chosen, []).append(", ".join(present) or "all")
    return {chosen: "; ".join(settings) for chosen, settings in choices.items()}


def _list_seeds(seeds: Sequence[Any]) -> str:
    return ", ".join(f"{seed:g}" for seed in seeds) or "the only seed"
