"""The trials by which each entrant chooses its rates, within one budget of computed gradients.

Trials are a random search with successive halving: of n settings a third goes on from the time
limit / 9 to the limit / 3, and a third of these to the limit. So settings of one method are
compared at equal virtual time. All settings and choosing seeds of a timeline are one ensemble. A
fifth of a training set is held out in the trials: settings are ranked by the loss on that part, so
that neither the test set nor a seed that reports takes part in a choice.

No method computes more gradients in all of its trials than the budget. It tries as many settings as
the budget pays for on three seeds; if these are fewer than nine, on one seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, fill_swept_keys, runs
from laggard.experiments.config.search import numbered_draws
from laggard.experiments.league.entrants import DottedKeys, Entrant, clock, with_settings
from laggard.experiments.running.halving import Rung, halve
from laggard.experiments.running.tuning import Simulate
from laggard.simulator import Stop

CHOOSING_SEEDS = (0, 1, 2)
"""Learning seeds of the trials; their timeline has the first. None of them reports."""
FEWEST_SETTINGS = 9
"""Settings below which one choosing seed has to do."""
FACTOR, RUNGS = 3, 3


class TrialPlan(NamedTuple):
    """The trials of an entrant.

    Attributes:
        settings: the number of settings that it tries.
        seeds: the choosing seeds.
        gradients: the largest number of gradients that all trials compute.
    """

    settings: int
    seeds: tuple[int, ...]
    gradients: int


@dataclass(frozen=True)
class Chosen:
    """The choice of an entrant's trials.

    Attributes:
        plan: the trials.
        settings: the dotted keys that they chose, with their values.
        gradients: the gradients that they computed.
    """

    plan: TrialPlan
    settings: DottedKeys
    gradients: int


class BudgetError(ConfigError):
    """A method needs more gradients for its trials than the budget pays for.

    Attributes:
        gradients: the number that it needs.
    """

    def __init__(self, problem: str, gradients: int, budget: float) -> None:
        super().__init__("", f"{problem}; the budget of each method is {budget:,.0f}")
        self.gradients = gradients


def plan_trials(entrant: Entrant, limit: float, budget: float, most: int) -> TrialPlan:
    """Plan as many settings as the budget pays for, at most `most`, or the number that the entrant
    asks for.

    Args:
        limit: the time limit (s).

    Raises:
        BudgetError: the entrant asks for more than the budget pays for, or needs more for one
            trial.
    """
    gradients = [0] * RUNGS
    for timeline in entrant.timelines:
        config = fill_swept_keys(with_settings(_document(entrant), timeline))
        for rung, time in enumerate(_times(limit)):
            computed = clock(config, Stop(time=time)).progress.gradients
            gradients[rung] = max(gradients[rung], computed)
    if entrant.asked is not None:
        cost = _trial_gradients(entrant.asked, len(CHOOSING_SEEDS), gradients)
        if cost > budget:
            problem = f"asks for {entrant.asked} settings, of up to {cost:,} gradients"
            raise BudgetError(problem, cost, budget)
        return TrialPlan(entrant.asked, CHOOSING_SEEDS, cost)
    plans = []
    for seeds in (CHOOSING_SEEDS, CHOOSING_SEEDS[:1]):
        settings = 0
        while settings < most and _trial_gradients(settings + 1, len(seeds), gradients) <= budget:
            settings += 1
        plans.append(TrialPlan(settings, seeds, _trial_gradients(settings, len(seeds), gradients)))
    three_seeds, one_seed = plans
    if three_seeds.settings >= min(FEWEST_SETTINGS, most):
        return three_seeds
    if one_seed.settings == 0:
        least = _trial_gradients(1, 1, gradients)
        problem = f"one setting of {entrant.name} takes up to {least:,} gradients"
        raise BudgetError(problem, least, budget)
    return one_seed


def _times(limit: float) -> list[float]:
    """The virtual times (s) at which the rungs end."""
    return [limit / FACTOR**rung for rung in reversed(range(RUNGS))]


def _trial_gradients(settings: int, seeds: int, gradients: Sequence[int]) -> int:
    """The gradients of all rungs, where one run of each rung computes `gradients`."""
    cost = 0
    for of_rung in gradients:
        cost += settings * seeds * of_rung
        settings = max(1, settings // FACTOR)
    return cost


def run_trials(
    entrant: Entrant, plan: TrialPlan, limit: float, held_out: float, simulate: Simulate
) -> Chosen:
    """Run the trials of an entrant.

    Args:
        limit: the time limit (s).
        held_out: the share of the training set on which settings are compared; 0 for the test set.

    Raises:
        SweepError: a run failed.
        ConfigError: the trials computed more gradients than planned.
    """
    config = trials_config(entrant, plan, limit, held_out)
    gradients = 0
    last: Rung | None = None
    for rung in halve(config, lambda part: simulate(part, runs(part))):
        for result in rung.results:
            members = len(RunSpec(result.config).members)
            gradients += result.manifest["mileage"]["gradients"] * members
        last = rung
    assert last is not None
    if gradients > plan.gradients:
        problem = f"expected at most {plan.gradients:,} gradients in its trials, got {gradients:,}"
        raise ConfigError("", f"{entrant.name}: {problem}")
    draws = numbered_draws(config.sweep["search"], "sweep.search")
    return Chosen(plan, draws[last.best[0]], gradients)


def trials_config(entrant: Entrant, plan: TrialPlan, limit: float, held_out: float) -> Config:
    """The config of the trials: a search with rungs of growing time."""
    halving = {"key": "stop.time", "from": _times(limit)[0], "to": limit, "factor": FACTOR}
    search = {**entrant.ranges, "runs": plan.settings, "halving": {**halving, "by": "test_loss"}}
    document: Mapping[str, Any] = {
        **_document(entrant),
        "name": folder_name(entrant.name),
        "stop": {"time": limit},
        "evaluate": {"every_seconds": limit},
        "sweep": {"search": search, "learning.seed": list(plan.seeds)},
    }
    if held_out:
        document = put(document, "task.validation", held_out)
    return fill_swept_keys(document)


def folder_name(name: str) -> str:
    """The folder of an entrant's trials."""
    return f"trials {name.replace(':', '.')}"


def _document(entrant: Entrant) -> Mapping[str, Any]:
    return entrant.config.explicit()
