"""The runs of a question. Runs whose numbers are stored are not simulated again.

In a study with `tune` some seeds choose the settings and others report. Without it all report.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from laggard.experiments.config.axes import Axis, axes
from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.load import load
from laggard.experiments.config.tuning import reporting_runs, tune_of, tuning_config
from laggard.experiments.questions.leagues import play_study
from laggard.experiments.questions.measures import settings_names, take, targets_of, task_of
from laggard.experiments.questions.numbers import REPORT, TUNE
from laggard.experiments.questions.probes import run_probe
from laggard.experiments.questions.question import LeagueStudy, Question, Study
from laggard.experiments.questions.store import normalise, setting_columns
from laggard.experiments.results.selection import best_settings
from laggard.experiments.running.sweep import sweep
from laggard.experiments.running.tuning import chosen_settings

TUNED_BY = {"accuracy": "accuracy", "loss": "loss", "time": "time_to", "updates": "epochs_to"}
"""Criterion of `tune.by` -> the measure that it reads.

Epochs stand for updates: with one batch size both rank runs in the same order.
"""

LEARNING_KEYS = ("task.", "learning.", "tune.", "stop.accuracy=", "evaluate.")
"""Prefixes of overrides without effect on a study that simulates time and trains no model."""


def study_config(
    question: Question, name: str, scale: str | None = None, overrides: Sequence[str] = ()
) -> Config:
    """The config of a study of a question.

    Raises:
        ConfigError: an override sets a swept key or one of `question.fixed`, or the study cannot be
            run.
    """
    study = question.studies[name]
    assert isinstance(study, Study)
    path = f"example:studies/{study.config}"
    config = load(path, scale=scale)
    if not config.task.learns:
        overrides = [change for change in overrides if not change.startswith(LEARNING_KEYS)]
    swept = {key for axis in axes(config.sweep) for key in axis.keys}
    for change in overrides:
        key = change.partition("=")[0]
        for fixed, reason in question.fixed.items():
            if key == fixed or key.startswith(f"{fixed}."):
                raise ConfigError(key, f"cannot matter in {question.name}: {reason}")
        if key in swept:
            problem = f"is swept by {question.name}: expected a key that it leaves alone"
            raise ConfigError(key, problem)
    if not overrides:
        return config
    return load(path, *overrides, scale=scale)


def collect(
    question: Question,
    known: pd.DataFrame,
    scale: str | None = None,
    overrides: Sequence[str] = (),
    out: str | Path = "results",
    jobs: int | None = None,
) -> pd.DataFrame:
    """The table of numbers of a question; runs without a stored number are simulated first.

    Args:
        known: the stored numbers. A new number replaces the one of the same study, setting and
            seed, for example after a plugin was edited. All others stay.

    Raises:
        ConfigError: a study cannot be run.
        SweepError: runs failed.
    """
    for name, study in question.studies.items():
        if isinstance(study, LeagueStudy):
            known = _add_league(known, study, name, scale, overrides, Path(out), jobs)
        else:
            config = study_config(question, name, scale, overrides)
            known = _add_sweep(known, study, name, config, Path(out), jobs)
    return known


def _add_sweep(
    known: pd.DataFrame, study: Study, name: str, config: Config, out: Path, jobs: int | None
) -> pd.DataFrame:
    """Add the numbers of a study to `known`: first the runs that choose, then those that report."""
    add = partial(_add_missing, out=out, jobs=jobs)
    targets = targets_of(config)
    if config.tune is None:
        return add(known, study, name, REPORT, config, runs(config), targets)
    tuning = tuning_config(config)
    known = add(known, study, name, TUNE, tuning, runs(tuning), targets)
    is_tuned = (known["study"] == name) & (known["role"] == TUNE)
    chosen = choose_by_numbers(config, known[is_tuned])
    planned = [run.spec for run in reporting_runs(config, chosen)]
    return add(known, study, name, REPORT, config, planned, targets)


def _add_league(
    known: pd.DataFrame,
    study: LeagueStudy,
    name: str,
    scale: str | None,
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,
) -> pd.DataFrame:
    """Add the numbers of a league to `known`, unless it already has some."""
    if name in set(known["study"]):
        return known
    rows = play_study(study, scale, overrides, out / f"league-{name}", jobs)
    return normalise(pd.concat([known, rows.assign(study=name)], ignore_index=True))


def missing_runs(known: pd.DataFrame, name: str, planned: Sequence[RunSpec]) -> list[RunSpec]:
    """The planned runs of a study without stored numbers."""
    stored = set(known.loc[known["study"] == name, "run"])
    return [spec for spec in planned if spec.id not in stored]


def _add_missing(
    known: pd.DataFrame,
    study: Study,
    name: str,
    role: str,
    config: Config,
    planned: Sequence[RunSpec],
    targets: Sequence[float],
    out: Path,
    jobs: int | None,
) -> pd.DataFrame:
    """Simulate the planned runs that `known` lacks, and add their numbers."""
    missing = missing_runs(known, name, planned)
    if not missing:
        return known
    if study.probe:
        rows = run_probe(study.probe, missing, out)
    else:
        results = sweep(config, out, jobs=jobs, planned=missing)
        rows = take(results, study.measures, targets)
    rows = rows.assign(study=name, role=role, **task_of(config))
    table = normalise(pd.concat([known, rows], ignore_index=True))
    place = ["study", "role", *setting_columns(table), "seed", "measure"]
    return table.drop_duplicates(place, keep="last", ignore_index=True)


def choose_by_numbers(config: Config, tuned: pd.DataFrame) -> list[dict[str, Any]]:
    """The settings that the tuning seeds choose, one choice for each target, by swept key.

    Args:
        tuned: the rows of the tuning seeds.
    """
    tune = tune_of(config)
    default = "accuracy" if config.task.measures_accuracy else "loss"
    by = tune.by or default
    measures = [TUNED_BY[by]]
    if by in ("time", "updates"):
        taken = dict.fromkeys(tuned["measure"])
        measures = [name for name in taken if name.startswith(f"{TUNED_BY[by]}_")]
    keys = [key for axis in axes(config.sweep) for key in _columns(axis)]
    names = settings_names(list(dict.fromkeys(keys)))
    rows = tuned.rename(columns={name: key for key, name in names.items()})
    own = [key for key in names if key in rows and rows[key].notna().any()]
    chosen = []
    for measure in measures:
        chosen.append(best_settings(rows[rows["measure"] == measure], own, tune.keys, by))
    return chosen_settings(pd.concat(chosen, ignore_index=True))


def _columns(axis: Axis) -> list[str]:
    """The columns of an axis and of the axes nested in its options."""
    columns = []
    for option in axis.options:
        columns += list(option.labels)
        for inner in option.axes:
            columns += _columns(inner)
    return columns
