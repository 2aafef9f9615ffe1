"""The index of a sweep: its runs and their coordinates, `sweep.json`; one for each grid under a
name.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from laggard.experiments.config.grid import RunSpec, printable_labels
from laggard.experiments.results.manifest import read_sealed
from laggard.experiments.results.result import ResultError
from laggard.experiments.results.store import INDEX, remove_stale, write_sealed

PAGES = (".png", ".svg", ".pdf", ".html")  # what is drawn of a sweep beside its index


def write_index(planned: Sequence[RunSpec], out: str | Path) -> Path | None:
    """Write the index of a sweep in `<out>/<name>`: its runs and their coordinates.

    The index of another grid that stands there, and its figures and pages, are set aside in a
    folder of their own; what had been set aside of this grid comes back.

    Returns:
        That folder, where another grid was set aside.

    Raises:
        OSError: it cannot be written.
    """
    path, entries = Path(out) / planned[0].config.name, _entries(planned)
    path.mkdir(parents=True, exist_ok=True)
    remove_stale(path)
    other = None
    # there is none, or it is damaged
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        present = json.loads((path / INDEX).read_bytes())
        other = present["runs"] if isinstance(present, dict) else present
    if aside := path / _folder_of(other) if other and other != entries else None:
        _move_pages(path, aside)
    if (own := path / _folder_of(entries)).is_dir():
        _move_pages(own, path)
        with suppress(OSError):  # it holds other files
            own.rmdir()
    write_sealed(path / INDEX, {"runs": entries})
    return aside


def sweep_folder(planned: Sequence[RunSpec], out: str | Path) -> Path:
    """Where the index of a sweep is: `<out>/<name>`, or a folder in it where another sweep has been
    started since.
    """
    path = Path(out) / planned[0].config.name
    aside = path / _folder_of(_entries(planned))
    return aside if (aside / INDEX).is_file() else path


def folder_of_runs(path: Path) -> Path:
    """The folder that holds the runs of the index in `path`."""
    return path.parent if re.fullmatch(r"sweep-[0-9a-f]{12}", path.name) else path


def _entries(planned: Sequence[RunSpec]) -> list[dict[str, Any]]:
    return [{"run": spec.id, "labels": dict(spec.labels)} for spec in planned]


def _folder_of(entries: Any) -> str:
    return f"sweep-{hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:12]}"


def _move_pages(source: Path, target: Path) -> None:
    """Move an index, and the figures and pages beside it, to another folder."""
    target.mkdir(exist_ok=True)
    for file in source.iterdir():
        if (
            file.is_file()
            and (file.name == INDEX or file.suffix in PAGES)
            and not file.name.startswith(".")
        ):
            with suppress(FileNotFoundError):  # another process did it
                file.replace(target / file.name)


def read_index(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The runs that the index of a sweep lists, and their labels.

    Raises:
        ResultError: it is none, was changed, or has another schema.
    """
    try:
        text = path.read_bytes()  # the oldest are lists
        entries = (
            json.loads(text)
            if text.startswith(b"[")
            else read_sealed(path, "the index of a sweep")["runs"]
        )
        found = [(entry["run"], printable_labels(entry["labels"])) for entry in entries]
        plain = all(
            isinstance(at, bool | int | float | str | None)
            for _, labels in found
            for at in labels.values()
        )
        fine = plain and all(re.fullmatch("[0-9a-f]{12}", run) for run, _ in found)
    except ResultError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fine = False
    if not (fine and found):
        raise ResultError(f"{path}: not the index of a sweep")
    return found
