"""Snapshots of runs in files: where a run that was killed, or that is to be longer, goes on from."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from laggard.experiments.results.atomic import whole_file
from laggard.simulator.engine.snapshots import Snapshot, SnapshotError


def write_snapshot(path: Path, snapshot: Snapshot, made_by: Mapping[str, Any]) -> None:
    """Write a snapshot, whole or not at all; `made_by` says on which machine and by which versions.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.stat()  # an error if it was removed; `whole_file` would make it anew, without the run's config
    copies = [tensor.detach().to("cpu", copy=True).contiguous() for tensor in snapshot.tensors]  # none shares memory
    facts = {"updates": str(snapshot.updates), "fingerprint": snapshot.fingerprint, "sha256": _digest_of_values(copies)}
    stored = save({str(number): copy for number, copy in enumerate(copies)}, facts | {"made_by": json.dumps(made_by)})
    with whole_file(path) as part:
        part.write_bytes(stored)


def read_snapshot(path: Path, made_by: Mapping[str, Any]) -> Snapshot:
    """The snapshot in a file.

    Raises:
        SnapshotError: it is none, is damaged, or was made on another kind of machine or by other versions, where the
            last bits of a sum may differ.
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
