"""A claim carried out: its studies are run, its statistics evaluated, its criteria decided, and a row is written."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from experiments.claims.claim import Claim, Scale
from experiments.claims.expressions import evaluated
from experiments.claims.ledger import Entry, Repeat, Row, stored, write
from experiments.claims.resampling import DRAWS, resampled
from experiments.claims.studies import Tell, carried_out, choices, grids
from experiments.claims.verdicts import Verdict, beside, finding, numbers, verdict
from experiments.results import Results
from experiments.store import MANIFEST, ResultError


def reproduced(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
    folder: str | Path | None = None,
) -> Row:
    """Run what a claim needs at `scale`, as far as it is not there, decide it, and store its row under `folder`.

    At the scale `smoke` every criterion is computed, and no verdict drawn.

    Args:
        out: where the runs are kept.
        folder: where rows are stored; by default `claims` under `out`.

    Raises:
        ConfigError: a study cannot be run, or an expression has no value.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims" if folder is None else Path(folder)
    results = carried_out(claim, scale, Path(out), jobs, tell)
    row, names = decided(claim, scale, results)
    with suppress(ResultError):  # a row of another version is replaced
        if (kept := stored(claim.id, folder, scale)) is not None and kept.numbers == row.numbers:
            row = row.model_copy(update={"repeats": kept.repeats})
    table = None
    if claim.figure is not None:
        array = evaluated(claim.figure.of, names, f"{claim.id}.yaml, figure.of")
        table = array.rename("value").to_dataframe().reset_index().dropna(subset=["value"])
    write(row, table, folder)
    return row


def repeated(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
    folder: str | Path | None = None,
) -> Row:
    """Make all runs of a claim anew, and note in its stored row whether it comes to the same verdict.

    Seeds are the same, so that on one machine every number should be the same too; on another one gradients round
    differently. The new runs lie under `again` and the day in `out`, and replace nothing.

    Raises:
        ResultError: the claim has no row at this scale, or was repeated today.
        ConfigError: a study cannot be run, or an expression has no value.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims" if folder is None else Path(folder)
    if (kept := stored(claim.id, folder, scale)) is None:
        raise ResultError(
            f"{folder / scale / claim.id}.json: is not there, and a repeat has nothing to be held against"
        )
    today = datetime.now(UTC).date().isoformat()
    if today in (repeat.taken for repeat in kept.repeats):
        raise ResultError(f"{claim.id}: was repeated today, and those runs would be taken again: wait for another day")
    apart = Path(out) / "again" / today
    row, _ = decided(claim, scale, carried_out(claim, scale, apart, jobs, tell))
    repeat = Repeat(taken=row.taken, version=row.version, verdict=row.verdict, same=row.numbers == kept.numbers)
    kept = kept.model_copy(update={"repeats": [*kept.repeats, repeat]})
    write(kept, None, folder)
    return kept


def decided(claim: Claim, scale: Scale, results: Mapping[str, Any]) -> tuple[Row, dict[str, Any]]:
    """The row that `results` of a claim's studies make, and all statistics by name."""
    where = f"{claim.id}.yaml"
    names: dict[str, Any] = dict(results)
    for name, expression in claim.statistics.items():
        names[name] = evaluated(expression, names, f"{where}, statistics.{name}")

    def found(expression: str, where: str) -> dict[str, Any]:
        draws = 0 if scale == "smoke" else DRAWS
        value = evaluated(expression, names, where)
        numbers(value, where)
        others = resampled(expression, claim.statistics, names, where, draws)
        return {"value": value, "where": where, "resampled": others}

    findings = [
        finding(criterion, **found(criterion.value, f"{where}, criteria.{number}"))
        for number, criterion in enumerate(claim.criteria)
    ]
    shown = [beside(says, **found(value, f"{where}, beside.{says}")) for says, value in claim.beside.items()]
    said = verdict([each.outcome for each in findings if each.outcome]) if scale != "smoke" else Verdict.NONE
    made = Made.of(results.values())
    row = Row(
        id=claim.id, scale=scale, question=claim.question, paper=claim.paper, says=claim.says, mark=claim.mark,
        setting=claim.setting, verdict=str(said),
        criteria=[Entry.of(each) for each in findings], beside=[Entry.of(each) for each in shown],
        grids=grids(claim, scale), chosen=choices(claim, results),
        runs={run: round(seconds, 1) for run, seconds in sorted(made.seconds.items())},
        version=", ".join(sorted(made.versions)), machine=sorted(made.machines), taken=max(made.days),
    )  # fmt: skip
    return row, names


@dataclass
class Made:
    """How the runs and probes of a claim were made.

    Attributes:
        seconds: what each took, by its id; the same run in two studies counts once.
        versions: laggard's.
        machines: device, instruction set and torch.
        days: on which.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)
    days: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, studies: Iterable[Any]) -> Self:
        """How they were made, by the manifests of runs and what stands beside the numbers of probes."""
        made = cls()
        for study in studies:
            if isinstance(study, Results):
                for result in study:
                    written = (result.path / MANIFEST).stat().st_mtime  # for runs older than their manifest's `ended`
                    made.add(result.manifest["run"], {"ended": _day(written), **result.manifest})
            else:
                for run, circumstances in study.attrs["made"].items():
                    made.add(run, circumstances)
        return made

    def add(self, run: str, circumstances: Mapping[str, Any]) -> None:
        """Take in one run."""
        versions = circumstances["versions"]
        self.seconds[run] = float(circumstances["wall_seconds"])
        self.versions.add(versions["laggard"])
        self.machines.add(f"{circumstances['device']} ({circumstances['cpu_capability']}), torch {versions['torch']}")
        self.days.add(circumstances["ended"][:10])


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
