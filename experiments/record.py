"""Writing a run's folder: filled in private, and given its name once it is complete."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from errno import EEXIST, ENOTEMPTY
from importlib import metadata
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.build import learning_seeds
from experiments.config import Config
from experiments.documents import text_of
from experiments.grid import Run, members
from experiments.results import INDEX
from experiments.store import FILES, MANIFEST, MESSAGES, OPTIONAL, SCHEMA, digest, folder, hash_of, run_id
from models.backends import describe
from models.cores import cores
from simulator import Outcome, Task
from simulator.trace import Fates

ROWS = 2**20  # of a table at once: ten million gradients are not to be in memory twice
STALE = 3600.0  # seconds after which nobody still writes an index, which takes milliseconds

LIBRARIES = ("laggard", "numpy", "pyarrow", "safetensors", "simpy", "torch")


def begin(config: Config, out: str | Path) -> Path:
    """A folder beside the run's own, for this process alone, with the run's `config.yaml`.

    Raises:
        OSError: it cannot be written.
    """
    path = folder(config, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path.parent)
    own = private(config, out)
    rmtree(own, ignore_errors=True)
    try:
        own.mkdir()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    _whole(own / "config.yaml", lambda part: part.write_text(text_of(config.resolved()), encoding="utf-8"))
    return own


def private(config: Config, out: str | Path) -> Path:
    """Where this process keeps the run until it is finished."""
    path = folder(config, out)
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")


def publish(own: Path, path: Path) -> None:
    """Give the folder `own` the name `path`; of what stood there before, files that are no run's are kept.

    Raises:
        OSError: it cannot be done.
    """
    aside = own.with_name(f"{own.name}.old")
    while True:
        rmtree(aside, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(aside)  # no folder can replace one that holds files
        try:
            own.rename(path)
        except OSError as error:
            if error.errno not in (EEXIST, ENOTEMPTY):
                raise
            continue  # another process came between the two
        break
    for file in aside.iterdir() if aside.is_dir() else ():
        if file.name not in (MANIFEST, *FILES, *OPTIONAL):
            file.rename(path / file.name)
    rmtree(aside, ignore_errors=True)


def finish(config: Config, path: Path, outcome: Outcome, task: Task, seconds: float) -> None:
    """Write a run's tables and weights, and then the manifest that makes it a finished run.

    Args:
        task: what it learnt, which knows on which device, and how.
        seconds: of wall time that it took.
    """
    each = members(config)
    swept = {key: np.array([each[member][key] for member in outcome.metrics["member"]]) for key in each[0]}
    _write_table(path / "metrics.parquet", outcome.metrics | swept)
    _write_table(path / "updates.parquet", outcome.updates)
    _write_table(path / "workers.parquet", outcome.workers)
    _write_table(path / "nodes.parquet", outcome.nodes)
    save_weights(path / "weights.safetensors", outcome.weights)
    if outcome.models is not None:
        save_weights(path / "models.safetensors", outcome.models)
    if outcome.message_log is not None:
        _write_table(path / MESSAGES, outcome.message_log)
    manifest = _manifest(config, outcome, task, seconds)
    manifest["files"] = {name: hash_of(path / name) for name in (*FILES, *OPTIONAL) if (path / name).is_file()}
    _write_json(path / MANIFEST, manifest)


def save_weights(path: Path, weights: Tensor) -> None:
    """Write models `(ensemble, params)`, or `(evaluations, ensemble, params)`."""
    from safetensors.torch import save_file

    _whole(path, lambda part: save_file({"weights": weights.detach().cpu().contiguous()}, part))


def write_index(runs: Sequence[Run], out: str | Path) -> None:
    """Note in `<out>/<name>` which runs make up a sweep, and their coordinates.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(out) / runs[0].config.name
    path.mkdir(parents=True, exist_ok=True)
    clear(path)
    entries = [{"run": run_id(run.config), "labels": run.labels} for run in runs]
    _write_json(path / INDEX, {"schema": SCHEMA, "runs": entries})


def clear(path: Path) -> None:
    """Remove what processes of this machine left in `path` when they were killed: what is not finished.

    Of another machine's processes nobody knows; their unfinished indices go after an hour, as do those of whom nobody
    knows the machine.
    """
    here = re.escape(platform.node())
    for left in path.iterdir():
        ours = re.fullmatch(rf"\.[0-9a-f]{{12}}\.{here}\.(\d+)(\.old)?", left.name)
        if ours and not _alive(int(ours[1])):
            rmtree(left, ignore_errors=True)
        index = re.fullmatch(rf"\.{re.escape(INDEX)}\.(?:{here}\.(\d+)|.+)\.part", left.name)
        if index and ((index[1] and not _alive(int(index[1]))) or _age(left) > STALE):
            with suppress(OSError):  # another process was faster
                left.unlink()


def _age(path: Path) -> float:
    """Seconds since a file was written; 0 where somebody has removed it meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _alive(pid: int) -> bool:
    """Whether there is such a process; where that cannot be asked, there is."""
    try:
        if os.name == "posix":
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _manifest(config: Config, outcome: Outcome, task: Task, seconds: float) -> dict[str, Any]:
    seeds = {"seed": config.seed, "cluster": config.seed if config.cluster.seed is None else config.cluster.seed}
    return {
        "schema": SCHEMA,
        "run": run_id(config),
        "config": digest(config),
        "settings": config.resolved(),
        "status": outcome.reached if outcome.reached in ("diverged", "stalled") else "finished",
        "reached": outcome.reached,
        "stalled": outcome.stalled,
        "mileage": outcome.mileage._asdict(),
        "gradients": outcome.gradients,
        "evaluated": outcome.evaluated,
        "messages": outcome.messages,
        "diverged": [
            {"member": member, **divergence._asdict()}
            for member, divergence in enumerate(outcome.diverged)
            if divergence is not None
        ],
        "seeds": {**seeds, "learning": learning_seeds(config)},
        **circumstances(config, task, seconds),
    }


def circumstances(config: Config, task: Task, seconds: float) -> dict[str, Any]:
    """How long a run took that ends now, and on and with what: what no two runs of a config need agree in."""
    return {
        "wall_seconds": round(seconds, 3),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": describe(getattr(task, "device", torch.device("cpu"))),
        "backend": getattr(task, "backend", None),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": config.threads or cores(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """The versions of laggard and of what it stands on, by the library's name."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # run from a checkout, without having been installed
            found[library] = "not installed"
    return found


def _write_table(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def table(columns: Mapping[str, np.ndarray]) -> pa.Table:
        arrays = {name: pa.array(column) for name, column in columns.items()}
        texts = {name: array.dictionary_encode() for name, array in arrays.items() if pa.types.is_string(array.type)}
        return pa.table(arrays | texts)

    def write(part: Path) -> None:
        pieces = columns.parts(ROWS) if isinstance(columns, Fates) else iter([columns])
        first = table(next(pieces))
        with parquet.ParquetWriter(part, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for piece in pieces:
                writer.write_table(table(piece))

    _whole(path, write)


def _write_json(path: Path, content: Any) -> None:
    _whole(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8"))


def _whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill another file in the same folder, and give it its name once it is complete."""
    part = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
