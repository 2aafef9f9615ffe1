"""The axes of a `sweep`: options, each with the dotted keys that it sets, and its own grid if it
has one.

learning.lr: [0.1, 0.2]                                 a list of values: an axis of one key
seeds: 5                                                the same as seed: [0, 1, 2, 3, 4]
zip: {task.batch: [32, 64], learning.lr: [0.1, 0.2]}    keys that go together, value by value; or a list of such
method:                                                 named variants of several keys at once, which may
  sgd: {learning.optimizer: sgd, sweep: {learning.lr: [0.1, 0.3]}}         have grids of their own, of all this
  adam: {learning.optimizer: adam, sweep: {learning.lr: [0.001, 0.003]}}
search: {learning.lr: {log_uniform: [0.01, 1]}, runs: 20}                random settings instead of a grid (`search.py`)
most: 200000                                            no axis: how many models the grid may have, 100,000 by default
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from laggard.experiments.config.config import IGNORED
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.config.plain import check_dotted
from laggard.experiments.config.search import draw_settings

MOST_MODELS = 100_000
"""Members of all runs of a grid, unless `sweep.most` says another number."""
COLUMNS = {
    "run", "name", "experiment", "seed", "member", "value", "number", "followed", "never", "diverged", "diverged_at",
    "status", "laggard", "time", "updates", "samples", "epoch", "epochs", "train_loss", "test_loss", "test_accuracy",
    "accuracy", "loss", "consensus", "time_to_target", "training_loss", "consensus_distance", "virtual_time",
    "mean_staleness", "max_staleness", "worker", "target", "started", "computed", "version_read", "version",
    "staleness", "mixings", "arrived", "node", "computing", "sending", "waiting", "down", "distance", "weight",
    "server", "back", "lost", "sender", "receiver", "sent", "bytes", "content", "gradients", "gradient",
}  # fmt: skip
"""Names, with _ for spaces, that no axis of variants may take: tables and figures have columns
called so.
"""


class Option(NamedTuple):
    """One value of an axis: its labels in tables, where `sweep` names it, the dotted keys it sets,
    and its own grid.
    """

    labels: Mapping[str, Any]
    place: str
    settings: Mapping[str, Any]
    axes: "Sequence[Axis]" = ()


class Axis(NamedTuple):
    """One line of `sweep`; `named` where its options are variants that set several keys."""

    place: str
    options: Sequence[Option]
    named: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """Every dotted key that it sets, and every column that it makes -> its place in the
        config.
        """
        found: dict[str, str] = {}
        for option in self.options:
            found |= dict.fromkeys([*option.settings, *option.labels], self.place)
            for axis in option.axes:
                found |= axis.keys
        return found

    @property
    def sure(self) -> dict[str, Any]:
        """The keys that all of its options set, with the values of the first."""
        each = [
            {
                **option.settings,
                **{key: value for axis in option.axes for key, value in axis.sure.items()},
            }
            for option in self.options
        ]
        return {key: value for key, value in each[0].items() if all(key in other for other in each)}


def read_sweep(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `sweep` of a config; null stands for none.

    Raises:
        ConfigError: it is no mapping.
    """
    sweep = document.get("sweep")
    if not isinstance(sweep, Mapping | None):
        raise ConfigError("sweep", f"expected a mapping of axes, got {format_value(sweep)}")
    return sweep or {}


def count_models(found: Sequence[Axis]) -> int:
    """How many members, of all runs together, the grid of some axes has."""
    return prod(sum(count_models(option.axes) for option in axis.options) for axis in found)


def _check_size(models: int, most: int, place: str) -> None:
    if models > most:
        raise ConfigError(
            place,
            f"expected a grid of at most {most:,} models, got {models:,}: set sweep.most for more",
        )


def axes(sweep: Any, place: str = "sweep") -> list[Axis]:
    """The axes of a `sweep`, the slowest first.

    Raises:
        ConfigError: neither of the forms above, an empty one, a value that is listed twice, lists
            of different lengths in a zip, or a key that is swept twice or changes no run.
    """
    if not isinstance(sweep, Mapping):
        raise ConfigError(place, f"expected a mapping of axes, got {format_value(sweep)}")
    most = sweep.get("most", MOST_MODELS) if place == "sweep" else MOST_MODELS
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ConfigError(f"{place}.most", f"expected an integer >= 1, got {format_value(most)}")
    lines = ((key, values) for key, values in sweep.items() if key != "most" or place != "sweep")
    found = [axis for key, values in lines for axis in _axes(key, values, f"{place}.{key}", most)]
    _check_swept_once(found)
    _check_size(count_models(found), most, place)
    return found


def _axes(key: Any, values: Any, place: str, most: int) -> Iterator[Axis]:
    if not isinstance(key, str):
        raise ConfigError(place, "expected a dotted key, or the name of an axis")
    if key == "zip" and values != []:
        yield from (
            _read_zip(lists, place) for lists in (values if isinstance(values, list) else [values])
        )
    elif key == "seeds":
        if not isinstance(values, int) or isinstance(values, bool) or values < 1:
            raise ConfigError(place, f"expected an integer >= 1, got {format_value(values)}")
        _check_size(values, most, place)
        yield Axis(place, [Option({"seed": seed}, place, {"seed": seed}) for seed in range(values)])
    elif key == "search":
        yield _read_search(values, place, most)
    elif isinstance(values, list) and values:
        check_dotted(key, place)
        _check_distinct(values, place)
        yield Axis(
            place, [Option({key: axis_label(value)}, place, {key: value}) for value in values]
        )
    elif isinstance(values, Mapping) and values:
        yield _variants(key, values, place)
    else:
        raise ConfigError(
            place,
            f"expected a list of values, or a mapping of named variants, got {format_value(values)}",
        )


def _read_zip(lists: Any, place: str) -> Axis:
    fine = (
        isinstance(lists, Mapping) and len(lists) > 1 and all(isinstance(key, str) for key in lists)
    )
    if not (fine and all(isinstance(values, list) and values for values in lists.values())):
        raise ConfigError(
            place, f"expected lists of values of two or more dotted keys, got {format_value(lists)}"
        )
    for key in lists:
        check_dotted(key, place)
    if len({len(values) for values in lists.values()}) > 1:
        said = ", ".join(f"{key} has {len(values)}" for key, values in lists.items())
        raise ConfigError(place, f"expected lists of one length, but {said}")
    together = list(zip(*lists.values(), strict=True))
    _check_distinct([list(values) for values in together], place)
    settings = [dict(zip(lists, values, strict=True)) for values in together]
    return Axis(place, [_option(place, of) for of in settings])


def _option(place: str, settings: Mapping[str, Any], axes: Sequence[Axis] = ()) -> Option:
    return Option(
        {key: axis_label(value) for key, value in settings.items()}, place, settings, axes
    )


def _read_search(search: Any, place: str, most: int) -> Axis:
    if isinstance(search, Mapping) and isinstance(runs := search.get("runs"), int):
        _check_size(runs, most, place)
    groups = draw_settings(search, place)
    if len(groups) == 1 and not groups[0][0]:  # numbers of the rule alone
        return Axis(place, [_option(place, member) for member in groups[0][1]])
    own = (
        [Axis(place, [_option(place, each) for each in members])] if members[0] else []
        for _, members in groups
    )
    options = [_option(place, outer, axes) for (outer, _), axes in zip(groups, own, strict=True)]
    return Axis(place, options, named=True)


def _variants(key: str, variants: Mapping[str, Any], place: str) -> Axis:
    if key.replace(" ", "_") in COLUMNS:
        raise ConfigError(place, "is a column of the results already: call the axis something else")
    if "." in key:
        raise ConfigError(
            place, "expected a list of values, or a name without dots for an axis of variants"
        )
    options = []
    for name, settings in variants.items():
        own = f"{place}.{name}"
        if not (
            isinstance(name, str)
            and isinstance(settings, Mapping)
            and all(isinstance(s, str) for s in settings)
        ):
            raise ConfigError(
                own, f"expected a variant {{dotted key: value}}, got {format_value(settings)}"
            )
        grid = axes(settings["sweep"], f"{own}.sweep") if "sweep" in settings else []
        sets = {key: value for key, value in settings.items() if key != "sweep"}
        for dotted in sets:
            check_dotted(dotted, own)
        _check_swept_once([Axis(own, [Option({key: name}, own, sets)]), *grid])
        options.append(Option({key: name}, own, sets, grid))
    return Axis(place, options, named=True)


def _check_swept_once(found: Sequence[Axis]) -> None:
    owners: dict[str, str] = {}
    for axis in found:
        for key, place in axis.keys.items():
            if any(key == ignored or key.startswith(f"{ignored}.") for ignored in IGNORED):
                raise ConfigError(place, f"{key} changes no run: set it outside the sweep")
            if key == "sweep" or key.startswith("sweep."):
                remedy = (
                    "write it without `sweep.` in the sweep, or in a variant's own `sweep: {...}`"
                )
                raise ConfigError(place, f"{key} is no key of a run: {remedy}")
            if key == "cluster.preset":
                remedy = "give variants a cluster each, as {one: {cluster: {preset: ...}}}"
                raise ConfigError(
                    place, f"a preset stands for other keys, which would stay: {remedy}"
                )
            if key in owners:
                raise ConfigError(place, f"sets {key}, as {owners[key]} does: sweep it once")
        owners |= axis.keys


def _check_distinct(values: Sequence[Any], place: str) -> None:
    seen = set()
    for value in values:
        if _comparison_key(value) in seen:
            raise ConfigError(place, f"expected different values, got {format_value(value)} twice")
        seen.add(_comparison_key(value))


def _comparison_key(value: Any) -> Any:
    """A comparison key: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, list):
        return tuple(map(_comparison_key, value))
    if isinstance(value, dict):
        return tuple((key, _comparison_key(value[key])) for key in sorted(value, key=str))
    return isinstance(value, bool), value


def axis_label(value: Any) -> Any:
    """A value as a table shows it: numbers, names and null as they are, files as they were
    written.
    """
    if isinstance(value, str):
        return str(value)
    return json.dumps(value).replace('"', "") if isinstance(value, list | dict) else value
