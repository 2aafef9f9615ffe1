"""Load a config: its file, the config that it is based on, overrides; and check all its runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from laggard.experiments.config.axes import axes, read_sweep
from laggard.experiments.config.config import Config
from laggard.experiments.config.document import find_config, parse_yaml, put, question, read
from laggard.experiments.config.errors import (
    UNEXPECTED,
    ConfigError,
    describe_failure,
    format_value,
)
from laggard.experiments.config.files import locate
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.rungs import check_rungs
from laggard.experiments.config.search import without_range
from laggard.experiments.config.tuning import check_tuning

BASE = "base"
SCALES = "scales"
ENTRY_KEYS = ("name", "law", "model", "preset")
"""Keys that name the entry that a mapping describes: where they differ, the other keys belong to
another entry.
"""
MAX_BASES = 20


def load(path: str | Path, *overrides: str, scale: str | None = None) -> Config:
    """Read a config from a YAML file, with `key=value` overrides, and validate all of its runs.

    `example:quickstart` is an example config. The key `base` names another config, whose keys are
    changed. Plugins are imported from Python's path, the current directory and the file's folder.
    Names of files are relative to the config's folder, in overrides to the current directory.

    Args:
        overrides: a dotted key and a YAML value, as in `learning.lr=0.1` or
            `sweep.learning.lr=[0.1, 0.2]`. A key that `sweep` lists is fixed by its override and
            swept no more.
        scale: the name of one of the file's `scales`, changes by dotted keys that stand before the
            overrides, as {smoke: {stop.epochs: 0.2}}. Default: none of them.

    Raises:
        ConfigError: one line with the file, the dotted key, what was expected and what came.
    """
    file = find_config(path)
    document: dict[str, Any] = {}
    name = re.sub(r"[^\w .-]", "-", file.stem).lstrip(" .-")
    if name:
        document["name"] = name
    keys = dict(read_with_base(file))
    scales = keys.pop(SCALES, None)
    document |= {"question": question(file), **keys}
    look_in(Path.cwd(), file.resolve().parent)
    try:
        scaled = apply_scale(document, scales, scale)
        config = fill_swept_keys(apply_overrides(scaled, overrides))
        runs(config)
        check_rungs(config)
        check_tuning(config)
    except ConfigError as error:
        if error.where:
            raise
        raise _locate_error(error, path, file, overrides) from None
    except UNEXPECTED as error:
        raise ConfigError("", describe_failure(error), str(path)) from None
    return config


def _locate_error(
    error: ConfigError, path: str | Path, file: Path, overrides: Sequence[str]
) -> ConfigError:
    """A copy of `error` that names the file in which its key stands; overrides count as the
    config's own.
    """
    overridden = any(error.key.startswith(change.partition("=")[0]) for change in overrides)
    where = str(path)
    if error.key and not overridden:
        source = file_of(error.key, file)
        if source != file:
            where = f"{path} (from {source.name})"
    others = [_locate_error(other, path, file, overrides) for other in error.others]
    return ConfigError(error.key, error.problem, where, others)


def file_of(key: str, path: Path) -> Path:
    """The file that sets a dotted key of a config: its own, or the nearest of its bases."""
    file = path
    document = read(path)
    while not _has_key(document, key):
        if BASE not in document:
            return path
        file = find_config(document[BASE], file.resolve().parent)
        document = read(file)
    return file


def _has_key(document: Any, key: str) -> bool:
    if not key:
        return True
    if not isinstance(document, Mapping):
        return False
    first, _, rest = key.partition(".")
    return key in document or (first in document and _has_key(document[first], rest))


# --- the config that a config is based on


def read_with_base(path: Path, dependents: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """The document of a config file, whose keys override those of the config that `base` names.

    Mappings are merged key by key. A mapping that names another entry than the base's (another
    `name`, `law`, `model` or `preset`) replaces it, null removes a key, and a key that the base
    sweeps is fixed and swept no more. The base's `name` and `question` are not inherited. Names of
    files are relative to the file in which they stand.

    Args:
        dependents: the files that are based on this one.

    Raises:
        ConfigError: a file cannot be read, or `base` is not a file or is based on this one.
    """
    document: Mapping[str, Any] = read(path)
    locate(document, path.resolve().parent)
    if BASE not in document:
        return document
    changes = {key: value for key, value in document.items() if key != BASE}
    base = _read_base(document[BASE], path, dependents)
    merged: Mapping[str, Any] = {
        key: value for key, value in base.items() if key not in ("name", "question")
    }
    try:
        for key, value in sorted(_changed_keys(changes, merged), key=_change_order):
            merged = _remove(merged, key) if value is None else override(merged, key, value)
    except ConfigError as error:
        raise error.relocate(where=str(path)) from None
    return merged


def _read_base(name: Any, path: Path, dependents: tuple[Path, ...]) -> Mapping[str, Any]:
    if not isinstance(name, str) or not name:
        problem = f"expected a config's file, or example:NAME, got {format_value(name)}"
        raise ConfigError(BASE, problem, str(path))
    if len(dependents) >= MAX_BASES:
        problem = f"expected at most {MAX_BASES} configs based on one another"
        raise ConfigError(BASE, problem, str(path))
    try:
        file = find_config(name, path.resolve().parent)
        if file.resolve() in [other.resolve() for other in (path, *dependents)]:
            raise ConfigError("", f"{name} is based on this config itself")
        return read_with_base(file, (path, *dependents))
    except ConfigError as error:
        raise ConfigError(BASE, str(error), str(path)) from None


def _changed_keys(
    changes: Mapping[str, Any], base: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Any]]:
    """The dotted keys of `changes` with their values.

    A mapping is whole where the base has none or another entry.
    """
    for key, value in changes.items():
        if not place and key == SCALES:  # names, each with dotted keys
            yield key, value
            continue
        base_value: Any = base.get(key)
        if isinstance(base_value, str):
            base_value = {"name": base_value}
        if not _describe_same_entry(value, base_value):
            yield f"{place}{key}", value
        elif not place and key == "sweep":
            yield from _changed_axes(value, base_value)
        else:
            yield from _changed_keys(value, base_value, f"{place}{key}.")


def _describe_same_entry(value: Any, base: Any) -> bool:
    if not (isinstance(value, Mapping) and isinstance(base, Mapping)):
        return False
    return all(value[key] == base.get(key) for key in ENTRY_KEYS if key in value)


def _changed_axes(sweep: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The changes of a sweep: its axes, and the ranges of its search one by one."""
    for axis, values in sweep.items():
        if axis != "search":
            yield f"sweep.{axis}", values
    if "search" not in sweep:
        return
    search, base_search = sweep["search"], base.get("search")
    if isinstance(search, Mapping) and isinstance(base_search, Mapping):
        for key, limits in search.items():
            yield f"sweep.search.{key}", limits
    else:
        yield "sweep.search", search


def _change_order(change: tuple[str, Any]) -> int:
    """A sort key: first remove axes of the base, then set keys, which ends their axes, then add
    axes.
    """
    key, value = change
    if key != "sweep" and not key.startswith("sweep."):
        return 1
    return 0 if value is None else 2


# --- overrides


def apply_overrides(document: Mapping[str, Any], overrides: Sequence[str]) -> Mapping[str, Any]:
    """`document` with `key=value` overrides; the last of equal keys counts.

    Raises:
        ConfigError: an override is no `key=value`, or a variant of the sweep would undo it.
    """
    for change in overrides:
        if not isinstance(change, str):
            expected = "expected each override as a string of its own, as in learning.lr=0.1"
            raise ConfigError("", expected, format_value(change))
        key, equals, text = change.partition("=")
        shown = change
        if len(change) > 200:
            shown = f"{change[:197]}..."
        if not (key and equals):
            raise ConfigError("", "expected an override key=value, as in learning.lr=0.1", shown)
        values = {key: parse_yaml(text, shown)}
        locate(values, Path.cwd())
        document = override(document, key, values[key])
    return document


def apply_scale(document: Mapping[str, Any], scales: Any, scale: str | None) -> Mapping[str, Any]:
    """`document` with the changes of one of its scales, if one is asked for.

    Raises:
        ConfigError: the file has no such scale, or its scales are not mappings of dotted keys.
    """
    if scales is None:
        scales = {}
    if not isinstance(scales, Mapping):
        raise ConfigError(SCALES, f"expected a mapping of scales, got {format_value(scales)}")
    if scale is None:
        return document
    if scale not in scales:
        known = ", ".join(map(str, scales)) or "none"
        raise ConfigError(SCALES, f"expected one of the file's scales ({known}), got {scale}")
    changes = scales[scale]
    if not isinstance(changes, Mapping):
        problem = f"expected a mapping of dotted keys, got {format_value(changes)}"
        raise ConfigError(f"{SCALES}.{scale}", problem)
    for key, value in changes.items():
        try:
            document = override(document, key, value)
        except ConfigError as error:
            raise error.relocate(key=f"{SCALES}.{scale}.{key}") from None
    return document


def override(document: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """`document` with `value` at a dotted key, which is swept no more.

    Raises:
        ConfigError: a variant of the sweep would undo it.
    """
    sweep = read_sweep(document)
    if not key.startswith("sweep."):
        return _remove_axis(put(document, key, value), key, sweep)
    axis = key.removeprefix("sweep.")  # an axis has dots in its name
    search = sweep.get("search", {})
    if axis.startswith("search.") and isinstance(search, Mapping):
        search = {**search, axis.removeprefix("search."): value}
        return {**document, "sweep": {**sweep, "search": search}}
    return {**document, "sweep": {**sweep, axis: value}}


def _remove_axis(
    document: Mapping[str, Any], key: str, sweep: Mapping[str, Any]
) -> Mapping[str, Any]:
    """`document` without the axis that swept `key`."""
    if key == "sweep" or not sweep:
        return document
    # `seeds: 5` is another way to write an axis of `seed`.
    removed = (key, "seeds") if key == "seed" else (key,)
    others = {axis: values for axis, values in sweep.items() if axis not in removed}
    rest = without_range(others, key)
    for axis in axes(rest):
        if key not in axis.keys:
            continue
        place = axis.keys[key]
        for option in axis.options:
            if key in option.settings:
                place = option.place
                break
        problem = f"is set by {place}; override that, or leave the sweep out: sweep={{}}"
        raise ConfigError(key, problem)
    return {**document, "sweep": rest}


def _remove(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A copy of `document` without a dotted key."""
    first, _, rest = key.partition(".")
    group = document.get(first)
    if not rest or not isinstance(group, Mapping):
        return _without(document, first)
    if first != "sweep":
        return {**document, first: _remove(group, rest)}
    if rest.startswith("search."):
        search = _without(group["search"], rest.removeprefix("search."))
        return {**document, first: {**group, "search": search}}
    return {**document, first: _without(group, rest)}


def _without(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {other: value for other, value in mapping.items() if other != key}
