"""How a paper stands: its claims, what is stored of them, what is not run yet, and one of them run again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.claims.claim import FOLDER, Claim, Paper, Scale, claims, papers
from experiments.claims.ledger import Row, figure_table, ledger
from experiments.claims.page import again
from experiments.claims.reproduction import reproduced
from experiments.claims.verdicts import Outcome, Verdict
from experiments.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

STORED = Path(__file__).parents[2] / "results" / "claims"
KNOWN = {"read": "read in it", "notes": "from notes on it", "recalled": "recalled, no bar", "derived": "derived"}
NOT_RUN = "not run"
GOOD, BAD, GREY = "#00735a", "#b34700", "#666666"
COLOURS: Mapping[str, str] = {
    Verdict.REPRODUCED: GOOD, Outcome.HOLDS: GOOD, Verdict.CONTRADICTED: BAD, Outcome.FAILS: BAD, "beside": GREY,
}  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """A paper's claims, and the rows that are stored of them at a scale.

    Its tables are made for notebooks: pandas's `Styler`s, whose `data` is the data frame.

    Attributes:
        claims, rows: by the claim's id; a claim without a row is not run at this scale.
        folder: where rows are stored.
    """

    paper: Paper
    claims: Mapping[str, Claim]
    rows: Mapping[str, Row]
    scale: Scale
    folder: Path

    @property
    def missing(self) -> list[str]:
        """The claims that have no row."""
        return [name for name in self.claims if name not in self.rows]

    def verdicts(self) -> "Styler":
        """A row a claim: what the paper says, how that is known, and the verdict, or the command that leads to one."""
        found = [
            (claim.id, claim.question, claim.says, KNOWN[claim.mark], self._verdict(claim.id))
            for claim in self.claims.values()
        ]
        columns = ["claim", "question", "the paper says", "known", "verdict"]
        return self._shown(found, columns, "verdict")

    def findings(self, *names: str) -> "Styler":
        """A row a criterion of the claims called `names`, or of all, with its bar; and one for each number beside.

        Raises:
            ValueError: the paper has no such claim.
        """
        found = [line for claim in self._chosen(names) for line in self._lines(claim)]
        columns = ["claim", "measured", "bar", "mean", "95 % interval", "seeds", "outcome"]
        caption = "; ".join(f"{claim.id}: {self._verdict(claim.id)}" for claim in self._chosen(names)) if names else ""
        return self._shown(found, columns, "outcome", caption)

    def settings(self) -> "Styler":
        """A row a claim: in which setting it is tried, what a reader of the verdict must know, and when it was run."""
        told = {name: self.rows.get(name, claim) for name, claim in self.claims.items()}
        found = [
            (name, of.setting, self.claims[name].notes, *self._effort(self.rows.get(name))) for name, of in told.items()
        ]
        return self._shown(found, ["claim", "setting", "to be known", "runs", "run on"])

    def figure(self, name: str) -> "Figure | None":
        """The claim's figure, drawn from the numbers that its row was stored with; None where there is none.

        Raises:
            ValueError: the paper has no such claim.
        """
        from experiments.figures.claims import picture

        (claim,) = self._chosen([name])
        table = figure_table(self.rows[name], self.folder) if name in self.rows else None
        return None if table is None or claim.figure is None else picture(claim, table)

    def rerun(self, name: str, scale: Scale = "smoke", out: str | Path = "results", jobs: int = 1) -> "Standing":
        """Run the claim called `name` under `out`, as `reproduced` does, and answer how it stands there.

        Raises:
            ValueError: the paper has no such claim.
            SweepError: runs failed.
        """
        (claim,) = self._chosen([name])
        row = reproduced(claim, scale, out, jobs)
        return Standing(self.paper, {name: claim}, {name: row}, scale, Path(out) / "claims")

    def _chosen(self, names: Any) -> list[Claim]:
        for name in names:
            if name not in self.claims:
                raise ValueError(f"{name}: expected a claim of this paper, one of {', '.join(self.claims)}")
        return [self.claims[name] for name in names or self.claims]

    def _verdict(self, name: str) -> str:
        if name in self.rows:
            return self.rows[name].verdict
        return f"no row yet: laggard reproduce {name} --scale {self.scale}"

    def _lines(self, claim: Claim) -> Iterator[tuple[str, ...]]:
        """The lines of a claim's table; of one without a row, its criteria."""
        row = self.rows.get(claim.id)
        if row is None:
            yield from ((claim.id, each.says, each.bar, "", "", "", NOT_RUN) for each in claim.criteria)
            return
        for entry in (*row.criteria, *row.beside):
            mean = "not finite" if entry.value is None else f"{entry.value:.4g}"
            count = len(entry.values)
            seeds = f"{count - entry.lost} of {count}" if entry.lost else f"{count}"
            yield (
                claim.id,
                entry.says,
                entry.bar,
                mean,
                entry.interval,
                seeds * entry.seeds,
                entry.outcome or "beside",
            )

    def _effort(self, row: Row | None) -> tuple[str, str]:
        """How many runs and how long they took, and the day with what came of them on other days."""
        if row is None:
            return "", NOT_RUN
        return f"{len(row.runs)}, {row.seconds / 60:.1f} min", "; ".join([row.taken, *map(again, row.repeats)])

    def _shown(self, rows: list[Any], columns: list[str], coloured: str = "", caption: str = "") -> "Styler":
        """A table of wrapped text, whose `coloured` column says by its colour what holds and what does not."""
        import pandas as pd
        from pandas.io.formats.style import Styler

        table = pd.DataFrame(rows, columns=columns)
        name = "_".join(
            [self.scale, *columns[-1].split(), rows[0][0]]
        )  # the same table has the same name on every page
        wrapped = "text-align: left; vertical-align: top; white-space: normal; max-width: 40em"
        style = Styler(table, uuid=name, cell_ids=False, caption=caption or None).hide(axis="index").set_table_styles([
            {"selector": "th, td", "props": wrapped},
            {"selector": "caption", "props": "text-align: left; font-weight: bold; padding: 0.3em 0"},
        ])  # fmt: skip
        style = style.hide(axis="columns", subset=[name for name in columns if not table[name].any()])
        if coloured:
            style = style.map(
                lambda text: f"color: {COLOURS.get(text, 'inherit')}; font-weight: bold", subset=[coloured]
            )
        return style


def standing(paper: str, scale: Scale = "cpu", folder: str | Path = STORED, claims_in: Path = FOLDER) -> Standing:
    """How the paper called `paper`, by its key, its claims' letter or one of them, stands by the rows under `folder`.

    Args:
        folder: where rows are stored; by default those that lie in laggard's repository.
        claims_in: where claims lie.

    Raises:
        ConfigError: no such paper, or a letter of several.
        ResultError: a file that is no row.
    """
    keys = sorted({claim.paper for claim in claims([paper], claims_in)})
    if len(keys) > 1:
        raise ConfigError(paper, f"stands for several papers: expected one of {', '.join(keys)}")
    found = {claim.id: claim for claim in claims(keys, claims_in)}
    rows = {name: row for name, row in ledger(Path(folder), scale).items() if name in found}
    return Standing(papers(claims_in)[keys[0]], found, rows, scale, Path(folder))
