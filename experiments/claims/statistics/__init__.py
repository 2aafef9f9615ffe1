"""The statistics that claims are decided by: numbers over settings and seeds, as arrays with named dimensions.

A dimension is a swept key, called by its last part (`delay`, `lr`, `seed`); an axis of named variants has its own name.
A member that diverged has accuracy 0 and infinite loss, and what is probed of it is infinite; who never reached a
target took infinitely long.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.claims.statistics import arrays, runs, staleness, theory
from experiments.claims.statistics.arrays import SEED, drawn
from experiments.claims.statistics.runs import array

__all__ = ["SEED", "STATISTICS", "array", "drawn"]

STATISTICS: Mapping[str, Callable[..., Any]] = {
    "final": runs.final,
    "per_update": runs.per_update,
    "per_sample": runs.per_sample,
    "when": runs.when,
    "curve": runs.curve,
    "staleness": staleness.staleness,
    "staler": staleness.staler,
    "at": arrays.at,
    "largest": arrays.largest,
    "nowhere": arrays.nowhere,
    "best": arrays.best,
    "choice": arrays.choice,
    "pick": arrays.pick,
    "nearest": arrays.nearest,
    "rises": arrays.rises,
    "slope": arrays.slope,
    "share": arrays.share,
    "mean": arrays.mean,
    "smallest": arrays.smallest,
    "greatest": arrays.greatest,
    "where_least": arrays.where_least,
    "setting": arrays.setting,
    "between": arrays.between,
    "last": arrays.last,
    "together": arrays.together,
    "harmonic": theory.harmonic,
    "log": np.log,
    "abs": np.abs,
}
"""What expressions may call."""
