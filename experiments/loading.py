"""From a file and the command line to a config of which every run can start."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.axes import axes
from experiments.config import Config
from experiments.documents import parsed, put, question, read
from experiments.errors import ConfigError, Refused
from experiments.grid import filled, runs
from experiments.plugins import look_beside


def load(path: str | Path, *overrides: str) -> Config:
    """The config in a YAML file, with `key=value` overrides; all runs that it expands to have been validated.

    Modules of one's own that it names are found on Python's path, in the current directory and beside the file.

    Args:
        overrides: a dotted key and a YAML value, as in `learning.lr=0.1` or `sweep.learning.lr=[0.1, 0.2]`. A key
            that `sweep` lists is fixed by its override and swept no more.

    Raises:
        ConfigError: one line with the file, the dotted key, what was expected and what came.
    """
    name = re.sub(r"[^\w .-]", "-", Path(path).stem).lstrip(" .-")
    written = read(path)
    document: Mapping[str, Any] = {**({"name": name} if name else {}), "question": question(path), **written}
    look_beside(path)
    try:
        config = filled(overridden(document, overrides))
        runs(config)
    except ConfigError as error:
        raise error if error.where else error.moved(where=str(path)) from None
    return config


def overridden(document: Mapping[str, Any], overrides: Sequence[str]) -> Mapping[str, Any]:
    """`document` with the overrides, the later ones last.

    Raises:
        ConfigError: an override that is no `key=value`, or that a variant of the sweep would undo.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        if not (key and equals):
            raise ConfigError("", "expected an override key=value, as in learning.lr=0.1", override)
        value = parsed(text, override)
        sweep = document.get("sweep") or {}
        try:
            if key.startswith("sweep."):  # its own keys have dots in them
                document = {**document, "sweep": {**sweep, key.removeprefix("sweep."): value}}
            else:
                document = _fixed(put(document, key, value), key, sweep)
        except Refused as error:
            raise ConfigError(key, error.problem) from None
    return document


def _fixed(document: Mapping[str, Any], key: str, sweep: Any) -> Mapping[str, Any]:
    """`document` without the axis that swept `key`."""
    if key == "sweep" or not sweep:
        return document
    own = {key, "seeds"} if key == "seed" else {key}
    rest = {axis: values for axis, values in sweep.items() if axis not in own} if isinstance(sweep, Mapping) else sweep
    for axis in axes(rest):
        if key in axis.keys:
            place = next((option.place for option in axis.options if key in option.settings), axis.keys[key])
            raise ConfigError(key, f"is set by {place}; override that, or leave the sweep out: sweep={{}}")
    return {**document, "sweep": rest}
