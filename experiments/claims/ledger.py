"""The ledger: a row a claim and scale, stored as small files that a clone of the repository has."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from experiments.claims.claim import Scale
from experiments.claims.verdicts import Finding, Outcome, Verdict
from experiments.schema import Part
from experiments.store import ResultError

if TYPE_CHECKING:
    import pandas as pd

LEDGER = Path("results") / "claims"


class Entry(Part):
    """A number of a row: its mean and 95 % interval over seeds, and how it stands to its bar, if it has one.

    Attributes:
        values: of each seed, in order; a number without seeds has one.
        seeds: whether there are seeds behind it.
    """

    says: str
    bar: str = ""
    value: float | None
    low: float | None
    high: float | None
    values: list[float | None]
    seeds: bool
    outcome: str = ""

    @classmethod
    def of(cls, finding: Finding) -> "Entry":
        """The entry of a criterion's finding; numbers that are not finite have no place in JSON, and are null."""
        value, half = finding.estimate.value, finding.estimate.half
        ends = (value - half, value + half) if finding.seeds else (value, value)
        numbers = [number if abs(number) < float("inf") else None for number in (value, *ends, *finding.values)]
        return cls(
            says=finding.says, bar=finding.bar, value=numbers[0], low=numbers[1], high=numbers[2], values=numbers[3:],
            seeds=finding.seeds, outcome=finding.outcome if finding.bar else "",
        )  # fmt: skip

    @property
    def measured(self) -> str:
        """The number as a table shows it."""
        reached = [value for value in self.values if value is not None]
        if self.value is None:
            return f"not finite in {len(self.values)} of {len(self.values)}"
        said = f"{self.value:.4g}"
        if self.seeds and self.low is not None and self.high is not None:
            said += f" ({self.low:.4g} to {self.high:.4g})"
        if self.seeds:
            said += f", n = {len(self.values)}"
        return said + f", not finite in {len(self.values) - len(reached)}" * (len(reached) < len(self.values))


class Repeat(Part):
    """A claim's runs made anew: on which day, with which version, and what came of it.

    Attributes:
        same: whether every number of every seed was the same, not the verdict alone.
    """

    taken: str
    version: str
    verdict: str
    same: bool


class Row(Part):
    """What became of a claim at a scale.

    Attributes:
        criteria, beside: what was measured with a bar, and without.
        seconds: wall time of the runs, as long as they took when they were made.
        runs: their ids.
        version: laggard's, and the versions and machine that its manifests name.
        taken: the day.
        repeats: what came of the same runs on other days.
    """

    id: str
    scale: Scale
    question: str
    paper: str
    says: str
    mark: str
    setting: str
    notes: str
    verdict: str
    criteria: list[Entry]
    beside: list[Entry]
    seconds: float
    runs: list[str]
    version: str
    taken: str
    repeats: list[Repeat] = Field([])

    @property
    def numbers(self) -> list[list[float | None]]:
        """Of each criterion and each number beside it, what every seed gave."""
        return [entry.values for entry in (*self.criteria, *self.beside)]

    @property
    def settled(self) -> bool:
        """Whether it has a verdict other than that it is not resolved."""
        return self.verdict not in (Verdict.OPEN, Verdict.NONE)


def write(row: Row, table: "pd.DataFrame | None", folder: Path) -> Path:
    """Store a row and the numbers of its figure; answers the row's file."""
    path = folder / row.scale / f"{row.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if table is not None:
        table.to_csv(path.with_suffix(".csv"), index=False, float_format="%.6g", lineterminator="\n")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row.model_dump(), indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def ledger(folder: Path = LEDGER, scale: Scale = "cpu") -> Mapping[str, Row]:
    """The rows that are stored at a scale, by their claim.

    Raises:
        ResultError: a file that is no row.
    """
    rows = [_row(path) for path in sorted((folder / scale).glob("*.json"))]
    return {row.id: row for row in sorted(rows, key=lambda row: (row.id[0], int(row.id[1:])))}


def findings(paper: str, folder: str | Path = LEDGER, scale: Scale = "cpu") -> "pd.DataFrame":
    """What was measured for a paper's claims: a row per criterion, with its bar and outcome, and per number beside.

    Args:
        paper: its key, or its claims' letter.
    """
    import pandas as pd

    found = [
        (row.id, entry.says, entry.bar, entry.measured, entry.outcome)
        for row in _of(paper, folder, scale)
        for entry in (*row.criteria, *row.beside)
    ]
    return pd.DataFrame(found, columns=["claim", "criterion", "bar", "measured", "outcome"])


def verdicts(paper: str, folder: str | Path = LEDGER, scale: Scale = "cpu") -> "pd.DataFrame":
    """The verdicts on a paper's claims: a row each, with the question and how the paper's statement is known."""
    import pandas as pd

    found = [(row.id, row.question, row.mark, row.verdict) for row in _of(paper, folder, scale)]
    return pd.DataFrame(found, columns=["claim", "question", "mark", "verdict"])


def figure_table(row: Row, folder: Path = LEDGER) -> "pd.DataFrame | None":
    """The numbers of a row's figure, if it has one."""
    import pandas as pd

    path = folder / row.scale / f"{row.id}.csv"
    return pd.read_csv(path) if path.is_file() else None


def _of(paper: str, folder: str | Path, scale: Scale) -> list[Row]:
    return [row for row in ledger(Path(folder), scale).values() if paper in (row.paper, row.id[0])]


def _row(path: Path) -> Row:
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        return Row.model_validate(document)
    except (ValueError, ValidationError) as error:
        problem = str(error).splitlines()[0]
        raise ResultError(f"{path}: is no row of a ledger ({problem}); remove it, and reproduce again") from None


def outcomes(entries: Sequence[Entry]) -> list[Outcome]:
    """Those of criteria."""
    return [Outcome(entry.outcome) for entry in entries]
