"""Selections from a table of numbers: rows of some settings, a number per seed, best settings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from laggard.experiments.questions.words import SeedEstimate, estimate, ratio
from laggard.experiments.results.selection import best_settings

AT_AN_END = "a best rate lies at an end of its grid"
TUNE, REPORT, SEEN = "tune", "report", "seen"
"""The roles of a seed: it chooses, it reports, or it reports and was seen before the bar was set.
"""


def reporting(table: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """The rows of the seeds that report, and whether they were seen before the bar was set.

    If there are new seeds, only they report. Without new seeds the seen ones report, and without
    these the seeds that chose, which count as seen.
    """
    for role in (REPORT, SEEN, TUNE):
        rows = table[table["role"] == role]
        if len(rows):
            return rows, role != REPORT
    return table, True


def reported(table: pd.DataFrame, study: str) -> tuple[pd.DataFrame, bool]:
    """`reporting` for the rows of one study."""
    return reporting(select(table, study=study))


def select(table: pd.DataFrame, **settings: Any) -> pd.DataFrame:
    """The rows whose columns have the given values.

    Args:
        settings: for each column, also `measure` or `study`, a value or a list of values.
    """
    rows = table
    for column, wanted in settings.items():
        values = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        rows = rows[rows[column].isin(values)]
    return rows


def longest_wait(table: pd.DataFrame, measure: str) -> str:
    """The name of a measure with its highest target, such as `time_to_0.98`; empty without one."""
    names = table.loc[table["measure"].str.startswith(f"{measure}_"), "measure"].unique()
    return max(names, key=lambda name: float(name.removeprefix(f"{measure}_")), default="")


def by_seed(table: pd.DataFrame, measure: str, **settings: Any) -> pd.Series:
    """One number per seed; NaN if the run was lost.

    Raises:
        ValueError: a seed has two rows, since `settings` do not fix every swept key.
    """
    rows = select(table, measure=measure, **settings)
    if rows["seed"].duplicated().any():
        raise ValueError(f"{measure}: expected one row a seed at {settings}")
    values = rows.set_index("seed")["value"].sort_index()
    return values.mask(rows.set_index("seed")["lost"].sort_index())


def paired(first: pd.Series, second: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Two series of one number per seed, restricted to the seeds that both have."""
    shared = first.index.intersection(second.index)
    return first.loc[shared], second.loc[shared]


def points_ahead(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """The mean over seeds of 100 (own - other), points of accuracy.

    A seed whose run was lost on either side is in no mean. `lost` counts lost runs of `own` alone.
    """
    ahead, behind = paired(own, other)
    return replace(estimate(100 * (ahead - behind)), lost=int(ahead.isna().sum()))


def points_behind(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """The mean over seeds of 100 (other - own), points of accuracy; see `points_ahead`."""
    behind, ahead = paired(own, other)
    return replace(estimate(100 * (ahead - behind)), lost=int(behind.isna().sum()))


def times_as_large(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """The ratio mean(own) / mean(other) over their shared seeds.

    A seed whose run was lost on either side is in no mean. `lost` counts lost runs of `own` alone.
    """
    above, below = paired(own, other)
    return replace(ratio(above, below), lost=int(above.isna().sum()))


def choose_best(
    table: pd.DataFrame, measure: str, by: str, over: str = "lr", settings: Sequence[str] = ()
) -> pd.DataFrame:
    """The best value of `over` for each setting, by the seeds that choose.

    Returns a row per setting with the columns `settings`, `over` and `edge`. `edge` is empty unless
    the best value lies at an end of its grid.

    Args:
        by: the criterion of `best` of laggard.experiments.results: accuracy, loss, time or updates.
    """
    rows = table[(table["role"] == TUNE) & (table["measure"] == measure)]
    value = rows["value"].mask(rows["lost"])
    return best_settings(rows.assign(value=value), [*settings, over], [over], by)


def at_best(table: pd.DataFrame, chosen: pd.DataFrame, over: str = "lr") -> pd.DataFrame:
    """The rows of each setting at the value of `over` that `choose_best` returned for it."""
    settings = [column for column in chosen if column not in (over, "edge", "tied")]
    return table.merge(chosen[[*settings, over]], on=[*settings, over])


def at_an_end(table: pd.DataFrame, study: str, measure: str, by: str, *settings: str) -> str:
    """The reason for no verdict if the best rate of a setting ends its grid; else an empty text."""
    rows = select(table, study=study, role=TUNE, measure=measure)
    if rows.empty:
        return ""
    chosen = choose_best(rows, measure, by, settings=settings)
    return AT_AN_END if (chosen["edge"] != "").any() else ""


def lost_of(table: pd.DataFrame, measure: str, **settings: Any) -> tuple[int, int]:
    """The number of lost runs, and the number of runs."""
    rows = select(table, measure=measure, **settings)
    return int(rows["lost"].sum()), len(rows)
