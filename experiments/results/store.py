"""Runs on disk: a folder is written under a temporary name, renamed when complete, and read by its
manifest.
"""

import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.experiments.config.config import digest_of_settings
from laggard.experiments.config.files import hash_of
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.plain import text_of
from laggard.experiments.results.atomic import whole_file
from laggard.experiments.results.manifest import read_manifest, seal
from laggard.experiments.results.result import (
    FILES,
    MANIFEST,
    MESSAGES,
    MODELS,
    OPTIONAL,
    RESTORES,
    SNAPSHOT,
    Result,
    ResultError,
)
from laggard.simulator import Outcome
from laggard.simulator.recording.trace import TraceColumns

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "sweep.json"
ROWS = 2**20  # of a table at once: ten million gradients are not to be in memory twice
STALE = 3600.0  # seconds after which a temporary index is abandoned; writing one takes milliseconds


def open_run(path: str | Path) -> Result:
    """The finished run in a folder, by its manifest alone: each file is checked when it is first
    read.

    Raises:
        ResultError: no finished run, written in another schema, or with a manifest that was
            changed.
    """
    try:
        return Result(Path(path), read_manifest(Path(path) / MANIFEST))
    except OSError:
        said = f"no finished run: it has no {MANIFEST}" if Path(path).is_dir() else "no such folder"
        raise ResultError(f"{path}: {said}") from None


def load_result(path: str | Path) -> Result:
    """The finished run in a folder; every file is checked against the manifest first.

    Raises:
        ResultError: no finished run, written in another schema, or a file that is missing or not
            the run's own.
    """
    result = open_run(path).verify()
    return replace(result, given=result.config)


def find_run(spec: RunSpec, out: str | Path) -> Result | None:
    """The finished run, if it is in `out` and intact, with its messages if the config asks for
    them.
    """
    try:
        result = open_run(spec.folder(out))
        lacks = spec.config.record.messages and not result.has_messages
        if lacks or result.manifest["config"] != spec.digest:
            return None
        return replace(result.verify(), given=spec.config, labels=spec.labels)
    except ResultError:
        return None


@contextmanager
def start_run(spec: RunSpec, out: str | Path, anew: bool = False) -> Iterator[Path]:
    """A temporary folder of this process beside the run's own, with `config.yaml`; it is removed
    afterwards.

    Where a process of this machine was killed, its last snapshot of the run is there too, unless
    `anew`. An interrupt leaves a folder that holds one.

    Raises:
        OSError: it cannot be written.
    """
    path, own = spec.folder(out), private_folder(spec, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    interrupted = False
    try:
        _take_over(path, own, anew)
        remove_stale(path.parent)
        with whole_file(own / "config.yaml") as part:
            part.write_text(text_of(spec.config.as_dict()), encoding="utf-8")
        yield own
    except OSError as error:  # the temporary name means nothing to the user
        if not error.filename:
            raise
        raise OSError(
            error.errno, error.strerror, str(error.filename).replace(str(own), str(path))
        ) from None
    except BaseException as error:
        interrupted = not isinstance(error, Exception)
        raise
    finally:
        if not (interrupted and (own / SNAPSHOT).is_file()):
            rmtree(own, ignore_errors=True)


def _take_over(path: Path, own: Path, anew: bool) -> None:
    """Make the folder `own`, empty but for the last snapshot that a process left of the run in
    `path`.

    Of two processes that find it only one can rename it.
    """
    own.mkdir(exist_ok=True)
    # of this process, which was interrupted, or of one that had its number
    for file in own.iterdir():
        if anew or file.name != SNAPSHOT:
            file.unlink()
    left = [
        folder / SNAPSHOT for folder in path.parent.glob(f".{path.name}.*") if _abandoned(folder)
    ]
    for snapshot in [] if anew else sorted(left, key=_age):
        if not (own / SNAPSHOT).exists():
            with suppress(FileNotFoundError):
                snapshot.rename(own / SNAPSHOT)


def private_folder(spec: RunSpec, out: str | Path) -> Path:
    """The folder in which this process writes the run until it is finished."""
    path = spec.folder(out)
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")


def finish(spec: RunSpec, own: Path, outcome: Outcome, facts: Mapping[str, Any]) -> None:
    """Write a run's tables and weights to `own`, and then the manifest, with `facts` in it: it is
    finished then.
    """
    own.stat()  # an error if it was removed; `whole_file` would make it anew, without its config
    member = outcome.metrics["member"]
    swept = {key: np.array([spec.members[row][key] for row in member]) for key in spec.members[0]}
    tables = {
        "metrics": {**outcome.metrics, **swept},
        "updates": outcome.updates,
        "workers": outcome.workers,
    }
    for name, table in {**tables, "nodes": outcome.nodes}.items():
        _write_table(own / f"{name}.parquet", table)
    save_weights(own / "weights.safetensors", outcome.weights)
    if outcome.models is not None:
        save_weights(own / MODELS, outcome.models)
    if outcome.message_log is not None:
        _write_table(own / MESSAGES, outcome.message_log)
    if outcome.restores:
        _write_table(own / RESTORES, outcome.restores)
    resolved = spec.config.as_dict()
    identity = {
        "run": spec.id,
        "config": spec.digest,
        "resolved": digest_of_settings(resolved),
        "settings": resolved,
    }
    files = {name: hash_of(own / name) for name in (*FILES, *OPTIONAL) if (own / name).is_file()}
    write_sealed(own / MANIFEST, {**identity, **facts, "files": files})


def save_weights(path: Path, weights: "Tensor") -> None:
    """Write models `(ensemble, params)`, or `(evaluations, ensemble, params)`."""
    from safetensors.torch import save

    # save_file makes files of mode 0600, and its errors name no file
    with whole_file(path) as part:
        part.write_bytes(save({"weights": weights.detach().cpu().contiguous()}))


def publish(own: Path, path: Path) -> None:
    """Give the folder `own` the name `path`; files of what stood there before that are no run's are
    moved over.

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
            continue  # another process created it in between
        break
    for file in aside.iterdir() if aside.is_dir() else ():
        if file.name not in (MANIFEST, SNAPSHOT, *FILES, *OPTIONAL):
            file.rename(path / file.name)
    rmtree(aside, ignore_errors=True)


def remove_stale(path: Path) -> None:
    """Remove what processes of this machine left in `path` when they were killed: what is not
    finished.

    Snapshots stay, from which runs can go on, until these are finished. Of another machine's
    processes nobody knows; their unfinished indices go after an hour, as do those of whom nobody
    knows the machine.
    """
    here = re.escape(platform.node())
    for left in path.iterdir():
        if _abandoned(left) and not (
            (left / SNAPSHOT).is_file() and not (path / left.name[1:13] / MANIFEST).is_file()
        ):
            rmtree(left, ignore_errors=True)
        index = re.fullmatch(rf"\.{re.escape(INDEX)}\.(?:{here}\.(\d+)|.+)\.part", left.name)
        if index and ((index[1] and not alive(int(index[1]))) or _age(left) > STALE):
            with suppress(OSError):  # another process removed it first
                left.unlink()


def _abandoned(folder: Path) -> bool:
    """Whether a process of this machine that has ended wrote a run there."""
    ours = re.fullmatch(
        rf"\.[0-9a-f]{{12}}\.{re.escape(platform.node())}\.(\d+)(\.old)?", folder.name
    )
    return ours is not None and not alive(int(ours[1]))


def _age(path: Path) -> float:
    """Seconds since a file was written; 0 if it has been removed meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def alive(pid: int) -> bool:
    """Whether the process exists; true where that cannot be determined."""
    try:
        if os.name == "posix":
            os.kill(pid, 0)
    except (PermissionError, OverflowError):
        return True
    except ProcessLookupError:
        return False
    return True


def _write_table(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def table(columns: Mapping[str, np.ndarray]) -> pa.Table:
        arrays = {name: pa.array(column) for name, column in columns.items()}
        texts = {
            name: array.dictionary_encode()
            for name, array in arrays.items()
            if pa.types.is_string(array.type)
        }
        return pa.table(arrays | texts)

    pieces = columns.parts(ROWS) if isinstance(columns, TraceColumns) else iter([columns])
    first = table(next(pieces))
    with (
        whole_file(path) as part,
        parquet.ParquetWriter(part, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(table(piece))


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that holds the hash of itself, whole or not at all."""
    with whole_file(path) as part:
        part.write_text(json.dumps(seal(content), indent=1) + "\n", encoding="utf-8")
