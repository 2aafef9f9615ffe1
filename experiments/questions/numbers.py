"""Selections from a table of numbers: rows of a measure, one number per seed, best settings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from laggard.experiments.questions.words import SeedEstimate, estimate, ratio
from laggard.experiments.results.selection import best_settings

AT_AN_END = "a best rate lies at an end of its grid"
TUNE, REPORT, SEEN = "tune", "report", "seen"
"""The purpose of a seed; `seen` if it reports, but had been seen before the bar was fixed."""


def reporting(table: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """The rows of the seeds that report, and whether these had been seen before.

    New seeds decide alone: where there are some, those that had been seen are left out. Where no
    seed but those that chose has run, they report, as seen.
    """
    for role in (REPORT, SEEN, TUNE):
        rows = table[table["role"] == role]
        if len(rows):
            return rows, role != REPORT
    return table, True


def reported(table: pd.DataFrame, study: str) -> tuple[pd.DataFrame, bool]:
    """The rows of a study's seeds that report, and whether these had been seen before."""
    return reporting(select(table, study=study))


def select(table: pd.DataFrame, **settings: Any) -> pd.DataFrame:
    """The rows at some settings, each a value or a list of values; also of `measure` and `study`."""
    rows = table
    for column, wanted in settings.items():
        values = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        rows = rows[rows[column].isin(values)]
    return rows


def longest_wait(table: pd.DataFrame, measure: str) -> str:
    """The measure that waits for the highest target, as `time_to_0.98`; empty without one."""
    names = table.loc[table["measure"].str.startswith(f"{measure}_"), "measure"].unique()
    return max(names, key=lambda name: float(name.removeprefix(f"{measure}_")), default="")


def by_seed(table: pd.DataFrame, measure: str, **settings: Any) -> pd.Series:
    """One number per seed; NaN if the run was lost.

    Raises:
        ValueError: a seed has two rows, since a setting is left open.
    """
    rows = select(table, measure=measure, **settings)
    if rows["seed"].duplicated().any():
        raise ValueError(f"{measure}: expected one row a seed at {settings}")
    values = rows.set_index("seed")["value"].sort_index()
    return values.mask(rows.set_index("seed")["lost"].sort_index())


def paired(first: pd.Series, second: pd.Series) -> tuple[pd.Series, pd.Series]:
    """The numbers of two series for the seeds that both have."""
    shared = first.index.intersection(second.index)
    return first.loc[shared], second.loc[shared]


def points_ahead(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """Points of accuracy by which runs lead others, seed by seed.

    `lost` counts runs of the first; lost runs of the others count as the opponent's.
    """
    ahead, behind = paired(own, other)
    return replace(estimate(100 * (ahead - behind)), lost=int(ahead.isna().sum()))


def points_behind(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """Points of accuracy by which runs trail others; see `points_ahead`."""
    behind, ahead = paired(own, other)
    return replace(estimate(100 * (ahead - behind)), lost=int(behind.isna().sum()))


def times_as_large(own: pd.Series, other: pd.Series) -> SeedEstimate:
    """The ratio of the means of two numbers over their shared seeds.

    `lost` counts runs of the first; lost runs of the other count as the opponent's.
    """
    above, below = paired(own, other)
    return replace(ratio(above, below), lost=int(above.isna().sum()))


def choose_best(
    table: pd.DataFrame, measure: str, by: str, over: str = "lr", settings: Sequence[str] = ()
) -> pd.DataFrame:
    """The best `over` for each setting, by the seeds that choose: `settings`, `over`, and `edge`,
    which is empty unless the best lies at an end of its grid.

    Args:
        by: the criterion, as in `best` of laggard.experiments.results: accuracy, loss, time or
            updates.
    """
    rows = table[(table["role"] == TUNE) & (table["measure"] == measure)]
    value = rows["value"].mask(rows["lost"])
    return best_settings(rows.assign(value=value), [*settings, over], [over], by)


def at_best(table: pd.DataFrame, chosen: pd.DataFrame, over: str = "lr") -> pd.DataFrame:
    """The rows at the chosen `over` of their setting."""
    settings = [column for column in chosen if column not in (over, "edge", "tied")]
    return table.merge(chosen[[*settings, over]], on=[*settings, over])


def at_an_end(table: pd.DataFrame, study: str, measure: str, by: str, *settings: str) -> str:
    """The reason for no verdict if a best rate lies at an end of its grid; else empty."""
    rows = select(table, study=study, role=TUNE, measure=measure)
    if rows.empty:
        return ""
    chosen = choose_best(rows, measure, by, settings=settings)
    return AT_AN_END if (chosen["edge"] != "").any() else ""


def lost_of(table: pd.DataFrame, measure: str, **settings: Any) -> tuple[int, int]:
    """The number of lost runs, and the number of runs."""
    rows = select(table, measure=measure, **settings)
    return int(rows["lost"].sum()), len(rows)
