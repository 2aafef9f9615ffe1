"""Configs based on another, the examples that laggard brings, and the JSON schema of a config."""

import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from laggard import load
from laggard.experiments.cli import main
from laggard.experiments.config import document
from laggard.experiments.config.config import digest_of
from laggard.experiments.config.document import examples, find_config, read
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.experiments.config.listing import config_schema
from tests.cases import yaml_table

BASE = """\
# What is the base asked?
name: called-otherwise
cluster: {workers: 4, compute: {law: gamma, mean: 0.01, cv: 0.5}, network: {bandwidth: 1.0e+6, latency: 0.01}}
algorithm: {name: async_ps, accumulate: 2}
task: {model: quadratic, dim: 5}
learning: {optimizer: sgd, momentum: 0.9, lr: 0.1}
stop: {updates: 20}
sweep: {learning.lr: [0.1, 0.2], seed: [0, 1]}
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)

    def written(text, name="own.yaml"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    return written


def digests(path, *overrides):
    return [digest_of(run.config) for run in runs(load(path, *overrides))]


BASES = yaml_table(__file__, "bases.yaml")


@pytest.mark.parametrize(("own", "overrides"), BASES.items())
def test_changes_of_a_base_equal_overrides(write, own, overrides):
    based = write(f"base: base.yaml\n{own}\n")
    words = [word for word in overrides.split("; ") if word]
    assert digests(based) == digests(based.with_name("base.yaml"), *words)


OWN = (
    "sweep: {learning.lr: [0.3, 0.4], seed: null, cluster.workers: [2, 4]}",
    "learning: {lr: 0.7}",
    "seed: 3",
)


@pytest.mark.parametrize("lines", list(permutations(OWN)))
def test_axes_of_file_are_kept_in_any_order(write, lines):
    """The keys that a file sets take away axes of its base, not its own."""
    own = load(write("\n".join(("base: base.yaml", *lines))))
    assert own.sweep == {"learning.lr": [0.3, 0.4], "cluster.workers": [2, 4]}
    assert own.seed == 3


@pytest.mark.parametrize("lines", list(permutations(("learning: {lr: 0.5}", "sweep: {m: null}"))))
def test_removed_variant_sets_no_key(write, lines):
    write(
        "base: base.yaml\nsweep: {learning.lr: null, m: {a: {learning.lr: 1.0}, b: {learning.lr: 2.0}}}",
        "m.yaml",
    )
    own = load(write("\n".join(("base: m.yaml", *lines))))
    assert (own.sweep, own.learning.lr) == ({"seed": [0, 1]}, 0.5)


def test_search_keeps_unchanged_ranges(write):
    ranges = "learning.lr: {uniform: [0, 1]}, learning.momentum: {choice: [0.1, 0.2, 0.3]}"
    write(
        BASE.replace(
            "{learning.lr: [0.1, 0.2], seed: [0, 1]}", f"{{search: {{runs: 9, {ranges}}}}}"
        )
    )
    own = load(
        write("base: own.yaml\nsweep: {search: {runs: 2, learning.momentum: null}}", "few.yaml")
    )
    assert own.sweep == {"search": {"runs": 2, "learning.lr": {"uniform": [0, 1]}}}
    other = "base: own.yaml\nsweep: {search: null, seed: [4, 5]}"
    assert load(write(other, "other.yaml")).sweep == {"seed": [4, 5]}


def test_error_names_the_file_of_its_key(write):
    base = write(
        BASE.replace("lr: 0.1}", "lr: 0.1, decay: 1}").replace("updates: 20", "updates: no"),
        "wrong.yaml",
    )
    middle = write("base: wrong.yaml\nlearning: {clip: 1}", "middle.yaml")
    own = write("base: middle.yaml\ntask: {dim: -1}")
    with pytest.raises(ConfigError) as caught:
        load(own)
    found = {error.key: error.where for error in (caught.value, *caught.value.others)}
    there = {"learning.decay": base, "stop.updates": base, "learning.clip": middle}
    assert found == {key: f"{own} (from {file.name})" for key, file in there.items()} | {
        "task.dim": str(own)
    }
    with pytest.raises(ConfigError) as caught:
        load(own, "stop.updates=never")
    assert {
        error.where for error in (caught.value, *caught.value.others) if error.key == "stop.updates"
    } == {str(own)}


def test_name_and_question_are_not_inherited(write):
    config = load(write("# And mine?\nbase: base.yaml\n"))
    assert (config.name, config.question) == ("own", "And mine?")
    assert load(write("base: base.yaml\n")).question == ""
    assert load(write("base: base.yaml\nname: mine\n")).name == "mine"


def test_keys_of_a_named_entry_may_change(write):
    write("base: base.yaml\nalgorithm: sync_ps\n", "middle.yaml")
    assert (
        load(write("base: middle.yaml\nalgorithm: {accumulate: 3}\n")).algorithm.name == "sync_ps"
    )


def test_base_may_have_a_base_elsewhere(write, tmp_path):
    """File names are relative to the file that contains them."""
    write("seconds\n1.0\n2.0\n", "middle/times.csv")
    write(
        "base: ../base.yaml\ncluster: {compute: {law: trace, file: times.csv}}\n",
        "middle/middle.yaml",
    )
    config = load(write("base: middle/middle.yaml\nlearning: {lr: 0.5}\n"))
    assert Path(config.cluster.compute.file) == tmp_path / "middle/times.csv"
    assert (config.learning.lr, config.learning.momentum, list(config.sweep)) == (
        0.5,
        0.9,
        ["seed"],
    )


def test_examples_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = examples()
    assert {"quickstart", "methods/pipedream"} <= set(known)
    assert (
        find_config("example:pipedream")
        == find_config("example:methods/pipedream.yaml")
        == known["methods/pipedream"]
    )
    assert load("example:quickstart", "stop.epochs=1").name == "quickstart"
    Path("own.yaml").write_text("base: example:quickstart\nstop: {epochs: 1}\n")
    assert digests(Path("own.yaml")) == [
        digest_of(run.config) for run in runs(load("example:quickstart", "stop.epochs=1"))
    ]


def test_ambiguous_name_of_an_example_is_refused(monkeypatch):
    monkeypatch.setattr(
        document, "examples", lambda: {"a/x": Path("a"), "b/x": Path("b"), "c/y": Path("c")}
    )
    assert find_config("example:y") == Path("c")
    with pytest.raises(
        ConfigError, match=r"^example:x: expected the name of an example; it may be a/x or b/x$"
    ):
        find_config("example:x")


def test_command_knows_examples(capsys):
    assert main(["list", "examples"]) == 0
    names = {
        line.strip().partition(":")[0]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ")
    }
    assert set(examples()) <= names


@pytest.fixture(scope="module")
def schema():
    found = config_schema()
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(json.loads(json.dumps(found)))


@pytest.mark.parametrize("name", examples())
def test_every_example_follows_the_schema(schema, name):
    assert [error.message for error in schema.iter_errors(read(examples()[name]))] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "devce: cpu",
        "stop: {epoch: 3}",
        "cluster: {workers: zero}",
        "cluster: {compute: {law: gama, mean: 1.0, cv: 1.0}}",
        "cluster: {compute: {law: gamma, mean: 1.0, cv: x}}",
        "cluster: {slowdowns: [{worker: x, factor: 5}]}",
        "cluster: {apply_seconds: soon}",
        "cluster: {network: {latency: {law: gama, mean: 1.0}}}",
        "cluster: {preset: 10gb}",
        "algorithm: async_p",
        "algorithm: {name: async_ps, accumulates: 3}",
        "algorithm: {name: k_async, wait_for: 0}",
        "algorithm: {name: sync_ps, backward: 0.0}",
        "task: {model: logistic, dataset: {name: synthetic, samples: 3}}",
        "task: {model: mlp, batch: 0}",
        "learning: {optimizer: adam, momentum: 0.9}",
        "learning: {compensation: {name: dc_asgd_a, strength: x}}",
        "sweep: {search: {learning.lr: {unifrom: [0, 1]}, runs: 2}}",
        "sweep: {search: {learning.lr: {uniform: [0, 1]}, runs: x}}",
        "sweep: {search: {learning.lr: {uniform: [0, 1]}, runs: 2, halving: {form: 1, to: 3}}}",
    ],
)
def test_schema_rejects_same_configs_as_load(schema, tmp_path, wrong):
    (tmp_path / "wrong.yaml").write_text(wrong)
    assert not schema.is_valid(read(tmp_path / "wrong.yaml"))
    with pytest.raises(ConfigError):
        load(tmp_path / "wrong.yaml")


def test_schema_leaves_plugins_their_keys(schema):
    assert schema.is_valid(
        {"algorithm": {"name": "mine:Method", "patience": 3}, "learning": {"optimizer": "mine:Own"}}
    )


def test_fresh_process_prints_the_same_schema(schema):
    printed = subprocess.run(
        [sys.executable, "-m", "laggard", "schema"], capture_output=True, check=True
    ).stdout
    assert json.loads(printed) == schema.schema
