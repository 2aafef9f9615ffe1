"""Simulate a config with `tune`: first the runs that choose settings, then those that report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.tuning import ReportingRun, reporting_runs, tune_of, tuning_config
from laggard.experiments.results.measures import groups
from laggard.experiments.results.results import Results
from laggard.experiments.results.selection import best_settings, measure_criterion

if TYPE_CHECKING:
    import pandas as pd

Simulate = Callable[[Config, Sequence[RunSpec]], Results]
"""Simulates some runs of a config, as `sweep(config, planned=...)` does."""


def tune_and_report(config: Config, simulate: Simulate) -> tuple["pd.DataFrame", Results]:
    """Simulate the runs that choose, then those that report: the choices, and the reports.

    The choices are as `choose_settings` gives them. The reports are the runs of the config's own
    seeds, of which only the members at chosen settings are listed.

    Raises:
        ConfigError: the config has no seeds to report with, `tune.by` needs a target, or it
            compares a measure that the runs lack.
    """
    tuning = tuning_config(config)
    chosen = choose_settings(config, simulate(tuning, runs(tuning)))
    planned = reporting_runs(config, chosen_settings(chosen))
    results = simulate(config, [run.spec for run in planned])
    return chosen, at_chosen(results, planned)


def choose_settings(config: Config, results: Results) -> "pd.DataFrame":
    """The choices of the tuning runs: a row for each setting of the other keys, and each target.

    The columns are the other swept keys, those of `tune.over`, `edge` (the chosen keys at an end of
    their grid), `tied` (how many others did as well) and, where `tune` has several, `target`.

    Raises:
        ConfigError: `tune.by` needs a target, or compares a measure that the runs lack.
    """
    import pandas as pd

    tune = tune_of(config)
    by = tune.by
    if by is None:
        by = "accuracy" if "test_accuracy" in results.metrics else "loss"
    tables = []
    targets: Sequence[float | None] = tune.targets or [None]
    for target in targets:
        try:
            measured = measure_criterion(results, by, target)
        except ValueError as error:
            raise ConfigError("tune", str(error)) from None
        chosen = best_settings(measured, results.keys, tune.keys, by)
        if target is not None:
            chosen["target"] = target
        tables.append(chosen)
    return pd.concat(tables, ignore_index=True)


def chosen_settings(chosen: "pd.DataFrame") -> list[dict[str, Any]]:
    """The chosen settings, as `reporting_runs` takes them."""
    keys = [key for key in chosen if key not in ("edge", "tied", "target")]
    return [dict(zip(keys, setting, strict=True)) for setting, _ in groups(chosen, keys)]


def at_chosen(results: Results, planned: Sequence[ReportingRun]) -> Results:
    """The members of `results` that have a chosen setting."""
    members = {run.spec.id: run.members for run in planned}
    parts = [replace(result, only=members[result.manifest["run"]]) for result in results]
    return Results(parts, results.planned)
