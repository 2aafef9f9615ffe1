"""Loads a config from a file and the command line, and validates every run of it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laggard.experiments.config.config import Config
from laggard.experiments.config.documents import file_of, find_config, override, read_based
from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure
from laggard.experiments.config.files import locate
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.plain import parse_yaml
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.rungs import check_rungs


def load(path: str | Path, *overrides: str) -> Config:
    """The config in a YAML file, with `key=value` overrides; all runs that it expands to have been
    validated.

    `example:quickstart` is a config that laggard brings. The key `base` names another config, whose
    keys are changed. Modules of one's own that it names are found on Python's path, in the current
    directory and beside the file. Names of files are relative to its folder, in overrides to the
    current directory.

    Args:
        overrides: a dotted key and a YAML value, as in `learning.lr=0.1` or
            `sweep.learning.lr=[0.1, 0.2]`. A key that `sweep` lists is fixed by its override and
            swept no more.

    Raises:
        ConfigError: one line with the file, the dotted key, what was expected and what came.
    """
    file = find_config(path)
    name = re.sub(r"[^\w .-]", "-", file.stem).lstrip(" .-")
    written = read_based(file)
    document: Mapping[str, Any] = {
        **({"name": name} if name else {}),
        "question": question(file),
        **written,
    }
    look_in(Path.cwd(), file.resolve().parent)
    try:
        config = fill_swept_keys(apply_overrides(document, overrides))
        runs(config)
        check_rungs(config)
    except ConfigError as error:
        raise error if error.where else _locate_error(error, path, file, overrides) from None
    except UNEXPECTED as error:
        raise ConfigError("", describe_failure(error), str(path)) from None
    return config


def _locate_error(
    error: ConfigError, path: str | Path, file: Path, overrides: Sequence[str]
) -> ConfigError:
    """`error`, and the others with it, with the base in which its key stands; overrides count as
    the config's own.
    """
    own = not error.key or any(
        error.key.startswith(change.partition("=")[0]) for change in overrides
    )
    place = file if own else file_of(error.key, file)
    others = [_locate_error(other, path, file, overrides) for other in error.others]
    return ConfigError(
        error.key,
        error.problem,
        str(path) if place == file else f"{path} (from {place.name})",
        others,
    )


def apply_overrides(document: Mapping[str, Any], overrides: Sequence[str]) -> Mapping[str, Any]:
    """`document` with the overrides, the later ones last.

    Raises:
        ConfigError: an override that is no `key=value`, or that a variant of the sweep would undo.
    """
    for change in overrides:
        key, equals, text = change.partition("=")
        shown = change if len(change) <= 200 else f"{change[:197]}..."
        if not (key and equals):
            raise ConfigError("", "expected an override key=value, as in learning.lr=0.1", shown)
        given = {key: parse_yaml(text, shown)}
        locate(given, Path.cwd())
        document = override(document, key, given[key])
    return document


def question(path: str | Path) -> str:
    """The question of a config: the first line of its YAML file, if that is a comment.

    Raises:
        OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8-sig") as file:
        first = next((line for line in map(str.strip, file) if line not in ("", "---")), "")
    return first.lstrip("# ") if first.startswith("#") else ""
