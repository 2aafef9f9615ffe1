"""The ledger: a row a claim and scale, stored as small files that a clone of the repository has."""

import json
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field, ValidationError

from laggard.experiments.claims.arrays import StudyArrays, read_arrays, write_arrays
from laggard.experiments.claims.claim import Basis, Scale
from laggard.experiments.claims.verdicts import CriterionOutcome, RowEntry, Verdict
from laggard.experiments.config.schema import Part
from laggard.experiments.results.files import ResultError, whole_file

STORED = Path(str(files("laggard"))) / "ledger"
"""The rows that come with laggard; in its repository those of `results/claims`, where `laggard
reproduce` writes.
"""


class Repeat(Part):
    """A repetition of a claim's runs: its date, version and verdict.

    Attributes:
        same: whether every number of every seed was the same, not the verdict alone.
    """

    taken: str
    version: str
    verdict: str
    same: bool


class FirstVerdict(Part):
    """What was said of a claim when it was first decided, by whatever setting and criteria it had
    then.
    """

    verdict: str
    taken: str


class Row(Part):
    """The outcome of a claim at a scale.

    Attributes:
        says, basis, mark, setting: as the claim had them when it was decided.
        first_verdict: the first one of all, whatever was changed since.
        changes: what was changed after a verdict had been seen.
        criteria, beside: what was measured with a bar, and without.
        grids: what the studies swept, a line each.
        chosen: what was chosen for the studies that are tuned, a line for each choice.
        at_edge: whether one of those lies at an end of its grid, which leaves the criteria open.
        runs: their ids, with the wall time (s) that each took when it was made.
        gradients: how many they took, all members of ensembles counted; None for runs of old, which
            did not say.
        version: laggard's, when they were made.
        machine: device, instruction set and torch of the runs: numbers are the same to the last bit
            on the same ones.
        taken: the day on which the last of the runs was made.
        repeats: what came of the same runs on other days.
    """

    id: str
    scale: Scale
    question: str
    paper: str
    says: str
    basis: Basis
    mark: str
    setting: str
    verdict: str
    first_verdict: FirstVerdict
    changes: list[str] = Field(default=[])
    criteria: list[RowEntry]
    beside: list[RowEntry]
    grids: list[str]
    chosen: list[str]
    at_edge: bool = False
    runs: dict[str, float]
    gradients: int | None = None
    version: str
    machine: list[str]
    taken: str
    repeats: list[Repeat] = Field(default=[])

    @property
    def seconds(self) -> float:
        """Wall time of the runs, added up."""
        return sum(self.runs.values())

    @property
    def numbers(self) -> list[list[float | None]]:
        """Of each criterion and each number beside it, what every seed gave."""
        return [entry.values for entry in (*self.criteria, *self.beside)]

    def agrees_with(self, other: "Row") -> bool:
        """Whether both say the same but for the words about the claim, which may be put better
        later.
        """
        words = {name: getattr(other, name) for name in ("question", "says", "mark", "changes")}
        return self.model_copy(update=words) == other

    @property
    def tally(self) -> str:
        """The number of claims that hold, fail and are open; empty where all hold, or where there
        is no verdict.
        """
        counts = Counter(entry.outcome for entry in self.criteria if not entry.control)
        if self.verdict in (Verdict.HOLDS, Verdict.NONE):
            return ""
        found = [f"{counts[CriterionOutcome.HOLDS]} of {counts.total()} hold"]
        found += [f"{counts[CriterionOutcome.FAILS]} fail"] * bool(counts[CriterionOutcome.FAILS])
        return ", ".join(
            found + [f"{counts[CriterionOutcome.OPEN]} open"] * bool(counts[CriterionOutcome.OPEN])
        )


def path_of(row: Row, folder: Path) -> Path:
    """The file that a row is stored in."""
    return folder / row.scale / f"{row.id}.json"


def write_row(
    row: Row,
    table: pd.DataFrame | None,
    folder: Path,
    studies: Mapping[str, StudyArrays] | None = None,
) -> Path:
    """Store a row, the numbers of its figure, and the arrays that it was decided by; return the
    row's file.
    """
    path = path_of(row, folder)
    with whole_file(path) as part:
        part.write_text(json.dumps(row.model_dump(), indent=1) + "\n", encoding="utf-8")
        if table is not None:
            table.to_csv(
                path.with_suffix(".csv"), index=False, float_format="%.6g", lineterminator="\n"
            )
    if studies is not None:
        write_arrays(_arrays_path(row.id, folder, row.scale), studies)
    return path


def stored_arrays(
    name: str, folder: Path = STORED, scale: Scale = "cpu"
) -> dict[str, StudyArrays] | None:
    """The arrays by which the claim called `name` was decided, by study; None where none were
    stored.

    Raises:
        ResultError: the file holds something else.
    """
    return read_arrays(_arrays_path(name, folder, scale))


def _arrays_path(name: str, folder: Path, scale: Scale) -> Path:
    return folder / scale / "arrays" / f"{name}.json"


def read_row(name: str, folder: Path, scale: Scale) -> Row | None:
    """The row of the claim called `name`, if it has one.

    Raises:
        ResultError: the file is no row.
    """
    path = folder / scale / f"{name}.json"
    return _row(path) if path.is_file() else None


def ledger(folder: Path = STORED, scale: Scale = "cpu") -> Mapping[str, Row]:
    """The rows that are stored at a scale, by their claim.

    Raises:
        ResultError: a file that is no row.
    """
    rows = [_row(path) for path in sorted((folder / scale).glob("*.json"))]
    return {row.id: row for row in sorted(rows, key=lambda row: (row.id[0], int(row.id[1:])))}


def figure_table(row: Row, folder: Path = STORED) -> pd.DataFrame | None:
    """The numbers of a row's figure, if it has one."""
    path = folder / row.scale / f"{row.id}.csv"
    return pd.read_csv(path) if path.is_file() else None


def _row(path: Path) -> Row:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        return Row.model_validate(document)
    except (ValueError, ValidationError) as error:
        problem = str(error).splitlines()[0]
        raise ResultError(
            f"{path}: is no row of a ledger ({problem}); remove it, and reproduce again"
        ) from None
