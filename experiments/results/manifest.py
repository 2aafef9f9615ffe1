"""Manifests and indices: JSON that holds the SHA-256 of itself, and the types of what is read from
a manifest.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from laggard.experiments.config.errors import format_value
from laggard.experiments.results.result import SCHEMA, ResultError

SEAL = "self"
OLDER = 2  # the schema without a hash of itself


class Stored(BaseModel):
    """A part of a manifest: what is read from it, typed strictly."""

    model_config = ConfigDict(strict=True)


class ProgressEntry(Stored):
    """How far the run came."""

    time: float
    updates: float


class DivergedEntry(Stored):
    """A member of the ensemble that diverged, and after how many updates."""

    member: int
    updates: float


class SeedsEntry(Stored):
    """The seeds of a run and its members."""

    seed: int
    cluster: int
    learning: list[int]


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Stored):
    """What every manifest has, also one of version 0.1."""

    run: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    config: Digest
    resolved: Digest | None = None
    settings: dict[str, Any] | None = None
    status: Literal["finished", "diverged", "stalled"]
    reached: str
    stalled: str | None
    mileage: ProgressEntry
    gradients: dict[str, int]
    evaluated: int
    messages: dict[str, int]
    diverged: list[DivergedEntry]
    seeds: SeedsEntry
    wall_seconds: float
    ended: str = ""
    device: str
    cpu_capability: str
    threads: int
    versions: dict[str, str]
    files: dict[str, Digest]


NAMES = {"gradients": {"applied", "dropped", "cancelled"}, "versions": {"laggard", "torch"}}
"""What mappings from any name to a number or string hold at least."""


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest in a file.

    Raises:
        OSError: it cannot be read.
        ResultError: it is none, is damaged, or has another schema.
    """
    manifest = read_sealed(path, "the manifest of a run")
    try:
        Manifest.model_validate(manifest)
        if all(names <= manifest[key].keys() for key, names in NAMES.items()):
            return manifest  # type: ignore[no-any-return]
    except ValidationError:
        pass
    raise ResultError(f"{path}: not the manifest of a run")


def read_sealed(path: Path, what: str) -> Any:
    """The mapping in a JSON file that `seal` wrote, or that was written before there were seals.

    Raises:
        OSError: it cannot be read.
        ResultError: it has another schema, or is not as it was written.
    """
    try:
        content = json.loads(path.read_bytes())
        schema = content["schema"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ResultError(f"{path}: not {what}") from None
    if schema not in (OLDER, SCHEMA) or isinstance(schema, bool | float):
        raise ResultError(
            f"{path}: expected schema {SCHEMA}, got {format_value(schema)}: run it again"
        )
    if content.get(SEAL) != (_hash(content) if schema == SCHEMA else None):
        raise ResultError(f"{path}: not as it was written: its own SHA-256 is another")
    return content


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with the schema and the SHA-256 of all else in it."""
    document = {"schema": SCHEMA, **content}
    return {**document, SEAL: _hash(document)}


def _hash(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
