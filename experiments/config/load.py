"""Loads a config from a file and the command line, and validates every run of it; reads configs of version 0.1."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laggard.experiments.config.config import Config
from laggard.experiments.config.documents import find_config, override, read_based
from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure
from laggard.experiments.config.files import locate
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.plain import parse_yaml
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.schema import DOWNPOUR, LAW_KEYS, MOVED, SYNCHRONOUS


def load(path: str | Path, *overrides: str) -> Config:
    """The config in a YAML file, with `key=value` overrides; all runs that it expands to have been validated.

    `example:quickstart` is a config that laggard brings. The key `base` names another config, whose keys are changed.
    Modules of one's own that it names are found on Python's path, in the current directory and beside the file. Names
    of files are relative to its folder, in overrides to the current directory.

    Args:
        overrides: a dotted key and a YAML value, as in `learning.lr=0.1` or `sweep.learning.lr=[0.1, 0.2]`. A key
            that `sweep` lists is fixed by its override and swept no more.

    Raises:
        ConfigError: one line with the file, the dotted key, what was expected and what came.
    """
    file = find_config(path)
    name = re.sub(r"[^\w .-]", "-", file.stem).lstrip(" .-")
    written = read_based(file)
    document: Mapping[str, Any] = {**({"name": name} if name else {}), "question": question(file), **written}
    look_in(Path.cwd(), file.resolve().parent)
    try:
        config = fill_swept_keys(apply_overrides(document, overrides))
        runs(config)
    except ConfigError as error:
        raise error if error.where else error.relocate(where=str(path)) from None
    except UNEXPECTED as error:
        raise ConfigError("", describe_failure(error), str(path)) from None
    return config


def apply_overrides(document: Mapping[str, Any], overrides: Sequence[str]) -> Mapping[str, Any]:
    """`document` with the overrides, the later ones last.

    Raises:
        ConfigError: an override that is no `key=value`, or that a variant of the sweep would undo.
    """
    for change in overrides:
        key, equals, text = change.partition("=")
        if not (key and equals):
            raise ConfigError("", "expected an override key=value, as in learning.lr=0.1", change)
        given = {key: parse_yaml(text, change)}
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


def text_of(document: Mapping[str, Any]) -> str:
    """`document` as YAML, in its own order, short lists and mappings on one line."""
    from ruamel.yaml import YAML

    yaml, stream = YAML(), io.StringIO()
    yaml.default_flow_style, yaml.width = None, 120
    yaml.dump(document, stream)
    return stream.getvalue()


def upgrade(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of version 0.1 with the current keys of its `algorithm` and of `cluster.compute`.

    Any other config comes back as it is, also one whose combination of old keys no method has now.
    """
    cluster = document.get("cluster")
    law = cluster.get("compute") if isinstance(cluster, Mapping) else None
    if isinstance(cluster, Mapping) and isinstance(law, Mapping) and law.get("law") in LAW_KEYS:
        keys = LAW_KEYS[law["law"]]
        compute = {keys.get(key, key): value for key, value in law.items()}
        document = {**document, "cluster": {**cluster, "compute": compute}}
    algorithm = document.get("algorithm")
    if not isinstance(algorithm, Mapping) or not set(MOVED.get(algorithm.get("name", ""), ())) & set(algorithm):
        return document
    now = _upgrade_async_ps(algorithm) if algorithm["name"] == "async_ps" else _upgrade_sync_ps(algorithm)
    return document if now is None else {**document, "algorithm": now}


def _upgrade_async_ps(old: Mapping[str, Any]) -> dict[str, Any] | None:
    own, rest = _split(old, DOWNPOUR)
    if {**own, "local_rule": "sgd"} == DOWNPOUR:  # where every step fetches, the local rule has no effect
        return rest
    return {**rest, **own, "name": "downpour"} if rest.pop("accumulate", 1) == 1 else None


def _upgrade_sync_ps(old: Mapping[str, Any]) -> dict[str, Any] | None:
    own, rest = _split(old, SYNCHRONOUS)
    if own["average"] != "gradients":
        return None if own.pop("cancel") else {**rest, **own, "name": "local_sgd"}
    if own["wait_for"] is None and not own["cancel"]:
        return {**rest, "accumulate": own["local_steps"]}
    wait_for, cancel = own["wait_for"], own["cancel"]
    return {**rest, "name": "k_sync", "wait_for": wait_for, "cancel": cancel} if own["local_steps"] == 1 else None


def _split(old: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the keys that have moved, and everything else."""
    own = {key: old.get(key, default) for key, default in defaults.items()}
    return own, {key: value for key, value in old.items() if key not in defaults}
