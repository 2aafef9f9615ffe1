"""Reproduces a claim: runs its studies, evaluates its statistics, decides its criteria, and stores
a row.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from laggard.experiments.claims.arrays import StudyArrays, as_studies
from laggard.experiments.claims.claim import Claim, Joint, NumberArrays, Scale, StudyResults
from laggard.experiments.claims.ledger import (
    STORED,
    FirstVerdict,
    Repeat,
    Row,
    read_row,
    stored_arrays,
    write_row,
)
from laggard.experiments.claims.studies import (
    Tell,
    choices,
    config_of,
    grids,
    kept_runs,
    run_studies,
)
from laggard.experiments.claims.verdicts import Verdict, additional_finding, finding, verdict
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.results.files import ResultError
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results
from laggard.experiments.results.store import MANIFEST

PARTIAL = "partial"
"""The folder beside the rows for what long runs have measured; see `run_studies`."""
CIRCUMSTANCES = ("grids", "chosen", "at_edge", "runs", "gradients", "version", "machine", "taken")
DRAWS = 200
"""Bootstrap samples of the seeds, for the interval of a number that all of them make together."""


def reproduce(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
) -> Row:
    """Run what is missing for a claim at `scale`, decide it, and store its row in `claims` under
    `out`.

    At the scale `smoke` every criterion is computed, and no verdict drawn.

    Args:
        out: where the runs are kept.

    Raises:
        ConfigError: a study cannot be run, or a number is missing or has dimensions left.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims"
    found = run_studies(claim, scale, Path(out), jobs, tell, folder / PARTIAL)
    studies = as_studies(found)
    row, numbers = evaluate_claim(claim, scale, studies, _circumstances(claim, scale, found))
    with suppress(ResultError):  # a row of another version is replaced
        row = _with_history(row, read_row(claim.id, folder, scale))
    write_row(row, figure_data(claim, numbers), folder, studies)
    return row


def decide_again(claim: Claim, scale: Scale, folder: str | Path = STORED) -> Row:
    """The row of a claim, decided anew from the arrays that are stored with it; nothing is run.

    Raises:
        ResultError: the claim has no row at this scale, or none with arrays, or needs others than
            those.
    """
    kept, studies = (
        read_row(claim.id, Path(folder), scale),
        stored_arrays(claim.id, Path(folder), scale),
    )
    if kept is None or studies is None:
        raise ResultError(
            f"{Path(folder) / scale}: has no arrays of {claim.id}; reproduce it to store them"
        )
    same = {name: getattr(kept, name) for name in CIRCUMSTANCES}
    row, _ = evaluate_claim(claim, scale, studies, same)
    return _with_history(row, kept)


def measured_so_far(
    claim: Claim, study: str, scale: Scale, folder: str | Path = STORED
) -> StudyArrays | None:
    """The runs of a study of which `partial` has the measurements, for a figure of what is there;
    None without any.

    Raises:
        ConfigError: the study cannot be run.
    """
    found = kept_runs(config_of(claim, study, scale, {}), Path(folder) / PARTIAL)
    return StudyArrays(found) if found else None


def _with_history(row: Row, kept: Row | None) -> Row:
    """`row` with the first verdict of the one that was kept, and with its repeats where numbers are
    the same.
    """
    if kept is None:
        return row
    repeats = kept.repeats if kept.numbers == row.numbers else []
    return row.model_copy(update={"repeats": repeats, "first_verdict": kept.first_verdict})


def figure_data(claim: Claim, numbers: NumberArrays) -> pd.DataFrame | None:
    """What the claim's figure shows, a row a setting and seed: its `value`, and what theory has, if
    it is asked for.
    """
    if claim.figure is None:
        return None
    shown = numbers[claim.figure.of]
    shown = shown.value if isinstance(shown, Joint) else shown
    columns = {"value": shown}
    if claim.figure.theory:
        theory = numbers[claim.figure.theory]
        theory = theory.value if isinstance(theory, Joint) else theory
        known = {name: shown[name].values for name in theory.dims if name in shown.dims}
        # missing where it says nothing of a line
        columns["theory"] = theory.reindex(known).broadcast_like(shown)
    # settings stay in their order
    first = [key for key in (claim.figure.x, claim.figure.lines) if key]
    order = [*first, *(key for key in shown.dims if key not in first)]
    return xr.Dataset(columns).to_dataframe(dim_order=order).reset_index().dropna(subset=["value"])


def repeat(
    claim: Claim,
    scale: Scale,
    out: str | Path = "results",
    jobs: int | None = None,
    tell: Tell = lambda _: None,
) -> Row:
    """Repeat all runs of a claim, and record in its stored row whether the verdict is the same.

    Seeds are the same, so that on one machine every number should be the same too; on another one
    gradients round differently. The new runs lie under `again` and the day in `out`, and replace
    nothing.

    Raises:
        ResultError: the claim has no row at this scale, or was repeated today.
        ConfigError: a study cannot be run, or a number is missing or has dimensions left.
        SweepError: runs failed.
    """
    folder = Path(out) / "claims"
    if (kept := read_row(claim.id, folder, scale)) is None:
        raise ResultError(
            f"{folder / scale / claim.id}.json: is not there, and a repeat has nothing to be held against"
        )
    today = datetime.now(UTC).date().isoformat()
    if today in (repeat.taken for repeat in kept.repeats):
        raise ResultError(
            f"{claim.id}: was repeated today, and those runs would be taken again: wait for another day"
        )
    apart = Path(out) / "again" / today
    found = run_studies(claim, scale, apart, jobs, tell)
    row, _ = evaluate_claim(claim, scale, as_studies(found), _circumstances(claim, scale, found))
    repeat = Repeat(
        taken=row.taken, version=row.version, verdict=row.verdict, same=row.numbers == kept.numbers
    )
    kept = kept.model_copy(update={"repeats": [*kept.repeats, repeat]})
    write_row(kept, None, folder)
    return kept


def evaluate_claim(
    claim: Claim, scale: Scale, studies: StudyResults, circumstances: Mapping[str, Any]
) -> tuple[Row, NumberArrays]:
    """The row that a claim's studies make, and all numbers by name.

    Args:
        circumstances: the fields of the row that say how the runs were made.

    Raises:
        ConfigError: a number is missing, or has other dimensions than seeds.
        ResultError: `decide` asks for an array that is not there.
    """
    numbers = claim.decide(studies)
    wanted = [
        *(each.number for each in claim.criteria),
        *claim.beside,
        *([claim.figure.of] if claim.figure else []),
    ]
    if missing := [name for name in wanted if name not in numbers]:
        raise ConfigError(claim.id, f"decide gives no {', '.join(missing)}")
    draws = 0 if scale == "smoke" else DRAWS
    edge = circumstances["at_edge"]
    findings = [
        finding(each, numbers[each.number], f"{claim.id}, {each.number}", draws, edge)
        for each in claim.criteria
    ]
    shown = [
        additional_finding(says, numbers[name], f"{claim.id}, {name}", draws)
        for name, says in claim.beside.items()
    ]
    said = str(verdict(findings) if scale != "smoke" else Verdict.NONE)
    row = Row(
        id=claim.id, scale=scale, question=claim.question, paper=claim.paper.key, says=claim.says, basis=claim.basis,
        mark=claim.mark, setting=claim.setting, verdict=said, changes=list(claim.changes),
        first_verdict=FirstVerdict(verdict=said, taken=circumstances["taken"]),
        criteria=findings, beside=shown, **circumstances,
    )  # fmt: skip
    return row, numbers


def _circumstances(claim: Claim, scale: Scale, studies: Mapping[str, Any]) -> dict[str, Any]:
    """How the runs and probes of a claim were made, as a row has it; the same run in two studies
    counts once.
    """
    made: dict[str, Mapping[str, Any]] = {}
    gradients: dict[str, int | None] = {}
    for study in studies.values():
        if isinstance(study, Results):
            for result in study:
                written = datetime.fromtimestamp(
                    (result.path / MANIFEST).stat().st_mtime, UTC
                ).isoformat()
                # for runs older than their manifest's `ended`
                made[result.manifest["run"]] = {"ended": written, **result.manifest}
                gradients[result.manifest["run"]] = _count_gradients(result)
        else:
            made |= study.attrs["made"]
            gradients |= {run: how.get("gradients") for run, how in study.attrs["made"].items()}
    chosen, at_edge = choices(claim, studies)
    machines = {
        f"{of['device']} ({of['cpu_capability']}), torch {of['versions']['torch']}"
        for of in made.values()
    }
    return {
        "grids": grids(claim, scale),
        "chosen": chosen,
        "at_edge": at_edge,
        "runs": {run: round(float(made[run]["wall_seconds"]), 1) for run in sorted(made)},
        "gradients": None if None in gradients.values() else sum(filter(None, gradients.values())),
        "version": ", ".join(sorted({of["versions"]["laggard"] for of in made.values()})),
        "machine": sorted(machines),
        "taken": max(of["ended"][:10] for of in made.values()),
    }


def _count_gradients(result: Result) -> int:
    """How many gradients a run took for all of its members; none, where nothing is learnt."""
    if not result.config.task.learns:
        return 0
    taken = sum(result.manifest["gradients"][status] for status in ("applied", "dropped"))
    return int(taken) * len(result.manifest["seeds"]["learning"])
