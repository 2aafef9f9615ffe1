"""Reproduces a claim: runs its studies, evaluates its statistics, decides its criteria, and stores a row."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from laggard.experiments.claims.claim import Claim, Joint, NumberArrays, Scale, StudyResults
from laggard.experiments.claims.ledger import Repeat, Row, read_row, write_row
from laggard.experiments.claims.studies import Tell, choices, grids, run_studies
from laggard.experiments.claims.verdicts import Verdict, additional_finding, finding, verdict
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.results.result import MANIFEST, ResultError
from laggard.experiments.results.results import Results

DRAWS = 200
"""Bootstrap samples of the seeds, for the interval of a number that all of them make together."""


def reproduce(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
    folder: str | Path | None = None,
) -> Row:
    """Run what is missing for a claim at `scale`, decide it, and store its row under `folder`.

    At the scale `smoke` every criterion is computed, and no verdict drawn.

    Args:
        out: where the runs are kept.
        folder: where rows are stored; by default `claims` under `out`.

    Raises:
        ConfigError: a study cannot be run, or a number is missing or has dimensions left.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims" if folder is None else Path(folder)
    results = run_studies(claim, scale, Path(out), jobs, tell)
    row, numbers = evaluate_claim(claim, scale, results)
    with suppress(ResultError):  # a row of another version is replaced
        if (kept := read_row(claim.id, folder, scale)) is not None and kept.numbers == row.numbers:
            row = row.model_copy(update={"repeats": kept.repeats})
    table = None
    if claim.figure is not None:
        shown = numbers[claim.figure.of]
        shown = shown.value if isinstance(shown, Joint) else shown
        table = shown.rename("value").to_dataframe().reset_index().dropna(subset=["value"])
    write_row(row, table, folder)
    return row


def repeat(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
    folder: str | Path | None = None,
) -> Row:
    """Repeat all runs of a claim, and record in its stored row whether the verdict is the same.

    Seeds are the same, so that on one machine every number should be the same too; on another one gradients round
    differently. The new runs lie under `again` and the day in `out`, and replace nothing.

    Raises:
        ResultError: the claim has no row at this scale, or was repeated today.
        ConfigError: a study cannot be run, or a number is missing or has dimensions left.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims" if folder is None else Path(folder)
    if (kept := read_row(claim.id, folder, scale)) is None:
        raise ResultError(
            f"{folder / scale / claim.id}.json: is not there, and a repeat has nothing to be held against"
        )
    today = datetime.now(UTC).date().isoformat()
    if today in (repeat.taken for repeat in kept.repeats):
        raise ResultError(f"{claim.id}: was repeated today, and those runs would be taken again: wait for another day")
    apart = Path(out) / "again" / today
    row, _ = evaluate_claim(claim, scale, run_studies(claim, scale, apart, jobs, tell))
    repeat = Repeat(taken=row.taken, version=row.version, verdict=row.verdict, same=row.numbers == kept.numbers)
    kept = kept.model_copy(update={"repeats": [*kept.repeats, repeat]})
    write_row(kept, None, folder)
    return kept


def evaluate_claim(claim: Claim, scale: Scale, results: StudyResults) -> tuple[Row, NumberArrays]:
    """The row that `results` of a claim's studies make, and all numbers by name.

    Raises:
        ConfigError: a number is missing, or has other dimensions than seeds.
    """
    numbers = claim.decide(results)
    wanted = [*(each.number for each in claim.criteria), *claim.beside, *([claim.figure.of] if claim.figure else [])]
    if missing := [name for name in wanted if name not in numbers]:
        raise ConfigError(claim.id, f"decide gives no {', '.join(missing)}")
    draws = 0 if scale == "smoke" else DRAWS
    findings = [finding(each, numbers[each.number], f"{claim.id}, {each.number}", draws) for each in claim.criteria]
    shown = [
        additional_finding(says, numbers[name], f"{claim.id}, {name}", draws) for name, says in claim.beside.items()
    ]
    said = verdict([each.outcome for each in findings if each.outcome]) if scale != "smoke" else Verdict.NONE
    row = Row(
        id=claim.id, scale=scale, question=claim.question, paper=claim.paper.key, says=claim.says, mark=claim.mark,
        setting=claim.setting, verdict=str(said),
        criteria=findings, beside=shown,
        grids=grids(claim, scale), chosen=choices(claim, results), **_circumstances(results.values()),
    )  # fmt: skip
    return row, numbers


def _circumstances(studies: Iterable[Any]) -> dict[str, Any]:
    """How the runs and probes of a claim were made, as a row has it; the same run in two studies counts once."""
    made: dict[str, Mapping[str, Any]] = {}
    for study in studies:
        if isinstance(study, Results):
            for result in study:
                written = datetime.fromtimestamp((result.path / MANIFEST).stat().st_mtime, UTC).isoformat()
                # for runs older than their manifest's `ended`
                made[result.manifest["run"]] = {"ended": written, **result.manifest}
        else:
            made |= study.attrs["made"]
    machines = {f"{of['device']} ({of['cpu_capability']}), torch {of['versions']['torch']}" for of in made.values()}
    return {
        "runs": {run: round(float(made[run]["wall_seconds"]), 1) for run in sorted(made)},
        "version": ", ".join(sorted({of["versions"]["laggard"] for of in made.values()})),
        "machine": sorted(machines),
        "taken": max(of["ended"][:10] for of in made.values()),
    }
