"""The ledger in readable form: lines in a terminal, tables in a notebook.

Numbers are those of stored rows, words about them those of the claims.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from laggard.experiments.claims.claim import Claim, Paper, Scale
from laggard.experiments.claims.ledger import STORED, Repeat, Row, figure_table, ledger
from laggard.experiments.claims.papers import claims
from laggard.experiments.claims.reproduction import reproduce
from laggard.experiments.claims.verdicts import CriterionOutcome, RowEntry
from laggard.experiments.config.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

KNOWN = {
    "read": "read in it",
    "notes": "from notes on it",
    "recalled": "recalled, no bar",
    "derived": "derived",
}
NOT_RUN = "not run"
GOOD, BAD, GREY = "#00735a", "#b34700", "#666666"
COLOURS: Mapping[str, str] = {
    CriterionOutcome.HOLDS: GOOD, CriterionOutcome.FAILS: BAD, "beside": GREY,
}  # fmt: skip


def summary_line(row: Row) -> str:
    """A row in a line for the terminal."""
    return f"{row.id}  {verdict_text(row)}  ({row.seconds:.0f} s of runs): {row.question}"


def verdict_text(row: Row) -> str:
    """A row's verdict, and how many of its criteria hold where not all do."""
    return row.verdict + f" ({row.tally})" * bool(row.tally)


def is_outdated(claim: Claim, row: Row) -> bool:
    """Whether a row was decided by another setting, criteria or numbers beside than the claim has
    now.
    """
    asked = [(each.says, each.bar, each.control) for each in claim.criteria]
    asked += [(says, "", False) for says in claim.beside.values()]
    told = [(each.says, each.bar, each.control) for each in (*row.criteria, *row.beside)]
    return row.setting != claim.setting or asked != told


def describe_repeat(repeat: Repeat) -> str:
    """A repeat in a few words."""
    numbers = "every number the same" if repeat.same else "numbers differ"
    return f"run again on {repeat.taken}: {repeat.verdict}, {numbers}"


def headline(claim: Claim, row: Row) -> str:
    """The number of a claim's first criterion, with its bar."""
    return (f"{claim.headline}: " if claim.headline else "") + _against_bar(row.criteria[0])


def first_failure(row: Row) -> str:
    """The first criterion that fails, with its number and bar; empty, where none does or `headline`
    has that number.
    """
    failing = [each for each in row.criteria if each.outcome == CriterionOutcome.FAILS]
    if not failing or failing[0] is row.criteria[0]:
        return ""
    return f"{failing[0].says}: {_against_bar(failing[0])}"


def _against_bar(entry: RowEntry) -> str:
    number = "not finite" if entry.value is None else f"{entry.value:.3g}"
    number = f"{sum(map(bool, entry.values))} of {len(entry.values)}" if entry.share else number
    number = entry.measured if entry.lost else number
    return f"{number} (bar {entry.bar})"


def caption_of(claim: Claim, row: Row) -> str:
    """The verdict with the claim's one number and its number of seeds, as the caption of its
    figure.
    """
    first = row.criteria[0]
    seeds = (
        f", {len(first.values)} seeds" if first.seeds and not first.share and not first.lost else ""
    )
    return f"{verdict_text(row)}; {headline(claim, row)}{seeds}."


def describe_claim(row: Row, width: int) -> list[str]:
    """What the paper says and in which setting it was tried, as paragraphs for the terminal."""
    texts = (f"The paper ({row.paper}) says [{row.mark}]: {row.says}", f"Here: {row.setting}")
    wrapper = textwrap.TextWrapper(
        max(width, 40), initial_indent=" " * 4, subsequent_indent=" " * 4
    )
    return [line for text in texts for line in wrapper.wrap(text)]


def number_lines(entries: Sequence[RowEntry]) -> list[str]:
    """The numbers of a row, a line each."""
    lines = [
        (f"    {of.outcome or 'beside':<6} {of.says}: {of.measured}", of.bar) for of in entries
    ]
    return [f"{line}  ({bar})" if bar else line for line, bar in lines]


@dataclass(frozen=True)
class Standing:
    """A paper's claims, and the rows that are stored of them at a scale.

    Its tables are made for notebooks: pandas's `Styler`s, whose `data` is the data frame.

    Attributes:
        claims, rows: by the claim's id; a claim without a row is not run at this scale, or by other
            criteria than now.
        folder: where rows are stored.
    """

    paper: Paper
    claims: Mapping[str, Claim]
    rows: Mapping[str, Row]
    scale: Scale
    folder: Path

    def verdicts(self) -> "Styler":
        """A row a claim: what the paper says, how that is known, and the verdict, or the command
        that leads to one.
        """
        found = [
            (claim.id, claim.question, claim.says, KNOWN[claim.mark], self._verdict(claim.id))
            for claim in self.claims.values()
        ]
        columns = ["claim", "question", "the paper says", "known", "verdict"]
        return self._table(found, columns, "verdict")

    def findings(self, *names: str) -> "Styler":
        """A row a criterion of the claims called `names`, or of all, with its bar; and one for each
        number beside.

        Raises:
            ValueError: the paper has no such claim.
        """
        found = [line for claim in self._select(names) for line in self._lines(claim)]
        columns = ["claim", "measured", "bar", "mean", "95 % interval", "seeds", "outcome"]
        caption = (
            "; ".join(f"{claim.id}: {self._verdict(claim.id)}" for claim in self._select(names))
            if names
            else ""
        )
        return self._table(found, columns, "outcome", caption)

    def settings(self) -> "Styler":
        """A row a claim: in which setting it is tried, what a reader of the verdict must know, and
        when it was run.
        """
        rows = {name: self.rows.get(name) for name in self.claims}
        found = [
            (name, (rows[name] or claim).setting, claim.notes, *self._effort(rows[name]))
            for name, claim in self.claims.items()
        ]
        return self._table(found, ["claim", "setting", "to be known", "runs", "run on"])

    def figure(self, name: str) -> "Figure | None":
        """The claim's figure, drawn from the numbers that its row was stored with; None where there
        is none.

        Raises:
            ValueError: the paper has no such claim.
        """
        from laggard.experiments.figures.claims import picture

        (claim,) = self._select([name])
        table = figure_table(self.rows[name], self.folder) if name in self.rows else None
        if table is None or claim.figure is None:
            return None
        return picture(claim, table, answer=caption_of(claim, self.rows[name]))

    def rerun(
        self, name: str, scale: Scale = "smoke", out: str | Path = "results", jobs: int = 1
    ) -> "Standing":
        """Run the claim called `name` under `out`, as `reproduce` does, and return its standing
        there.

        Raises:
            ValueError: the paper has no such claim.
            SweepError: runs failed.
        """
        (claim,) = self._select([name])
        row = reproduce(claim, scale, out, jobs)
        return Standing(self.paper, {name: claim}, {name: row}, scale, Path(out) / "claims")

    def _select(self, names: Any) -> list[Claim]:
        for name in names:
            if name not in self.claims:
                raise ValueError(
                    f"{name}: expected a claim of this paper, one of {', '.join(self.claims)}"
                )
        return [self.claims[name] for name in names or self.claims]

    def _verdict(self, name: str) -> str:
        if name in self.rows:
            return self.rows[name].verdict
        return f"no row yet: laggard reproduce {name} --scale {self.scale}"

    def _lines(self, claim: Claim) -> Iterator[tuple[str, ...]]:
        """The lines of a claim's table; of one without a row, its criteria."""
        row = self.rows.get(claim.id)
        if row is None:
            yield from (
                (claim.id, each.says, each.bar, "", "", "", NOT_RUN) for each in claim.criteria
            )
            return
        for entry in (*row.criteria, *row.beside):
            mean = "not finite" if entry.value is None else f"{entry.value:.4g}"
            count = len(entry.values)
            seeds = f"{count - entry.lost} of {count}" if entry.lost else f"{count}"
            outcome = entry.outcome or "beside"
            yield (
                claim.id,
                entry.says,
                entry.bar,
                mean,
                entry.interval,
                seeds * entry.seeds,
                outcome,
            )

    def _effort(self, row: Row | None) -> tuple[str, str]:
        """The number of runs, their duration, and the day; then the results of repetitions."""
        if row is None:
            return "", NOT_RUN
        days = [row.taken, *map(describe_repeat, row.repeats)]
        return f"{len(row.runs)}, {row.seconds / 60:.1f} min", "; ".join(days)

    def _table(
        self, rows: list[Any], columns: list[str], coloured: str = "", caption: str = ""
    ) -> "Styler":
        """A table of wrapped text; the colour of the column `coloured` shows the outcome."""
        from pandas.io.formats.style import Styler

        table = pd.DataFrame(rows, columns=columns)
        name = "_".join([self.scale, *columns[-1].split(), rows[0][0]])  # the same on every page
        wrapped = "text-align: left; vertical-align: top; white-space: normal; max-width: 40em"
        style = Styler(table, uuid=name, cell_ids=False, caption=caption or None).hide(axis="index").set_table_styles([
            {"selector": "th, td", "props": wrapped},
            {"selector": "caption", "props": "text-align: left; font-weight: bold; padding: 0.3em 0"},
        ])  # fmt: skip
        style = style.hide(
            axis="columns", subset=[name for name in columns if not table[name].any()]
        )
        if not coloured:
            return style
        return style.map(
            lambda text: f"color: {COLOURS.get(text, 'inherit')}; font-weight: bold",
            subset=[coloured],
        )


def standing(paper: str, scale: Scale = "cpu", folder: str | Path = STORED) -> Standing:
    """How the paper called `paper`, by its key, its claims' letter or one of them, stands by the
    rows under `folder`.

    Args:
        folder: where rows are stored; by default those that come with laggard.

    Raises:
        ConfigError: no such paper, or a letter of several.
        ResultError: a file that is no row.
    """
    meant = {claim.paper.key: claim.paper for claim in claims([paper])}
    if len(meant) > 1:
        raise ConfigError(
            paper, f"stands for several papers: expected one of {', '.join(sorted(meant))}"
        )
    ((key, source),) = meant.items()
    found = {claim.id: claim for claim in claims([key])}
    rows = {
        name: row
        for name, row in ledger(Path(folder), scale).items()
        if name in found and not is_outdated(found[name], row)
    }
    return Standing(source, found, rows, scale, Path(folder))
