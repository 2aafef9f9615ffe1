"""Files of others are never removed or followed, and strange paths are paths."""

import json
import os
import platform
from time import process_time

import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config.grid import runs
from laggard.experiments.results.files import whole_file


@pytest.fixture
def others(tmp_path):
    """A folder of someone else."""
    folder = tmp_path / "others"
    folder.mkdir()
    for name in ("notes.txt", "snapshot.safetensors"):
        (folder / name).write_text("mine")
    return folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("running", [True, False])
def test_symlink_at_private_folder_is_not_followed(toy, others, tmp_path, running):
    """The link has the temporary name of this process or of one that has ended."""
    process = os.getpid() if running else 4_000_000
    before = content(others)
    group = tmp_path / "results" / "toy"
    group.mkdir(parents=True)
    digest = runs(load(str(toy())))[0].id
    (group / f".{digest}.{platform.node()}.{process}").symlink_to(others)
    code = main(["run", str(toy()), "--out", str(tmp_path / "results"), "--quiet"])
    assert code == (2 if running else 0)
    assert content(others) == before


def test_symlink_at_temporary_name_is_not_followed(others, tmp_path):
    target = tmp_path / "table.csv"
    temporary = tmp_path / f".table.csv.{platform.node()}.{os.getpid()}.part"
    temporary.symlink_to(others / "notes.txt")
    with whole_file(target) as file:
        file.write_text("new")
    assert (others / "notes.txt").read_text() == "mine"
    assert target.read_text() == "new"


# in CI one name with a scheme of its own, and one with all other characters of an address
@pytest.mark.parametrize(
    "name",
    [
        "s3:x",
        "a#b%20c=d",
        pytest.param("a:b", marks=pytest.mark.slow),
        pytest.param("file:", marks=pytest.mark.slow),
    ],
)
def test_results_are_stored_in_folders_of_any_name(toy, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(toy()), "--out", name, "--quiet"]) == 0
    assert main(["table", f"{name}/toy"]) == 0
    assert main(["export", f"{name}/toy", "--to", "perfetto", "trace.json"]) == 0
    assert "mean staleness" in capsys.readouterr().out


def test_damaged_index_of_a_finished_sweep_is_rewritten(toy, tmp_path, drawn):
    out = tmp_path / "results"
    call = ["sweep", str(toy()), "sweep.seed=[0, 1]", "--out", str(out), "--quiet"]
    assert main(call) == 0
    index = out / "toy" / "sweep.json"
    damaged = json.loads(index.read_text()) | {"self": "0" * 64}
    index.write_text(json.dumps(damaged))
    assert main(call) == 0
    assert json.loads(index.read_text())["self"] != "0" * 64


LARGE = {
    "buckets": "{workers: 1024, compute: {law: constant, mean: 1.0}}",
    "slices": "{workers: 4, compute: {law: constant, mean: 1.0}, network: {message_bytes: 1.0e+12}}",
}
ALGORITHMS = {"buckets": "{name: all_reduce, bucket_bytes: 1}", "slices": "p3"}


@pytest.mark.parametrize("name", LARGE)
def test_check_for_a_warning_has_a_bound(tmp_path, name, capsys):
    """Without a bound, checking these configs would take minutes."""
    path = tmp_path / "large.yaml"
    data = "{name: synthetic, samples: 2048}"
    path.write_text(
        f"cluster: {LARGE[name]}\nalgorithm: {ALGORITHMS[name]}\n"
        f"task: {{model: mlp, hidden: [64, 64], dataset: {data}, batch: 1, partition: disjoint}}\n"
        "stop: {updates: 1}\n"
    )
    begin = process_time()
    assert main(["validate", str(path)]) == 0
    assert process_time() - begin < 15


def test_validate_accepts_cut_at_layers_of_task(tmp_path):
    """The check for a warning simulates the clock alone, whose layers have other names."""
    path = tmp_path / "cut.yaml"
    path.write_text(
        "cluster: {workers: 3, compute: {law: constant, mean: 0.01}}\n"
        "algorithm: {name: 1f1b, micro_batches: 4, cut: [full2, full3]}\n"
        "task: {model: lenet5, dataset: {name: synthetic_images, channels: 1, size: 28, samples: 60},"
        " batch: 5, partition: by_label}\nstop: {updates: 6}\n"
    )
    assert main(["validate", str(path)]) == 0
    assert run(load(str(path)), tmp_path).manifest["status"] == "finished"
