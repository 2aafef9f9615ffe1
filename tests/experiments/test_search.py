"""Random searches: what is drawn, which draws train together, and that nothing else changes
them.
"""

import numpy as np
import pytest
from scipy import stats

from laggard import load, sweep
from laggard.experiments.config.document import examples
from laggard.experiments.config.grid import runs
from laggard.experiments.config.search import draw_settings

LR = "learning.lr: {log_uniform: [0.001, 1]}"
WORKERS = "cluster.workers: {integer: [2, 4]}"


def settings(**search):
    """What is drawn, in the order of values."""
    groups = draw_settings(search, "sweep.search")
    return [{**outer, **member} for outer, members in groups for member in members]


def ids(path, *overrides):
    return {run.id for run in runs(load(path, *overrides))}


@pytest.mark.parametrize(
    ("search", "grid"),
    [
        ("{cluster.workers: {choice: [4, 2, 3]}, runs: 3}", "{cluster.workers: [4, 2, 3]}"),
        ("{cluster.workers: {integer: [2, 4]}, runs: 3}", "{cluster.workers: [2, 3, 4]}"),
        ("{learning.lr: {choice: [0.3, 0.1, 0.2]}, runs: 3}", "{learning.lr: [0.3, 0.1, 0.2]}"),
        (
            "{learning.lr: {choice: [0.3, 0.1]}, algorithm.name: {choice: [sync_ps, async_ps]}, runs: 4}",
            "{algorithm.name: [sync_ps, async_ps], learning.lr: [0.3, 0.1]}",
        ),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exhaustive_search_equals_the_grid(toy, search, grid, seed):
    found = ids(toy(), f"sweep={{search: {search}}}", f"sweep.search.seed={seed}")
    assert found == ids(toy(), f"sweep={grid}")


def test_larger_budget_keeps_earlier_draws():
    a, b = {"uniform": [0, 1]}, {"choice": list("xyz")}
    few, many = settings(a=a, b=b, runs=20), settings(a=a, b=b, runs=90)
    assert {str(each) for each in few} < {str(each) for each in many}
    alone = {each["a"] for each in settings(a=a, runs=20)}
    assert (
        alone
        == {each["a"] for each in few}
        == {each["a"] for each in settings(b=b, c=a, a=a, runs=20)}
    )
    assert alone != {each["a"] for each in settings(a=a, runs=20, seed=1)}
    assert {each["c"] for each in settings(a=a, c=a, runs=20)} != alone


@pytest.mark.parametrize(
    ("drawn", "share"),
    [
        ({"uniform": [-2, 5]}, lambda value: (value + 2) / 7),
        ({"log_uniform": [0.001, 10]}, lambda value: np.log(value / 0.001) / np.log(1e4)),
    ],
)
def test_numbers_have_their_distribution(drawn, share):
    """The Kolmogorov-Smirnov distance of 2,000 draws exceeds the limit for one seed in a thousand."""
    values = np.array([each["a"] for each in settings(a=drawn, b={"uniform": [0, 1]}, runs=2000)])
    assert stats.kstest(share(values), "uniform").pvalue > 1e-3


def test_integers_and_choices_are_equally_likely():
    drawn = settings(
        a={"integer": [3, 6]}, b={"choice": list("xyz")}, c={"uniform": [0, 1]}, runs=2000
    )
    table = np.array(
        [[sum(d["a"] == a and d["b"] == b for d in drawn) for b in "xyz"] for a in (3, 4, 5, 6)]
    )
    assert table.sum() == 2000  # both ends, and nothing beyond them
    assert stats.chisquare(table.flatten()).pvalue > 1e-3
    same = settings(a={"uniform": [0, 1]}, b={"uniform": [0, 1]}, runs=2000)
    assert abs(np.corrcoef([d["a"] for d in same], [d["b"] for d in same])[0, 1]) < 3.3 / 2000**0.5


def test_numbers_of_the_rule_share_a_run(
    toy,
):
    planned = runs(load(toy(f"sweep: {{search: {{{LR}, {WORKERS}, runs: 30}}}}")))
    assert [run.labels for run in planned] == [
        {"cluster.workers": workers} for workers in (2, 3, 4)
    ]
    assert sum(len(run.members) for run in planned) == 30
    assert all(
        rates == sorted(rates)
        for run in planned
        if (rates := [each["learning.lr"] for each in run.members])
    )


def test_larger_budget_keeps_runs_of_limited_size(
    toy,
):
    path = toy(f"sweep: {{search: {{{LR}, {WORKERS}, members: 4, runs: 8}}}}")
    assert ids(path) < ids(path, "sweep.search.runs=12")
    assert max(len(run.members) for run in runs(load(path, "sweep.search.runs=12"))) <= 4
    assert (
        len(ids(path, "sweep.search.cluster.workers={choice: [3]}", "sweep.search.members=2")) == 4
    )


def test_search_combines_with_grids_and_variants(toy):
    path = toy(f"sweep: {{cluster.workers: [2, 3], seeds: 2, search: {{{LR}, runs: 5}}}}")
    assert [len(run.members) for run in runs(load(path))] == [5] * 4
    path = toy(
        f"sweep: {{m: {{a: {{seed: 1}}, b: {{seed: 2, sweep: {{search: {{{LR}, runs: 3}}}}}}}}}}"
    )
    assert [(run.labels, len(run.members)) for run in runs(load(path))] == [
        ({"m": "a"}, 1),
        ({"m": "b"}, 3),
    ]


def test_override_fixes_a_drawn_key(
    toy,
):
    path = toy(f"sweep: {{search: {{{LR}, {WORKERS}, runs: 6}}}}")
    fixed = runs(load(path, "cluster.workers=3", "sweep.search.runs=4"))
    assert [(run.config.cluster.workers, len(run.members)) for run in fixed] == [(3, 4)]
    assert len(runs(load(path, "cluster.workers=3", "learning.lr=0.5"))) == 1


def test_example_of_a_search_trains_every_draw(tmp_path):
    config = load(examples()["search"], "stop={updates: 4}", "sweep.search.runs=6", "evaluate={}")
    results = sweep(config, tmp_path, jobs=1)
    assert sorted(result.labels["learning.compensation"] for result in results) == [
        "dc_asgd_a",
        "none",
    ]
    assert sum(len(result.members) for result in results) == 6
