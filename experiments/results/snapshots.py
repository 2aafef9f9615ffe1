"""Snapshots in files, from which a killed run resumes and a finished one is continued."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from laggard.experiments.config.config import digest_of
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.files import ResultError, whole_file
from laggard.experiments.results.result import Result, open_run
from laggard.experiments.results.store import SNAPSHOT
from laggard.simulator import Stop
from laggard.simulator.engine.snapshots import Snapshot, SnapshotError


def find_shorter(spec: RunSpec, out: str | Path) -> Path:
    """The snapshot of the longest finished run that differs from `spec` in a shorter `stop` alone.

    Raises:
        ConfigError: there is none.
    """
    folder = spec.folder(out).parent
    updates: dict[Path, float] = {}
    for file in folder.glob(f"[!.]*/{SNAPSHOT}"):
        try:
            result = open_run(file.parent)
            if _is_shorter_run(result, spec):
                updates[file] = result.manifest["mileage"]["updates"]
        except ResultError:
            continue
    if not updates:
        expected = "expected a finished run with a snapshot (`keep_snapshot`)"
        difference = "that differs in a shorter stop alone"
        raise ConfigError("`continues`", f"{expected} {difference}, got none in {folder}")
    return max(updates, key=lambda file: updates[file])


def _is_shorter_run(result: Result, spec: RunSpec) -> bool:
    stop = spec.config.stop
    extended = result.config.model_copy(update={"stop": stop})
    if digest_of(extended) != spec.digest:
        return False
    return is_shorter(result.config.stop.build(), stop.build())


def is_shorter(stop: Stop, longer: Stop) -> bool:
    """Whether a run until `longer` passes through every moment of a run until `stop`."""
    for name, limit in vars(stop).items():
        later = vars(longer)[name]
        # An accuracy cannot be raised: evaluations at which the shorter run did not stop decide.
        if name == "accuracy" or limit is None or later is None:
            if limit != later:
                return False
        elif limit > later:
            return False
    return True


def write_snapshot(path: Path, snapshot: Snapshot, made_by: Mapping[str, Any]) -> None:
    """Write a snapshot; `made_by` names the machine and the versions.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.stat()  # raises if the run's folder was removed: `whole_file` would create it
    tensors = _without_sharing(snapshot.tensors)
    metadata = {
        "updates": str(snapshot.updates),
        "fingerprint": snapshot.fingerprint,
        "sha256": _digest_of_values(tensors),
        "made_by": json.dumps(made_by),
    }
    numbered = {str(number): tensor for number, tensor in enumerate(tensors)}
    with whole_file(path) as file:
        file.touch()
        usual_mode = file.stat().st_mode
        try:
            save_file(numbered, file, metadata)
        except SafetensorError as error:  # such as a full disk
            raise OSError(str(error)) from None
        file.chmod(usual_mode)  # safetensors lets the owner alone read it


def _without_sharing(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors on the CPU. Only tensors that share memory are copied, since safetensors refuses
    them.

    Tensors may be most of a run's memory, and copies of all would double it.
    """
    own = []
    taken = set()
    for tensor in tensors:
        tensor = tensor.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        own.append(tensor)
    return own


def read_snapshot(path: Path, made_by: Mapping[str, Any]) -> Snapshot:
    """The snapshot in a file.

    Raises:
        SnapshotError: it is damaged or something else, or was made on another kind of machine or by
            other versions, where the last bits of a sum may differ.
    """
    try:
        with safe_open(path, "pt") as stored:
            metadata = stored.metadata() or {}
            count = len(stored.keys())
            tensors = [stored.get_tensor(str(number)) for number in range(count)]
        updates = int(metadata["updates"])
        fingerprint = metadata["fingerprint"]
        writer = json.loads(metadata["made_by"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise SnapshotError(f"it cannot be read ({problem})") from None
    if _digest_of_values(tensors) != metadata.get("sha256"):
        raise SnapshotError("it was changed: its SHA-256 differs")
    changes = {key: value for key, value in made_by.items() if writer.get(key) != value}
    if changes:
        before = {key: writer.get(key) for key in changes}
        raise SnapshotError(f"it was taken under {before}, and this is {changes}")
    return Snapshot(updates, fingerprint, tensors)


def _digest_of_values(tensors: Sequence[Tensor]) -> str:
    digest = sha256()
    for tensor in tensors:
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
