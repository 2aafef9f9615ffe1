"""Probes: simulations that compute numbers which a run does not record, such as extra gradients."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.questions.measures import settings_names
from laggard.experiments.questions.probes.distances import closeness, expansions
from laggard.experiments.questions.probes.gradient_statistics import variation
from laggard.experiments.questions.probes.implicit_momentum import fit_momentum, momentum
from laggard.experiments.questions.probes.minima import leaving, leaving_by_parts
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.measures import is_seed
from laggard.experiments.running.run import circumstances

__all__ = ["PROBES", "closeness", "expansions", "fit_momentum", "leaving", "momentum", "run_probe"]

Probe = Callable[[Config, Mapping[str, Any]], list[dict[str, float]]]
PROBES: Mapping[str, Probe] = {
    "closeness": closeness,
    "expansions": expansions,
    "leaving": leaving,
    "leaving_by_parts": leaving_by_parts,
    "momentum": momentum,
    "variation": variation,
}
"""Name -> the probe: a function from a config and the arguments of `simulate` to rows of numbers.

A row has the keys `member`, `number`, and the settings that distinguish it from the member's
others.
"""


def run_probe(probe: str, planned: Sequence[RunSpec], out: Path) -> pd.DataFrame:
    """The numbers of a probe for some runs, in the format of `take`; stored under `out`.

    A member that diverged has no number. Its row is marked as lost.
    """
    tables = [_load_or_run(probe, spec, out) for spec in planned]
    table = pd.concat(tables, ignore_index=True)
    keys = [key for key in table if key not in ("member", "number", "run", "device")]
    names = settings_names(keys)
    if not any(is_seed(key) for key in keys):
        table["seed"] = planned[0].config.seed
    table = table.rename(columns={**names, "number": "value"}).drop(columns="member")
    return table.assign(measure=probe, lost=table["value"].isna())


def _load_or_run(probe: str, spec: RunSpec, out: Path) -> pd.DataFrame:
    """The rows of one run with its labels and its members' settings, simulated unless stored."""
    path = out / spec.config.name / f"{probe}-{spec.id}.csv"
    if not path.is_file():
        arguments = spec.arguments()
        start = perf_counter()
        rows = pd.DataFrame(PROBES[probe](spec.config, arguments))
        made = circumstances(spec, arguments["task"], perf_counter() - start)
        with whole_file(path) as part:
            rows.assign(device=made["device"]).to_csv(part, index=False)
    stored = pd.read_csv(path)
    settings = pd.DataFrame(spec.members).reindex(stored["member"]).reset_index(drop=True)
    labelled = stored.assign(**spec.labels, run=spec.id)
    return pd.concat([labelled, settings], axis=1)
