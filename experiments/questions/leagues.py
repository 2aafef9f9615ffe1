"""Leagues: the first method to a target on a cluster, and the best one on heterogeneous data."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.league.entrants import ALL_REDUCE, names_of_methods
from laggard.experiments.league.play import League, play
from laggard.experiments.league.scores import rank_entrants
from laggard.experiments.league.setting import LeagueSetting, read_setting
from laggard.experiments.league.words import settings_text
from laggard.experiments.questions.measures import take, task_of
from laggard.experiments.questions.numbers import REPORT, by_seed, reported, select, times_as_large
from laggard.experiments.questions.presentation import interval_text
from laggard.experiments.questions.question import Answer, LeagueStudy, Question
from laggard.experiments.questions.words import SeedEstimate, estimate
from laggard.experiments.results.results import Results
from laggard.experiments.running.sweep import sweep

TIME, ACCURACY, AT_SAMPLES = "time_to", "accuracy", "accuracy_at_samples"
"""The measures of a league: seconds to the target, and accuracy at two moments.

`ACCURACY` is taken at the end of a run, at 1.5 times the time limit. `AT_SAMPLES` is taken after as
many samples as the overlapped all-reduce uses within the time limit.
"""
SMOKE, SMOKE_BUDGET, SMOKE_METHODS = "smoke", 4, 1
MethodNumbers = Mapping[str, pd.Series]
"""A number per seed, seconds to the target or accuracy, by method."""


def play_study(
    study: LeagueStudy, scale: str | None, overrides: Sequence[str], out: Path, jobs: int | None
) -> pd.DataFrame:
    """Play the league of a study; return a row for each method, seed and measure.

    At the scale `smoke` one method plays against the opponents, with a small budget.

    Raises:
        ConfigError: an override does not fit the cluster or the task.
        SweepError: runs failed.
    """
    setting = setting_of(study, scale, overrides)
    methods: Sequence[str] = study.methods
    budget: float = study.budget
    if scale == SMOKE:
        methods, budget = methods[:SMOKE_METHODS], SMOKE_BUDGET

    def simulate(config: Config, planned: Sequence[RunSpec]) -> Results:
        return sweep(config, out, jobs=jobs, planned=planned)

    names = names_of_methods(methods, [])
    league = play(setting, names, simulate, budget, study.seeds, only_as_given=True)
    return _rows_of(league)


def setting_of(study: LeagueStudy, scale: str | None, overrides: Sequence[str]) -> LeagueSetting:
    """The cluster and the task of a study.

    Raises:
        ConfigError: an override does not fit them, or sets a key of `learning`.
    """
    for change in overrides:
        key = change.partition("=")[0]
        if key.startswith("learning."):
            raise ConfigError(key, "cannot be set: each method of the league chooses its own")
    cluster = f"example:clusters/{study.cluster}"
    return read_setting(cluster, study.task, scale, [*study.overrides, *overrides])


def _rows_of(league: League) -> pd.DataFrame:
    """The numbers of the reporting runs, with the chosen settings, the target and the limit."""
    measured = take(league.results, (TIME, ACCURACY), [league.target])
    numbers = pd.concat([measured, _accuracies_at(league)], ignore_index=True)
    # without the target in the name: each league has another, in the column `target`
    waits = numbers["measure"].str.startswith(f"{TIME}_")
    numbers["measure"] = numbers["measure"].mask(waits, TIME)
    numbers = numbers.drop(columns="condition")  # `only_as_given` leaves a single one
    chosen = {row.name: settings_text(row.settings) for row in league.rows}
    return numbers.assign(
        role=REPORT,
        settings=numbers["method"].map(chosen),
        target=round(league.target, 5),
        limit=round(league.limit, 3),
        **task_of(league.report),
    )


def _accuracies_at(league: League) -> pd.DataFrame:
    """The accuracy of each run at equal samples; infinite where the run has fewer samples.

    It is that of the first evaluation at or after as many samples as the overlapped all-reduce uses
    within the time limit.
    """
    base = league.setting.base
    workers = league.report.cluster.workers
    batch = league.report.task.batch
    samples = base["stop"]["updates"] * workers * batch
    rows = take(league.results, (ACCURACY,))
    metrics = league.results.metrics
    enough = metrics[metrics["samples"] >= samples]
    first = enough.drop_duplicates("run").set_index("run")["test_accuracy"]
    ids = dict(
        zip(league.results.names, (run.manifest["run"] for run in league.results), strict=True)
    )
    by_id = {ids[str(name)]: value for name, value in first.items()}
    found = rows["run"].map(by_id).astype(float)
    values = found.fillna(np.inf).mask(rows["lost"])
    return rows.assign(measure=AT_SAMPLES, value=values)


# --- the first method to a target


def decide_first_method(table: pd.DataFrame) -> list[Answer]:
    """The first method to the target on each cluster, and its speed-up over all-reduce.

        time of the overlapped all-reduce / time of the first method

    Both are seconds to the target of the same seeds. An answer also names the methods that share
    the first place, and gives the seconds of all methods.
    """
    return [_first_on(table, name) for name in CLUSTERS if name in set(table["study"])]


def _first_on(table: pd.DataFrame, study: str) -> Answer:
    times, seen = _seconds_to_target(table, study)
    places = rank_entrants(times)
    first, *_ = places
    number = times_as_large(times[ALL_REDUCE], times[first])
    says = first
    if first == ALL_REDUCE:
        says = "overlapped all-reduce"
    return Answer(
        asks=f"Which of {len(places)} methods is the first to a target?",
        case=study,
        says=f"on a cluster {CLUSTERS[study]}: {says}{_sharing(places)}",
        number=number,
        unit=f"times overlapped all-reduce's speed to {_target_text(table, study)}",
        seen=seen,
        wants=0.2 * number.value,
        beside=_by_method("seconds", table[table["study"] == study], times),
    )


def _sharing(places: Mapping[str, int]) -> str:
    """A text on the methods that share the first place with the first of `places`."""
    sharing = [name for name, place in places.items() if place == 1][1:]
    if not sharing:
        return ""
    return f", which shares the first place with {' and '.join(sharing)}"


def _seconds_to_target(table: pd.DataFrame, study: str) -> tuple[MethodNumbers, bool]:
    """The seconds to the target by method, and whether the seeds had been seen before.

    A run that diverged before it reached the target counts as a miss, as in the league.
    """
    rows, seen = reported(table, study)
    times = {}
    for name in _methods(rows):
        own = select(rows, measure=TIME, method=name).set_index("seed")["value"]
        times[name] = own.sort_index().fillna(np.inf)
    return times, seen


def _by_method(
    measure: str, rows: pd.DataFrame, values: Mapping[str, pd.Series]
) -> dict[str, SeedEstimate]:
    """The estimate of each method, named with the settings that its trials chose."""
    chosen = rows.drop_duplicates("method").set_index("method")["settings"]
    return {f"{measure} of {name} ({chosen[name]})": estimate(own) for name, own in values.items()}


def _methods(rows: pd.DataFrame) -> list[str]:
    return sorted(rows["method"].unique())


def _target_text(table: pd.DataFrame, study: str) -> str:
    target = table.loc[table["study"] == study, "target"].iloc[0]
    return f"{100 * target:.1f} %"


def tabulate_times(table: pd.DataFrame) -> Iterator[list[str]]:
    """The table of median seconds to the target: a heading, then a row per method.

    A column per cluster; the first places are bold.
    """
    studies = [name for name in CLUSTERS if name in set(table["study"])]
    missing = [name for name in CLUSTERS if name not in studies]
    yield ["seconds to the target", *(CLUSTERS[name] for name in (*studies, *missing))]
    targets = [_target_text(table, name) for name in studies]
    yield ["*target*", *targets, *(NOT_RUN for _ in missing)]
    times = {name: _seconds_to_target(table, name)[0] for name in studies}
    places = {name: rank_entrants(times[name]) for name in studies}
    for method in _methods(table):
        cells = []
        for name in studies:
            seconds = estimate(times[name].get(method, pd.Series(dtype=float)))
            cells.append(_cell(seconds, places[name].get(method) == 1))
        yield [method, *cells, *("" for _ in missing)]


def _cell(number: SeedEstimate, bold: bool) -> str:
    """The median with its interval, misses and lost runs; a dash if the method did not enter."""
    if number.seeds == 0:
        return "–"
    if number.lost == number.seeds:
        return "all lost"
    middle = number.median
    if middle is None or not np.isfinite(middle.value):
        text = f"miss ({number.missing} of {number.seeds})"
    else:
        text = interval_text(middle)
        if bold:
            text = f"**{text}**"
        if number.missing:
            text = f"{text}, {number.missing} miss"
    if number.lost:
        text = f"{text}, {number.lost} lost"
    return text


# --- heterogeneous data


def decide_unequal_data(table: pd.DataFrame) -> list[Answer]:
    """The most accurate method after equal time, and its lead over the synchronous server.

        100 (acc(best method) - acc(sync_ps))

    In points, one answer for each mixture of labels.
    """
    return [_most_accurate(table, name) for name in MIXTURES if name in set(table["study"])]


def _most_accurate(table: pd.DataFrame, study: str) -> Answer:
    rows, seen = reported(table, study)
    accuracy = _accuracies(rows, ACCURACY)
    places = _places_by_accuracy(accuracy)
    best, *_ = places
    number = estimate(100 * (accuracy[best] - accuracy[OPPONENT]))
    return Answer(
        asks=f"Which of {len(accuracy)} methods is most accurate after equal time?",
        case=study,
        says=f"{MIXTURES[study]}: {best}{_sharing(places)}",
        number=number,
        unit=f"points more than {OPPONENT} after equal time",
        seen=seen,
        wants=0.5,
        beside=_by_method("accuracy", rows, accuracy),
    )


def _accuracies(rows: pd.DataFrame, measure: str) -> MethodNumbers:
    """The accuracy of each seed, by method; infinite where a run has too few samples."""
    return {name: by_seed(rows, measure, method=name) for name in _methods(rows)}


def _places_by_accuracy(accuracy: MethodNumbers) -> dict[str, int]:
    """Places by error, the lowest first.

    A lost run has an infinite error. So has a run with too few samples, whose accuracy is infinite.
    """
    wrong = {name: (1 - own).abs().fillna(np.inf) for name, own in accuracy.items()}
    return rank_entrants(wrong)


def tabulate_accuracies(table: pd.DataFrame) -> Iterator[list[str]]:
    """The table of median accuracies (%): a heading, then a row per method.

    Two columns per mixture of labels, after equal time and after equal samples; the first places
    are bold.
    """
    studies = [name for name in MIXTURES if name in set(table["study"])]
    heading = ["median accuracy (%)"]
    for name in studies:
        heading += [f"{MIXTURES[name]}: equal time", "equal samples"]
    missing = [name for name in MIXTURES if name not in studies]
    yield [*heading, *(f"{MIXTURES[name]}: {NOT_RUN}" for name in missing)]
    columns = []
    for name in studies:
        rows, _ = reported(table, name)
        columns += [_accuracies(rows, measure) for measure in (ACCURACY, AT_SAMPLES)]
    places = [_places_by_accuracy(column) for column in columns]
    for method in _methods(table):
        cells = []
        for column, place in zip(columns, places, strict=True):
            number = estimate(100 * column.get(method, pd.Series(dtype=float)))
            cells.append(_cell(number, place.get(method) == 1))
        yield [method, *cells, *("" for _ in missing)]


OPPONENT = "sync_ps"
NOT_RUN = "not run yet"
CLUSTERS = {
    "even": "of 16 even workers",
    "slow-batches": "where 5 % of mini-batches are 10 times slower",
    "one-slow": "where one worker of 16 is 10 times slower",
    "pareto": "whose times have a heavy tail",
    "one-lost": "that loses one worker of 16 for good",
}
"""Study -> its cluster, in the words of the answer. All have the same mean mini-batch time."""
MIXTURES = {
    "iid": "where workers have equal mixtures of labels",
    "mild": "where mixtures differ, Dirichlet 1",
    "strong": "where mixtures differ much, Dirichlet 0.1",
}
"""Study -> its mixture of labels, in the words of the answer."""
TEN_METHODS = (
    "k_sync",
    "soft_sync",
    "async_ps",
    "ringmaster",
    "local_all_reduce",
    "sgp",
    "adpsgd",
    "decoupled_diloco",
)
"""The methods of the first question besides the compulsory `all_reduce` and `sync_ps`."""
METHODS_FOR_DATA = (
    "async_ps",
    "adpsgd",
    "sgp",
    "local_sgd",
    "ringleader",
    "qg_dsgdm",
    "scaffold",
)
ONE_LOST = "cluster.slowdowns=[{kind: crash, worker: 15, at: 10}]"
"""Worker 15 crashes for good at 10 s, a third of the time limit on the even cluster."""
TWO_SPEEDS = "cluster.slowdowns=[{workers: [0, 1, 2, 3, 4, 5, 6, 7], factor: 5}]"
MILD = "task.partition={name: dirichlet, alpha: 1.0}"
STRONG = "task.partition={name: dirichlet, alpha: 0.1}"
on_mnist = partial(LeagueStudy, task="mnist")
on_two_speeds = partial(on_mnist, "even", methods=METHODS_FOR_DATA)
FIRST_METHOD = Question(
    name="first-method",
    asks="Which method is the first to a target on my cluster?",
    topic="methods",
    setting="LeNet-5, MNIST, 16 workers, batch 16 on each, messages of 100 MB at 10 Gb/s",
    papers=(),
    studies={
        "even": on_mnist("even", methods=TEN_METHODS),
        "slow-batches": on_mnist("slow_batches", methods=TEN_METHODS),
        "one-slow": on_mnist("one_slow", methods=TEN_METHODS),
        "pareto": on_mnist("pareto", methods=TEN_METHODS),
        "one-lost": on_mnist("even", methods=TEN_METHODS, overrides=(ONE_LOST,)),
    },
    decide=decide_first_method,
    tabulate=tabulate_times,
)
UNEQUAL_DATA = Question(
    name="unequal-data",
    asks="Which method is most accurate where workers' data differ?",
    topic="methods",
    setting="LeNet-5, MNIST, 16 workers of which 8 are 5 times slower, batch 16 on each",
    papers=(),
    studies={
        "iid": on_two_speeds(overrides=(TWO_SPEEDS,)),
        "mild": on_two_speeds(overrides=(TWO_SPEEDS, MILD)),
        "strong": on_two_speeds(overrides=(TWO_SPEEDS, STRONG)),
    },
    decide=decide_unequal_data,
    tabulate=tabulate_accuracies,
)
QUESTIONS = (FIRST_METHOD, UNEQUAL_DATA)
