"""Intervals of numbers that all seeds make together, as the setting at which their mean is least."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from experiments.claims.expressions import calls, evaluated, used
from experiments.claims.statistics import SEED, drawn

DRAWS = 200
JOINING = "mean"
"""The statistic that estimates one number from all seeds, if no other dimension is named. (`share` counts them, and its
bar is a count too; `best` and `choice` choose on seeds of their own.)"""


def resampled(
    expression: str, statistics: Mapping[str, str], names: Mapping[str, Any], where: str, draws: int = DRAWS
) -> tuple[float, ...]:
    """What `expression` would be if the seeds were others: its values over bootstrap samples of the seeds.

    Each draw takes as many seeds as there are, with replacement, the same ones for all settings, for they are paired.
    None are taken where the expression keeps a number a seed, or has no seeds in it.

    Args:
        statistics: expressions by name, in order; those that join seeds are evaluated anew for each draw.
        names: what the studies and the statistics are.

    Raises:
        ConfigError: an expression has no value.

    Source: Efron (1979), Annals of Statistics 7.
    """
    anew: dict[str, str] = {}
    for name, said in statistics.items():
        if _joins(said, anew):
            anew[name] = said
    if not _joins(expression, anew) or SEED in xr.DataArray(evaluated(expression, names, where)).dims:
        return ()
    found = []
    for draw in range(draws):
        own = dict(names)
        with drawn(draw):
            for name, said in anew.items():
                own[name] = evaluated(said, own, where)
            found.append(float(np.asarray(evaluated(expression, own, where))))
    return tuple(found)


def _joins(expression: str, anew: Mapping[str, str]) -> bool:
    """Whether an expression makes one number of the seeds, or asks for one of the statistics `anew` that do."""
    return bool(used(expression) & anew.keys()) or any(count == 1 for count in calls(expression, JOINING))
