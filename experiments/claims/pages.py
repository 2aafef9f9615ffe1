"""The pages on what papers claim: a first page with a matrix and tables, one a paper with a card a
claim, an appendix.

Numbers are those of stored rows and arrays, words about them those of the claims.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from laggard.experiments.claims.arrays import StudyArrays
from laggard.experiments.claims.claim import Basis, Claim, Criterion, Paper, Scale
from laggard.experiments.claims.ledger import Row
from laggard.experiments.claims.presentation import (
    NOT_RUN,
    caption_of,
    describe_repeat,
    first_failure,
    headline,
    is_outdated,
)
from laggard.experiments.claims.tables import markdown_table
from laggard.experiments.claims.verdicts import RowEntry, Verdict, seeds_needed

BASES: Mapping[Basis, str] = {
    "clock": "verified by the clock",
    "quadratic": "on a quadratic",
    "network": "on a trained network",
}
PLURALS = {
    Verdict.HOLDS: "hold",
    Verdict.IN_PART: "hold in part",
    Verdict.FAILS: "fail",
    Verdict.OPEN: "open",
    Verdict.SILENT: "say nothing here",
}
FRONT = "A1"
"""The claim whose grid of accuracy over learning rate and delay is on the first page."""
MOST_SEEDS = 1000
"""The largest number of seeds that an open criterion is said to need."""
ON_RATES = ("A1", "A4")
"""The claims that are read off the figure of accuracy over learning rate and delay."""
PAPERS = Path("docs") / "claims"
"""Where the pages of papers lie, seen from the folder of the first page."""


@dataclass(frozen=True)
class Evidence:
    """What is stored of some claims at a scale.

    Attributes:
        claims: in order.
        rows, studies: by the claim's id, its row and the arrays that decided it, for claims that
            have them.
        pictures: by the claim's id its figure, and under `rates` that of accuracy over learning
            rate and delay; under `ID, grid` a claim's own.
    """

    claims: Sequence[Claim]
    rows: Mapping[str, Row]
    studies: Mapping[str, Mapping[str, StudyArrays]]
    pictures: Mapping[str, Path]
    scale: Scale

    def row(self, claim: Claim) -> Row | None:
        """The row of a claim as it is now; None where it was decided by other criteria, or is not
        run.
        """
        row = self.rows.get(claim.id)
        return None if row is None or is_outdated(claim, row) else row

    def verdict(self, claim: Claim) -> str:
        """The verdict on a claim as it is now."""
        row = self.row(claim)
        return NOT_RUN if row is None else row.verdict

    @property
    def papers(self) -> dict[Paper, list[Claim]]:
        """The claims of each paper."""
        found: dict[Paper, list[Claim]] = {}
        for claim in self.claims:
            found.setdefault(claim.paper, []).append(claim)
        return found


def write_pages(evidence: Evidence, first: Path) -> list[Path]:
    """Write the first page to a file, and those of papers and the appendix below its folder; return
    all their paths.
    """
    found = pages(evidence, first)
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(found)


def pages(evidence: Evidence, first: Path) -> dict[Path, str]:
    """The text of every page by its path, the first one being `first`."""
    folder = first.parent / PAPERS
    given = {"evidence": evidence, "first": first, "folder": folder, "PAPERS": PAPERS.as_posix()}
    decided = [claim.id for claim in evidence.claims if evidence.row(claim) is not None]
    said = {
        "sentences": summary_sentences(evidence),
        "failing": [
            claim
            for claim in evidence.claims
            if claim.notes and evidence.verdict(claim) == Verdict.FAILS
        ],
        "tables": [
            table_of(evidence, claim, f"{PAPERS.as_posix()}/{claim.paper.key}.md")
            for claim in evidence.claims
            if is_of_all(claim)
        ],
        "on_rates": [claim for claim in evidence.claims if claim.id in ON_RATES and claim.notes],
        "stored": [name for name in decided if name in evidence.studies],
        "unstored": [name for name in decided if name not in evidence.studies],
    }
    found = {first: _render("first.md.jinja", **given, **said)}
    for paper, own in evidence.papers.items():
        found[folder / f"{paper.key}.md"] = _render(
            "paper.md.jinja", **given, paper=paper, claims=own
        )
    found[folder / "appendix.md"] = _render(
        "appendix.md.jinja", **given, hours=hours(evidence.rows.values())
    )
    return found


def _render(template: str, **given: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "first_sentence": first_sentence,
        "described": describe_repeat,
        "seen_from": _seen_from,
    }
    environment.globals |= {
        "outcome": describe_outcome, "caption": caption_of, "table": table_of, "is_of_all": is_of_all,
    }  # fmt: skip
    text = environment.get_template(template).render(
        **given, columns=BASES, not_run=NOT_RUN, cell=matrix_cell
    )
    return text.rstrip("\n") + "\n"


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<=[.]) ", text, maxsplit=1)[0]


def describe_outcome(criterion: Criterion, entry: RowEntry) -> str:
    """The outcome of a criterion, and of an open one about how many seeds would decide it."""
    needed = seeds_needed(criterion, entry)
    if needed is None:
        return entry.outcome
    if needed > MOST_SEEDS:
        return f"{entry.outcome}: more than {MOST_SEEDS:,} seeds would be needed"
    return f"{entry.outcome}: about {float(f'{needed:.2g}'):,.0f} seeds would decide"


def _seen_from(path: Path, page: Path) -> str:
    """A file's path as a link on a page."""
    return Path(os.path.relpath(path, page.parent)).as_posix()


def summary_sentences(evidence: Evidence) -> list[str]:
    """How many claims hold on each basis, what fails, and what has not been tried."""
    found = []
    for basis, where in (
        ("network", "With a trained network"),
        ("quadratic", "On a quadratic"),
        ("clock", "By the clock alone"),
    ):
        own = [claim for claim in evidence.claims if claim.basis == basis]
        tried = [claim for claim in own if evidence.row(claim) is not None]
        if not tried:
            continue
        said = [
            f"{len(ids)} {verdict if len(ids) == 1 else several} ({', '.join(ids)})"
            for verdict, several in PLURALS.items()
            if (ids := [claim.id for claim in tried if evidence.verdict(claim) == verdict])
        ]
        found.append(f"{where}, {len(tried)} of {len(own)} claims have run: {'; '.join(said)}.")
    if waiting := [claim.id for claim in evidence.claims if evidence.row(claim) is None]:
        found.append(f"Not tried yet under the criteria that they have now: {', '.join(waiting)}.")
    return found


def matrix_cell(evidence: Evidence, claims: Sequence[Claim], basis: Basis) -> str:
    """The claims of a paper on one basis: each with its verdict, its first number, and the first
    that fails its bar.
    """
    lines = []
    for claim in claims:
        if claim.basis == basis:
            row = evidence.row(claim)
            link = f"[{claim.id}]({PAPERS.as_posix()}/{claim.paper.key}.md#{claim.id.lower()})"
            said = f"**{evidence.verdict(claim)}**"
            number = "" if row is None else f", {headline(claim, row)}"
            number += (
                f"; fails: {failing}" if row is not None and (failing := first_failure(row)) else ""
            )
            lines.append(f"{link} {said}{number}")
    return "<br>".join(lines)


def is_of_all(claim: Claim) -> bool:
    """Whether a claim's table stands on the first page: the paper's numbers beside ours, or those
    of all rates.
    """
    return claim.table is not None and (bool(claim.table.paper) or claim.grid is not None)


def table_of(evidence: Evidence, claim: Claim, page: str) -> str:
    """The table of a claim that has one and is decided, with the paper's numbers beside ours;
    otherwise nothing.

    Args:
        page: where the claim's page lies, for a link; empty on that page.
    """
    if claim.table is None or evidence.row(claim) is None or claim.id not in evidence.studies:
        return ""
    values = claim.decide(evidence.studies[claim.id])[claim.table.of]
    assert isinstance(values, xr.DataArray)
    return markdown_table(claim, claim.table, values, page)


def hours(rows: Iterable[Row]) -> float:
    """Wall time of the runs of all rows in hours, each run once."""
    return sum({run: took for row in rows for run, took in row.runs.items()}.values()) / 3600
