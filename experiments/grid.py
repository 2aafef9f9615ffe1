"""Grids: the runs that a config expands to, and the members of the ensemble that each run trains at once.

There is one way to write a grid, and the engine's second fact sorts its axes: no event time depends on a tensor.
Numbers of the learning rule, and its seed, move no event: they become members of one run. Names there, variants
of several keys, and everything else become runs.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from experiments.config import Config, agree, cuts, parse
from experiments.documents import put
from experiments.errors import ConfigError, Refused, shown

COLUMNS = ("time", "updates", "samples", "epoch", "member", "train_loss", "test_loss", "test_accuracy", "run", "name")
"""Names that no axis of variants may take: metrics and figures have columns called so."""

IGNORED = ("name", "device", "backend", "threads", "evaluate.target_accuracy", "record")
"""Keys that change no run: they name it, carry it out, judge it and say what else is written down."""


class Option(NamedTuple):
    """One value of an axis: its label in tables, where `sweep` names it, and the dotted keys that it sets."""

    label: Any
    place: str
    settings: Mapping[str, Any]


class Axis(NamedTuple):
    """One line of `sweep`; `named` where its options are variants that set several keys."""

    key: str
    options: Sequence[Option]
    named: bool


class Run(NamedTuple):
    """A config that is simulated at once, with its coordinates in the sweep that it belongs to."""

    config: Config
    labels: Mapping[str, Any]


def axes(sweep: Mapping[str, Any]) -> list[Axis]:
    """The axes that a `sweep` spells out, first the slowest.

    Raises:
        ConfigError: neither a list of values nor a mapping of variants, an empty one, a value that is listed twice, or
            a key that is swept twice or changes no run.
    """
    found = [_axis(key, values) for key, values in sweep.items()]
    owners: dict[str, str] = {}
    for axis in found:
        for key in {key for option in axis.options for key in option.settings}:
            if any(key == ignored or key.startswith(f"{ignored}.") for ignored in IGNORED):
                raise ConfigError(f"sweep.{axis.key}", f"{key} changes no run: set it outside the sweep")
            if key in owners:
                raise ConfigError(f"sweep.{axis.key}", f"sets {key}, as sweep.{owners[key]} does: sweep it once")
            owners[key] = axis.key
    return found


def runs(config: Config) -> list[Run]:
    """The runs of a config, each keeping under `sweep` only what its ensemble spans.

    Every member of every ensemble is validated as a config of its own first.

    Raises:
        ConfigError: one of them cannot be run; names the axis where that is to blame.
    """
    swept = axes(config.sweep)
    inner = [axis for axis in swept if _moves_no_event(config, axis)]
    outer = [axis for axis in swept if axis not in inner]
    return [_run(config, outer, options, inner) for options in product(*(axis.options for axis in outer))]


def members(config: Config) -> list[dict[str, Any]]:
    """The swept values of each member of a run's ensemble: the product of its axes, the first the slowest."""
    return [dict(zip(config.sweep, values, strict=True)) for values in product(*config.sweep.values())]


def filled(document: Mapping[str, Any]) -> Config:
    """The config of a document whose `sweep` may supply what it lacks: its first values stand in for the swept keys.

    Raises:
        ConfigError: as in `parse`.
    """
    sweep = document.get("sweep") or {}
    if not isinstance(sweep, Mapping):
        raise ConfigError("sweep", f"expected a mapping of axes, got {shown(sweep)}")
    first = []
    for axis in axes(sweep):
        common = set.intersection(*(set(option.settings) for option in axis.options))
        option = axis.options[0]
        first.append(option._replace(settings={key: option.settings[key] for key in option.settings if key in common}))
    return _parsed({**document, "sweep": sweep}, first)


def _axis(key: str, values: Any) -> Axis:
    place = f"sweep.{key}"
    if not isinstance(key, str):
        raise ConfigError(place, "expected a dotted key, or the name of an axis")
    if isinstance(values, list) and values:
        for index, value in enumerate(values):
            if any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values[:index]):
                raise ConfigError(place, f"expected different values, got {shown(value)} twice")
        return Axis(key, [Option(_label(value), place, {key: value}) for value in values], named=False)
    if not (isinstance(values, Mapping) and values):
        raise ConfigError(place, f"expected a list of values, or a mapping of named variants, got {shown(values)}")
    if key in COLUMNS:
        raise ConfigError(place, "is a column of the metrics already: call the axis something else")
    for name, settings in values.items():
        if not (isinstance(name, str) and isinstance(settings, Mapping) and all(isinstance(s, str) for s in settings)):
            raise ConfigError(f"{place}.{name}", f"expected a variant {{dotted key: value}}, got {shown(settings)}")
    return Axis(key, [Option(name, f"{place}.{name}", settings) for name, settings in values.items()], named=True)


def _label(value: Any) -> Any:
    """A value as a table shows it: numbers, names and null as they are."""
    return json.dumps(value).replace('"', "") if isinstance(value, list | dict) else value


def _moves_no_event(config: Config, axis: Axis) -> bool:
    learning, _, key = axis.key.partition(".")
    numbers = all(
        isinstance(option.label, int | float) and not isinstance(option.label, bool) for option in axis.options
    )
    return learning == "learning" and not axis.named and numbers and config.learning.per_member(key)


def _run(config: Config, outer: Sequence[Axis], options: Sequence[Option], inner: Sequence[Axis]) -> Run:
    """The run at `options` of the outer axes; its own values of the inner axes are the first member's."""
    configs = [_parsed(config.given(), [*options, *member]) for member in product(*(axis.options for axis in inner))]
    for member in configs:
        agree(member)
    number = {axis.key: int if axis.key == "learning.seed" else float for axis in inner}
    sweep = {axis.key: [number[axis.key](option.label) for option in axis.options] for axis in inner}
    run = parse({**configs[0].given(), "sweep": sweep})
    run.task.fits(run.cluster.workers, run.device, run.backend)
    cuts(run)
    return Run(run, {axis.key: option.label for axis, option in zip(outer, options, strict=True)})


def _parsed(document: Mapping[str, Any], options: Sequence[Option]) -> Config:
    """The config of `document` with what `options` set; errors in it are blamed on the option that set the key."""
    settings = [(key, value, option) for option in options for key, value in option.settings.items()]
    settings.sort(key=lambda setting: setting[0].count("."))  # a whole part before a key in it
    try:
        for key, value, _ in settings:
            document = put(document, key, value)
        return parse(document)
    except Refused as error:
        raise ConfigError(f"{_place(key, settings)}", error.problem) from None
    except ConfigError as error:
        raise error.moved(key=_place(error.key, settings)) from None


def _place(key: str, settings: Sequence[tuple[str, Any, Option]]) -> str:
    for swept, _, option in settings:
        if key == swept or key.startswith(f"{swept}."):
            return f"{option.place}.{key}" if option.place != f"sweep.{swept}" else f"sweep.{key}"
    return key
