"""The tables of a report, as texts that a template lays out."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from experiments.store import Result
from experiments.tables import WRITTEN, method, names, summary

STATES = ("computing", "sending", "waiting", "down")
ROWS = 32
"""Workers that a table of one run shows, and rows that a table of several does not exceed tenfold."""


class Table(NamedTuple):
    """Columns (title, whether its cells are numbers), rows of texts, and what was left out."""

    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    note: str = ""


class Spent(NamedTuple):
    """Whose time it was, and its shares (0 to 1) by state."""

    name: str
    shares: dict[str, float]


def labels(results: Sequence[Result]) -> list[str]:
    """What each run is called: its coordinates in the sweep, or its method."""
    said = names(results)
    return [", ".join(_label(*item) for item in of.labels.items()) or said[of.path] for of in results]


def facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    """What a reader wants first: of one run its outcome, of several their number and the best."""
    table = summary(results)
    best = table.get("accuracy", pd.Series(dtype=float)).max()
    accuracy = [("best accuracy" if len(table) > 1 else "test accuracy", f"{best:.2%}")] * (not math.isnan(best))
    stale = table["staleness"].mean()
    told = [("mean staleness", "–" if math.isnan(stale) else f"{stale:.2f}")]
    waited = [("time waited", f"{table['waiting'].mean():.0%}")]
    if len(results) > 1:
        finished = sum(of.manifest["status"] == "finished" for of in results)
        return [
            ("runs", f"{len(results)}, {finished} finished"),
            ("models", str(len(table))),
            *accuracy,
            *told,
            *waited,
        ]
    (of,) = results
    mileage = of.manifest["mileage"]
    return [
        ("method", method(of)),
        ("workers", f"{of.config.cluster.workers}"),
        *accuracy,
        ("virtual time", f"{mileage['time']:.4g} s"),
        ("updates", f"{mileage['updates']:,.6g}"),
        *told,
        *waited,
    ]


def outcomes(results: Sequence[Result]) -> Table:
    """The summary: a row a run and member, the first 320."""
    table = summary(results)
    shown = table.head(10 * ROWS)
    columns = [(name.replace("_", " "), table[name].map(_number).all()) for name in table]
    rows = [[cell(name, value) for name, value in row.items()] for row in shown.to_dict("records")]
    left = len(table) - len(shown)
    return Table(columns, rows, f"{left} more rows are not shown" if left else "")


def waiting(results: Sequence[Result], named: Sequence[str]) -> tuple[list[Spent], str]:
    """How the workers of one run, or of each of several on average, spent their time; and what was left out."""
    if len(results) > 1:
        whole = [_spent(name, of.workers[list(STATES)].sum()) for name, of in zip(named, results, strict=True)]
        return whole, "Each bar is the mean of a run's workers."
    workers = results[0].workers
    rows = [_spent(f"worker {row['worker']:.0f}", row) for _, row in workers.head(ROWS).iterrows()]
    left = len(workers) - len(rows)
    return rows, f"{left} more workers are not shown." if left else ""


def staleness(results: Sequence[Result], named: Sequence[str]) -> Table:
    """How stale the applied gradients of each run were, and what became of the others."""
    titles = ("run", "applied", "mean", "std. dev.", "median", "95 %", "max", "dropped", "cancelled")
    rows = []
    for name, of in zip(named, results, strict=True):
        applied = of.updates.loc[of.updates["status"] == "applied", "staleness"]
        told = [applied.mean(), applied.std(ddof=0), *applied.quantile([0.5, 0.95]), applied.max()]
        fates = of.manifest["gradients"]
        counts = [f"{fates[fate]:,}" for fate in ("applied", "dropped", "cancelled")]
        rows.append([name, counts[0], *(f"{value:.4g}" if len(applied) else "–" for value in told), *counts[1:]])
    return Table([(title, title != "run") for title in titles], rows)


def provenance(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the manifest vouches for, in groups of (what, text)."""
    manifest = result.manifest
    run = {key: manifest[key] for key in ("run", "status", "reached", "stalled", "device", "threads", "wall_seconds")}
    run |= {"seed": manifest["seeds"]["seed"], "seed of the cluster": manifest["seeds"]["cluster"]}
    run |= {"seeds of learning": ", ".join(map(str, dict.fromkeys(manifest["seeds"]["learning"])))}
    counts = {
        **{f"gradients {fate}": n for fate, n in manifest["gradients"].items()},
        "evaluated": manifest["evaluated"],
    }
    counts |= {f"messages {fate}": n for fate, n in manifest["messages"].items()}
    return [
        ("Run", [(key.replace("_", " "), str(value)) for key, value in run.items() if value is not None]),
        ("Counts", [(key, f"{value:,}") for key, value in counts.items()]),
        ("Versions", list(manifest["versions"].items())),
        ("Files, SHA-256", list(manifest["files"].items())),
    ]


def cell(name: str, value: Any) -> str:
    """A value of the summary as the page writes it."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "not reached" if name == "time_to_target" else "–"
    if isinstance(value, bool) or (isinstance(value, int) and name not in WRITTEN):
        return str(value).lower()
    return WRITTEN.get(name, "{:g}").format(value)


def _number(value: Any) -> bool:
    return value is None or (not isinstance(value, str) and not isinstance(value, bool))


def _label(key: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{key.rpartition('.')[2]} = {value}"


def _spent(name: str, seconds: pd.Series) -> Spent:
    whole = sum(seconds[state] for state in STATES) or math.nan
    return Spent(name, {state: float(seconds[state]) / whole for state in STATES if whole == whole})
