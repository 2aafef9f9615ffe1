"""Grids: what becomes a run, what a member, and that a member is the run that it stands for."""

import math
import re
from pathlib import Path
from time import process_time

import pandas as pd
import pytest
import torch

from laggard import ConfigError, load, sweep
from laggard.experiments.config.document import read
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.parts import COMPENSATION, LEARNING, SCHEDULE
from laggard.experiments.running.sweep import SweepError
from laggard.simulator import simulate
from laggard.simulator.learning.pool import MEMORY


def grid(path, *overrides):
    return [(dict(run.labels), run.members) for run in runs(load(path, *overrides))]


def test_numbers_of_the_rule_are_members(
    toy,
):
    path = toy(
        "sweep: {cluster.workers: [2, 4], learning.lr: [1, 0.5], learning.seed: [7, 8], seed: [0, 1]}"
    )
    expected = [{"learning.lr": lr, "learning.seed": seed} for lr in (1.0, 0.5) for seed in (7, 8)]
    labels = [{"cluster.workers": workers, "seed": seed} for workers in (2, 4) for seed in (0, 1)]
    assert grid(path) == [(label, expected) for label in labels]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("learning.optimizer", "[sgd, adam]"),
        ("learning.schedule", "[constant, {name: cosine, length: 2}]"),
        ("learning.compensation", "[none, staleness]"),
        ("task.noise", "[0.1, 0.2]"),
        ("algorithm.name", "[sync_ps, async_ps]"),
    ],
)
def test_other_keys_become_runs(toy, key, values):
    assert len(runs(load(toy(), f"sweep.{key}={values}"))) == 2


def test_number_of_workers_becomes_runs(toy):
    planned = runs(
        load(
            toy(), "learning.compensation=one_over_n", "sweep.learning.compensation.workers=[2, 3]"
        )
    )
    assert [run.config.learning.compensation.workers for run in planned] == [2, 3]


def test_variant_leaves_no_key_behind(toy):
    a = "{algorithm: {name: k_sync, wait_for: 2}, learning.compensation: dc_asgd_a}"
    first, second = runs(load(toy(f"sweep: {{method: {{a: {a}, b: {{seed: 1}}}}}}")))
    assert (first.labels, second.labels) == ({"method": "a"}, {"method": "b"})
    assert (first.config.algorithm.wait_for, first.config.seed) == (2, 0)
    assert (second.config.algorithm.name, second.config.learning.compensation.name) == (
        "async_ps",
        "none",
    )


def test_whole_part_is_set_before_its_keys(
    toy,
):
    laws = "{a: {cluster.compute: {law: gamma, mean: 9, cv: 1}}, b: {cluster.compute: {law: exponential, mean: 9}}}"
    planned = runs(load(toy(), "sweep.cluster.compute.mean=[0.5]", f"sweep.law={laws}"))
    compute = [run.config.cluster.compute for run in planned]
    assert [(each.law, each.mean) for each in compute] == [("gamma", 0.5), ("exponential", 0.5)]


def test_sweep_may_set_keys_config_lacks(toy):
    path = toy(
        text="cluster: {compute: {law: gamma, cv: 0.1}}\nsweep: {cluster.compute.mean: [0.1, 0.2]}\n"
    )
    assert [run.config.cluster.compute.mean for run in runs(load(path))] == [0.1, 0.2]


def test_axis_named_like_column_is_refused(toy):
    page = Path(__file__).parents[2].joinpath("docs/tables.md").read_text()
    columns = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(columns) > 40
    path = toy()
    for name in (*columns, "test loss", "max staleness", "seed", "experiment"):
        with pytest.raises(ConfigError, match="is a column of the results already"):
            load(path, f"sweep={{{name}: {{a: {{seed: 2}}, b: {{seed: 3}}}}}}")


def test_variants_with_own_grids_share_a_table(toy, tmp_path):
    """The grids hold names and lists that the other variant does not have."""
    grids = "sweep: {learning.optimizer: [sgd, adam], task.initial: [1, [1, 2]], seed: [0, 1]}"
    path = toy(f"sweep: {{method: {{one: {{{grids}}}, other: {{algorithm.name: sync_ps}}}}}}")
    results = sweep(load(path, "task={model: quadratic, dim: 2}"), tmp_path)
    for table in (results.metrics, results.updates, results.final):
        own = table[table["method"] == "other"]
        assert len(own) > 0
        assert own[["learning.optimizer", "task.initial"]].isna().all(axis=None)
        rest = table[table["method"] == "one"].astype(
            {"task.initial": str, "learning.optimizer": str}
        )
        assert set(rest["learning.optimizer"]) == {"sgd", "adam"}
        assert set(rest["task.initial"]) == {"1", "[1, 2]"}


def test_seeds_count_from_zero(toy):
    path = toy("sweep: {seeds: 3, learning.lr: [0.1, 0.2]}")
    assert grid(path) == grid(path, "sweep={seed: [0, 1, 2], learning.lr: [0.1, 0.2]}")
    assert grid(path, "seed=7") == [({}, [{"learning.lr": 0.1}, {"learning.lr": 0.2}])]
    assert [run.config.seed for run in runs(load(path, "seed=7"))] == [7]


def test_zipped_keys_go_together(toy):
    path = toy(
        "sweep: {zip: {task.noise: [0, 0.1], learning.lr: [0.1, 0.2]}, learning.momentum: [0, 0.5]}"
    )
    planned = runs(load(path))
    assert [run.labels for run in planned] == [
        {"task.noise": 0, "learning.lr": 0.1},
        {"task.noise": 0.1, "learning.lr": 0.2},
    ]
    assert [(run.config.task.noise, run.config.learning.lr) for run in planned] == [
        (0, 0.1),
        (0.1, 0.2),
    ]
    assert [run.members for run in planned] == [
        [{"learning.momentum": 0}, {"learning.momentum": 0.5}]
    ] * 2


def test_zipped_numbers_of_the_rule_are_members(toy):
    rule = "{learning.lr: [1, 2], learning.momentum: [0, 0.5]}"
    data = "{learning.seed: [3, 4], learning.compensation.strength: [0, 1]}"
    (run,) = runs(load(toy(), "learning.compensation=dc_asgd_c", f"sweep.zip=[{rule}, {data}]"))
    rows = [tuple(member.values()) for member in run.members]
    assert rows == [
        (lr, momentum, *pair) for lr, momentum in ((1, 0), (2, 0.5)) for pair in ((3, 0), (4, 1))
    ]


def test_variant_has_a_grid_of_its_own(toy):
    sgd = "{learning.optimizer: sgd, sweep: {learning.lr: [0.1, 0.3], learning.momentum: [0, 0.9]}}"
    adam = "{learning.optimizer: adam, sweep: {learning.lr: [0.001], learning.beta2: [0.9, 0.99], task.noise: [0, 1]}}"
    planned = grid(
        toy(f"sweep: {{method: {{sgd: {sgd}, adam: {adam}, plain: {{}}}}, learning.seed: [5, 6]}}")
    )
    assert [labels for labels, _ in planned] == [
        {"method": "sgd"},
        {"method": "adam", "task.noise": 0},
        {"method": "adam", "task.noise": 1},
        {"method": "plain"},
    ]
    seeds, sgd, adam = ({"learning.seed": seed} for seed in (5, 6)), planned[0][1], planned[1][1]
    assert sgd[:4] == [
        {"learning.seed": 5, "learning.lr": lr, "learning.momentum": momentum}
        for lr in (0.1, 0.3)
        for momentum in (0, 0.9)
    ]
    assert len(sgd) == 8
    assert adam[1] == {"learning.seed": 5, "learning.lr": 0.001, "learning.beta2": 0.99}
    assert planned[3][1] == list(seeds)


def test_large_grid_is_parsed_quickly(toy):
    """Parsing one swept value takes less than a third of the time of loading one config."""
    numbers = [index / 1000 for index in range(1, 301)]
    path = toy()
    load(path)
    start = process_time()
    for number in numbers[:30]:
        load(path, f"learning.lr={number}")
    alone = (process_time() - start) / 30
    start = process_time()
    load(path, f"sweep.learning.lr={numbers}")
    assert (process_time() - start) / 300 < alone / 3


def test_id_is_independent_of_the_sweep(toy):
    path = toy()
    plain = runs(load(path, "algorithm.name=sync_ps"))[0].config
    variant = runs(load(path, "sweep.method={x: {seed: 4}, sync: {algorithm.name: sync_ps}}"))[
        1
    ].config
    listed = runs(
        load(path, "sweep.algorithm.name=[async_ps, sync_ps]", "name=other", "threads=1")
    )[1].config
    assert RunSpec(plain).id == RunSpec(variant).id == RunSpec(listed).id
    assert RunSpec(plain).id != runs(load(path))[0].id


def test_order_of_members_is_part_of_id(toy):
    path = toy()
    one = load(path, "sweep={learning.lr: [0.1, 0.2], learning.momentum: [0, 0.5]}")
    other = load(path, "sweep={learning.momentum: [0, 0.5], learning.lr: [0.1, 0.2]}")
    assert runs(one)[0].id != runs(other)[0].id


NETWORK = (
    "task={model: mlp, hidden: [6, 5], batch: 8, "
    "dataset: {name: synthetic, samples: 64, features: 5}}"
)


def axes():
    """Every number that an ensemble may span, of every entry of every table: what selects it, its
    key, values.
    """
    yield "learning.lr=0.1", "learning.lr", "[0.1, 0.03, 0.3]"
    yield "learning.lr=0.1", "learning.seed", "[0, 3, 9]"
    yield "learning.lr=0.1", "learning.weight_decay", "[0.0, 0.3]"
    yield "learning.clip={norm: 1}", "learning.clip.norm", "[0.05, 0.5]"
    yield "learning.clip={value: 1}", "learning.clip.value", "[0.01, 0.1]"
    several = "[{name: warmup, length: 0.5}, {name: step, at: [0.5, 1], factor: 0.5}]"
    yield f"learning.schedule={several}", "learning.schedule.1.factor", "[0.1, 0.9]"
    rooms = [
        ("optimizer", "", LEARNING),
        ("schedule", "schedule.", SCHEDULE),
        ("compensation", "compensation.", COMPENSATION),
    ]
    for room, prefix, choice in rooms:
        for name, part in choice.parts.items():
            for key in sorted(part.scalars):
                # or staleness never gets there
                values = "[0.05, 0.035]" if key == "ceiling" else "[0.5, 0.35]"
                yield f"learning={chosen(room, name, part)}", f"learning.{prefix}{key}", values


def chosen(room, name, part):
    required = [key for key in part.settings if part.model_fields[key].is_required()]
    # or `at`, a list
    needed = "".join(f", {key}: 1.7" for key in [*required, *["every"] * (name == "step")])
    return (
        f"{{optimizer: {name}}}" if room == "optimizer" else f"{{{room}: {{name: {name}{needed}}}}}"
    )


@pytest.mark.parametrize(("setting", "key", "values"), list(axes()))
def test_ensemble_equals_its_single_runs(toy, setting, key, values):
    overrides = [setting, f"sweep.{key}={values}"]
    if "muon" in setting:  # Muon needs a hidden matrix
        overrides += [NETWORK, "threads=1"]
    hold_to_singles(toy(), overrides)


def test_members_of_a_zip_equal_single_runs(toy):
    zipped = "{learning.lr: [0.1, 0.03], learning.momentum: [0.5, 0.9]}"
    hold_to_singles(toy(), (f"sweep.zip={zipped}", "sweep.learning.seed=[0, 1]"))


def test_schedules_that_set_times_are_runs_of_their_own(toy):
    """Rounds of `qsr` depend on the schedule, so that members cannot differ in it."""
    path = toy("sweep: {learning.schedule.length: [1, 2], learning.lr: [0.1, 0.03]}")
    schedule = "learning.schedule={name: cosine, length: 1, floor: 0.5}"
    for method, members in (("local_all_reduce", [4]), ("qsr", [2, 2])):
        planned = runs(load(path, f"algorithm={method}", schedule))
        assert [len(run.members) for run in planned] == members


def hold_to_singles(path, overrides):
    spec = RunSpec(load(path, *overrides))
    together = simulate(**spec.arguments())
    assert len({tuple(row) for row in together.weights.tolist()}) == len(spec.members), (
        "the axis does nothing here"
    )
    for member, values in enumerate(spec.members):
        settings = [f"{key}={value}" for key, value in values.items()]
        single = RunSpec(load(path, *overrides, "sweep={}", *settings))
        alone = simulate(**single.arguments())
        assert torch.equal(together.weights[member], alone.weights[0])
        rows = pd.DataFrame(together.metrics).query(f"member == {member}").reset_index(drop=True)
        assert rows.drop(columns="member").equals(
            pd.DataFrame(alone.metrics).drop(columns="member")
        )


def test_failed_run_does_not_stop_the_others(toy, tmp_path, monkeypatch):
    task = "{task: {dataset: {name: synthetic, samples: 9}, batch: 4}, stop: {updates: 3}}"
    config = load(toy(text=task), "sweep.task.model=[mlp, logistic]")
    monkeypatch.setattr("models.MLP.build", _unfit)
    with pytest.raises(SweepError) as caught:
        sweep(config, tmp_path)
    assert [result.labels for result in caught.value.results] == [{"task.model": "logistic"}]
    (line,) = caught.value.failures
    assert line.startswith("run ")
    assert "(task.model = mlp): ConfigError: task.hidden: expected better, got 3" in line
    assert not list((tmp_path / "toy").glob(".*"))


def _unfit(*_):
    if torch.empty(0).device.type != "meta":  # as the config is checked
        raise ValueError("hidden = 3: expected better")
    return torch.nn.Flatten()


def test_grid_of_delays_fits_into_memory():
    path = Path(__file__).parents[2] / "configs/delay_grid_paper.yaml"
    grid = read(path)["sweep"]
    assert math.prod(len(options) for options in grid.values()) == 1680
    planned = runs(load(path, "sweep.algorithm.delay=[256]", "sweep.task.batch=[1024]"))
    assert [len(run.members) for run in planned] == [30, 30]
    params = sum(layer.params for layer in planned[0].config.task.layers())
    promised = (256 + 1) * 30 * params * 4 * 2  # bytes: of weights, and of gradients to come
    assert promised < MEMORY
