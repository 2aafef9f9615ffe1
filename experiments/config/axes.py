"""The axes of a `sweep`: options, each with the dotted keys that it sets, and perhaps its own grid.

    learning.lr: [0.1, 0.2]                                 an axis of one key
    seeds: 5                                                the same as seed: [0, 1, 2, 3, 4]
    zip: {task.batch: [32, 64], learning.lr: [0.1, 0.2]}    keys that change together; or a list
    method:                                                 an axis of named variants, which set
      sgd: {learning.optimizer: sgd}                        several keys and may have a grid
      adam: {learning.optimizer: adam, sweep: {learning.lr: [0.001, 0.003]}}
    search: {learning.lr: {log_uniform: [0.01, 1]}, runs: 20}    random settings (`search.py`)
    most: 200000                                            no axis: the largest number of models

`grid.py` turns axes into runs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from laggard.experiments.config.config import IGNORED
from laggard.experiments.config.document import check_dotted
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.config.search import draw_settings

MAX_MODELS = 100_000
"""Members of all runs of a grid, unless `sweep.most` sets another limit."""
COLUMNS = {
    "run", "name", "experiment", "seed", "member", "value", "number", "followed", "never",
    "diverged", "diverged_at", "status", "laggard", "time", "updates", "samples", "epoch", "epochs",
    "train_loss", "test_loss", "test_accuracy", "accuracy", "loss", "consensus", "time_to_target",
    "training_loss", "consensus_distance", "virtual_time", "mean_staleness", "max_staleness",
    "worker", "target", "started", "computed", "version_read", "version", "staleness", "mixings",
    "arrived", "node", "computing", "sending", "waiting", "down", "distance", "weight", "server",
    "back", "lost", "sender", "receiver", "sent", "bytes", "content", "gradients", "gradient",
}  # fmt: skip
"""Names, with _ for spaces, that no axis of variants may have: columns of tables and figures."""


class Option(NamedTuple):
    """One value of an axis.

    Attributes:
        labels: its columns in tables, and their values.
        place: the place in the config that names it.
        settings: the dotted keys that it sets.
        axes: its own grid.
    """

    labels: Mapping[str, Any]
    place: str
    settings: Mapping[str, Any]
    axes: "Sequence[Axis]" = ()

    def common_settings(self) -> dict[str, Any]:
        """The option's settings, and the settings that all points of its own grid share."""
        settings = dict(self.settings)
        for axis in self.axes:
            settings |= axis.common_settings()
        return settings


class Axis(NamedTuple):
    """One line of `sweep`.

    Attributes:
        place: its place in the config.
        options: its values.
        named: whether they are variants, which set several keys.
    """

    place: str
    options: Sequence[Option]
    named: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """The place in the config of every dotted key that it sets and of every column that it
        makes.
        """
        places: dict[str, str] = {}
        for option in self.options:
            places |= dict.fromkeys([*option.settings, *option.labels], self.place)
            for axis in option.axes:
                places |= axis.keys
        return places

    def common_settings(self) -> dict[str, Any]:
        """The keys that all options set, with the values of the first."""
        first, *others = [option.common_settings() for option in self.options]
        return {key: value for key, value in first.items() if all(key in other for other in others)}


def read_sweep(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `sweep` of a config; null stands for none.

    Raises:
        ConfigError: it is not a mapping.
    """
    sweep = document.get("sweep")
    if not isinstance(sweep, Mapping | None):
        raise ConfigError("sweep", f"expected a mapping of axes, got {format_value(sweep)}")
    return sweep or {}


def count_models(grid: Sequence[Axis]) -> int:
    """The number of members of all runs of a grid."""
    sizes = [sum(count_models(option.axes) for option in axis.options) for axis in grid]
    return prod(sizes)


def axes(sweep: Any, place: str = "sweep") -> list[Axis]:
    """The axes of a `sweep`, the slowest first.

    Raises:
        ConfigError: an axis is none of the forms above or empty, a value is listed twice, lists
            of a zip differ in length, or a key is swept twice or changes no run.
    """
    if not isinstance(sweep, Mapping):
        raise ConfigError(place, f"expected a mapping of axes, got {format_value(sweep)}")
    max_models = MAX_MODELS
    lines = dict(sweep)
    if place == "sweep":  # a variant's grid has no limit of its own
        max_models = lines.pop("most", MAX_MODELS)
        _check_count(max_models, f"{place}.most")
    grid: list[Axis] = []
    for key, values in lines.items():
        grid += _axes(key, values, f"{place}.{key}", max_models)
    _check_swept_once(grid)
    _check_size(count_models(grid), max_models, place)
    return grid


def _axes(key: Any, values: Any, place: str, max_models: int) -> Iterator[Axis]:
    """The axes of one line: one, or several under `zip`."""
    if not isinstance(key, str):
        raise ConfigError(place, "expected a dotted key, or the name of an axis")
    if key == "zip" and values != []:
        groups = values if isinstance(values, list) else [values]
        for lists in groups:
            yield _zip_axis(lists, place)
    elif key == "seeds":
        _check_count(values, place)
        _check_size(values, max_models, place)
        yield Axis(place, [_option(place, {"seed": seed}) for seed in range(values)])
    elif key == "search":
        yield _search_axis(values, place, max_models)
    elif isinstance(values, list) and values:
        check_dotted(key, place)
        _check_distinct(values, place)
        yield Axis(place, [_option(place, {key: value}) for value in values])
    elif isinstance(values, Mapping) and values:
        yield _variant_axis(key, values, place)
    else:
        problem = "expected a list of values, or a mapping of named variants"
        raise ConfigError(place, f"{problem}, got {format_value(values)}")


def _option(place: str, settings: Mapping[str, Any], grid: Sequence[Axis] = ()) -> Option:
    labels = {key: axis_label(value) for key, value in settings.items()}
    return Option(labels, place, settings, grid)


def _zip_axis(lists: Any, place: str) -> Axis:
    valid = isinstance(lists, Mapping) and len(lists) > 1
    if valid:
        valid = all(isinstance(key, str) and isinstance(lists[key], list) for key in lists)
    if not valid or not all(lists.values()):
        problem = "expected lists of values of two or more dotted keys"
        raise ConfigError(place, f"{problem}, got {format_value(lists)}")
    for key in lists:
        check_dotted(key, place)
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{key}: {len(values)}" for key, values in lists.items())
        raise ConfigError(place, f"expected lists of equal length, got {lengths}")
    points = [list(point) for point in zip(*lists.values(), strict=True)]
    _check_distinct(points, place)
    return Axis(place, [_option(place, dict(zip(lists, point, strict=True))) for point in points])


def _search_axis(search: Any, place: str, max_models: int) -> Axis:
    """The axis of a random search: an option per run, whose grid is its ensemble."""
    if isinstance(search, Mapping) and isinstance(search.get("runs"), int):
        _check_size(search["runs"], max_models, place)
    groups = draw_settings(search, place)
    first_run, first_members = groups[0]
    if len(groups) == 1 and not first_run:  # numbers of the rule alone
        return Axis(place, [_option(place, member) for member in first_members])
    options = []
    for run, members in groups:
        ensemble = []
        if members[0]:
            ensemble = [Axis(place, [_option(place, member) for member in members])]
        options.append(_option(place, run, ensemble))
    return Axis(place, options, named=True)


def _variant_axis(name: str, variants: Mapping[str, Any], place: str) -> Axis:
    if name.replace(" ", "_") in COLUMNS:
        raise ConfigError(place, "is a column of the results already: call the axis something else")
    if "." in name:
        problem = "expected a list of values, or a name without dots for an axis of variants"
        raise ConfigError(place, problem)
    options = []
    for variant, settings in variants.items():
        variant_place = f"{place}.{variant}"
        if not isinstance(variant, str):
            got = format_value(variant)
            problem = f"expected the name of a variant as text, got {got}: write '{got}'"
            raise ConfigError(variant_place, problem)
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            problem = f"expected a variant {{dotted key: value}}, got {format_value(settings)}"
            raise ConfigError(variant_place, problem)
        grid: list[Axis] = []
        if "sweep" in settings:
            grid = axes(settings["sweep"], f"{variant_place}.sweep")
        values = {key: value for key, value in settings.items() if key != "sweep"}
        for key in values:
            check_dotted(key, variant_place)
        labels = {name: variant}
        _check_swept_once([Axis(variant_place, [Option(labels, variant_place, values)]), *grid])
        options.append(Option(labels, variant_place, values, grid))
    return Axis(place, options, named=True)


def _check_count(value: Any, place: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(place, f"expected an integer >= 1, got {format_value(value)}")


def _check_size(models: int, max_models: int, place: str) -> None:
    if models > max_models:
        problem = f"expected a grid of at most {max_models:,} models, got {models:,}"
        raise ConfigError(place, f"{problem}: set sweep.most for more")


def _check_swept_once(grid: Sequence[Axis]) -> None:
    owners: dict[str, str] = {}
    for axis in grid:
        for key, place in axis.keys.items():
            _check_swept_key(key, place)
            if key in owners:
                raise ConfigError(place, f"sets {key}, as {owners[key]} does: sweep it once")
        owners |= axis.keys


def _check_swept_key(key: str, place: str) -> None:
    """Refuse keys that change no run, or that cannot be swept."""
    if any(key == ignored or key.startswith(f"{ignored}.") for ignored in IGNORED):
        raise ConfigError(place, f"{key} changes no run: set it outside the sweep")
    if key == "sweep" or key.startswith("sweep."):
        remedy = "write it without `sweep.` in the sweep, or in a variant's own `sweep: {...}`"
        raise ConfigError(place, f"{key} is not a key of a run: {remedy}")
    if key == "cluster.preset":
        remedy = "give variants a cluster each, as {one: {cluster: {preset: ...}}}"
        raise ConfigError(place, f"a preset sets other keys, which would remain: {remedy}")


def _check_distinct(values: Sequence[Any], place: str) -> None:
    seen = set()
    for value in values:
        if _comparison_key(value) in seen:
            raise ConfigError(place, f"expected different values, got {format_value(value)} twice")
        seen.add(_comparison_key(value))


def _comparison_key(value: Any) -> Any:
    """A hashable key: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, list):
        return tuple(map(_comparison_key, value))
    if isinstance(value, dict):
        return tuple((key, _comparison_key(value[key])) for key in sorted(value, key=str))
    return isinstance(value, bool), value


def axis_label(value: Any) -> Any:
    """A value as tables show it: lists and mappings as text, files as they were written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | dict):
        return json.dumps(value).replace('"', "")
    return value
