"""The runs of a claim at a scale: sweeps like any others, of which one may choose another's
learning rates.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from laggard.experiments.claims.claim import Claim, Scale, Tuning
from laggard.experiments.claims.probing import run_probe
from laggard.experiments.config.axes import axes
from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, fill_swept_keys, runs
from laggard.experiments.results.files import ResultError, whole_file
from laggard.experiments.results.formats import format_setting
from laggard.experiments.results.measures import is_seed
from laggard.experiments.results.result import Result, find_run, open_run
from laggard.experiments.results.results import Results
from laggard.experiments.results.selection import Best, best
from laggard.experiments.results.store import MANIFEST
from laggard.experiments.running.sweep import RunEnd, sweep

Tell = Callable[[RunEnd], None]
LONG = 20.0  # seconds


def configs(claim: Claim, scale: Scale) -> dict[str, Config]:
    """The config of each study that no other study has to tune before.

    Raises:
        ConfigError: one of them cannot be run; names claim and study.
    """
    return {
        name: config_of(claim, name, scale, {})
        for name, study in claim.studies.items()
        if study.tuned is None
    }


def config_of(claim: Claim, name: str, scale: Scale, results: Mapping[str, Results]) -> Config:
    """The config of the study called `name`.

    Raises:
        ConfigError: it cannot be run; names claim and study.
    """
    study = claim.studies[name]
    try:
        document = study.document(scale)
        if study.tuned is not None:
            document = apply_tuning(document, study.tuned, results[study.tuned.on])
        config = fill_swept_keys({"name": f"claim-{claim.id}-{name}", **document})
        runs(config)
    except ConfigError as error:
        raise error.relocate(where=f"{claim.id}, {name}") from None
    return config


def run_studies(
    claim: Claim, scale: Scale, out: Path, jobs: int | None, tell: Tell, partial: Path | None = None
) -> dict[str, Any]:
    """The results of every study of a claim, or what was probed; existing results are not simulated
    again.

    Args:
        partial: a folder where the measurements of runs that take more than `LONG` seconds are
            kept, a folder a run with its manifest and its `metrics.parquet`, and where they are
            found again wherever `out` is.

    Raises:
        ConfigError: a study cannot be run.
        SweepError: runs failed.
    """

    def keep(ended: RunEnd) -> None:
        if (
            partial is not None
            and ended.result is not None
            and ended.result.manifest["wall_seconds"] >= LONG
        ):
            keep_measurements(ended.result, partial)
        tell(ended)

    def find(spec: RunSpec, out: Path) -> Result | None:
        result = find_run(spec, out)
        return _kept(spec, partial) if result is None and partial is not None else result

    found: dict[str, Any] = {}
    for name in _study_order(claim):
        config = config_of(claim, name, scale, found)
        if (probe := claim.studies[name].probe) is not None:
            found[name] = run_probe(probe, config, out)
        else:
            found[name] = sweep(config, out, jobs=jobs, tell=keep, find=find)
    return found


def keep_measurements(result: Result, partial: Path) -> None:
    """Copy a run's manifest and metrics to the folder of its id in `partial`, unless they are
    there.
    """
    own = partial / result.manifest["run"]
    if not (own / MANIFEST).is_file():
        # the manifest last: it says that the rest is there
        for name in ("metrics.parquet", MANIFEST):
            with whole_file(own / name) as part:
                part.write_bytes((result.path / name).read_bytes())


def _kept(spec: RunSpec, partial: Path) -> Result | None:
    """What was kept in `partial` of a run, if it is there and intact."""
    with suppress(ResultError):
        kept = open_run(partial / spec.id)
        if kept.manifest["config"] == spec.digest:
            kept.file("metrics.parquet")
            return replace(kept, given=spec.config, labels=spec.labels)
    return None


def kept_runs(config: Config, partial: Path) -> Results:
    """The runs of a config of which measurements were kept in `partial`."""
    planned = runs(config)
    return Results(
        [kept for spec in planned if (kept := _kept(spec, partial)) is not None], len(planned)
    )


def apply_tuning(document: dict[str, Any], tuning: Tuning, results: Results) -> dict[str, Any]:
    """`document` with the best of `tuning.over` for each value of its one axis that is no seed, as
    `results` had it.

    Raises:
        ConfigError: there are several such axes, or what chooses does not have the axis's settings.
    """
    chosen = _choice(tuning, results).table
    sweep = dict(document.get("sweep", {}))
    own = [key for key in sweep if key != "seeds" and not is_seed(key)]
    if not own:
        return {**document, "sweep": {tuning.over: chosen[tuning.over].tolist()[:1], **sweep}}
    if len(own) > 1:
        raise ConfigError(
            "sweep", f"expected one axis for which {tuning.over} is chosen, got {', '.join(own)}"
        )
    (axis,) = own
    picks = dict(zip(chosen[axis], chosen[tuning.over].tolist(), strict=True))
    (spelt,) = axes({axis: sweep[axis]})
    missing = [option.labels[axis] for option in spelt.options if option.labels[axis] not in picks]
    if missing:
        raise ConfigError(
            f"sweep.{axis}", f"{tuning.on} chose nothing for {', '.join(map(str, missing))}"
        )
    del sweep[axis]
    if spelt.named:
        variants = document["sweep"][axis]
        return {
            **document,
            "sweep": {
                axis: {name: {**own, tuning.over: picks[name]} for name, own in variants.items()},
                **sweep,
            },
        }
    values = document["sweep"][axis]
    return {
        **document,
        "sweep": {"zip": {axis: values, tuning.over: [picks[value] for value in values]}, **sweep},
    }


def grids(claim: Claim, scale: Scale) -> list[str]:
    """What each study sweeps that is not tuned, and what the scale changes in it, a line each."""
    found = []
    for name, study in claim.studies.items():
        changes = [
            f"{key} {format_setting(value)}"
            for key, value in getattr(study, scale).items()
            if "sweep" not in key
        ]
        swept = [] if study.tuned else _sweep_axes(study.document(scale).get("sweep", {}))
        if line := "; ".join([*changes, *swept]):
            found.append(f"{name}: {line}")
    return found


def choices(claim: Claim, results: Mapping[str, Any]) -> tuple[list[str], bool]:
    """What was chosen for each study that is tuned, a line each, and whether any of it lies at an
    end of its grid.
    """
    found: dict[str, list[str]] = {}
    at_edge = False
    for name, study in claim.studies.items():
        if study.tuned is not None:
            over, ran = study.tuned.over, results[name].final
            for row in _choice(study.tuned, results[study.tuned.on]).table.to_dict("records"):
                if not all(
                    (ran[key] == row[key]).any() for key in row if key in ran and key != over
                ):
                    continue  # chosen for another study
                at_edge |= bool(row["edge"])
                edge = ", an end of its grid" if row["edge"] else ""
                who = [
                    format_setting(value)
                    for key, value in row.items()
                    if key not in (over, "edge", "tied")
                ]
                found.setdefault(f"{name}: {over} = {format_setting(row[over])}{edge}", []).extend(
                    who
                )
    return [
        f"{what}, for {', '.join(who)}" if who else what for what, who in found.items()
    ], at_edge


def _sweep_axes(sweep: Mapping[str, Any]) -> Iterator[str]:
    """The axes of a sweep in words; of named variants the names, and their own grids."""
    for key, values in sweep.items():
        if key == "seeds":
            yield f"{values} seeds"
        elif (
            isinstance(values, list)
            and is_seed(key)
            and values == list(range(values[0], values[-1] + 1))
        ):
            yield f"{key} {values[0]}" + f" to {values[-1]}" * (len(values) > 1)
        elif isinstance(values, list):
            yield f"{key} {', '.join(map(format_setting, values))}"
        elif key == "zip":
            yield " with ".join(_sweep_axes(values))
        else:
            own = {name: "; ".join(_sweep_axes(of.get("sweep", {}))) for name, of in values.items()}
            yield f"{key} " + ", ".join(
                f"{name} ({grid})" if grid else name for name, grid in own.items()
            )


def _choice(tuning: Tuning, results: Results) -> Best:
    """What the study that chooses has chosen, on all of its seeds; other seeds report."""
    return best(results, over=tuning.over, by=tuning.by)


def _study_order(claim: Claim) -> list[str]:
    """The studies, those that choose before those for which they choose."""
    order: list[str] = []
    waiting = dict(claim.studies)
    while waiting:
        ready = [
            name
            for name, study in waiting.items()
            if study.tuned is None or study.tuned.on in order
        ]
        if not ready:
            names = ", ".join(waiting)
            raise ConfigError(
                "studies", f"{names}: tuned on a study that is not there, or waits too", claim.id
            )
        order += ready
        waiting = {name: study for name, study in waiting.items() if name not in ready}
    return order
