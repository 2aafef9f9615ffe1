"""Successive halving: a sweep for each rung of a search, whose best settings go on to the next
rung.

Rungs are synchronous. In ASHA (Li et al. 2020, arXiv:1810.05934) a setting goes on as soon as it is
among the best of those that have ended, so that the order in which runs end decides; here it
decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from laggard.experiments.config.axes import axis_label
from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, printable_labels, runs
from laggard.experiments.config.rungs import COMPARED, PLACE, Halving, halving_of, rung_of
from laggard.experiments.config.search import numbered_draws
from laggard.experiments.results.results import Results
from laggard.experiments.running.estimate import rough_gradients


class Rung(NamedTuple):
    """A rung that is over.

    Attributes:
        budget: to which its runs went.
        results: of its runs.
        scores: of each of its settings, by the number of the draw: the mean over seeds; greater is
            better.
        best: the numbers of those that go on, the best first; of the last rung the one that is
            best.
        gradients: that were evaluated for all members.
    """

    budget: float
    results: Results
    scores: Mapping[int, float]
    best: Sequence[int]
    gradients: int


def halve(config: Config, simulate: Callable[[Config], Results]) -> Iterator[Rung]:
    """The rungs of a config's search, one after the other.

    A member that has diverged is worse than any other. Of equals the one that was drawn first is
    the better.

    Args:
        simulate: the sweep of a rung, as `sweep` or `partial(sweep, out="results")`.

    Raises:
        ConfigError: the config has no rungs, or its runs do not measure by what settings are
            compared.
        SweepError: runs failed.
    """
    halving = halving_of(config)
    if halving is None:
        raise ConfigError(PLACE, "expected rungs, as {key: stop.epochs, from: 1, to: 27}")
    draws = numbered_draws(config.sweep["search"], "sweep.search")
    left, following = list(draws), [*halving.settings[1:], 1]
    for number, budget in enumerate(halving.budgets):
        results = simulate(rung_of(config, halving, number, left))
        scores = _scores(results, {each: draws[each] for each in left}, halving.by)
        left = sorted(left, key=lambda each: (-scores[each], each))[: following[number]]
        gradients = sum(
            of.manifest["evaluated"] * len(RunSpec(of.config).members) for of in results
        )
        yield Rung(budget, results, scores, left, gradients)


def _scores(results: Results, draws: Mapping[int, Mapping[str, Any]], by: str) -> dict[int, float]:
    """The score of each draw: the mean of its members at the end, with the sign that makes greater
    better.
    """
    found: dict[tuple[Any, ...], list[float]] = {}
    worst = 0.0 if by == "test_accuracy" else -np.inf
    for result in results:
        metrics = result.metrics
        if by not in metrics:
            there = ", ".join(key for key in COMPARED if key in metrics) or "none"
            raise ConfigError(
                f"{PLACE}.by", f"expected one of the measures that runs have ({there}), got {by!r}"
            )
        last = metrics.groupby("member")[by].last(skipna=False)
        for member, values in enumerate(RunSpec(result.config).members):
            value = COMPARED[by] * float(last[member])
            settings = {**result.labels, **values}
            key = tuple(settings[each] for each in next(iter(draws.values())))
            found.setdefault(key, []).append(value if np.isfinite(value) else worst)
    labels = {
        number: {key: axis_label(value) for key, value in draw.items()}
        for number, draw in draws.items()
    }
    return {
        number: fmean(found[tuple(printable_labels(label).values())])
        for number, label in labels.items()
    }


def expected_gradients(config: Config, halving: Halving) -> list[float]:
    """Gradients of all members in each rung, in proportion to its settings and its budget; nothing
    is run or read.
    """
    first = rung_of(
        config, halving, 0, list(numbered_draws(config.sweep["search"], "sweep.search"))
    )
    gradients = sum(rough_gradients(spec) * len(spec.members) for spec in runs(first))
    each = gradients / halving.settings[0] / halving.budgets[0]
    return [
        each * settings * budget
        for settings, budget in zip(halving.settings, halving.budgets, strict=True)
    ]
