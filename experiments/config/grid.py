"""Grids: the runs that a config expands to, and the members of the ensemble that each run trains at
once.

There is one way to write a grid (`axes.py`), and the engine's second fact sorts its axes: no event
time depends on
a tensor. Numbers of the learning rule, and its seed, move no event: they become members of one run,
inside a variant too. Names there, variants of several keys, and everything else become runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from laggard.experiments.config.axes import (
    MOST_MODELS,
    Axis,
    Option,
    axes,
    count_models,
    read_sweep,
)
from laggard.experiments.config.config import Checks, Config, digest_of, parse
from laggard.experiments.config.errors import ConfigError, error_at, printable
from laggard.experiments.config.plain import put
from laggard.experiments.config.search import is_rule_number
from laggard.experiments.config.sources import FOLDERS
from laggard.simulator import InvalidSettingError, Task


@dataclass(frozen=True)
class RunSpec:
    """A run: its config, its place in a sweep, and everything that follows from them.

    Attributes:
        config: under `sweep`, the axes of the ensemble that is trained at once.
        labels: the run's coordinates in the sweep that it belongs to.
        threads: how many it takes where its config says none; None for one per core.
    """

    config: Config
    labels: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    @property
    def title(self) -> str:
        """Its coordinates as text; without any, its name."""
        return (
            ", ".join(f"{key} = {label}" for key, label in self.labels.items()) or self.config.name
        )

    @cached_property
    def members(self) -> list[dict[str, Any]]:
        """The swept values of each member of the ensemble: the product of its axes, the first the
        slowest.
        """
        every = product(*(axis.options for axis in axes(self.config.sweep)))
        return [
            dict(chain.from_iterable(option.settings.items() for option in options))
            for options in every
        ]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the outcome, as `digest_of`."""
        return digest_of(self.config)

    @property
    def id(self) -> str:
        """The name of its folder: the first twelve hexadecimal digits of its digest."""
        return self.digest[:12]

    def folder(self, out: str | Path) -> Path:
        """Where it is stored: `<out>/<name>/<id>`."""
        return Path(out) / self.config.name / self.id

    @property
    def learning_seeds(self) -> list[int]:
        """The seed of each member's initial weights and mini-batches."""
        usual = self.config.seed if self.config.learning.seed is None else self.config.learning.seed
        return [member.get("learning.seed", usual) for member in self.members]

    def task(self) -> Task:
        """What is learnt, on its device; the training set is partitioned by `seed`.

        Raises:
            ConfigError: network, data set and partition do not fit together, or the device is not
                there.
            DataMissingError: the data set is not there.
        """
        config = self.config
        hardware = {
            "device": config.device,
            "backend": config.backend,
            "threads": config.threads or self.threads,
        }
        try:
            made = config.task.task(workers=config.cluster.workers, seed=config.seed, **hardware)
            task: Task = config.task.warm_start(made, len(self.members))
        except (ConfigError, InvalidSettingError):
            raise
        except ValueError as error:
            raise error_at("task", error) from None
        return task

    def arguments(self) -> dict[str, Any]:
        """The arguments of `simulate`; swept numbers of the rule are float64 tensors `(ensemble,
        1)`.

        Raises:
            ConfigError, DataMissingError: as in `task`.
        """
        import torch

        config, task = self.config, self.task()
        swept = {
            key.removeprefix("learning."): torch.tensor(
                [[each[key]] for each in self.members], dtype=torch.float64
            )
            for key in self.members[0]
            if key != "learning.seed"
        }
        workers = config.cluster.workers
        return {
            "cluster": config.build_cluster(),
            "algorithm": config.algorithm.build(
                workers, rule=config.learning.build(workers, **swept)
            ),
            "task": task,
            "stop": config.stop.build(),
            "evaluate": config.evaluate.build(),
            "record": config.record.build(),
            "seed": config.seed,
            "learning_seeds": self.learning_seeds,
        }


def runs(config: Config) -> list[RunSpec]:
    """The runs of a config, each with only what its ensemble spans under `sweep`.

    Every member of every ensemble is validated as a config of its own first; what several have in
    common is parsed,
    built and checked against the rest once. A config is expanded once: `load` checks the runs that
    `sweep` simulates.

    Raises:
        ConfigError: one of them cannot be run, or two of them are the same; names the axis where
            that is to blame.
    """
    # where modules of one's own are looked for: another one may hold one of the same name
    folders = tuple(FOLDERS)
    if not (_last and _last[0][0] is config and _last[0][1] == folders):
        _last[:] = [(config, folders, _expand(config))]
    return list(_last[0][2])


# the config that was expanded last, and its runs
_last: list[tuple[Config, tuple[Path, ...], list[RunSpec]]] = []


def _expand(config: Config) -> list[RunSpec]:
    checks = Checks()
    found: dict[str, RunSpec] = {}
    for options, numbers in _branches(axes(config.sweep)):
        inner = _ensemble(config, options, numbers, checks)
        outer = [axis for axis in numbers if axis not in inner]
        for more in product(*(axis.options for axis in outer)):
            run = _run(config, [*options, *more], inner, checks)
            same = found.setdefault(run.digest, run)
            if same is not run:
                raise ConfigError(
                    "sweep", f"{run.title} is the same run as {same.title}: leave one of them out"
                )
    return list(found.values())


def fill_swept_keys(document: Mapping[str, Any]) -> Config:
    """The config of a document, with swept keys that it lacks set to the first values of its
    `sweep`.

    Raises:
        ConfigError: as in `parse`.
    """
    sweep = read_sweep(document)
    first = [axis.options[0]._replace(settings=axis.sure) for axis in axes(sweep)]
    return _parse_options({**document, "sweep": sweep}, first, Checks())


def _branches(swept: Sequence[Axis]) -> Iterator[tuple[list[Option], list[Axis]]]:
    """Each combination of the options of axes that change the timeline, with the remaining axes of
    numbers.
    """
    numbers = [axis for axis in swept if _are_numbers(axis)]
    for options in product(*(axis.options for axis in swept if not _are_numbers(axis))):
        own = [axis for option in options for axis in option.axes]
        for deeper, more in _branches(own) if own else [([], [])]:
            yield [*options, *deeper], [*numbers, *more]


def _are_numbers(axis: Axis) -> bool:
    """Whether an axis sets numbers below `learning`, and nothing else."""
    return not axis.named and all(
        is_rule_number(key, value)
        for option in axis.options
        for key, value in option.settings.items()
    )


def _ensemble(
    config: Config, options: Sequence[Option], numbers: Sequence[Axis], checks: Checks
) -> list[Axis]:
    """Those axes of numbers that the members of one run may differ in: it depends on the rule,
    which variants name.
    """
    if not numbers:
        return []
    learning = _parse_options(
        config.explicit(), [*options, *(axis.options[0] for axis in numbers)], checks
    ).learning
    keys = [[key.removeprefix("learning.") for key in axis.options[0].settings] for axis in numbers]
    return [
        axis for axis, own in zip(numbers, keys, strict=True) if all(map(learning.per_member, own))
    ]


def _run(config: Config, outer: Sequence[Option], inner: Sequence[Axis], checks: Checks) -> RunSpec:
    """The run at the options `outer`; its own values of the inner axes are the first member's."""
    given, every = config.explicit(), product(*(axis.options for axis in inner))
    members = [_parse_options(given, [*outer, *values], checks) for values in every]
    for member in members:
        checks.agree(member)
    run = (
        parse({**members[0].explicit(), "sweep": _sweep_document(inner)}, checks=checks)
        if inner
        else members[0]
    )
    checks.fit(run, len(members))
    return RunSpec(
        run, printable_labels(dict(chain.from_iterable(option.labels.items() for option in outer)))
    )


def printable_labels(labels: Mapping[str, Any]) -> dict[str, Any]:
    """The coordinates of a run as texts of one line, without what a terminal acts on."""
    return {
        printable(key): printable(at) if isinstance(at, str) else at for key, at in labels.items()
    }


def _sweep_document(inner: Sequence[Axis]) -> dict[str, Any]:
    """The `sweep` of a run: its ensemble's axes, and those of several keys together under `zip`."""
    members = count_models(inner)
    spanned: dict[str, Any] = {"most": members} if members > MOST_MODELS else {}
    for axis in inner:
        number = {key: int if key == "learning.seed" else float for key in axis.options[0].settings}
        lists = {
            key: [number[key](option.settings[key]) for option in axis.options] for key in number
        }
        spanned |= lists if len(lists) == 1 else {"zip": [*spanned.get("zip", []), lists]}
    return spanned


def _parse_options(
    document: Mapping[str, Any], options: Sequence[Option], checks: Checks
) -> Config:
    """The config of `document` with what `options` set; errors in it are blamed on the option that
    set the key.
    """
    settings = [
        (key, value, option) for option in options for key, value in option.settings.items()
    ]
    settings.sort(key=lambda setting: setting[0].count("."))  # a whole part before a key in it
    try:
        for key, value, _ in settings:
            document = put(document, key, value)
        return parse(document, checks=checks)
    except ConfigError as error:
        raise error.relocate(key=_place(error.key, settings)) from None


def _place(key: str, settings: Sequence[tuple[str, Any, Option]]) -> str:
    for swept, _, option in settings:
        if key == swept or key.startswith(f"{swept}."):
            return f"{option.place.removesuffix(f'.{swept}')}.{key}"
    return key
