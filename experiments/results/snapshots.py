"""Snapshots of runs in files: where a run that was killed, or that is to be longer, goes on
from.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from laggard.experiments.config.config import digest_of
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.atomic import whole_file
from laggard.experiments.results.result import SNAPSHOT, ResultError
from laggard.experiments.results.store import open_run
from laggard.simulator import Stop
from laggard.simulator.engine.snapshots import Snapshot, SnapshotError


def find_shorter(spec: RunSpec, out: str | Path) -> Path:
    """The snapshot of the longest finished run that differs from `spec` in a shorter `stop` alone.

    Raises:
        ConfigError: there is none.
    """
    folder, found = spec.folder(out).parent, dict[Path, float]()
    for file in folder.glob(f"[!.]*/{SNAPSHOT}"):
        with suppress(ResultError):
            result = open_run(file.parent)
            same = (
                digest_of(result.config.model_copy(update={"stop": spec.config.stop}))
                == spec.digest
            )
            if same and is_shorter(result.config.stop.build(), spec.config.stop.build()):
                found[file] = result.manifest["mileage"]["updates"]
    if not found:
        expected = "expected a finished run that has a snapshot (--keep-snapshot) and differs in a shorter stop alone"
        raise ConfigError("--continue", f"{expected}, got none in {folder}")
    return max(found, key=lambda file: found[file])


def is_shorter(stop: Stop, longer: Stop) -> bool:
    """Whether a run by `longer` passes through each moment of a run by `stop` before its end."""
    limits = [
        (value, vars(longer)[name]) for name, value in vars(stop).items() if name != "accuracy"
    ]
    none_lower = all(
        after is before if None in (before, after) else before <= after for before, after in limits
    )
    return none_lower and stop.accuracy == longer.accuracy


def write_snapshot(path: Path, snapshot: Snapshot, made_by: Mapping[str, Any]) -> None:
    """Write a snapshot, whole or not at all; `made_by` says on which machine and by which versions.

    Raises:
        OSError: it cannot be written.
    """
    # an error if it was removed; `whole_file` would make it anew, without the run's config
    path.parent.stat()
    # none shares memory
    copies = [tensor.detach().to("cpu", copy=True).contiguous() for tensor in snapshot.tensors]
    facts = {
        "updates": str(snapshot.updates),
        "fingerprint": snapshot.fingerprint,
        "sha256": _digest_of_values(copies),
    }
    stored = save(
        {str(number): copy for number, copy in enumerate(copies)},
        facts | {"made_by": json.dumps(made_by)},
    )
    with whole_file(path) as part:
        part.write_bytes(stored)


def read_snapshot(path: Path, made_by: Mapping[str, Any]) -> Snapshot:
    """The snapshot in a file.

    Raises:
        SnapshotError: it is none, is damaged, or was made on another kind of machine or by other
            versions, where the last bits of a sum may differ.
    """
    try:
        with safe_open(path, "pt") as stored:
            facts, names = stored.metadata() or {}, stored.keys()
            tensors = [stored.get_tensor(str(number)) for number in range(len(names))]
        updates, fingerprint = int(facts["updates"]), facts["fingerprint"]
        before = json.loads(facts["made_by"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise SnapshotError(f"it cannot be read ({' '.join(str(error).split())})") from None
    if _digest_of_values(tensors) != facts.get("sha256"):
        raise SnapshotError("it is not as it was written: its SHA-256 is another")
    if before != made_by:
        raise SnapshotError(f"it was taken under {before}, and this is {dict(made_by)}")
    return Snapshot(updates, fingerprint, tensors)


def _digest_of_values(tensors: Sequence[Tensor]) -> str:
    digest = sha256()
    for tensor in tensors:
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
