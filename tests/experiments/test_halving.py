"""Successive halving: which settings go on, that each rung is a plain sweep, and what it costs."""

import re
from functools import partial

import numpy as np
import pytest

from laggard import ConfigError, load, run, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.document import examples
from laggard.experiments.config.rungs import halving_of
from laggard.experiments.config.search import numbered_draws
from laggard.experiments.running.halving import expected_gradients, halve

RATES = "learning.lr: {log_uniform: [0.01, 3]}"
BUDGETS = "{key: stop.updates, from: 4, to: 36, by: test_loss}"
SEARCH = f"{{{RATES}, learning.momentum: {{uniform: [0, 0.9]}}, runs: 9}}"


def halved(path, out, *overrides):
    return list(halve(load(path, *overrides), partial(sweep, out=out, jobs=1)))


def plain(path, out, *overrides):
    """The whole search as a grid."""
    return sweep(load(path, *overrides), out, jobs=1)


def losses(results):
    """Learning rate -> the mean loss at the end, infinite where it is not finite."""
    means = results.final.fillna({"test_loss": np.inf}).groupby("learning.lr")["test_loss"].mean()
    return {rate: loss if np.isfinite(loss) else np.inf for rate, loss in means.items()}


@pytest.mark.parametrize("more", ["", "seeds: 2, ", "learning.seed: [3, 4], "])
def test_best_settings_of_each_budget_go_on(toy, tmp_path, more):
    """Against rungs that are chosen from sweeps of all settings, where learning rates are told
    apart by hand.
    """
    path = toy(f"sweep: {{{more}search: {SEARCH}}}")
    rungs = halved(path, tmp_path, f"sweep.search.halving={BUDGETS}")
    rates = {
        n: draw["learning.lr"]
        for n, draw in numbered_draws(load(path).sweep["search"], "sweep.search").items()
    }
    left = list(rates.values())
    for budget, settings, rung in zip((4, 12, 36), (3, 1, 1), rungs, strict=True):
        of = losses(plain(path, tmp_path, f"stop.updates={budget}"))
        assert {rates[number] for number in rung.scores} == set(left)
        assert {rates[n]: -score for n, score in rung.scores.items()} == pytest.approx(
            {rate: of[rate] for rate in left}
        )
        left = sorted(left, key=of.__getitem__)[:settings]
        assert [rates[number] for number in rung.best] == left


def test_settings_of_several_runs_go_on_together(toy, tmp_path):
    search = f"{{{RATES}, cluster.workers: {{choice: [2, 3]}}, runs: 8, halving: {BUDGETS[:-1]}, factor: 2}}}}"
    path = toy(f"sweep: {{search: {search}}}")
    rungs = halved(path, tmp_path)
    assert [len(rung.scores) for rung in rungs] == [8, 4, 2, 1, 1]
    assert [rung.budget for rung in rungs] == [4, 8, 16, 32, 36]
    draws = numbered_draws(load(path).sweep["search"], "sweep.search")
    for rung in rungs:
        tried = {
            (draws[number]["cluster.workers"], draws[number]["learning.lr"])
            for number in rung.scores
        }
        rows = rung.results.final[["cluster.workers", "learning.lr"]].itertuples(index=False)
        assert {tuple(row) for row in rows} == tried
        assert len(rung.results) == len({workers for workers, _ in tried})
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("manifest.json")}
    again = halved(path, tmp_path)
    assert [rung.best for rung in again] == [rung.best for rung in rungs]
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("manifest.json")} == stamps


def test_drawn_texts_with_a_unit_are_scored_as_numbers(toy, tmp_path):
    """Tables show their numbers; each draw has the loss of its own bandwidth and rate."""
    choice = "cluster.network.bandwidth: {choice: [100 byte/s, 1 Gbit/s]}"
    budgets = "{key: stop.time, from: 2, to: 4, factor: 2, by: test_loss}"
    path = toy(f"sweep: {{search: {{{choice}, {RATES}, runs: 6, halving: {budgets}}}}}")
    rungs = halved(path, tmp_path)
    draws = numbered_draws(load(path).sweep["search"], "sweep.search")
    assert {draw["cluster.network.bandwidth"] for draw in draws.values()} == {
        "100 byte/s",
        "1 Gbit/s",
    }
    of = {}
    for result in rungs[0].results:
        final = result.metrics.groupby("learning.lr")["test_loss"].last()
        bandwidth = result.setting("cluster.network.bandwidth")
        of |= {(bandwidth, rate): loss for rate, loss in final.items()}
    numbers = {"100 byte/s": 100.0, "1 Gbit/s": 1.25e8}
    for number, score in rungs[0].scores.items():
        draw = draws[number]
        place = numbers[draw["cluster.network.bandwidth"]], draw["learning.lr"]
        assert score == -of[place]


def test_cost_of_rungs_follows_settings_and_budgets(toy, tmp_path):
    """With one synchronous worker an update is a gradient: 9 x 4 + 3 x 12 + 1 x 36 instead of 9 x
    36.
    """
    given = [
        "cluster.workers=1",
        "algorithm=sync_ps",
        "sweep.search.learning.lr={log_uniform: [0.01, 0.1]}",
    ]
    given.append(f"sweep.search.halving={BUDGETS}")
    path = toy(f"sweep: {{search: {SEARCH}}}")
    config = load(path, *given)
    assert [rung.gradients for rung in halved(path, tmp_path, *given)] == [36, 36, 36]
    halving = halving_of(config)
    assert halving is not None
    assert expected_gradients(config, halving) == [36.0, 36.0, 36.0]


def test_diverged_setting_is_the_worst(toy, tmp_path):
    search = "{learning.lr: {choice: [1.0e+30, 0.1, 1.0e+31]}, runs: 3, halving: {key: stop.updates, from: 9, to: 27"
    path = toy(f"sweep: {{search: {search}, by: test_loss}}}}}}")
    first, last = halved(path, tmp_path)
    (number,) = [number for number, score in first.scores.items() if score > -np.inf]
    assert list(first.best) == list(last.best) == [number]
    assert last.results.final["learning.lr"].tolist() == [0.1]


@pytest.mark.parametrize("simulate", [sweep, run])
def test_rungs_are_refused_where_one_grid_is_run(toy, tmp_path, simulate):
    config = load(toy(f"sweep: {{search: {SEARCH[:-1]}, halving: {BUDGETS}}}}}"))
    with pytest.raises(ConfigError, match=r"^sweep\.search\.halving: "):
        simulate(config, tmp_path)


def test_command_prints_costs_and_the_best_draw(tmp_path, drawn, capsys):
    config = [str(examples()["halving"]), "sweep.search.runs=4", "--out", str(tmp_path)]
    config += [
        "sweep.search.halving={key: stop.updates, from: 4, to: 8, factor: 2, by: test_accuracy}"
    ]
    assert main(["sweep", *config, "--dry-run"]) == 0
    planned = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"stop.updates = 4 +4 settings +about 16 gradients", planned[0])
    assert re.fullmatch(r"stop.updates = 8 +2 settings +about 16 gradients", planned[1])
    assert planned[-1].startswith("about 32 gradients, 100% of ")
    assert list(tmp_path.iterdir()) == []
    assert main(["sweep", *config, "--jobs", "1"]) == 0
    output = capsys.readouterr().out
    assert "stop.updates = 4: best of 4: draws " in output
    assert re.search(r"best by test_accuracy: draw \d: learning.lr = ", output)
    assert re.search(r"\d+ gradients, \d+% of .* all 4 settings\n$", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["halving-rung1", "halving-rung2"]


def test_search_that_diverges_has_no_best_setting(toy, tmp_path, capsys):
    rungs = "{key: stop.updates, from: 20, to: 40, by: test_loss}"
    search = f"{{learning.lr: {{log_uniform: [1.0e+9, 1.0e+10]}}, runs: 4, halving: {rungs}}}"
    path = str(toy(f"sweep: {{search: {search}}}"))
    assert main(["sweep", path, "--jobs", "1", "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert "best by" not in printed.out
    assert "diverged" in printed.err.splitlines()[-1]
