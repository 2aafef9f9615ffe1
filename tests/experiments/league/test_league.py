"""A league ranks honestly: equal entrants tie, faster ones win, and nobody has more than others."""

import json
import random
from contextlib import chdir
from functools import partial

import numpy as np
import pytest

from laggard import ConfigError, load, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.config import parse
from laggard.experiments.config.document import examples
from laggard.experiments.config.grid import runs
from laggard.experiments.league.entrants import (
    clock,
    find_entrants,
    names_of_methods,
    with_settings,
)
from laggard.experiments.league.play import AS_GIVEN, SLOW, _find_slow_worker, play, target_runs
from laggard.experiments.league.scores import paired_differences, rank_entrants
from laggard.experiments.league.setting import HELD_OUT, read_setting
from laggard.experiments.league.trials import (
    BudgetError,
    Chosen,
    TrialPlan,
    plan_trials,
    trials_config,
)
from laggard.experiments.league.words import record, sentence, table
from laggard.experiments.results.results import load_results
from laggard.experiments.results.statistics import median_interval
from laggard.models import DataMissingError
from laggard.simulator import Stop
from tests.experiments.conftest import stamps

CLUSTER = """\
# Mine
cluster:
  workers: 4
  compute: {law: gamma, mean: 0.1, cv: 0.3}
"""
TASK = """\
# A noisy quadratic
task: {model: tridiagonal, dim: 4, noise: 0.02}
learning: {optimizer: sgd}
stop: {updates: 12}
sweep: {search: {learning.lr: {log_uniform: [0.05, 2.0]}, runs: 4}}
"""
PLUGINS = """\
from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms import AllReduce, AsyncPS


@dataclass(frozen=True)
class Renamed(AllReduce):
    pass


@dataclass(frozen=True)
class Faster(AllReduce):
    def worker(self, node):
        reduce = self.collective_of(node.group_size).reduce
        state = self.rule.init(node.weights)
        while True:
            seconds, batch, started = node.duration(), node.batch(), node.now
            yield node.work(seconds / 1.3)
            gradient = node.promise(node.weights, batch, started)
            total = yield from reduce(node, gradient, node.weights.shape[1], node.version)
            state = self.step(node, gradient, total, state)


@dataclass(frozen=True)
class Tuned(AllReduce):
    SPACE: ClassVar = {"learning.lr": {"log_uniform": [1.0, 1.5]}}


@dataclass(frozen=True)
class Greedy(AllReduce):
    SPACE: ClassVar = {"runs": 12}


@dataclass(frozen=True)
class Modest(AllReduce):
    SPACE: ClassVar = {"runs": 2}


@dataclass(frozen=True)
class Sprawling(AsyncPS):
    SPACE: ClassVar = {"algorithm.accumulate": {"choice": [1, 2, 3, 4, 5, 6]}}
"""


MODULE = "league_plugins"
ADDED = [f"{MODULE}:{name}" for name in ("Renamed", "Faster", "Greedy", "Sprawling")]
ONLY = ["delayed"]
RENAMED, FASTER, GREEDY, SPRAWLING = ADDED
BUDGET, SEEDS = 9, 6


def write_files(folder, cluster=CLUSTER, task=TASK):
    """A cluster and a task in a folder; their names."""
    for name, text in {"mine.yaml": cluster, "task.yaml": task}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return "mine.yaml", "task.yaml"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """A folder with plugins and a league in its folder `league`, and the league.

    There is one such folder, since Python knows one module of a name.
    """
    folder = tmp_path_factory.mktemp("league")
    (folder / f"{MODULE}.py").write_text(PLUGINS, encoding="utf-8")
    cluster, task = write_files(folder, cluster=f"{CLUSTER}algorithm: async_ps\n")
    with chdir(folder):
        league = played(cluster, task, folder / "league", ADDED, ONLY)
    return folder, league


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes a cluster and a task to the current folder; returns their names."""
    monkeypatch.chdir(tmp_path)
    return partial(write_files, tmp_path)


def played(cluster, task, out, added=(), only=("async_ps",), seeds=SEEDS):
    names = names_of_methods(only, added)
    return play(read_setting(cluster, task), names, partial(simulated, out), BUDGET, seeds)


def simulated(out, config, planned):
    return sweep(config, out, jobs=1, planned=planned)


def by_name(league):
    return {row.name: row for row in league.rows}


def test_renamed_method_ties_exactly(smoke):
    rows = by_name(smoke[1])
    renamed, opponent = rows[RENAMED], rows["all_reduce"]
    assert renamed.times == opponent.times
    assert renamed.settings == opponent.settings
    assert renamed.places == opponent.places
    assert renamed.choice.gradients == opponent.choice.gradients


def test_faster_clone_wins_alone(smoke):
    """At equal draws and rates each time is 1.3 times shorter, but for the grid of evaluations."""
    league = smoke[1]
    rows = by_name(league)
    assert [row.name for row in league.rows if row.places[AS_GIVEN] == 1] == [FASTER]
    faster, opponent = rows[FASTER], rows["all_reduce"]
    assert faster.choice.settings == opponent.choice.settings
    pairs = zip(faster.times[AS_GIVEN], opponent.times[AS_GIVEN], strict=True)
    for sooner, later in pairs:
        assert sooner == pytest.approx(later / 1.3, abs=league.limit / 50)


@pytest.mark.slow
def test_method_with_good_rate_in_its_space_wins(smoke, monkeypatch):
    """Others have rates at which they learn slowly."""
    folder = smoke[0]
    monkeypatch.chdir(folder)
    narrow = folder / "narrow.yaml"
    narrow.write_text(TASK.replace("[0.05, 2.0]", "[0.05, 0.1]"), encoding="utf-8")
    added = [f"{MODULE}:Tuned"]
    league = played("mine.yaml", narrow.name, folder / "narrow", added, ["sync_ps"])
    assert [row.name for row in league.rows if row.places[AS_GIVEN] == 1] == added


def test_entry_beyond_the_budget_is_refused(smoke):
    """With budget 9 all-reduce may try 4 settings on 3 seeds; 12 settings take more than twice as
    many gradients.
    """
    league = smoke[1]
    assert by_name(league)["all_reduce"].choice.plan.settings == 4
    assert league.budget == BUDGET * 12 * 4
    assert league.refused[GREEDY].startswith("asks for 12 settings")
    assert f"budget of each method is {league.budget}" in league.refused[GREEDY]
    assert "at most 5 timelines, got 6" in league.refused[SPRAWLING]
    assert max(row.choice.gradients for row in league.rows) <= league.budget
    assert league.too_dear == [GREEDY]
    competed = len(league.rows)
    assert f"Only {competed} of {competed + 1} methods competed" in sentence(league)
    assert f"a budget of {league.enough} admits all" in sentence(league)


def test_least_budget_that_admits_all_is_named(smoke, monkeypatch):
    monkeypatch.chdir(smoke[0])
    league = smoke[1]
    entrants, _ = find_entrants(read_setting("mine.yaml", "task.yaml"), [GREEDY], 0)
    of_one_limit = league.budget / BUDGET
    plan_trials(entrants[0], league.limit, league.enough * of_one_limit, 25)
    with pytest.raises(BudgetError):
        plan_trials(entrants[0], league.limit, (league.enough - 1) * of_one_limit, 25)


def test_entry_within_budget_gets_its_updates(smoke, monkeypatch):
    monkeypatch.chdir(smoke[0])
    setting = read_setting("mine.yaml", "task.yaml")
    entrants, _ = find_entrants(setting, [f"{MODULE}:Modest"], 0)
    plan = plan_trials(entrants[0], 2.4, 864, 25)
    assert (plan.settings, plan.seeds) == (2, (0, 1, 2))


def test_trials_compute_planned_gradients_exactly(smoke):
    """The clock knows the number of gradients before."""
    for row in smoke[1].rows:
        assert row.choice.gradients == row.choice.plan.gradients


def test_choices_never_see_the_test_set(files):
    """Trials hold out samples; the target and the reports have the whole training set."""
    task = "task: {model: logistic, dataset: digits}\nstop: {updates: 3}\n"
    setting = read_setting(*files(task=task))
    (entrant, *_), _ = find_entrants(setting, ["async_ps"], 0)
    plan = TrialPlan(2, (0, 1, 2), 1000)
    assert trials_config(entrant, plan, 1.0, setting.held_out).task.validation == HELD_OUT
    assert parse(setting.base).task.validation == 0
    parts = []

    def simulate(config, planned):
        parts.append(config.task.validation)

    target_runs(entrant, Chosen(plan, {"learning.lr": 0.1}, 0), 1.0, simulate)
    assert parts == [0]


@pytest.mark.parametrize(
    ("keys", "share"),
    [
        ("model: logistic, dataset: digits", HELD_OUT),
        ("model: logistic, dataset: digits, validation: 0.5", 0.5),
        ("model: logistic, dataset: digits, batch: 1500", 0),
        ("model: tridiagonal", 0),
    ],
)
def test_trials_hold_out_samples_if_task_allows(files, keys, share):
    """A mini-batch of the whole training set leaves none."""
    task = f"task: {{{keys}}}\nstop: {{updates: 3}}\n"
    assert read_setting(*files(task=task)).held_out == share


def test_seeds_that_choose_never_report(smoke):
    folder, league = smoke
    seeds = {}
    for kind in ("trials", "report"):
        seeds[kind] = set()
        for sweep_folder in (folder / "league").glob(f"{kind}*"):
            for result in load_results(sweep_folder):
                own = result.manifest["seeds"]
                seeds[kind] |= {own["seed"], own["cluster"], *own["learning"]}
    assert seeds == {"trials": {0, 1, 2}, "report": set(range(3, 9))}
    assert list(league.seeds) == list(range(3, 9))


def test_reported_seeds_change_neither_choice_nor_target(smoke, monkeypatch):
    folder, league = smoke
    monkeypatch.chdir(folder)
    out = folder / "league"
    trials = {
        path: stamp
        for path, stamp in stamps(out, "**/manifest.json").items()
        if "trials" in str(path)
    }
    more = played("mine.yaml", "task.yaml", out, only=["delayed"], seeds=SEEDS + 1)
    rows = by_name(league)
    assert more.target == league.target
    for row in more.rows:
        assert row.settings == rows[row.name].settings
        assert row.times[AS_GIVEN][:SEEDS] == rows[row.name].times[AS_GIVEN]
    assert trials.items() <= stamps(out, "**/manifest.json").items()


def test_target_is_reached_by_all_reduce(smoke):
    """On the choosing seeds, less 1 % of its loss."""
    folder, league = smoke
    trials = load_results(folder / "league/trials all_reduce-rung3")
    row = by_name(league)["all_reduce"]
    chosen = trials.final[trials.final["learning.lr"] == row.choice.settings["learning.lr"]]
    assert len(chosen) == 3
    assert league.target == pytest.approx(1.01 * chosen["test_loss"].mean(), rel=1e-6)
    assert sorted(set(trials.metrics["time"])) == pytest.approx([0.0, league.limit])


def test_miss_is_shown(smoke):
    """With a worker five times slower, an all-reduce makes too few updates within its run."""
    league = smoke[1]
    row = by_name(league)["all_reduce"]
    assert row.times[SLOW] == [np.inf] * SEEDS
    lines = {line[1]: line for line in table(league)[1:]}
    assert lines["all_reduce"][6:8] == ["miss", "–"]
    (data,) = [entry for entry in record(league)["rows"] if entry["method"] == "all_reduce"]
    assert data["seconds_to_target"][SLOW]["by_seed"] == [None] * SEEDS


def test_league_needs_its_opponents(files, tmp_path):
    star = f"{CLUSTER}  network: {{topology: star}}\n"
    cluster, task = files(cluster=star)
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: .*a league needs all_reduce as an opponent"
    ):
        played(cluster, task, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_data_end_league_before_trials(files, monkeypatch):
    def offline(name):
        raise DataMissingError(f"{name} is missing")

    def simulate(config, planned):
        raise AssertionError("a trial")

    monkeypatch.setattr("laggard.models.data.read_images", offline)
    data = "task: {model: logistic, dataset: fashion_mnist}\ndevice: cpu\n"
    cluster, task = files(task=f"{data}learning: {{lr: 0.1}}\nstop: {{updates: 5}}\n")
    names = names_of_methods(("async_ps",), ())
    with pytest.raises(DataMissingError):
        play(read_setting(cluster, task), names, simulate, BUDGET, SEEDS)


AWAY = {
    "": "",
    "crash": "  slowdowns: [{kind: crash, worker: 0, at: 1.0, back: 2.0}]\n",
    "leave": "  members: {uptime: 1.0, downtime: 1.0}\n",
}


@pytest.mark.parametrize("away", AWAY)
def test_opponents_overlap_where_that_is_faster(files, away):
    """Their communication takes as long as the backward pass; a bucketed server cannot lose a
    worker.
    """
    network = "  network: {bandwidth: 1e6, message_bytes: 1e5}\n"
    cluster, task = files(cluster=CLUSTER + network + AWAY[away])
    entrants, _ = find_entrants(read_setting(cluster, task), names_of_methods(["sync_ps"], []), 0)
    forms = {entrant.name: entrant.settings for entrant in entrants}
    assert forms["all_reduce"]["algorithm.bucket_bytes"] == 25_000
    assert forms["all_reduce"].get("algorithm.on_crash") == ("shrink" if away else None)
    assert forms["sync_ps"]["algorithm.shards"] == 4
    assert forms["sync_ps"]["algorithm.bucket_bytes"] == (None if away else 25_000)
    assert forms["sync_ps"]["cluster.network.colocated"]


def test_form_is_the_fastest_by_the_clock(files):
    """Against each collective by hand, in the seconds of many updates."""
    network = "  network: {bandwidth: 1e6, latency: 0.002, message_bytes: 5e4}\n"
    cluster, task = files(cluster=CLUSTER + network)
    entrants, _ = find_entrants(read_setting(cluster, task), ["all_reduce"], 0)
    (entrant,) = entrants
    seconds = {}
    for collective in ("ring", "tree", "halving_doubling", "recursive_doubling"):
        for bucket_bytes in ("null", "12500.0"):
            overrides = [
                f"algorithm={{name: all_reduce, collective: {collective}, bucket_bytes: {bucket_bytes}}}",
                "sweep={}",
            ]
            config = load("mine.yaml", "task={model: tridiagonal, dim: 4}", *overrides)
            form = collective, None if bucket_bytes == "null" else float(bucket_bytes)
            seconds[form] = clock(config, Stop(updates=40)).progress.time
    chosen = (
        entrant.settings["algorithm.collective"],
        entrant.settings["algorithm.bucket_bytes"],
    )
    assert seconds[chosen] == min(seconds.values())


def test_method_that_the_cluster_refuses_is_listed(files):
    cluster, task = files()
    names = names_of_methods(["delayed", "async_ps"], [])
    entrants, refused = find_entrants(read_setting(cluster, task), names, 0)
    assert [entrant.name for entrant in entrants] == ["all_reduce", "sync_ps", "async_ps"]
    assert list(refused) == ["delayed"]
    assert "cluster.workers" in refused["delayed"]


def test_no_entrant_refuses_what_its_trials_draw(files):
    """One refused setting would drop a method from every league."""
    cluster, _ = files()
    setting = read_setting(cluster, "mnist", "smoke")
    entrants, _ = find_entrants(setting, names_of_methods([], []), 0)
    momentum = {entrant.name: entrant.ranges["learning.momentum"]["choice"] for entrant in entrants}
    for entrant in entrants:
        for value in momentum[entrant.name]:
            document = with_settings(entrant.config.explicit(), {"learning.momentum": value})
            runs(parse(document))
    assert momentum["scaffold"] == [0.0]
    assert momentum["sync_ps"] == [0.0, 0.9]


def test_method_too_costly_for_one_trial_is_refused(files):
    cluster, task = files()
    setting = read_setting(cluster, task)
    entrants, _ = find_entrants(setting, ["async_ps"], 0)
    with pytest.raises(
        ConfigError, match=r"one setting of async_ps takes up to .* gradients; the budget"
    ):
        plan_trials(entrants[0], 2.4, 100, 25)


def test_places_are_shared_where_differences_hold_zero():
    times = {
        "first": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "noisy": [1.1, 2.1, 2.9, 4.1, 5.1, 6.1],  # one pair in six is the other way round
        "later": [1.1, 2.1, 3.1, 4.1, 5.1, 6.1],
        "miss": [np.inf] * 6,
        "other miss": [np.inf] * 6,
    }
    expected = {"first": 1, "noisy": 1, "later": 3, "miss": 4, "other miss": 4}
    for seed in range(5):
        names = list(times)
        random.Random(seed).shuffle(names)
        assert rank_entrants({name: times[name] for name in names}) == expected


def test_misses_are_infinite_in_differences():
    inf = np.inf
    assert paired_differences([1.0, inf, 2.0, inf], [2.0, 3.0, inf, inf]) == [-1.0, inf, -inf, 0.0]


@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (25, 8)])
def test_median_interval_covers_95_percent(n, k):
    """The tabulated ranks of the sign test at 5 % (Conover 1999, table A3), and a miss as infinite."""
    values = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    assert median_interval(values) == ((n + 1) / 2, k, n + 1 - k)
    missed = np.where(values > n - k, np.inf, values)
    assert median_interval(missed)[2] == np.inf


def test_few_values_have_no_interval():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, -np.inf, np.inf)


def test_conditions_differ_in_one_slow_worker(smoke):
    factors = {}
    for result in smoke[1].results:
        slowdowns = result.config.cluster.slowdowns
        of_run = tuple((slowdown.worker, slowdown.factor) for slowdown in slowdowns)
        factors.setdefault(result.labels["condition"], set()).add(of_run)
    assert factors == {AS_GIVEN: {()}, SLOW: {((0, 5.0),)}}


def test_slow_worker_is_not_slowed_by_cluster(files):
    """Five times slower than a slow worker would be another condition than the one named."""
    cluster, task = files(CLUSTER + "  slowdowns: [{worker: 0, factor: 3}]\n")
    entrants, _ = find_entrants(read_setting(cluster, task), ["sync_ps"], 0)
    assert _find_slow_worker(entrants[0].config) == 1
    both = [{"worker": 0, "factor": 3}, {"workers": [0, 1, 2, 3], "factor": 2}]
    cluster, task = files(f"{CLUSTER}  slowdowns: {both}\n")
    entrants, _ = find_entrants(read_setting(cluster, task), ["sync_ps"], 0)
    assert _find_slow_worker(entrants[0].config) == 1


def test_command_answers_from_a_cluster_file(smoke, monkeypatch, capsys):
    """A sentence, a table, what bounds it, and files that agree; what is stored is not run again.

    The order in which entrants are named changes nothing.
    """
    folder, league = smoke
    monkeypatch.chdir(folder)
    before = stamps(folder, "**/manifest.json")
    options = ["--task", "task.yaml", "--budget", str(BUDGET), "--seeds", str(SEEDS)]
    code = main(["league", "mine.yaml", *options, "--methods", *ONLY, "--add", *reversed(ADDED)])
    captured = capsys.readouterr()
    assert code == 0
    assert stamps(folder, "**/manifest.json") == before
    lines = captured.out.splitlines()
    assert lines[0] == sentence(league)
    assert lines[0].startswith(f"On this cluster {FASTER} reaches a loss of ")
    assert "mine.yaml: only its cluster counts, not algorithm" in captured.err
    assert "did not enter: delayed: cluster.workers: " in captured.out
    data = json.loads((folder / "league/league.json").read_text())
    assert data == record(league)
    page = (folder / "league/league.html").read_text()
    for name in by_name(league):
        assert f"<td>{name}</td>" in page
    for text in (*data["bounds"], *data["rules"]):
        assert text in captured.out or text.replace("'", "&#39;") in page
    assert "<script" not in page
    report = load("league/league.yaml")  # repeats the runs that report
    assert sorted(run.id for run in runs(report)) == sorted(league.results.names)


def test_cluster_may_be_a_preset_or_an_example():
    assert read_setting("10gbe", "digits").base["cluster"] == {"preset": "10gbe"}
    assert read_setting("example:clusters/large", "digits").base["cluster"]["workers"] == 64
    with pytest.raises(
        ConfigError, match=r"10gb: expected a file with a cluster, or a preset \(.*10gbe"
    ):
        read_setting("10gb", "digits")


CLUSTERS = sorted(name for name in examples() if name.startswith("clusters/"))
METHODS = ["local_sgd", "adpsgd", "sgp", "ringmaster"]
SHORT = """\
task: {model: tridiagonal, dim: 8, noise: 0.02}
learning: {optimizer: sgd}
stop: {updates: 24}
sweep: {search: {learning.lr: {log_uniform: [0.03, 3.0]}, runs: 9}}
"""


@pytest.mark.parametrize("name", CLUSTERS)
def test_cluster_is_valid_and_asks(name):
    """Its first line is a question, nothing but its cluster counts, and all-reduce runs on it."""
    algorithm = "algorithm={name: all_reduce, on_crash: shrink}"
    config = load(f"example:{name}", "task={model: timing}", algorithm)
    assert config.question.endswith("?")
    assert read_setting(f"example:{name}", "tridiagonal").ignored == []
    assert clock(config, Stop(updates=3)).progress.updates == 3


def test_ten_clusters_are_shipped():
    assert len(CLUSTERS) == 10


@pytest.mark.slow
def test_disjoint_seeds_agree_on_the_first_place(tmp_path):
    """On nine of ten clusters the first places of two sets of twelve seeds share a method, and at
    most three methods share either.
    """
    (tmp_path / "short.yaml").write_text(SHORT, encoding="utf-8")
    names = names_of_methods(METHODS, [])
    first = {}
    for cluster in CLUSTERS:
        setting = read_setting(f"example:{cluster}", str(tmp_path / "short.yaml"))

        def simulate(config, planned, cluster=cluster):
            return sweep(config, tmp_path / cluster, planned=planned)

        league = play(setting, names, simulate, seeds=24)
        first[cluster] = []
        for half in (slice(0, 12), slice(12, 24)):
            ranks = rank_entrants({row.name: row.times[AS_GIVEN][half] for row in league.rows})
            first[cluster].append({name for name, place in ranks.items() if place == 1})
    agree = [one & other and max(len(one), len(other)) <= 3 for one, other in first.values()]
    assert sum(map(bool, agree)) >= 9, first
