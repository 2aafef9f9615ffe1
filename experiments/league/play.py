"""A league from its setting to its rows: trials, the target, the runs that report, the places."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, fill_swept_keys, runs
from laggard.experiments.league.entrants import (
    ALL_REDUCE,
    COMPULSORY,
    DottedKeys,
    Entrant,
    clock,
    find_entrants,
    with_settings,
)
from laggard.experiments.league.scores import rank_entrants
from laggard.experiments.league.setting import LeagueSetting
from laggard.experiments.league.trials import (
    CHOOSING_SEEDS,
    BudgetError,
    Chosen,
    TrialPlan,
    plan_trials,
    run_trials,
)
from laggard.experiments.results.measures import measure_runs
from laggard.experiments.results.results import Results
from laggard.experiments.running.sweep import SweepError
from laggard.experiments.running.tuning import Simulate

if TYPE_CHECKING:
    import pandas as pd

EXTENT = 1.5
"""The length of a run that reports, in time limits: a later arrival at the target is a miss."""
ACCURACY_MARGIN, LOSS_FACTOR = 0.002, 1.01
"""The margin by which the target is easier than the overlapped all-reduce's final value."""
AS_GIVEN, SLOW = "as given", "one worker 5 x slower"
SLOW_FACTOR = 5
MEASURES_SHOWN = ("final", "waiting", "gradients", "cost_to")
EVALUATIONS_OF_LOSS, EVALUATIONS_OF_ACCURACY = 50, 25
"""Evaluations within the time limit: those of a test set take long."""
FEWEST_SEEDS = 6
"""Seeds that report: fewer have no interval of 95 %."""


@dataclass(frozen=True)
class EntrantRow:
    """An entrant in the table.

    Attributes:
        entrant: the method.
        choice: the choice of its trials.
        times: for each condition the seconds to the target, in the order of the seeds; infinite
            where it was missed.
        places: the place by condition.
        measures: medians over the seeds on the cluster as given: `final` (accuracy or loss),
            `waiting`, `gradients` (computed in a run) and `cost_to` (worker-seconds to the target).
        runs: the ids of the runs that report.
    """

    entrant: Entrant
    choice: Chosen
    times: Mapping[str, Sequence[float]]
    places: Mapping[str, int]
    measures: Mapping[str, float]
    runs: Sequence[str]

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.entrant.name

    @property
    def settings(self) -> DottedKeys:
        """The settings of its form, and the settings that its trials have chosen."""
        return {**self.entrant.settings, **self.choice.settings}


@dataclass(frozen=True)
class League:
    """A league that has ended.

    Attributes:
        setting: the cluster and the task.
        limit: the time limit (s).
        budget: the largest number of gradients that a method computes in all its trials.
        measure, target: the column of the metrics, and the value to be reached.
        seeds: the seeds that reported.
        rows: the entrants by place.
        refused: the reasons why other methods did not enter.
        too_dear: the names of the refused methods that need a larger budget.
        enough: the least integer budget that admits all methods, in units of what the overlapped
            all-reduce computes.
        slow_worker: the worker that is slowed down in the second condition.
        results: the runs that reported.
        report: the config of these runs.
    """

    setting: LeagueSetting
    limit: float
    budget: float
    measure: str
    target: float
    seeds: Sequence[int]
    rows: Sequence[EntrantRow]
    refused: Mapping[str, str]
    too_dear: Sequence[str]
    enough: int
    slow_worker: int
    results: Results
    report: Config


def play(
    setting: LeagueSetting,
    names: Sequence[str],
    simulate: Simulate,
    budget: float = 25,
    seeds: int = 12,
    tell: Callable[[str], None] = lambda _: None,
    only_as_given: bool = False,
) -> League:
    """Run a league: trials, the target, and the runs that report.

    Args:
        names: the names of the methods, as of `names_of_methods`; their order changes nothing.
        simulate: simulates runs, as `partial(sweep, out=out)` does.
        budget: gradients of a method's trials, in units of what the overlapped all-reduce computes
            within the time limit.
        seeds: the number of seeds that report.
        tell: called with each line of progress.
        only_as_given: whether to leave out the condition with a slower worker.

    Raises:
        ConfigError: the cluster or the task does not fit, or the number of seeds is too small.
        DataMissingError: the data set of the task is not available.
        SweepError: runs of a compulsory opponent, or runs that report, have failed.
    """
    first_seed = max(CHOOSING_SEEDS) + 1
    reporting = range(first_seed, first_seed + seeds)
    if seeds < FEWEST_SEEDS:
        problem = f"expected at least {FEWEST_SEEDS}, for an interval of 95 %, got {seeds}"
        raise ConfigError("", problem, "seeds")
    entrants, refused = find_entrants(setting, sorted(set(names)), CHOOSING_SEEDS[0])
    opponent = next(entrant for entrant in entrants if entrant.name == ALL_REDUCE)
    RunSpec(opponent.config).task()  # missing data end the league here, not after some trials
    end = clock(opponent.config, opponent.config.stop.build()).progress
    gradients = budget * end.gradients
    tell(f"time limit {end.time:.4g} s; {gradients:,.0f} gradients a method for its trials")
    plans, too_dear = _plan_all(entrants, end.time, gradients, setting.settings)
    refused |= {name: error.problem for name, error in too_dear.items()}
    dearest = max((error.gradients for error in too_dear.values()), default=0)
    enough = math.ceil(dearest / end.gradients)
    if too_dear:
        tell(
            f"{len(too_dear)} of {len(entrants)} methods exceed the budget; "
            f"a budget of {enough} admits all"
        )
    for name in COMPULSORY:
        if name in too_dear:
            problem = f"{too_dear[name].problem}: expected {enough} or more"
            raise ConfigError("", problem, "budget")
    choices = {}
    for entrant in entrants:
        if entrant.name not in plans:
            continue
        plan = plans[entrant.name]
        tell(f"{entrant.name}: {plan.settings} settings, {len(plan.seeds)} choosing seeds")
        try:
            choices[entrant.name] = run_trials(entrant, plan, end.time, setting.held_out, simulate)
        except (ConfigError, SweepError) as error:
            if entrant.name in COMPULSORY:
                raise
            refused[entrant.name] = str(error).partition("\n")[0]
    playing = {entrant.name: entrant for entrant in entrants if entrant.name in choices}
    measure, target = _target(target_runs(opponent, choices[ALL_REDUCE], end.time, simulate))
    tell(f"target: {measure.replace('_', ' ')} {target:.4g}; {len(playing)} methods report")
    slow_worker = _find_slow_worker(opponent.config)
    conditions = _cluster_conditions(setting, slow_worker)
    if only_as_given:
        del conditions[SLOW]
    report = _report_config(
        setting, conditions, playing, choices, end.time, reporting, measure, target
    )
    results = simulate(report, runs(report))
    rows = _build_rows(results, playing, choices, target)
    return League(
        setting=setting,
        limit=end.time,
        budget=gradients,
        measure=measure,
        target=target,
        seeds=reporting,
        rows=rows,
        refused=refused,
        too_dear=sorted(too_dear),
        enough=enough,
        slow_worker=slow_worker,
        results=results,
        report=report,
    )


def _plan_all(
    entrants: Sequence[Entrant], limit: float, budget: float, most: int
) -> tuple[dict[str, TrialPlan], dict[str, BudgetError]]:
    """The trials of each entrant, and an error for each entrant whose budget is too small."""
    plans, too_dear = {}, {}
    for entrant in entrants:
        try:
            plans[entrant.name] = plan_trials(entrant, limit, budget, most)
        except BudgetError as error:
            too_dear[entrant.name] = error
    return plans, too_dear


def _find_slow_worker(config: Config) -> int:
    """The worker to slow down: the first worker with the fewest slowdowns in the cluster."""
    cluster = config.build_cluster()

    def slowdowns_of(rank: int) -> int:
        return sum(slowdown.hits(rank) for slowdown in cluster.slowdowns)

    return min(range(cluster.workers), key=slowdowns_of)


def _cluster_conditions(setting: LeagueSetting, slow_worker: int) -> dict[str, DottedKeys]:
    """The clusters of the runs that report: as given, and with one worker slowed down further."""
    slower = {"worker": slow_worker, "factor": SLOW_FACTOR}
    slowdowns = [*setting.base["cluster"].get("slowdowns", []), slower]
    return {AS_GIVEN: {}, SLOW: {"cluster.slowdowns": slowdowns}}


def target_runs(opponent: Entrant, choice: Chosen, limit: float, simulate: Simulate) -> Results:
    """Run the overlapped all-reduce, at its own choice, to the time limit on the choosing seeds.

    It learns from the whole training set and is measured on the test set, like the runs that
    report.
    """
    document = {
        **with_settings(opponent.config.explicit(), choice.settings),
        "name": "target",
        "stop": {"time": limit},
        "evaluate": {"every_seconds": limit},
        "sweep": {"learning.seed": list(CHOOSING_SEEDS)},
    }
    config = fill_swept_keys(document)
    return simulate(config, runs(config))


def _target(measured: Results) -> tuple[str, float]:
    """The target: a little less than the mean of the overlapped all-reduce at the time limit.

    Raises:
        ConfigError: the overlapped all-reduce has learnt nothing.
    """
    final = measured.final
    start = measured.metrics.drop_duplicates(["run", "member"])
    if "test_accuracy" in final:
        accuracy = float(final["test_accuracy"].mean())
        if accuracy > start["test_accuracy"].mean():
            return "test_accuracy", accuracy - ACCURACY_MARGIN
    else:
        loss = float(final["test_loss"].mean())
        if loss < start["test_loss"].mean():
            return "test_loss", loss * LOSS_FACTOR
    problem = "the overlapped all-reduce learnt nothing at any rate: write other ranges or a longer"
    raise ConfigError("stop", f"{problem} limit into the task's file")


def _report_config(
    setting: LeagueSetting,
    conditions: Mapping[str, DottedKeys],
    entrants: Mapping[str, Entrant],
    choices: Mapping[str, Chosen],
    limit: float,
    seeds: Sequence[int],
    measure: str,
    target: float,
) -> Config:
    """The config of the runs that report: each method at its own choice, under each condition."""
    methods: dict[str, DottedKeys] = {}
    for name, entrant in entrants.items():
        settings = {**entrant.settings, **choices[name].settings}
        methods[name] = {"algorithm": {"name": name}, **settings}
    evaluate: dict[str, Any] = {"every_seconds": limit / EVALUATIONS_OF_LOSS}
    if measure == "test_accuracy":
        period = limit / EVALUATIONS_OF_ACCURACY
        evaluate = {"every_seconds": period, "target_accuracy": target}
    document = {
        **setting.base,
        "name": "report",
        "question": "Which method reaches the target first on this cluster?",
        "stop": {"time": EXTENT * limit},
        "evaluate": evaluate,
        "sweep": {"method": methods, "condition": dict(conditions), "seed": list(seeds)},
    }
    return fill_swept_keys(document)


def _build_rows(
    results: Results,
    entrants: Mapping[str, Entrant],
    choices: Mapping[str, Chosen],
    target: float,
) -> list[EntrantRow]:
    """The rows of the table, ordered by place on the cluster as given."""
    measured = _measure_all(results, target).sort_values("seed", kind="stable")
    times = {}
    for condition, part in measured.groupby("condition", observed=True):
        by_method = part.groupby("method", observed=True)["time_to"]
        times[str(condition)] = {str(name): list(values) for name, values in by_method}
    ranks = {condition: rank_entrants(of_methods) for condition, of_methods in times.items()}
    given = measured[measured["condition"] == AS_GIVEN]
    rows = []
    for name in ranks[AS_GIVEN]:  # by place, then by the median
        own = given[given["method"] == name]
        medians = {key: float(own[key].median()) for key in MEASURES_SHOWN}
        row = EntrantRow(
            entrants[name],
            choices[name],
            {condition: times[condition][name] for condition in times},
            {condition: ranks[condition][name] for condition in times},
            medians,
            tuple(measured.loc[measured["method"] == name, "run"]),
        )
        rows.append(row)
    return rows


def _measure_all(results: Results, target: float) -> "pd.DataFrame":
    """A row per run: the seconds to the target, infinite if it was missed, and other measures."""
    table = measure_runs(results, "time_to", target).rename(columns={"value": "time_to"})
    table["time_to"] = table["time_to"].fillna(np.inf)
    final = "loss"
    if "test_accuracy" in results.metrics:
        final = "accuracy"
    gradients = {
        result.manifest["run"]: result.manifest["mileage"]["gradients"] for result in results
    }
    return table.assign(
        final=measure_runs(results, final)["value"],
        waiting=measure_runs(results, "waiting")["value"],
        gradients=table["run"].map(gradients),
        cost_to=measure_runs(results, "cost_to", target)["value"].fillna(np.inf),
    )
