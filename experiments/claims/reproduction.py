"""A claim carried out: its studies are run, its statistics evaluated, its criteria decided, and a row is written."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.claims.claim import Claim, Criterion, Scale
from experiments.claims.expressions import evaluated
from experiments.claims.ledger import Entry, Repeat, Row, ledger, write
from experiments.claims.studies import Tell, carried_out
from experiments.claims.verdicts import Finding, Outcome, Verdict, finding, numbers, verdict
from experiments.estimates import mean
from experiments.results import Results
from experiments.store import ResultError


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
    if (kept := ledger(folder, scale).get(claim.id)) is not None and kept.numbers == row.numbers:
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
        ResultError: the claim has no row at this scale.
        ConfigError: a study cannot be run, or an expression has no value.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims" if folder is None else Path(folder)
    if (kept := ledger(folder, scale).get(claim.id)) is None:
        raise ResultError(
            f"{folder / scale / claim.id}.json: is not there, and a repeat has nothing to be held against"
        )
    apart = Path(out) / "again" / datetime.now(UTC).date().isoformat()
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
    findings = [
        _found(criterion, names, f"{where}, criteria.{number}") for number, criterion in enumerate(claim.criteria)
    ]
    shown = [_shown(says, expression, names, f"{where}, beside.{says}") for says, expression in claim.beside.items()]
    said = verdict([each.outcome for each in findings]) if scale != "smoke" else Verdict.NONE
    took = _seconds(results.values())
    row = Row(
        id=claim.id, scale=scale, question=claim.question, paper=claim.paper, says=claim.says, mark=claim.mark,
        setting=claim.setting, notes=claim.notes, verdict=str(said),
        criteria=[Entry.of(each) for each in findings], beside=[Entry.of(each) for each in shown],
        seconds=round(sum(took.values()), 1), runs=sorted(took),
        version=version("laggard"), taken=datetime.now(UTC).date().isoformat(),
    )  # fmt: skip
    return row, names


def _found(criterion: Criterion, names: Mapping[str, Any], where: str) -> Finding:
    return finding(criterion, evaluated(criterion.value, names, where), where)


def _shown(says: str, expression: str, names: Mapping[str, Any], where: str) -> Finding:
    """A number without a bar."""
    values, seeds = numbers(evaluated(expression, names, where), where)
    return Finding(says, "", mean(values), values, seeds, Outcome.OPEN)


def _seconds(studies: Iterable[Any]) -> dict[str, float]:
    """What each run or probe took when it was made, by its id; the same run in two studies counts once."""
    took: dict[str, float] = {}
    for study in studies:
        if isinstance(study, Results):
            took |= {result.manifest["run"]: float(result.manifest["wall_seconds"]) for result in study}
        else:
            took |= study.attrs["seconds"]
    return took
