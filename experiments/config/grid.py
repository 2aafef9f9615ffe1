"""The grid of a config: its runs, and the members of the ensemble that each run trains at once.

`axes.py` reads the axes. No event time depends on a tensor, so numbers of the learning rule, and
its seed, move no event: they become members of one run, inside a variant too. Names in the rule,
variants of several keys, and all other keys become runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from laggard.experiments.config.axes import (
    MAX_MODELS,
    Axis,
    Option,
    axes,
    axis_label,
    count_models,
    read_sweep,
)
from laggard.experiments.config.config import Config, digest_of, parse
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError, error_at, printable
from laggard.experiments.config.search import is_rule_number
from laggard.simulator import InvalidSettingError, Task

CHECKED_KEYS = ("cluster", "algorithm", "task", "stop", "evaluate", "device", "backend")
"""Runs that agree in these keys, in the members and in the kind of clipping are checked once."""


@dataclass(frozen=True)
class RunSpec:
    """A run: its config, and its place in a sweep.

    Attributes:
        config: under `sweep`, the axes of the ensemble that is trained at once.
        labels: the run's coordinates in the sweep that it belongs to.
        threads: number of threads where the config has none; None for one per core.
    """

    config: Config
    labels: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    @property
    def title(self) -> str:
        """The run's coordinates as text; without any, its name."""
        coordinates = [f"{key} = {label}" for key, label in self.labels.items()]
        return ", ".join(coordinates) or self.config.name

    @cached_property
    def members(self) -> list[dict[str, Any]]:
        """The swept values of each member: the product of the axes, the first the slowest."""
        points = product(*(axis.options for axis in axes(self.config.sweep)))
        return [_merged_settings(options) for options in points]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the outcome, as `digest_of`."""
        return digest_of(self.config)

    @property
    def id(self) -> str:
        """The name of the run's folder: the first twelve hexadecimal digits of its digest."""
        return self.digest[:12]

    def folder(self, out: str | Path) -> Path:
        """The folder of its result: `<out>/<name>/<id>`."""
        return Path(out) / self.config.name / self.id

    @property
    def learning_seeds(self) -> list[int]:
        """The seed of each member's initial weights and mini-batches."""
        default = self.config.learning.seed
        if default is None:
            default = self.config.seed
        return [member.get("learning.seed", default) for member in self.members]

    def task(self) -> Task:
        """The task, on its device; `seed` partitions the training set.

        Raises:
            ConfigError: network, data set and partition do not fit together, or the device is
                missing.
            DataMissingError: the data set is not available.
        """
        config = self.config
        try:
            task = config.task.task(
                workers=config.cluster.workers,
                seed=config.seed,
                device=config.device,
                backend=config.backend,
                threads=config.threads or self.threads,
            )
            started: Task = config.task.warm_start(task, len(self.members))
            return started
        except (ConfigError, InvalidSettingError):
            raise
        except ValueError as error:
            raise error_at("task", error) from None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `simulate`; swept numbers of the rule are float64 tensors `(ensemble,
        1)`.

        Raises:
            ConfigError, DataMissingError: as in `task`.
        """
        import torch

        config = self.config
        task = self.task()
        numbers = {}
        for key in self.members[0]:
            if key != "learning.seed":
                values = [[member[key]] for member in self.members]
                numbers[key.removeprefix("learning.")] = torch.tensor(values, dtype=torch.float64)
        workers = config.cluster.workers
        rule = config.learning.build(workers, **numbers)
        return {
            "cluster": config.build_cluster(),
            "algorithm": config.algorithm.build(workers, rule=rule),
            "task": task,
            "stop": config.stop.build(),
            "evaluate": config.evaluate.build(),
            "record": config.record.build(),
            "seed": config.seed,
            "learning_seeds": self.learning_seeds,
        }


def runs(config: Config) -> list[RunSpec]:
    """The runs of a config; each has only the axes of its ensemble under `sweep`.

    Every member of every ensemble has been validated as a separate config. The config keeps the
    list, so `load`, `validate`, `sweep` and the dry run share it.

    Raises:
        ConfigError: a run is invalid, or two runs are the same; names the axis to blame.
    """
    # Kept beside the fields, as `cached_property` does. A copy made by `model_copy` has the entry
    # too, so the entry names its owner.
    expansion = config.__dict__.get("_expansion")
    if expansion is None or expansion.owner is not config:
        expansion = _Expansion(config, _expand(config))
        config.__dict__["_expansion"] = expansion
    return list(expansion.runs)


@dataclass(eq=False)  # by identity: to compare configs must not compare runs, which hold configs
class _Expansion:
    owner: Config
    runs: list[RunSpec]


def _expand(config: Config) -> list[RunSpec]:
    cache: dict[Any, Any] = {}  # parsed parts by their text, and results of checks
    expanded: dict[str, RunSpec] = {}
    for options, numbers in _branches(axes(config.sweep)):
        inner = _ensemble(config, options, numbers, cache)
        outer = [axis for axis in numbers if axis not in inner]
        for more in product(*(axis.options for axis in outer)):
            run = _run(config, [*options, *more], inner, cache)
            same = expanded.setdefault(run.digest, run)
            if same is not run:
                problem = f"{run.title} is the same run as {same.title}: leave one of them out"
                raise ConfigError("sweep", problem)
    return list(expanded.values())


def fill_swept_keys(document: Mapping[str, Any]) -> Config:
    """The config of a document, where missing keys have the first values of its `sweep`.

    Raises:
        ConfigError: as in `parse`.
    """
    sweep = read_sweep(document)
    first = [axis.options[0]._replace(settings=axis.common_settings()) for axis in axes(sweep)]
    return _parse_options({**document, "sweep": sweep}, first, {})[0]


def _branches(grid: Sequence[Axis]) -> Iterator[tuple[list[Option], list[Axis]]]:
    """Each combination of options that change the timeline, with the axes of numbers that apply to
    it.
    """
    numbers = [axis for axis in grid if _has_only_numbers(axis)]
    others = [axis.options for axis in grid if not _has_only_numbers(axis)]
    for options in product(*others):
        inner_grid = [axis for option in options for axis in option.axes]
        inner_branches: Any = [([], [])]
        if inner_grid:
            inner_branches = _branches(inner_grid)
        for inner_options, inner_numbers in inner_branches:
            yield [*options, *inner_options], [*numbers, *inner_numbers]


def _has_only_numbers(axis: Axis) -> bool:
    """Whether an axis sets numbers below `learning`, and nothing else."""
    if axis.named:
        return False
    settings = [item for option in axis.options for item in option.settings.items()]
    return all(is_rule_number(key, value) for key, value in settings)


def _ensemble(
    config: Config, options: Sequence[Option], numbers: Sequence[Axis], cache: dict[Any, Any]
) -> list[Axis]:
    """The axes of numbers in which members of one run may differ; rule and method decide."""
    if not numbers:
        return []
    first = [axis.options[0] for axis in numbers]
    run = _parse_options(config.explicit(), [*options, *first], cache)[0]
    one_schedule = getattr(type(run.algorithm).recipe, "one_schedule", False)
    ensemble = []
    for axis in numbers:
        keys = [key.removeprefix("learning.") for key in axis.options[0].settings]
        if one_schedule and any(key.startswith("schedule") for key in keys):
            continue
        if all(map(run.learning.per_member, keys)):
            ensemble.append(axis)
    return ensemble


def _run(
    config: Config, outer: Sequence[Option], inner: Sequence[Axis], cache: dict[Any, Any]
) -> RunSpec:
    """The run at the options `outer`; its own values of the inner axes are the first member's."""
    explicit = config.explicit()
    points = product(*(axis.options for axis in inner))
    members = [_parse_options(explicit, [*outer, *point], cache) for point in points]
    run, document = members[0]
    if inner:
        run = parse({**run.explicit(), "sweep": _sweep_document(inner)}, cache=cache)
    # Members differ in numbers of the rule alone, which no check but those of `parse` reads.
    values = [document.get(key) for key in CHECKED_KEYS]
    checked = repr((values, type(run.learning.clip), len(members)))
    if checked not in cache:
        try:
            run.check(len(members))
        except ConfigError as error:
            raise error.relocate(key=_place(error.key, outer)) from None
        cache[checked] = True
    return RunSpec(run, _labels_of(run, outer))


def label_settings(
    config: Config, settings: Mapping[str, Any], cache: dict[Any, Any]
) -> dict[str, Any]:
    """The labels of a run of `config` at these settings of swept keys.

    Args:
        cache: as in `parse`.
    """
    labels = {key: axis_label(value) for key, value in settings.items()}
    option = Option(labels, "sweep", settings)
    run, _ = _parse_options(config.explicit(), [option], cache)
    return _labels_of(run, [option])


def _labels_of(run: Config, options: Sequence[Option]) -> dict[str, Any]:
    """The labels of a run at some options."""
    labels: dict[str, Any] = {}
    for option in options:
        labels |= option.labels
        for key, value in option.settings.items():
            if isinstance(value, str) and key in option.labels:
                labels[key] = _number_at(run, key, default=labels[key])
    return printable_labels(labels)


def _number_at(config: Config, key: str, default: Any) -> Any:
    """The number at a dotted key of a config, or `default`. Text with a unit has become a number in
    laggard's own unit, so that tables and figures can order it.
    """
    value: Any = config
    for name in key.split("."):
        if isinstance(value, list):
            value = value[int(name)]
        else:
            value = getattr(value, name, None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return default


def printable_labels(labels: Mapping[str, Any]) -> dict[str, Any]:
    """The coordinates of a run as texts of one line, without control characters."""
    result = {}
    for key, label in labels.items():
        if isinstance(label, str):
            label = printable(label)
        result[printable(key)] = label
    return result


def _sweep_document(inner: Sequence[Axis]) -> dict[str, Any]:
    """The `sweep` of a run: the axes of its ensemble; axes of several keys stand under `zip`."""
    members = count_models(inner)
    sweep: dict[str, Any] = {}
    if members > MAX_MODELS:
        sweep["most"] = members
    for axis in inner:
        lists: dict[str, list[Any]] = {}
        for key in axis.options[0].settings:
            number = int if key == "learning.seed" else float
            lists[key] = [number(option.settings[key]) for option in axis.options]
        if len(lists) == 1:
            sweep |= lists
        else:
            sweep["zip"] = [*sweep.get("zip", []), lists]
    return sweep


def _merged_settings(options: Sequence[Option]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for option in options:
        settings |= option.settings
    return settings


def _parse_options(
    document: Mapping[str, Any], options: Sequence[Option], cache: dict[Any, Any]
) -> tuple[Config, Mapping[str, Any]]:
    """Put the settings of `options` into `document`; return the config, and the changed document.

    Errors are blamed on the option that set the key.
    """
    settings = [(key, value) for option in options for key, value in option.settings.items()]
    settings.sort(key=lambda setting: setting[0].count("."))  # a whole part before a key in it
    try:
        for key, value in settings:
            document = put(document, key, value)
        return parse(document, cache=cache), document
    except ConfigError as error:
        raise error.relocate(key=_place(error.key, options)) from None


def _place(key: str, options: Sequence[Option]) -> str:
    """The place in `sweep` that set a dotted key; the key itself if no option did."""
    places = [(swept, option.place) for option in options for swept in option.settings]
    places.sort(key=lambda item: item[0].count("."))
    for swept, place in places:
        if key == swept or key.startswith(f"{swept}."):
            return f"{place.removesuffix(f'.{swept}')}.{key}"
    return key
