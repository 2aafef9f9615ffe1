"""Folders of runs and sweeps: `<out>/<name>/<run id>` and the index `<out>/<name>/sweep.json`.

A run is written to a hidden folder of this process, which is renamed when the run is complete.
Only complete runs have a manifest, and it is written last.
"""

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from laggard.experiments.config.config import digest_of_settings
from laggard.experiments.config.document import text_of
from laggard.experiments.config.files import hash_of
from laggard.experiments.config.grid import RunSpec, printable_labels
from laggard.experiments.results.files import (
    ResultError,
    read_sealed,
    whole_file,
    write_sealed,
    write_table,
    write_weights,
)
from laggard.simulator import Outcome

INDEX = "sweep.json"
MANIFEST = "manifest.json"
TABLES = ("metrics", "updates", "workers", "nodes")
FILES = ("config.yaml", *(f"{table}.parquet" for table in TABLES), "weights.safetensors")
MESSAGES, MODELS, RESTORES = "messages.parquet", "models.safetensors", "restores.parquet"
NOTES = "notes.parquet"
OPTIONAL = (MESSAGES, MODELS, RESTORES, NOTES)
"""Files that a run has where its config asks for them, or its method writes them."""
SNAPSHOT = "snapshot.safetensors"
"""The last snapshot of a run that is being simulated, or that was asked to keep it. It is not in
the manifest.
"""
FIGURE_ENDINGS = (".png", ".svg", ".pdf", ".html")
"""Endings of the figures and reports of a sweep, beside its index."""
ABANDONED_SECONDS = 3600.0
"""Age of an abandoned temporary index; writing one takes milliseconds."""


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
RunId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


class Manifest(BaseModel):
    """The entries of a manifest that are read, with strict types."""

    model_config = ConfigDict(strict=True)
    run: RunId
    config: Digest
    resolved: Digest
    settings: dict[str, Any]
    status: Literal["finished", "diverged", "stalled"]
    reached: str
    stalled: str | None
    mileage: dict[str, float]
    gradients: dict[str, int]
    evaluated: int
    messages: dict[str, int]
    unanswered: int = 0
    diverged: list[dict[str, float]]
    seeds: dict[str, int | list[int]]
    wall_seconds: float
    ended: str = ""
    backend: str | None = None
    arithmetic: str = ""
    data: str | None = None
    commit: str = ""
    device: str
    cpu_capability: str
    threads: int
    versions: dict[str, str]
    files: dict[str, Digest]


REQUIRED_KEYS = {
    "mileage": {"time", "updates"},
    "gradients": {"applied", "dropped", "cancelled"},
    "seeds": {"seed", "cluster", "learning"},
    "diverged": {"member", "updates"},
    "versions": {"laggard", "torch"},
}
"""Keys that a mapping in a manifest, or each mapping in a list, has at least."""


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest in a file.

    Raises:
        OSError: it cannot be read.
        ResultError: it is damaged, of another schema, or something else.
    """
    manifest: dict[str, Any] = read_sealed(path, "the manifest of a run")
    problem = f"{path}: not the manifest of a run"
    try:
        Manifest.model_validate(manifest)
    except ValidationError:
        raise ResultError(problem) from None
    for key, names in REQUIRED_KEYS.items():
        entries = manifest[key]
        if not isinstance(entries, list):
            entries = [entries]
        if not all(names <= entry.keys() for entry in entries):
            raise ResultError(problem)
    return manifest


# ------------------------------------------------------------------------------------------------
# the folder of a run


def private_folder(spec: RunSpec, out: str | Path) -> Path:
    """The hidden folder in which this process writes the run until it is finished."""
    path = spec.folder(out)
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")


@contextmanager
def start_run(
    spec: RunSpec, out: str | Path, fresh: bool = False, scan: bool = True
) -> Iterator[Path]:
    """Yield the private folder of a run, which holds `config.yaml`; remove the folder afterwards.

    The last snapshot of a process of this host that was killed is moved there, unless `fresh`.
    After an interrupt the folder stays if it holds a snapshot.

    Args:
        scan: whether to look among all runs for what killed processes left. A sweep does so once,
            by `remove_stale`: before each run it would take time quadratic in their number.

    Raises:
        OSError: it cannot be written.
    """
    path = spec.folder(out)
    private = private_folder(spec, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    interrupted = False
    try:
        _prepare_folder(private, fresh)
        if scan and not fresh:
            _take_snapshot(path, private)
        if scan:
            remove_stale(path.parent)
        with whole_file(private / "config.yaml") as file:
            file.write_text(text_of(spec.config.as_dict()), encoding="utf-8")
        yield private
    except OSError as error:
        if not error.filename:
            raise
        # the user does not know the private name
        shown = str(error.filename).replace(str(private), str(path))
        raise OSError(error.errno, error.strerror, shown) from None
    except BaseException as error:
        interrupted = not isinstance(error, Exception)
        raise
    finally:
        resumable = interrupted and (private / SNAPSHOT).is_file()
        if not resumable:
            rmtree(private, ignore_errors=True)


def _prepare_folder(private: Path, fresh: bool) -> None:
    """Create the private folder, empty except for a snapshot of this process unless `fresh`."""
    if private.is_symlink():  # not made by laggard: the files behind it are another's
        raise OSError(EEXIST, "expected no link where the run is written", str(private))
    private.mkdir(exist_ok=True)
    # files of this process, which was interrupted, or of an earlier one with the same number
    for file in private.iterdir():
        if fresh or file.name != SNAPSHOT:
            file.unlink()


def _take_snapshot(path: Path, private: Path) -> None:
    """Move the latest snapshot that killed processes left of the run in `path`, if any."""
    folders = filter(_is_abandoned, path.parent.glob(f".{path.name}.*"))
    snapshots = [folder / SNAPSHOT for folder in folders]
    for snapshot in sorted(snapshots, key=_age):
        if (private / SNAPSHOT).exists():
            return
        # two processes may find the same snapshot: only one can rename it
        with suppress(FileNotFoundError):
            snapshot.rename(private / SNAPSHOT)


def finish(spec: RunSpec, private: Path, outcome: Outcome, facts: Mapping[str, Any]) -> None:
    """Write tables, weights and last the manifest, with `facts` in it: the run is finished then."""
    private.stat()  # raises if it was removed: `whole_file` would create it without its config
    tables = {
        "metrics": _with_swept_columns(outcome.metrics, spec),
        "updates": outcome.updates,
        "workers": outcome.workers,
        "nodes": _with_swept_columns(outcome.nodes, spec),
    }
    for name, table in tables.items():
        write_table(private / f"{name}.parquet", table)
    write_weights(private / "weights.safetensors", outcome.weights)
    if outcome.models is not None:
        write_weights(private / MODELS, outcome.models)
    if outcome.message_log is not None:
        write_table(private / MESSAGES, outcome.message_log)
    if outcome.restores:
        write_table(private / RESTORES, outcome.restores)
    if outcome.notes:
        write_table(private / NOTES, _with_swept_columns(outcome.notes, spec))
    names = [name for name in (*FILES, *OPTIONAL) if (private / name).is_file()]
    settings = spec.config.as_dict()
    manifest = {
        "run": spec.id,
        "config": spec.digest,
        "resolved": digest_of_settings(settings),
        "settings": settings,
        **facts,
        "files": {name: hash_of(private / name) for name in names},
    }
    write_sealed(private / MANIFEST, manifest)


def _with_swept_columns(table: Mapping[str, np.ndarray], spec: RunSpec) -> dict[str, np.ndarray]:
    """A table of members with a column for each key in which they differ; an empty one stays so."""
    columns = dict(table)
    if not table:
        return columns
    members = spec.members
    for key in members[0]:
        columns[key] = np.array([members[member][key] for member in table["member"]])
    return columns


def publish(private: Path, path: Path) -> None:
    """Rename the private folder to `path`; move other files than a run's from an earlier folder to
    it.

    Raises:
        OSError: a folder or a file cannot be moved.
    """
    replaced = private.with_name(f"{private.name}.old")
    while True:
        rmtree(replaced, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(replaced)  # a folder cannot replace one that holds files
        try:
            private.rename(path)
            break
        except OSError as error:
            # another process created `path` between the two renames: try again
            if error.errno not in (EEXIST, ENOTEMPTY):
                raise
    if replaced.is_dir():
        run_files = {MANIFEST, SNAPSHOT, *FILES, *OPTIONAL}
        for file in replaced.iterdir():
            if file.name not in run_files:
                file.rename(path / file.name)
    rmtree(replaced, ignore_errors=True)


def remove_stale(path: Path) -> frozenset[str]:
    """Remove unfinished runs and indices of processes of this host that were killed.

    A folder with a snapshot stays until its run is finished: the run can resume from it. Temporary
    index files of other hosts are removed after one hour.

    Returns:
        The ids of the unfinished runs of which processes of this host have snapshots. Whether a
        process has ended is asked when its run starts: a killed one lives for some milliseconds.
    """
    resumable = set()
    for file in path.glob(".*"):
        process = _owner_of(file)
        if process is not None:
            # Private folders are named after a dot and the twelve digits of the run.
            run = file.name[1:13]
            finished = (path / run / MANIFEST).is_file()
            if not finished and (file / SNAPSHOT).is_file():
                resumable.add(run)
            elif not alive(process):
                rmtree(file, ignore_errors=True)
        elif _is_stale_index(file):
            with suppress(OSError):  # another process removed it first
                file.unlink()
    return frozenset(resumable)


def _owner_of(folder: Path) -> int | None:
    """The process of this host that owns a private folder; None for any other file.

    A link does not count: laggard makes no links, so somebody else owns its target.
    """
    if folder.is_symlink():
        return None
    host = re.escape(platform.node())
    match = re.fullmatch(rf"\.[0-9a-f]{{12}}\.{host}\.(\d+)(\.old)?", folder.name)
    if match is None:
        return None
    return int(match[1])


def _is_abandoned(folder: Path) -> bool:
    """Whether a folder is the private folder of a process of this host that has ended."""
    process = _owner_of(folder)
    return process is not None and not alive(process)


def _is_stale_index(file: Path) -> bool:
    host = re.escape(platform.node())
    name = rf"\.{re.escape(INDEX)}\.(?:{host}\.(\d+)|.+)\.part"
    match = re.fullmatch(name, file.name)
    if match is None:
        return False
    process = match[1]
    if process and not alive(int(process)):
        return True
    return _age(file) > ABANDONED_SECONDS


def _age(path: Path) -> float:
    """Seconds since a file was written; 0 if it has been removed meanwhile."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def alive(process: int) -> bool:
    """Whether the process exists; true where that cannot be determined."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except (PermissionError, OverflowError):
        return True
    except ProcessLookupError:
        return False
    return True


# ------------------------------------------------------------------------------------------------
# the index of a sweep


def write_index(planned: Sequence[RunSpec], out: str | Path) -> Path | None:
    """Write the index of a sweep to `<out>/<name>`: its runs and their labels.

    The index of another grid in that folder is moved to a folder `sweep-...` in it, with its
    figures and reports. Those of this grid are moved back from there.

    Returns:
        The folder to which another grid was moved, if there was one.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(out) / planned[0].config.name
    entries = _index_entries(planned)
    path.mkdir(parents=True, exist_ok=True)
    remove_stale(path)
    moved = None
    present = _present_entries(path / INDEX)
    if present and present != entries:
        moved = path / _grid_folder(present)
        _move_figures(path, moved)
    earlier = path / _grid_folder(entries)
    if earlier.is_dir():
        _move_figures(earlier, path)
        with suppress(OSError):  # the folder holds other files
            earlier.rmdir()
    if not _is_current(path / INDEX, entries):
        write_sealed(path / INDEX, {"runs": entries})
    return moved


def sweep_folder(planned: Sequence[RunSpec], out: str | Path) -> Path:
    """The folder of a sweep's index: `<out>/<name>`, or `sweep-...` in it after another sweep."""
    path = Path(out) / planned[0].config.name
    moved = path / _grid_folder(_index_entries(planned))
    if (moved / INDEX).is_file():
        return moved
    return path


def folder_of_runs(path: Path) -> Path:
    """The folder that holds the runs of the index in `path`."""
    if re.fullmatch(r"sweep-[0-9a-f]{12}", path.name):
        return path.parent
    return path


def read_index(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The runs in the index of a sweep, and their labels.

    Raises:
        OSError: it cannot be read.
        ResultError: it was changed, has another schema, or is not an index.
    """
    runs = []
    try:
        for entry in read_sealed(path, "the index of a sweep")["runs"]:
            labels = printable_labels(entry["labels"])
            if not _is_index_entry(entry["run"], labels):
                raise TypeError
            runs.append((entry["run"], labels))
    except (KeyError, TypeError, AttributeError):
        runs = []
    if not runs:
        raise ResultError(f"{path}: not the index of a sweep")
    return runs


def _is_index_entry(run: str, labels: Mapping[str, Any]) -> bool:
    plain = bool | int | float | str | None
    has_plain_labels = all(isinstance(label, plain) for label in labels.values())
    return has_plain_labels and re.fullmatch("[0-9a-f]{12}", run) is not None


def _index_entries(planned: Sequence[RunSpec]) -> list[dict[str, Any]]:
    return [{"run": spec.id, "labels": dict(spec.labels)} for spec in planned]


def _present_entries(file: Path) -> Any:
    """The entries of the index in a file; None if it is absent or damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return json.loads(file.read_bytes())["runs"]
    return None


def _is_current(file: Path, entries: Any) -> bool:
    """Whether the index is intact and has these entries: a finished sweep needs no writing."""
    try:
        return bool(read_sealed(file, "the index of a sweep")["runs"] == entries)
    except (OSError, ResultError, KeyError):
        return False


def _grid_folder(entries: Any) -> str:
    text = json.dumps(entries, sort_keys=True)
    return f"sweep-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _move_figures(source: Path, target: Path) -> None:
    """Move an index, and the figures and reports beside it, to another folder."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        hidden = file.name.startswith(".")
        belongs = file.name == INDEX or file.suffix in FIGURE_ENDINGS
        if belongs and not hidden and file.is_file():
            with suppress(FileNotFoundError):  # another process moved it first
                file.replace(target / file.name)
