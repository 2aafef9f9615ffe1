"""`sweep.search.halving`: rungs of growing budget; the best settings of a rung go on to the next.

    halving: {key: stop.epochs, from: 1, to: 27, factor: 3, by: test_accuracy}

Rung r has the budget from * factor^r, at most `to`. Of n settings n // factor go on, at least one.
Every run of a rung starts from the beginning, so that it depends on its config alone; to continue
runs would save at most a factor of factor / (factor - 1).

Source: Jamieson, Talwalkar (2016), Non-stochastic best arm identification and hyperparameter
optimization, arXiv:1502.07943, algorithm 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.search import GROWING, numbered_draws, read_search

PLACE = "sweep.search.halving"
SEEDS = ("seeds", "seed", "learning.seed", "cluster.seed", "most", "search")
"""The keys of `sweep` that are allowed with a search with rungs: the score of a setting is its mean
over all seeds.
"""
MAX_RUNGS = 30  # a factor of 3e13 where `factor` is two; each rung is a sweep


class Halving(NamedTuple):
    """The rungs of a search.

    Attributes:
        key: the limit of a run that grows.
        budgets: its value in each rung.
        settings: the number of settings of each rung.
        by: the column of the metrics that compares settings.
    """

    key: str
    budgets: Sequence[float]
    settings: Sequence[int]
    by: str


def halving_of(config: Config) -> Halving | None:
    """The rungs of a config's search, if any.

    Raises:
        ConfigError: a key is unknown, missing or out of range, or another axis than seeds is swept.
    """
    search = config.sweep.get("search")
    if not isinstance(search, Mapping) or search.get("halving") is None:
        return None
    keys: Any = read_search(search, "sweep.search").halving
    low, high = _read_ends(keys)
    factor, by = keys.factor, keys.by
    others = [axis for axis in config.sweep if axis not in SEEDS]
    if others:
        problem = f"expected no axis but seeds besides the search, got {', '.join(others)}"
        raise ConfigError(PLACE, problem)
    if by == "test_accuracy" and not config.task.measures_accuracy:
        problem = f"expected a loss, since the task has no accuracy, got {by!r}"
        raise ConfigError(f"{PLACE}.by", problem)
    # 1e-9: a budget that is a power of the factor is reached exactly
    rungs = 1 + math.ceil((math.log(high) - math.log(low)) / math.log(factor) - 1e-9)
    if rungs > MAX_RUNGS:
        steps = f"from {low:g} to {high:g} by a factor of {factor}"
        raise ConfigError(PLACE, f"expected at most {MAX_RUNGS} rungs, got {rungs} {steps}")
    budgets = [low]
    settings = [len(numbered_draws(search, "sweep.search"))]
    for _ in range(rungs - 1):
        budgets.append(min(budgets[-1] * factor, high))
        settings.append(max(1, settings[-1] // factor))
    budgets[-1] = high
    return Halving(keys.key, budgets, settings, by)


def rung_of(config: Config, halving: Halving, number: int, only: Sequence[int]) -> Config:
    """The config of a rung, with its own name: the draws `only`, to the budget of the rung.

    Raises:
        ConfigError: the budget is invalid.
    """
    search = {key: value for key, value in config.sweep["search"].items() if key != "halving"}
    search["only"] = sorted(only)
    document = {
        **config.explicit(),
        "name": f"{config.name[:70]}-rung{number + 1}",
        "sweep": {**config.sweep, "search": search},
    }
    return fill_swept_keys(put(document, halving.key, halving.budgets[number]))


def check_rungs(config: Config) -> None:
    """Check that the first and the last rung of a config's search can run, if it has rungs.

    Raises:
        ConfigError: one of the two rungs is invalid.
    """
    halving = halving_of(config)
    if halving is None:
        return
    # one draw is enough: all draws have been checked with the config
    first = next(iter(numbered_draws(config.sweep["search"], "sweep.search")))
    for number in (0, len(halving.budgets) - 1):
        runs(rung_of(config, halving, number, [first]))


def refuse_rungs(config: Config) -> None:
    """Refuse a config with rungs in a command that simulates one grid.

    Raises:
        ConfigError: it has rungs.
        TypeError: `config` is not a config.
    """
    if not isinstance(config, Config):
        raise TypeError(f"expected a config, as load(path) reads one, got {config!r}")
    if halving_of(config) is not None:
        remedy = "use `laggard sweep`, or halve() of laggard.experiments.running.halving"
        raise ConfigError(PLACE, f"successive halving needs a sweep: {remedy}")


def _read_ends(keys: Any) -> tuple[float, float]:
    """The first and the last budget, `from` and `to`."""
    low, high = getattr(keys, "from"), keys.to
    if GROWING[keys.key] is int:
        for name, value in {"from": low, "to": high}.items():
            if not value.is_integer():
                problem = f"expected a whole number, got {format_value(value)}"
                raise ConfigError(f"{PLACE}.{name}", problem)
        low, high = int(low), int(high)
    if high <= low:
        raise ConfigError(f"{PLACE}.to", f"expected a number > {low:g}, got {format_value(high)}")
    return low, high
