"""Successive halving: a sweep for each rung of a search; its best settings go on to the next rung.

Rungs are synchronous: the order in which runs end does not decide. In ASHA (Li et al. 2020,
arXiv:1810.05934) it does: a setting goes on as soon as it is among the best that have ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, label_settings, runs
from laggard.experiments.config.rungs import PLACE, Halving, halving_of, rung_of
from laggard.experiments.config.search import COMPARED, numbered_draws
from laggard.experiments.results.results import Results
from laggard.experiments.running.estimate import rough_gradients


class Rung(NamedTuple):
    """A rung that has ended.

    Attributes:
        budget: the limit of its runs.
        results: its runs.
        scores: the mean score of each setting over seeds, by the number of its draw; greater is
            better.
        best: the numbers of the settings that go on, the best first; of the last rung the best one.
        gradients: the number of gradients evaluated, over all members.
    """

    budget: float
    results: Results
    scores: Mapping[int, float]
    best: Sequence[int]
    gradients: int


def halve(config: Config, simulate: Callable[[Config], Results]) -> Iterator[Rung]:
    """Yield the rungs of a config's search as they end.

    A diverged member is worse than any other. Of equal settings the first drawn is better.

    Args:
        simulate: the sweep of a rung, such as `sweep` or `partial(sweep, out="results")`.

    Raises:
        ConfigError: the config has no rungs, or its runs lack the measure that compares settings.
        SweepError: runs failed.
    """
    halving = halving_of(config)
    if halving is None:
        raise ConfigError(PLACE, "expected rungs, as {key: stop.epochs, from: 1, to: 27}")
    draws = numbered_draws(config.sweep["search"], "sweep.search")
    cache: dict[Any, Any] = {}
    labels = {number: label_settings(config, draw, cache) for number, draw in draws.items()}
    left = list(draws)
    survivors = [*halving.settings[1:], 1]
    for number, budget in enumerate(halving.budgets):
        results = simulate(rung_of(config, halving, number, left))
        scores = _scores(results, {draw: labels[draw] for draw in left}, halving.by)
        ranked = sorted(scores, key=lambda draw: (-scores[draw], draw))
        left = ranked[: survivors[number]]
        gradients = 0
        for result in results:
            members = len(RunSpec(result.config).members)
            gradients += result.manifest["evaluated"] * members
        yield Rung(budget, results, scores, left, gradients)


def _scores(results: Results, labels: Mapping[int, Mapping[str, Any]], by: str) -> dict[int, float]:
    """The score of each draw: the mean of its members at the end; greater is better.

    Args:
        labels: the labels of each draw, as a run at its settings has them.
    """
    keys = list(next(iter(labels.values())))
    worst = -np.inf
    if by == "test_accuracy":
        worst = 0.0
    scores: dict[tuple[Any, ...], list[float]] = {}
    for result in results:
        metrics = result.metrics
        if by not in metrics:
            measured = ", ".join(key for key in COMPARED if key in metrics) or "none"
            expected = f"expected one of the measures that runs have ({measured})"
            raise ConfigError(f"{PLACE}.by", f"{expected}, got {by!r}")
        last = metrics.groupby("member")[by].last(skipna=False)
        for member, values in enumerate(RunSpec(result.config).members):
            settings = {**result.labels, **values}
            score = COMPARED[by] * float(last[member])  # the sign makes greater better
            if not np.isfinite(score):
                score = worst
            scores.setdefault(tuple(settings[key] for key in keys), []).append(score)
    return {number: fmean(scores[tuple(own.values())]) for number, own in labels.items()}


def expected_gradients(config: Config, halving: Halving) -> list[float]:
    """Gradients of all members in each rung, from the config alone.

    They are proportional to the number of settings and to the budget.
    """
    draws = numbered_draws(config.sweep["search"], "sweep.search")
    first = rung_of(config, halving, 0, list(draws))
    gradients = 0.0
    for spec in runs(first):
        gradients += rough_gradients(spec) * len(spec.members)
    unit = gradients / halving.settings[0] / halving.budgets[0]
    rungs = zip(halving.settings, halving.budgets, strict=True)
    return [unit * settings * budget for settings, budget in rungs]
