"""Data sets and partitions in configs: a config each, that runs; sizes known before a run; files by
their contents.
"""

import json
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config import task
from laggard.experiments.config.config import parse
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.running.run import run_spec
from laggard.experiments.theory.stability import chance
from laggard.models import DATASETS, cifar
from tests.cases import yaml_table
from tests.documents import ROOT
from tests.experiments.conftest import ROWS
from tests.models.releases import leaf_document, write_cifar

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "data").glob("*.yaml"))
LEARNS = "# Does it learn?\ncluster: {workers: 2}\nstop: {updates: 4}\ntask: {%s}\n"


@pytest.fixture
def small_cifar(tmp_path, monkeypatch):
    """Both releases of CIFAR with 64 images a file."""
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    for name in ("CIFAR10", "CIFAR100"):
        monkeypatch.setattr(cifar, name, getattr(cifar, name)._replace(records=64, tests=64))
        write_cifar(tmp_path, getattr(cifar, name))


def config(folder, task):
    for key, usual in (("batch", "2"), ("model", "logistic")):
        task = task if f"{key}: " in task else f"{key}: {usual}, {task}"
    path = folder / "config.yaml"
    path.write_text(LEARNS % task)
    return path


# ---------------------------------------------------------------------------------------------------
# what is shipped


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_of_a_data_set_runs(path, small_cifar, tmp_path):
    """The last run of the config is simulated."""
    result = run_spec(runs(load(path))[-1], tmp_path)
    assert result.manifest["gradients"]["applied"] > 0
    losses = result.metrics["test_loss"]
    # whose images are random here
    assert losses.iloc[-1] < losses.iloc[0] or path.stem.startswith("cifar")


def test_every_data_set_has_a_config():
    shipped = {spec.config.task.dataset.name for path in CONFIGS for spec in runs(load(path))}
    partitions = {spec.config.task.partition.name for path in CONFIGS for spec in runs(load(path))}
    older = {"digits", "mnist", "fashion_mnist", "characters"}  # others name them
    assert shipped == set(DATASETS) - older
    assert {"by_writer", "from_file"} <= partitions


# ------------------------------------------------------------------------------------------- known
# before the run

GIVEN = {
    "synthetic": {"samples": 12, "features": 3, "classes": 2},
    "synthetic_images": {"samples": 12, "classes": 3, "channels": 2, "size": 7, "writers": 20},
    "characters": {"samples": 12, "positions": 7},
    "libsvm": {"file": "rows.txt", "test_share": 0.3},
    "text": {"file": "prose.txt", "positions": 7, "test_share": 0.3},
    "femnist": {"file": "train", "test_file": "test"},
    "leaf": {"file": "train", "test_file": "test", "shape": "28x28"},
    "idx": {
        "file": str(ROOT / "configs/data/letters_train_images.idx.gz"),
        "labels_file": str(ROOT / "configs/data/letters_train_labels.idx.gz"),
        "test_file": str(ROOT / "configs/data/letters_test_images.idx.gz"),
        "test_labels_file": str(ROOT / "configs/data/letters_test_labels.idx.gz"),
        "first_label": 1,
    },
}


@pytest.mark.parametrize("name", [*GIVEN, "digits"])
def test_sizes_known_before_a_run_are_right(name, data, monkeypatch):
    monkeypatch.chdir(data)
    part = task.DATASET.parts[name].model_validate({"name": name, **GIVEN.get(name, {})})
    known, there = task.sizes_of(part), part.build()
    assert known is not None
    assert known[:4] == (there.shape, there.classes, len(there.train_y), there.labels)
    if there.writers is not None:
        assert known.writers == len(set(there.writers.tolist()))


def test_samples_without_held_out_ones_are_known():
    """An epoch is the training set that is left."""
    config = parse({"task": {"model": "logistic", "dataset": "digits", "validation": 0.2}})
    assert config.task.training_samples == 1200
    built = config.task.task(workers=4, seed=0, device="cpu", backend="auto", threads=1)
    assert built.epoch == 1200


def test_table_of_shards_refuses_held_out_samples(tmp_path, mistake):
    (tmp_path / "shards.csv").write_text("worker,sample\n0,0\n1,1\n", encoding="utf-8")
    part = "dataset: digits, validation: 0.5, partition: {file: shards.csv}"
    path = config(tmp_path, part)
    assert "task.validation: expected another partition" in mistake("validate", path)


def test_broken_release_gives_one_line_error(small_cifar, tmp_path, mistake, capsys):
    file = tmp_path / cifar.CIFAR10.folder / cifar.CIFAR10.test
    file.write_bytes(file.read_bytes()[:-100])
    path = config(tmp_path, "dataset: cifar10")
    assert main(["validate", str(path)]) == 0
    capsys.readouterr()
    message = mistake("run", path, "--out", tmp_path / "out")
    assert message.startswith(f"{file}: expected 64 records of ")


# ------------------------------------------------------------------------------------------
# contents, not places

FILES = {
    "rows.txt": ("dataset: {name: libsvm, file: rows.txt}", ROWS + "2 1:7\n"),
    "train": (
        "dataset: {name: femnist, file: train, test_file: test}, partition: by_writer",
        json.dumps(leaf_document({"f0001_41": [5, 0, 61]})),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_file_is_identified_by_its_content(name, data, tmp_path, monkeypatch):
    """Names are relative to the config, wherever the command is run."""
    task, other = FILES[name]
    path = config(data, task)
    first = run(load(path), tmp_path / "out")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for each in ("config.yaml", "rows.txt"):
        shutil.copy(data / each, moved)
    for each in ("train", "test"):
        shutil.copytree(data / each, moved / each)
    monkeypatch.chdir("/")
    assert RunSpec(load(moved / "config.yaml")).id == first.path.name
    changed = moved / name
    changed = sorted(changed.iterdir())[0] if changed.is_dir() else changed
    changed.write_text(other)
    second = run(load(moved / "config.yaml"), tmp_path / "out")
    assert second.path != first.path
    assert not second.weights.equal(first.weights)


def test_folder_is_identified_by_the_order_of_files(data):
    path = config(data, "dataset: {name: femnist, file: train, test_file: test}")
    before = RunSpec(load(path)).id
    one, other = sorted((data / "train").iterdir())
    one.rename(data / "train" / "a.json")
    assert RunSpec(load(path)).id == before
    other.rename(data / "train" / "0.json")
    assert RunSpec(load(path)).id != before


def test_chance_is_unknown_without_the_file(data, tmp_path):
    result = run(load(config(data, "dataset: {name: libsvm, file: rows.txt}")), tmp_path / "out")
    assert chance(result.config) == pytest.approx(1 / 3)
    for change in (lambda file: file.write_text(ROWS + "7 1:1\n"), Path.unlink):
        change(data / "rows.txt")
        task._read_sizes.cache_clear()
        assert chance(result.config) is None


# ------------------------------------------------------------------------------------------------
# labels that are numbers or sets

NUMBERS = "0.5 1:1\n-1.25 1:2 3:1\n3 2:1\n7.5 1:4\n"
SETS = "0,2 1:1\n 1:2\n1 2:1\n0,1,2 3:4\n"


@pytest.mark.parametrize(
    ("labels", "rows", "outputs", "loss", "measured"),
    [
        ("numbers", NUMBERS, 1, "mean_squared", {"test_loss"}),
        ("sets", SETS, 3, "binary", {"test_loss", "test_accuracy"}),
    ],
)
def test_numbers_and_sets_are_trained(labels, rows, outputs, loss, measured, tmp_path):
    """The network has an output for each class, or one; the loss is the same where it is named."""
    (tmp_path / "rows").write_text(rows)
    keys = f"model: mlp, hidden: [5], dataset: {{name: libsvm, file: rows, labels: {labels}}}"
    path = config(tmp_path, keys)
    assert main(["validate", str(path)]) == 0
    result = run(load(path), tmp_path / "out")
    assert result.weights.shape[-1] == 5 * (3 + 1) + outputs * (5 + 1)
    assert {"test_loss", "test_accuracy"} & set(result.metrics) == measured
    assert result.config.task.loss.name == loss
    named = load(path, f"task.loss={loss}")
    assert RunSpec(named).id == result.path.name
    assert chance(result.config) is None


def test_sweep_may_mix_numbers_and_classes(tmp_path):
    (tmp_path / "rows").write_text("1 1:1\n2 1:2\n1 2:1\n")
    path = config(tmp_path, "dataset: {name: libsvm, file: rows, labels: numbers}")
    path.write_text(path.read_text() + "sweep: {task.dataset.labels: [numbers, classes, sets]}\n")
    losses = [spec.config.task.loss.name for spec in runs(load(path))]
    assert losses == ["mean_squared", "cross_entropy", "binary"]


# ------------------------------------------------------------------------------------------------
# tables of shards


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_table_gives_workers_their_samples(data, suffix):
    """One sample is at two workers and some are at none."""
    if suffix == "parquet":
        pd.read_csv(data / "shards.csv").to_parquet(data / "shards.parquet")
    partition = f"partition: {{file: shards.{suffix}}}"
    path = config(data, f"dataset: {{name: synthetic, samples: 10}}, {partition}")
    assert [shard.tolist() for shard in RunSpec(load(path)).task()._shards] == [[0, 9], [3, 0]]


BROKEN = yaml_table(__file__, "broken_samples.yaml")


@pytest.mark.parametrize(("rows", "key"), BROKEN["shards"].items())
@pytest.mark.parametrize("name", ["synthetic", "own:ten"])
def test_invalid_table_of_shards_gives_one_line_error(
    name,
    rows,
    key,
    data,
    module,
    mistake,
):
    """If the size of the data set is unknown before, the run refuses the table at its start."""
    module("own", TEN)
    (data / "shards.csv").write_text(rows.replace(" ", "\n") + "\n")
    path = config(
        data, f"dataset: {{name: '{name}', samples: 10}}, partition: {{file: shards.csv}}"
    )
    err = mistake("run", path, "--out", data / "out")
    assert err.startswith(f"{path}: {key}")


TEN = """
from laggard.models import Dataset, synthetic

def ten(samples: int) -> Dataset:
    return synthetic(samples)
"""


# -----------------------------------------------------------------------------------------------------
# plugins

OWN = """
import numpy as np
import torch
from laggard.models import Dataset

def rows(file: str, writers: bool = True) -> Dataset:
    '''Numbers of a file: a label, then the inputs.'''
    table = np.loadtxt(file)
    if table.shape[1] != 3:
        raise ValueError(f"file = {file}: expected 3 columns")
    x, y = torch.from_numpy(table[:, 1:]).float(), torch.from_numpy(table[:, 0]).long()
    return Dataset("rows", x, y, x, y, classes=2, writers=np.arange(len(y)) % 3 if writers else None)
"""


def test_file_of_a_plugin_is_hashed(data, module, mistake):
    module("own", OWN)
    (data / "table.txt").write_text("0 1 2\n1 3 4\n1 5 6\n" * 2)
    path = config(data, "dataset: {name: 'own:rows', file: table.txt}, partition: by_writer")
    task = RunSpec(load(path)).task()
    assert sorted(index for shard in task._shards for index in shard.tolist()) == list(range(6))
    assert {frozenset(index % 3 for index in shard.tolist()) for shard in task._shards} in (
        {frozenset({one}), frozenset({0, 1, 2} - {one})} for one in range(3)
    )
    before = RunSpec(load(path)).id
    (data / "table.txt").write_text("0 1 2\n1 3 5\n")
    assert RunSpec(load(path)).id != before
    (data / "table.txt").write_text("0 1\n1 3\n")
    for override, message in {
        "task.batch=2": "task.dataset.file: expected 3 columns, got *table.txt\n",
        "task.dataset.writers=false": "task: partition: expected a data set whose samples have writers, got rows\n",
    }.items():
        err = mistake("run", path, override, "--out", data / "out")
        assert fnmatchcase(err, f"{path}: {message}"), err
        (data / "table.txt").write_text("0 1 2\n1 3 5\n")


SAMPLES = """
import numpy as np
import torch
from laggard.models import Dataset

X, Y = torch.randn(8, 4), torch.tensor([0, 1] * 4)

def untyped():
    return Dataset("untyped", X, Y, X, Y, classes=2)

def nothing() -> Dataset:
    return None

def arrays() -> Dataset:
    return Dataset("arrays", X.numpy(), Y.numpy(), X, Y, classes=2)

def short() -> Dataset:
    return Dataset("short", X, Y[1:], X, Y, classes=2)

def undefined() -> Dataset:
    return Dataset("undefined", X, Y, X * float("nan"), Y, classes=2)

def real() -> Dataset:
    return Dataset("real", X, Y.float(), X, Y, classes=2)

def many() -> Dataset:
    return Dataset("many", X, Y, X, Y + 1, classes=2)

def none() -> Dataset:
    return Dataset("none", X, Y, X, Y, classes=0)

def complex_inputs() -> Dataset:
    return Dataset("complex", X.to(torch.complex64), Y, X, Y, classes=2)

def column() -> Dataset:
    return Dataset("column", X, Y[:, None], X, Y, classes=2)

def column_of_numbers() -> Dataset:
    return Dataset("column", X, Y.float(), X, Y.float()[:, None], classes=1, label_kind="numbers")

def undefined_number() -> Dataset:
    labels = Y.float()
    labels[5] = float("inf")
    return Dataset("undefined", X, labels, X, Y.float(), classes=1, label_kind="numbers")

def wrong_kind() -> Dataset:
    return Dataset("kind", X, Y, X, Y, classes=2, label_kind="number")

def sets_of_twos() -> Dataset:
    sets = torch.stack([Y, 1 - Y], dim=1)
    return Dataset("sets", X, sets, X, 2 * sets, classes=2, label_kind="sets")

def sets_of_three() -> Dataset:
    sets = torch.stack([Y, Y, 1 - Y], dim=1)
    return Dataset("sets", X, sets, X, sets, classes=2, label_kind="sets")

def few_writers() -> Dataset:
    return Dataset("writers", X, Y, X, Y, classes=2, writers=np.arange(7))

def wide() -> Dataset:
    return Dataset("wide", X, Y, X[:, :3], Y, classes=2)

def right() -> Dataset:
    return Dataset("right", X, Y, X, Y, classes=2)
"""


@pytest.mark.parametrize(("name", "key"), BROKEN["plugins"].items())
def test_invalid_samples_of_plugin_give_one_line_error(name, key, module, toy, tmp_path, mistake):
    module("samples", SAMPLES)
    path, words = toy(), ("stop={updates: 2}", "--out", tmp_path / "out")

    def task(name):
        return f"task={{model: logistic, dataset: 'samples:{name}', batch: 2}}"

    assert mistake("run", path, task(name), *words).startswith(f"{path}: {key}")
    assert RunSpec(load(path, task("right"))).task().epoch == 8
