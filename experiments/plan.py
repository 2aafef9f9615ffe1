"""What a sweep would do: its runs, which of them are there already, and what the others will take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments import processes
from experiments.config import Config
from experiments.forecasts import START_UP, Forecast, forecast, makespan
from experiments.grid import Run, members, runs, said
from experiments.store import kept, run_id
from experiments.sweeps import jobs_for

PROBING = 20.0
"""Seconds that all forecasts of a plan may take, beside reading data."""


class Planned(NamedTuple):
    """A run of a plan: how many members it has, and what it will take; None where it is there already."""

    run: Run
    members: int
    forecast: Forecast | None


class Plan(NamedTuple):
    """The runs of a sweep, how many of them would be simulated at once, and where they are kept."""

    runs: list[Planned]
    jobs: int
    folder: Path

    @property
    def missing(self) -> list[Forecast]:
        """What the runs that are not there yet will take."""
        return [planned.forecast for planned in self.runs if planned.forecast is not None]

    @property
    def seconds(self) -> float:
        """Wall time of the sweep."""
        took = makespan([each.seconds for each in self.missing], self.jobs)
        return took + (START_UP if self.jobs > 1 else 0.0)

    @property
    def memory(self) -> float:
        """Bytes that the processes take together at most."""
        return sum(sorted((each.memory for each in self.missing), reverse=True)[: self.jobs])

    def lines(self) -> Iterator[str]:
        """The plan as people read it, a line per run and one for all of them."""
        texts = [said(planned.run) for planned in self.runs]
        width = max(map(len, texts))
        for planned, text in zip(self.runs, texts, strict=True):
            each = planned.forecast
            left = "finished already" if each is None else f"about {duration(each.seconds):>7}  {size(each.memory):>8}"
            ensemble = f"{planned.members} member{'s' * (planned.members > 1)}"
            yield f"{run_id(planned.run.config)}  {text:<{width}}  {ensemble:>11}  {left}"
        trained = sum(planned.members for planned in self.runs)
        there = len(self.runs) - len(self.missing)
        yield ""
        yield f"{len(self.runs)} runs, {trained} members, in {self.folder}: {there} finished already"
        if self.missing:
            at_once = f"{self.jobs} at once" if self.jobs > 1 else "one after the other"
            yield (
                f"the other {len(self.missing)}, {at_once}: about {duration(self.seconds)} and {size(self.memory)} of "
                "memory, an estimate from the first moments of each on this machine as busy as it is now"
            )


def plan(
    config: Config, out: str | Path = "results", force: bool = False, jobs: int | None = None, backend: str = "loky"
) -> Plan:
    """What `sweep` would do with the same arguments; runs that differ in seeds only are taken to be alike.

    Raises:
        ConfigError: one of the runs cannot be run.
        DataMissingError: a data set is not there.
    """
    processes.check(backend)
    planned = runs(config)
    there = [not force and kept(run.config, out) is not None for run in planned]
    missing = [run.config for run, finished in zip(planned, there, strict=True) if not finished]
    jobs = max(1, min(jobs or jobs_for(config, missing, backend), len(missing)))
    kinds = {_kind(each): each for each in missing}
    seconds = min(0.5, PROBING / max(1, len(kinds)))
    alone = {} if jobs == 1 else {"threads": config.threads or 1}
    known = {kind: forecast(each.model_copy(update=alone), seconds) for kind, each in kinds.items()}
    forecasts = [None if finished else known[_kind(run.config)] for run, finished in zip(planned, there, strict=True)]
    sizes = [len(members(run.config)) for run in planned]
    return Plan(list(map(Planned, planned, sizes, forecasts)), jobs, Path(out) / config.name)


def _kind(config: Config) -> str:
    """What runs have in common that take equally long."""
    document: dict[str, Any] = config.resolved()
    document["seed"] = document["cluster"]["seed"] = document["learning"]["seed"] = None
    return json.dumps(document, sort_keys=True, default=str)


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Example:
        >>> duration(0.234), duration(75), duration(5000), duration(200_000)
        ('0.2 s', '75 s', '83 min', '56 h')
    """
    for unit, each in (("h", 3600), ("min", 60)):
        if seconds >= 2 * each:
            return f"{seconds / each:.0f} {unit}" if seconds >= 10 * each else f"{seconds / each:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def size(memory: float) -> str:
    """Bytes as people say them.

    Example:
        >>> size(3.2e8), size(5e9)
        ('305 MiB', '4.7 GiB')
    """
    return f"{memory / 2**30:.1f} GiB" if memory >= 2**30 else f"{memory / 2**20:.0f} MiB"
