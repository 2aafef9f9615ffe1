"""What a bench found: a ratio per case, with its spread, and the machine that it was found on."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.store import ResultError

SCHEMA = 1


class Said(BaseModel):
    """A part of the report, read strictly."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Ratio(Said):
    """A median over rounds, and the range; each round's ratio is of what was measured in that round."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Self:
        """The summary of one ratio or more."""
        median, least, most = (float(f"{f(ratios):.4g}") for f in (statistics.median, min, max))
        return cls(median=median, least=least, most=most, rounds=len(ratios))

    @classmethod
    def between(cls, mine: Sequence[float], theirs: Sequence[float]) -> Self:
        """Of `mine` over `theirs`, round by round."""
        return cls.of([one / other for one, other in zip(mine, theirs, strict=True)])

    def apart(self, other: "Ratio") -> bool:
        """Whether the two ranges have nothing in common."""
        return self.least > other.most or other.least > self.most


class Entry(Said):
    """One case of a measure.

    Attributes:
        measure: which; its module says what the ratio is of.
        case: what was measured, the table's row first and its column second.
        ratio: what was found; None where it could not be measured.
        rates: medians behind the ratio, each with its unit in its name; good on this machine at that hour only.
        note: why there is no ratio, or what was measured instead.
    """

    measure: str
    case: dict[str, str | int]
    ratio: Ratio | None = None
    rates: dict[str, float] = {}
    note: str = ""


class Machine(Said):
    """What it ran on.

    Attributes:
        load: load averages over a minute before the first measure and after the last, where the system has them.
        device: where gradients were taken: cpu, or the GPU's name.
    """

    system: str
    processor: str
    capability: str
    cores: int
    memory_gib: float | None
    device: str
    load: list[float]


class Report(Said):
    """All of it.

    Attributes:
        schema_version: 1.
        date: UTC, ISO 8601.
        data: the images that were learnt.
        seconds: of wall time that it took.
    """

    schema_version: int = SCHEMA
    date: str
    quick: bool
    data: str
    seconds: float
    machine: Machine
    versions: dict[str, str]
    entries: list[Entry]

    @classmethod
    def read(cls, path: str | Path) -> "Report":
        """The report in a JSON file.

        Raises:
            OSError: it cannot be read.
            ResultError: it is no report, or one of another version.
        """
        try:
            report = cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            problem = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "no text"}
            at = ".".join(map(str, problem["loc"]))
            said = f"{at}: {problem['msg']}" if at else problem["msg"]
            raise ResultError(
                f"{path}: expected what `laggard bench --json` writes, got another file: {said}"
            ) from None
        if report.schema_version != SCHEMA:
            came = f"expected a report of version {SCHEMA}, got {report.schema_version}"
            raise ResultError(f"{path}: {came}: take it again with this laggard")
        return report

    def as_json(self) -> str:
        """The report as a JSON text, which `Report.read` accepts."""
        return self.model_dump_json(indent=1) + "\n"
