"""`tune`: the runs that choose settings, with separate seeds, and the runs that report.

    tune: {over: learning.lr, seeds: [100, 101, 102], by: updates, targets: [0.98, 0.9]}

The tuning runs are the grid of the config with the tuning seeds in place of its own. For each
setting of the other keys they choose the best value of `over`; only at these values does the grid
run again with its own seeds. No seed reports a setting that it helped to choose.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from laggard.experiments.config.axes import axis_label
from laggard.experiments.config.config import Config
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, fill_swept_keys, printable_labels, runs
from laggard.experiments.config.parts import TunePart

SEED_AXES = ("seeds", "seed", "learning.seed")
"""The axes of a sweep whose values a tuning replaces."""


class ReportingRun(NamedTuple):
    """A run that reports.

    Attributes:
        spec: the run.
        members: the members of the run that are at a chosen setting.
    """

    spec: RunSpec
    members: tuple[int, ...]


def tune_of(config: Config) -> TunePart:
    """The `tune` part of a config: which settings are chosen, and how.

    Raises:
        ConfigError: it chooses none.
    """
    if config.tune is None:
        example = "{over: learning.lr, seeds: [100, 101, 102]}"
        raise ConfigError("tune", f"expected the settings to choose, as {example}, got null")
    return config.tune


def tuning_config(config: Config) -> Config:
    """The config of the tuning runs, which has the tuning seeds in place of the config's own.

    Raises:
        ConfigError: the config has no axis of seeds, or several, or a tuning seed reports too.
    """
    axis = _seed_axis(config.sweep)
    reporting = config.sweep[axis]
    if axis == "seeds":
        reporting = range(reporting)
    seeds = tune_of(config).seeds
    shared = [seed for seed in seeds if seed in reporting]
    if shared:
        problem = f"{shared[0]} is a seed of the sweep too: a seed may not both choose and report"
        raise ConfigError("tune.seeds", problem)
    sweep = {}
    for name, values in config.sweep.items():
        if name != axis:
            sweep[name] = values
        elif axis == "seeds":  # a number of seeds; the tuning seeds are a list
            sweep["seed"] = seeds
        else:
            sweep[axis] = seeds
    name = f"{config.name[:70]}-tuning"
    document: Mapping[str, Any] = {**config.explicit(), "name": name, "sweep": sweep}
    share = tune_of(config).validation
    if share is not None:
        document = put(document, "task.validation", share)
    return fill_swept_keys(document)


def reporting_runs(config: Config, chosen: Sequence[Mapping[str, Any]]) -> list[ReportingRun]:
    """The runs of the config's own seeds at the chosen settings.

    Args:
        chosen: settings of the keys of `tune.over` and of the other swept keys but the seeds, as
            tables show them; a key that a setting lacks is None.

    Raises:
        ConfigError: a key of `tune.over` is not an axis of its own.
    """
    over = tune_of(config).keys
    settings_at: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for choice in chosen:
        value = tuple(choice[key] for key in over)
        settings = {}
        for key, setting in choice.items():
            if setting is not None or key in over:
                settings[key] = setting
        settings_at.setdefault(value, []).append(settings)
    found = []
    for values, wanted in settings_at.items():
        sweep: Mapping[str, Any] = config.sweep
        for key, value in zip(over, values, strict=True):
            # None may be a value of the axis, or a variant without it: `_members_at` finds both
            if value is not None:
                sweep = _fix_axis(sweep, key, value)
        for spec in runs(fill_swept_keys({**config.explicit(), "sweep": sweep})):
            members = _members_at(spec, wanted)
            if members:
                found.append(ReportingRun(spec, members))
    return found


def check_tuning(config: Config) -> None:
    """Check that the tuning runs of a config can run and that what they choose is swept.

    Raises:
        ConfigError: a tuning run is invalid, a key of `tune.over` is not swept, the sweep sets
            another `task.validation`, or the runs measure nothing that `tune.by` compares.
    """
    if config.tune is None:
        return
    for run in runs(tuning_config(config)):
        _check_validation(run, config.tune.validation)
        _check_criterion(run, config.tune)
    for key in config.tune.keys:
        values = _values_of(config.sweep, key)
        if not values:
            problem = f"expected keys with a list of values in the sweep, got {key}"
            raise ConfigError("tune.over", problem)


def _check_validation(run: RunSpec, share: float | None) -> None:
    """Refuse a sweep whose values of `task` would replace the share that is held out."""
    if share is None or run.config.task.validation == share:
        return
    problem = "expected a sweep of keys such as task.model, which leaves task.validation alone"
    raise ConfigError("tune.validation", f"{problem}, got {run.title}")


def _check_criterion(run: RunSpec, tune: TunePart) -> None:
    """Refuse a criterion that a tuning run has no number for, before all of them are simulated."""
    if tune.by == "accuracy" and not run.config.task.measures_accuracy:
        problem = f"expected loss, since {run.config.task.model} has no accuracy, got 'accuracy'"
        raise ConfigError("tune.by", problem)
    is_time = tune.by in ("time", "updates")
    if is_time and not tune.targets and run.config.evaluate.target_accuracy is None:
        problem = f"expected accuracies or losses to reach, for by: {tune.by}, as [0.9], got null"
        raise ConfigError("tune.targets", problem)


def refuse_tuning(config: Config) -> None:
    """Refuse a config with `tune` in a command that simulates one grid.

    Raises:
        ConfigError: it has `tune`.
    """
    if config.tune is not None:
        remedy = "use `laggard sweep`, or tune_and_report() of laggard.experiments.running.tuning"
        raise ConfigError("tune", f"runs that choose settings need a sweep: {remedy}")


def _seed_axis(sweep: Mapping[str, Any]) -> str:
    """The axis of seeds of a sweep."""
    swept = [axis for axis in sweep if axis in SEED_AXES]
    if len(swept) != 1:
        found = ", ".join(swept) or "none"
        problem = (
            f"expected one of {', '.join(SEED_AXES)} in the sweep, whose runs report; got {found}"
        )
        raise ConfigError("tune", problem)
    return swept[0]


def _values_of(sweep: Mapping[str, Any], key: str) -> list[Any]:
    """The values of an axis, or of the axes of that name in the grids of variants."""
    values = list(sweep[key]) if isinstance(sweep.get(key), list) else []
    for inner in _grids_of_variants(sweep):
        values += _values_of(inner, key)
    return values


def _grids_of_variants(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    grids = []
    for name, variants in sweep.items():
        if isinstance(variants, Mapping) and name not in ("zip", "search"):
            grids += [settings["sweep"] for settings in variants.values() if "sweep" in settings]
    return grids


def _fix_axis(sweep: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`sweep` with only the value of axis `key` that tables show as `value`, without variants whose
    grids lack this value.
    """
    fixed = dict(sweep)
    if isinstance(sweep.get(key), list):
        # a text with a unit is shown as a number, which means the same
        fixed[key] = [listed for listed in sweep[key] if _is_shown_as(listed, value)] or [value]
        return fixed
    for name, variants in sweep.items():
        if not isinstance(variants, Mapping) or name in ("zip", "search"):
            continue
        kept = {}
        for variant, settings in variants.items():
            listed_values = _values_of(settings.get("sweep", {}), key)
            if any(_is_shown_as(listed, value) for listed in listed_values):
                kept[variant] = {**settings, "sweep": _fix_axis(settings["sweep"], key, value)}
        if kept:
            fixed[name] = kept
    return fixed


def _is_shown_as(value: Any, shown: Any) -> bool:
    """Whether tables show a value of the sweep as `shown`, such as a list as text, or 1 as 1.0."""
    labels = printable_labels({"": axis_label(value)})
    return bool(_as_number(labels[""]) == _as_number(shown))


def _members_at(spec: RunSpec, settings: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The numbers of a run's members that have one of the settings."""
    found = []
    for number, member in enumerate(spec.members):
        own = {**spec.labels, **member}
        if any(_agrees(own, setting) for setting in settings):
            found.append(number)
    return tuple(found)


def _agrees(own: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    """Whether a member has a setting; the name of a variant may have been read as a number."""
    return all(_as_number(own.get(key)) == _as_number(setting[key]) for key in setting)


def _as_number(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
