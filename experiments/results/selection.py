"""The best setting of a grid: each method at its own best learning rate.

The other seeds choose the setting that a seed reports. A seed chooses for itself only if no other
seed has one of its settings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from laggard.experiments.results.formats import format_setting, label_text
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
        results: the runs and members that report: each seed at the setting that is best on the
            other seeds.
        overall: each seed at the setting that is best on all seeds.
        table: a row per setting of the other keys: these keys, the setting that is best on all
            seeds, `edge` (chosen keys at an end of their grid: the optimum may lie beyond) and
            `tied` (number of other settings with an equal score).
        notes: the notes for the reader: edges, ties, choices that depend on a seed.
    """

    over: tuple[str, ...]
    results: Results
    overall: Results
    table: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def choices(self) -> list[str]:
        """A line per chosen setting, with the settings of the other keys for which it is best."""
        choices = _group_choices(self.table.to_dict("records"), self._others, self.over)
        return [f"{chosen}: {setting}" for chosen, setting in choices.items()]

    @property
    def _others(self) -> list[str]:
        return [key for key in self.table if key not in (*self.over, "edge", "tied")]

    def relabel(self, measured: pd.DataFrame) -> pd.DataFrame:
        """A table of members with the chosen keys at the settings that are best on all seeds."""
        others = self._others
        if not others:
            return measured.assign(**self.table.loc[0, list(self.over)].to_dict())
        choices = self.table[[*others, *self.over]]
        rows = measured.drop(columns=list(self.over))
        shared = dict.fromkeys(others, object)
        merged = rows.astype(shared).merge(choices.astype(shared), on=others, how="left")
        return merged.set_axis(rows.index)[measured.columns]


def best(
    results: Sequence[Result],
    over: str | Sequence[str] = "learning.lr",
    by: str | None = None,
    target: float | None = None,
) -> Best:
    """Find the best values of the keys `over`, for each setting of the other keys.

    The value that a seed reports is chosen without that seed, on the remaining ones. So all seeds
    report, and no seed reports a setting that it helped to choose. The seeds are the values of
    `seed`, or else of the first swept key that ends in `seed`. A single seed both chooses and
    reports, so that its value is optimistic, and a note warns of it. Of equal settings the first is
    chosen.

    Args:
        over: one swept key, or several; none may be a seed.
        by: `accuracy` or `loss`: the best mean at the end, where a diverged member has accuracy 0
            and infinite loss. `time` or `updates`: the most seeds that reach the target, then the
            least mean of these; where no seed of any setting reaches it, the best accuracy at the
            end, or the least loss. Default: accuracy if measured, else loss.
        target: the target, as in `measure_runs`.

    Raises:
        ValueError: `over` was not swept, or `by` is unknown.
    """
    results = as_results(results)
    keys = [over] if isinstance(over, str) else list(over)
    if by is None:
        by = "accuracy" if "test_accuracy" in results.metrics else "loss"
    if by not in CRITERIA:
        raise ValueError(f"{by}: expected one of {', '.join(CRITERIA)} to choose by")
    for key in keys:
        if key not in results.keys or is_seed(key):
            problem = "expected a swept key that is not a seed, to choose the best over"
            raise ValueError(f"{key}: {problem}")
    measured = measure_criterion(results, by, target)
    seed = _seed_key(results.keys)
    others = [key for key in results.keys if key not in keys and not is_seed(key)]
    rows = []
    overall = []
    reported: list[dict[str, Any]] = []
    for setting, members in groups(measured, others):
        place = dict(zip(others, setting, strict=True))
        choice = _choose_setting(members, keys, by)
        chosen = {key: choice[key] for key in keys}
        by_seed = _choose_without_each_seed(members, keys, by, seed)
        rows.append({**place, **choice, "without": _other_choices(by_seed, chosen)})
        overall.append({**place, **chosen})
        reported.extend({**place, **settings} for settings in by_seed)
    table = pd.DataFrame(rows)
    return Best(
        over=tuple(keys),
        results=_restrict(results, measured, reported),
        overall=_restrict(results, measured, overall),
        table=table.drop(columns="without"),
        notes=_choice_notes(rows, others, keys, by, _count_seeds(measured, seed)),
    )


def measure_criterion(results: Results, by: str, target: float | None = None) -> pd.DataFrame:
    """A row per run and member with the `value` that a criterion compares.

    Where it is a time to a target also `end`, the accuracy at the end, or minus the loss: it orders
    settings of which no member reaches the target.
    """
    measured = measure_runs(results, CRITERIA[by], target)
    if by in ("accuracy", "loss"):
        return measured
    if "test_accuracy" in results.metrics:
        end = measure_runs(results, "accuracy")["value"].fillna(0.0)
    else:
        end = -measure_runs(results, "loss")["value"].fillna(np.inf)
    return measured.assign(end=end)


def best_settings(
    measured: pd.DataFrame, keys: Sequence[str], over: Sequence[str], by: str
) -> pd.DataFrame:
    """The setting of `over` that is best on all seeds, a row for each setting of the other keys.

    Args:
        measured: a row per run and member: the swept `keys`, and its `value` as
            `measure_criterion` gives it, perhaps with `end`.
        by: the criterion, as in `best`.
    """
    others = [key for key in keys if key not in over and not is_seed(key)]
    rows = []
    for setting, members in groups(measured, others):
        place = dict(zip(others, setting, strict=True))
        rows.append({**place, **_choose_setting(members, over, by)})
    return pd.DataFrame(rows)


def _seed_key(keys: Sequence[str]) -> str | None:
    swept = [key for key in keys if is_seed(key)]
    if "seed" in swept:
        return "seed"
    return next(iter(swept), None)


def _count_seeds(measured: pd.DataFrame, seed: str | None) -> int:
    if seed is None:
        return 1
    return int(measured[seed].nunique())


def _choose_without_each_seed(
    members: pd.DataFrame, keys: Sequence[str], by: str, seed: str | None
) -> list[dict[str, Any]]:
    """For each seed the best setting on the other seeds, among the settings that the seed has."""
    if seed is None:
        choice = _choose_setting(members, keys, by)
        return [{key: choice[key] for key in keys}]
    choices = []
    for (value,), own in groups(members, [seed]):
        available = {setting for setting, _ in groups(own, keys)}
        others = members[members[seed] != value]
        parts = [rows for setting, rows in groups(others, keys) if setting in available]
        if not parts:
            # No other seed has one of its settings, so it chooses for itself.
            parts = [own]
        choice = _choose_setting(pd.concat(parts), keys, by)
        choices.append({seed: value, **{key: choice[key] for key in keys}})
    return choices


def _other_choices(
    by_seed: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]
) -> tuple[str, ...]:
    """The settings that are best without some seed, except the one that is best on all seeds."""
    texts = []
    for settings in by_seed:
        others = {key: settings[key] for key in chosen}
        if others != chosen:
            texts.append(_setting_text(others))
    return tuple(dict.fromkeys(texts))


def _choose_setting(table: pd.DataFrame, keys: Sequence[str], by: str) -> dict[str, Any]:
    """The best setting of `keys` in a table of members, with `edge` and `tied`."""
    scores = {}
    for setting, members in groups(table, keys):
        scores[setting] = _score(members, by)
    top = max(scores.values())
    ties = [setting for setting, score in scores.items() if score == top]
    settings = dict(zip(keys, ties[0], strict=True))
    edges = [key for key in keys if _is_at_edge(settings[key], table[key])]
    return {**settings, "edge": ", ".join(edges), "tied": len(ties) - 1}


def _is_at_edge(value: Any, column: pd.Series) -> bool:
    """Whether a setting is the least or the greatest of two or more numbers."""
    grid = column.dropna().unique()
    if len(grid) < 2 or not all(map(_has_order, grid)):
        return False
    return bool(value == min(grid) or value == max(grid))


def _has_order(value: Any) -> bool:
    """Whether a setting can be ordered: numbers can, true and false cannot."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _score(members: pd.DataFrame, by: str) -> tuple[float, float]:
    """The score of a setting's members: greater is better."""
    values = members["value"].to_numpy(float)
    finite = np.isfinite(values)
    if by == "accuracy":
        return float(np.where(finite, values, 0).mean()), 0.0
    if by == "loss":
        return -float(np.where(finite, values, np.inf).mean()), 0.0
    if finite.any():
        return float(finite.mean()), -float(values[finite].mean())
    if "end" in members:
        return 0.0, float(members["end"].mean())
    return 0.0, 0.0


def _restrict(
    results: Results, table: pd.DataFrame, chosen: Sequence[Mapping[str, Any]]
) -> Results:
    """The members of `results` that are in `table` at one of the chosen settings."""
    selected = pd.Series(data=False, index=table.index)
    for settings in chosen:
        matches = pd.Series(data=True, index=table.index)
        for key, value in settings.items():
            # A key that a run lacks is NaN here, which equals nothing.
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
    seeds: int,
) -> tuple[str, ...]:
    notes = [f"best over {', '.join(keys)} by {by}; each seed reports what the other seeds chose"]
    if seeds < 2:
        problem = "the only seed chooses and reports, which flatters the choice"
        notes = [f"best over {', '.join(keys)} by {by}", f"warning: {problem}: sweep more seeds"]
    for without in _distinct(rows, "without"):
        problem = f"without one of the seeds it is {' or '.join(without)}"
        for chosen, setting in _group_choices(_at(rows, "without", without), others, keys).items():
            notes.append(f"{setting}: {chosen} is best on all seeds; {problem}")
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
    """The different remarks of rows, without empty ones."""
    return list(dict.fromkeys(row[remark] for row in rows if row[remark]))


def _at(rows: Iterable[Mapping[str, Any]], remark: str, value: Any) -> list[Mapping[str, Any]]:
    return [row for row in rows if row[remark] == value]


def _group_choices(
    rows: Sequence[Mapping[str, Any]], others: Sequence[str], keys: Sequence[str]
) -> dict[str, str]:
    """For each chosen setting, the settings of the other keys for which it was chosen."""
    choices: dict[str, list[str]] = {}
    for row in rows:
        chosen = _setting_text({key: row[key] for key in keys})
        present = filter(None, (label_text(row[key], key) for key in others))
        choices.setdefault(chosen, []).append(", ".join(present) or "all")
    return {chosen: "; ".join(settings) for chosen, settings in choices.items()}


def _setting_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {format_setting(value)}" for key, value in settings.items())
