"""REPRODUCTION.md: the ledger as people read it; numbers from stored rows, words about them from the claims."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment

from experiments.claims.claim import Claim, Paper, Scale
from experiments.claims.ledger import Entry, Repeat, Row
from experiments.claims.verdicts import Verdict

FINE = (Verdict.REPRODUCED, Verdict.NONE)
GPU = (
    " At the scale `paper`, with thirty epochs and finer grids, for which one needs a GPU, {} of {} have been run; "
    "`laggard reproduce --scale paper` runs them, and with `--dry-run` says how long that takes."
)
TEMPLATE = Path(__file__).with_name("page.md.jinja")


def page(
    claims: Sequence[Claim],
    papers: Mapping[str, Paper],
    rows: Mapping[str, Row],
    scale: Scale,
    name: str,
    pictures: Mapping[str, str],
    on_gpu: int | None = None,
) -> str:
    """The text of the page called `name`.

    Args:
        pictures: where a claim's figure lies, seen from the page.
        on_gpu: how many claims have rows at the scale `paper`, where the page is of another.
    """
    told: dict[str, list[Claim]] = {}
    for claim in claims:
        told.setdefault(claim.paper, []).append(claim)
    order = {key: papers[key] for key in told}
    verdicts = [row.verdict for row in rows.values()]
    each = [f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)]
    missing = len(claims) - sum(claim.id in rows for claim in claims)
    failing = [claim for claim in claims if claim.id in rows and rows[claim.id].verdict not in FINE]
    count = ", ".join(each + [f"{missing} not run"] * (missing > 0))
    elsewhere = "" if on_gpu is None else GPU.format(on_gpu, len(claims))
    template = Environment(keep_trailing_newline=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        claims=claims, papers=order, told=told, rows=rows, scale=scale, page=Path(name).name, pictures=pictures,
        elsewhere=elsewhere, again=again, failing=failing, said=said, first=first, outdated=outdated,
        count=f"{len(claims)} claim{'s' * (len(claims) != 1)}: {count}.",
        hours=sum({run: took for row in rows.values() for run, took in row.runs.items()}.values()) / 3600,
    )  # fmt: skip
    return text.rstrip("\n") + "\n"


def line(row: Row) -> str:
    """A row in a line for the terminal."""
    return f"{row.id}  {said(row)}  ({row.seconds:.0f} s of runs): {row.question}"


def said(row: Row) -> str:
    """A row's verdict, and how many of its criteria hold where not all do."""
    return row.verdict + f" ({row.tally})" * bool(row.tally)


def first(notes: str) -> str:
    """The first sentence of a claim's notes."""
    return re.split(r"(?<=[.]) ", notes, maxsplit=1)[0]


def outdated(claim: Claim, row: Row) -> bool:
    """Whether a row was decided by another setting, criteria or numbers beside than the claim has now."""
    asked = [(each.says, each.bar) for each in claim.criteria] + [(says, "") for says in claim.beside]
    return row.setting != claim.setting or asked != [(each.says, each.bar) for each in (*row.criteria, *row.beside)]


def again(repeat: Repeat) -> str:
    """A repeat in a few words."""
    numbers = "every number the same" if repeat.same else "numbers differ"
    return f"run again on {repeat.taken}: {repeat.verdict}, {numbers}"


def told(row: Row, width: int) -> list[str]:
    """What the paper says and in which setting it was tried, as paragraphs for the terminal."""
    texts = (f"The paper ({row.paper}) says [{row.mark}]: {row.says}", f"Here: {row.setting}")
    indent = {"initial_indent": " " * 4, "subsequent_indent": " " * 4}
    return [line for text in texts for line in textwrap.wrap(text, max(width, 40), **indent)]


def lines(entries: Sequence[Entry]) -> list[str]:
    """The numbers of a row, a line each."""
    return [
        f"    {entry.outcome or 'beside':<6} {entry.says}: {entry.measured}" + f"  ({entry.bar})" * bool(entry.bar)
        for entry in entries
    ]
