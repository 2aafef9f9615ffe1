"""`sweep.search.halving`: rungs of growing budget, from each of which the best settings go on to
the next.

halving: {key: stop.epochs, from: 1, to: 27, factor: 3, by: test_accuracy}

Rung r has the budget from * factor^r, at most `to`, and of n settings n // factor go on, at least
one. Every run of a rung begins anew, so that it depends on its config alone; with continued runs
the cost would be smaller by at most a factor of factor / (factor - 1).

Source: Jamieson, Talwalkar (2016), Non-stochastic best arm identification and hyperparameter
optimization,
arXiv:1502.07943, algorithm 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError, format_value, unknown_key
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.plain import put
from laggard.experiments.config.search import numbered_draws

PLACE = "sweep.search.halving"
GROWING = {"stop.epochs": float, "stop.updates": int, "stop.gradients": int, "stop.time": float}
"""The keys that a rung sets, and the type of their values."""
COMPARED = {"test_accuracy": 1, "test_loss": -1, "train_loss": -1}
"""Columns of the metrics by which settings are compared, and 1 where greater is better."""
SEEDS = ("seeds", "seed", "learning.seed", "cluster.seed", "most", "search")
"""What may stand in `sweep` beside a search with rungs: the score of a setting is the mean over all
seeds.
"""


MOST_RUNGS = 30  # a factor of 3e13, where it is two: each rung is a sweep


class Halving(NamedTuple):
    """The rungs of a search.

    Attributes:
        key: which limit of a run grows.
        budgets: its value in each rung.
        settings: how many settings each rung tries.
        by: the column of the metrics by which settings are compared.
    """

    key: str
    budgets: Sequence[float]
    settings: Sequence[int]
    by: str


def halving_of(config: Config) -> Halving | None:
    """The rungs of a config's search, where it has some.

    Raises:
        ConfigError: a key is unknown, missing or out of its range, or another axis than seeds is
            swept.
    """
    search = config.sweep.get("search")
    if not isinstance(search, Mapping) or "halving" not in search:
        return None
    key, low, high, factor, by = _read_keys(search["halving"])
    if other := [axis for axis in config.sweep if axis not in SEEDS]:
        raise ConfigError(
            PLACE, f"expected no axis but seeds beside the search, got {', '.join(other)}"
        )
    if by == "test_accuracy" and not config.task.measures_accuracy:
        raise ConfigError(
            f"{PLACE}.by", f"expected a loss, since {config.task.model} has no accuracy, got {by!r}"
        )
    rungs = 1 + math.ceil((math.log(high) - math.log(low)) / math.log(factor) - 1e-9)
    if rungs > MOST_RUNGS:
        steps = f"from {low:g} to {high:g} by a factor of {factor}"
        raise ConfigError(PLACE, f"expected at most {MOST_RUNGS} rungs, got {rungs} {steps}")
    budgets, settings = [low], [len(numbered_draws(search, "sweep.search"))]
    while budgets[-1] < high:
        budgets.append(min(budgets[-1] * factor, high))
        settings.append(max(1, settings[-1] // factor))
    return Halving(key, budgets, settings, by)


def rung_of(config: Config, halving: Halving, number: int, only: Sequence[int]) -> Config:
    """The config of a rung: the draws with the numbers `only`, to its budget, under a name of its
    own.

    Raises:
        ConfigError: the budget cannot be.
    """
    search = {key: value for key, value in config.sweep["search"].items() if key != "halving"}
    sweep = {**config.sweep, "search": {**search, "only": sorted(only)}}
    name = f"{config.name[:70]}-rung{number + 1}"
    return fill_swept_keys(
        put(
            {**config.explicit(), "name": name, "sweep": sweep},
            halving.key,
            halving.budgets[number],
        )
    )


def check_rungs(config: Config) -> None:
    """Check that the first and the last rung of a config's search could run, where it has rungs.

    Raises:
        ConfigError: they could not.
    """
    if (halving := halving_of(config)) is not None:
        # all have been checked before
        first = next(iter(numbered_draws(config.sweep["search"], "sweep.search")))
        for number in (0, len(halving.budgets) - 1):
            runs(rung_of(config, halving, number, [first]))


def refuse_rungs(config: Config) -> None:
    """Refuse a config whose search has rungs, where one grid is simulated, and what is no config.

    Raises:
        ConfigError: it has.
        TypeError: it is none.
    """
    if not isinstance(config, Config):
        raise TypeError(f"expected a config, as load(path) reads one, got {config!r}")
    if halving_of(config) is not None:
        raise ConfigError(
            PLACE,
            "expected none here: use `laggard sweep`, or halve() of laggard.experiments.running.halving",
        )


def _read_keys(halving: Any) -> tuple[str, float, float, int, str]:
    if not isinstance(halving, Mapping):
        raise ConfigError(
            PLACE, f"expected {{key: stop.epochs, from: 1, to: 27}}, got {format_value(halving)}"
        )
    defaults = {"key": "stop.epochs", "from": None, "to": None, "factor": 3, "by": "test_accuracy"}
    for key in halving:
        if key not in defaults:
            raise unknown_key(str(key), defaults).relocate(key=f"{PLACE}.{key}")
    own = {**defaults, **halving}
    for key, known in {"key": tuple(GROWING), "by": tuple(COMPARED)}.items():
        if own[key] not in known:
            raise ConfigError(
                f"{PLACE}.{key}",
                f"expected one of {', '.join(known)}, got {format_value(own[key])}",
            )
    kind = GROWING[own["key"]]
    for key, least in {"from": 0, "to": own["from"], "factor": 1}.items():
        value, whole = own[key], key == "factor" or kind is int
        fine = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fine or not least < value < 1e30:
            what = "a whole number" if whole else "a number"
            raise ConfigError(
                f"{PLACE}.{key}", f"expected {what} > {least:g}, got {format_value(value)}"
            )
    return own["key"], kind(own["from"]), kind(own["to"]), own["factor"], own["by"]
