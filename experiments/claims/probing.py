"""Probes: simulations that compute numbers which runs do not record, such as additional
gradients.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from laggard.experiments.claims.statistics import array
from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.questions.probes.distances import closeness, expansions
from laggard.experiments.questions.probes.gradient_statistics import variation
from laggard.experiments.questions.probes.implicit_momentum import fit_momentum, momentum
from laggard.experiments.questions.probes.minima import leaving
from laggard.experiments.results.files import whole_file
from laggard.experiments.running.run import circumstances

__all__ = [
    "PROBES",
    "closeness",
    "expansions",
    "fit_momentum",
    "leaving",
    "momentum",
    "run_probe",
    "variation",
]

Probe = Callable[[Config, Mapping[str, Any]], list[dict[str, float]]]
PROBES: Mapping[str, Probe] = {
    "closeness": closeness,
    "expansions": expansions,
    "leaving": leaving,
    "momentum": momentum,
    "variation": variation,
}
"""What a study may ask for instead of runs: from a config, and what it gives `simulate`, to a row a
number.
"""


def run_probe(probe: str, config: Config, out: Path) -> xr.DataArray:
    """A probe of every run of a config, over its swept keys and whatever the probe adds; kept under
    `out`.

    A member that diverged has no number, which counts as an infinite one: nothing is to be chosen
    for it. The array's attribute `made` says how each was made, by the id of what was kept, as a
    run's manifest does.
    """
    every = runs(config)
    kept = [_load_or_run(probe, run, out) for run in every]
    rows = pd.concat([found for found, _ in kept], ignore_index=True)
    made = {_probe_key(probe, run): how for run, (_, how) in zip(every, kept, strict=True)}
    return array(rows.drop(columns=["member"]), rows["number"].fillna(np.inf)).assign_attrs(
        made=made
    )


def _probe_key(probe: str, run: RunSpec) -> str:
    return hashlib.sha256(f"{probe} {run.id}".encode()).hexdigest()[:12]


class CountedTask:
    """A task that counts what it computes, and is it in all else.

    Attributes:
        computed: gradients so far, of every model by itself.
    """

    def __init__(self, task: Any) -> None:
        self._task, self.computed = task, 0

    def gradients(self, weights: Any, batches: Any) -> Any:
        """Those of the task."""
        self.computed += len(weights) * len(weights[0])
        return self._task.gradients(weights, batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def _load_or_run(probe: str, run: RunSpec, out: Path) -> tuple[Any, dict[str, Any]]:
    """The rows of one run, with its labels and its members' settings, and how they were made; read
    where they are.
    """
    path = out / run.config.name / f"{probe}-{_probe_key(probe, run)}.csv"
    how = path.with_suffix(".json")
    if not path.is_file() or not how.is_file():
        given, began = run.arguments(), perf_counter()
        given["task"] = CountedTask(given["task"])
        with whole_file(path) as part:
            pd.DataFrame(PROBES[probe](run.config, given)).to_csv(part, index=False)
            made = circumstances(run, given["task"], perf_counter() - began)
            made["gradients"] = given["task"].computed
            how.write_text(json.dumps(made), encoding="utf-8")
    found = pd.read_csv(path)
    settings = pd.DataFrame(run.members).reindex(found["member"]).reset_index(drop=True)
    return pd.concat([found.assign(**run.labels), settings], axis=1), json.loads(
        how.read_text(encoding="utf-8")
    )
