"""The document of a config: read from a file or from an example of laggard's, after the config that
it is based on.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from laggard.experiments.config.axes import axes, read_sweep
from laggard.experiments.config.errors import ConfigError, format_value, suggest
from laggard.experiments.config.files import locate
from laggard.experiments.config.plain import MOST_TEXT, parse_yaml, put
from laggard.experiments.config.search import without_range

EXAMPLE, BASE = "example:", "base"
ENTRY_KEYS = ("name", "law", "model", "preset")
"""The keys that say which entry a mapping describes: where they differ, the other keys are
another's.
"""
MOST_BASES = 20


def find_config(name: str | Path, folder: Path | None = None) -> Path:
    """The file of a config: an example that laggard brings, or a path, which may be relative to
    `folder`.

    Raises:
        ConfigError: no example is called so, or several are.

    Example:
        >>> find_config("example:quickstart").name, find_config("example:methods/pipedream").name
        ('quickstart.yaml', 'pipedream.yaml')
    """
    wanted = str(name)
    if not wanted.startswith(EXAMPLE):
        return Path(name) if folder is None else folder / name
    known, wanted = examples(), wanted.removeprefix(EXAMPLE).removesuffix(".yaml")
    found = (
        [wanted]
        if wanted in known
        else [each for each in known if each.rpartition("/")[2] == wanted]
    )
    if len(found) == 1:
        return known[found[0]]
    hint = (
        f"it may be {' or '.join(found)}"
        if found
        else suggest(wanted, known) or "see `laggard list examples`"
    )
    raise ConfigError("", f"expected the name of an example; {hint}", str(name))


def examples() -> dict[str, Path]:
    """The example configs, by name."""
    root = Path(str(files("laggard") / "examples"))
    paths = [path for path in sorted(root.rglob("*.yaml")) if path.parent.name != "presets"]
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in paths}


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML 1.2 file.

    Raises:
        ConfigError: the file cannot be read, is no YAML (with line and column), names a key twice,
            or holds no mapping.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MOST_TEXT + 1)
    # a path with a null character, or bytes that are no text
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        name = str(path).removeprefix("configs/").removesuffix(".yaml")
        if isinstance(error, FileNotFoundError) and name in examples():
            reason = f"{reason}; laggard brings it as example:{name}"
        raise ConfigError("", f"cannot be read: {reason}", str(path)) from None
    document = parse_yaml(text, str(path))
    if not isinstance(document, dict):
        raise ConfigError(
            "", f"expected a mapping of keys, got {format_value(document)}", str(path)
        )
    return document


def read_based(path: Path, later: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """The document of a config file, whose keys override those of the config that its key `base`
    names.

    Mappings are merged key by key. One that names another entry than the base's (another `name`,
    `law`, `model` or `preset`) replaces it, a null takes a key away, and a key that the base sweeps
    is fixed and swept no more. Its own `name` and `question` are not the base's. Names of files are
    relative to the file in which they stand.

    Args:
        later: the files that are based on this one.

    Raises:
        ConfigError: a file cannot be read, the base is no name of a file or is based on this one.
    """
    document: Mapping[str, Any] = read(path)
    locate(document, path.resolve().parent)
    if BASE not in document:
        return document
    name, own = document[BASE], {key: value for key, value in document.items() if key != BASE}
    if not isinstance(name, str) or not name:
        expected = "expected a config's file, or example:NAME"
        raise ConfigError(BASE, f"{expected}, got {format_value(name)}", str(path))
    if len(later) >= MOST_BASES:
        raise ConfigError(
            BASE, f"expected at most {MOST_BASES} configs based on one another", str(path)
        )
    try:
        found = find_config(name, path.resolve().parent)
        if found.resolve() in (each.resolve() for each in (path, *later)):
            raise ConfigError("", f"{name} is based on this config itself")
        below = read_based(found, (path, *later))
    except ConfigError as error:
        raise ConfigError(BASE, str(error), str(path)) from None
    merged: Mapping[str, Any] = {
        key: value for key, value in below.items() if key not in ("name", "question")
    }
    try:
        for key, value in sorted(_changes(own, merged), key=_turn):
            merged = _remove(merged, key) if value is None else override(merged, key, value)
    except ConfigError as error:
        raise error.relocate(where=str(path)) from None
    return merged


def file_of(key: str, path: Path) -> Path:
    """The file in which a dotted key of a config stands: its own, or the nearest of those that it
    is based on.
    """
    file, document = path, read(path)
    while not _stands_in(document, key):
        if BASE not in document:
            return path
        file = find_config(document[BASE], file.resolve().parent)
        document = read(file)
    return file


def _stands_in(document: Any, key: str) -> bool:
    if not key or not isinstance(document, Mapping):
        return not key
    first, _, rest = key.partition(".")
    return key in document or (first in document and _stands_in(document[first], rest))


def _changes(
    own: Mapping[str, Any], base: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Any]]:
    """The dotted keys of `own` with their values, mappings whole where the base has none or another
    entry.
    """
    for key, value in own.items():
        below = base.get(key)
        below = {"name": below} if isinstance(below, str) else below
        if not (isinstance(value, Mapping) and isinstance(below, Mapping)) or any(
            name in value and value[name] != below.get(name) for name in ENTRY_KEYS
        ):
            yield f"{place}{key}", value
        elif (place, key) == ("", "sweep"):
            own = {axis: settings for axis, settings in value.items() if axis != "search"}
            yield from ((f"sweep.{axis}", settings) for axis, settings in own.items())
            drawn, ranges = value.get("search"), below.get("search")
            if isinstance(drawn, Mapping) and isinstance(ranges, Mapping):
                yield from ((f"sweep.search.{each}", limits) for each, limits in drawn.items())
            elif "search" in value:
                yield "sweep.search", drawn
        else:
            yield from _changes(value, below, f"{place}{key}.")


def _turn(change: tuple[str, Any]) -> int:
    """When a change is made: axes of the base go first, then keys are set, and swept no more, then
    own axes come.
    """
    key, value = change
    swept = key == "sweep" or key.startswith("sweep.")
    return 1 if not swept else 0 if value is None else 2


def override(document: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """`document` with `value` at a dotted key, which is swept no more.

    Raises:
        ConfigError: a variant of the sweep would undo it.
    """
    sweep = read_sweep(document)
    if key.startswith("sweep."):  # its own keys have dots in them
        axis, _, drawn = key.removeprefix("sweep.").partition("search.")
        if drawn and not axis and isinstance(search := sweep.get("search", {}), Mapping):
            return {**document, "sweep": {**sweep, "search": {**search, drawn: value}}}
        return {**document, "sweep": {**sweep, key.removeprefix("sweep."): value}}
    return _remove_axis(put(document, key, value), key, sweep)


def _remove_axis(
    document: Mapping[str, Any], key: str, sweep: Mapping[str, Any]
) -> Mapping[str, Any]:
    """`document` without the axis that swept `key`."""
    if key == "sweep" or not sweep:
        return document
    own = {key, "seeds"} if key == "seed" else {key}
    rest = without_range({axis: values for axis, values in sweep.items() if axis not in own}, key)
    for axis in axes(rest):
        if key in axis.keys:
            place = next(
                (option.place for option in axis.options if key in option.settings), axis.keys[key]
            )
            raise ConfigError(
                key, f"is set by {place}; override that, or leave the sweep out: sweep={{}}"
            )
    return {**document, "sweep": rest}


def _remove(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """`document` without what stands at a dotted key."""
    first, _, rest = key.partition(".")
    if isinstance(held := document.get(first), Mapping) and rest:
        if first != "sweep":
            return {**document, first: _remove(held, rest)}
        if rest.startswith("search."):
            return {
                **document,
                first: {**held, "search": _without(held["search"], rest.removeprefix("search."))},
            }
        return {**document, first: _without(held, rest)}
    return _without(document, first)


def _without(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {each: value for each, value in mapping.items() if each != key}
