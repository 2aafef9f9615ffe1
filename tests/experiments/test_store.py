"""Folders: whole or refused, never redone without need, the same from every process."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from pyarrow import parquet

from experiments import Result, load, load_result, load_results, run, sweep
from experiments.build import task
from experiments.store import FILES, TABLES, ResultError, folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def result(toy: Callable[..., Path], tmp_path: Path) -> Result:
    return run(load(toy("sweep: {learning.lr: [0.1, 0.2]}")), tmp_path / "out")


def stamps(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in path.iterdir()}


def test_a_run_leaves_exactly_its_files(result: Result, tmp_path: Path) -> None:
    assert result.path == folder(result.config, tmp_path / "out")
    assert {file.name for file in result.path.iterdir()} == {*FILES, "manifest.json"}
    manifest = json.loads((result.path / "manifest.json").read_text())
    for name in FILES:
        assert manifest["files"][name] == hashlib.sha256((result.path / name).read_bytes()).hexdigest()


def test_the_tables_have_the_columns_that_are_promised(result: Result) -> None:
    read = {name: parquet.read_table(result.path / f"{name}.parquet") for name in TABLES}
    versions = ["version_read", "version", "staleness", "mixings"]
    fates = ["time", "worker", "target", "started", "computed", *versions, "status", "arrived"]
    axes = ["time", "updates", "samples", "epoch", "member", "train_loss", "test_loss", "distance", "learning.lr"]
    assert read["metrics"].column_names == axes
    assert read["updates"].column_names == fates
    assert read["workers"].column_names == ["worker", "computing", "sending", "waiting", "down"]
    assert result.updates["status"].dtype == "category"
    assert set(result.updates["status"]) == {"applied"}
    assert len(result.metrics) == 2 * len(result.metrics["time"].unique())
    assert result.weights.shape == (2, 3)


def test_the_manifest_says_how_it_went(result: Result) -> None:
    manifest = result.manifest
    assert (manifest["status"], manifest["reached"]) == ("finished", "updates")
    assert manifest["mileage"]["updates"] == 40
    assert manifest["seeds"] == {"seed": 0, "cluster": 5, "learning": [0, 0]}
    fates = manifest["gradients"]
    assert fates["started"] == sum(count for fate, count in fates.items() if fate != "started")
    assert fates["applied"] == 40 == (result.updates["status"] == "applied").sum()
    assert (manifest["device"], manifest["backend"]) == ("cpu", None)
    assert manifest["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert manifest["diverged"] == []


def test_the_manifest_says_what_took_the_gradients_and_a_backend_makes_no_other_run(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    images = ("task={model: logistic, dataset: {name: synthetic, samples: 50}, batch: 10}", "stop={updates: 4}")
    config = load(toy(), *images, "device=cpu", "backend=unfold-graphs")
    assert run(config, tmp_path).manifest["backend"] == "unfold-graphs"
    again = load(toy(), *images, "device=cpu")
    assert run(again, tmp_path).manifest["backend"] == "unfold-graphs"  # kept: it is the same run
    assert run(again, tmp_path, force=True).manifest["backend"] == "threads"


def test_a_member_that_diverged_is_named(toy: Callable[..., Path], tmp_path: Path) -> None:
    path = toy("sweep: {learning.lr: [0.1, 1e10]}")
    manifest = run(load(path), tmp_path).manifest
    (divergence,) = manifest["diverged"]
    assert divergence["member"] == 1
    assert 0 < divergence["updates"] < 40
    assert manifest["status"] == "finished"
    assert run(load(path, "sweep={}", "learning.lr=1e10"), tmp_path).manifest["status"] == "diverged"


def test_a_finished_run_is_not_redone_unless_forced(result: Result, tmp_path: Path) -> None:
    before = stamps(result.path)
    run(result.config, tmp_path / "out")
    assert stamps(result.path) == before
    run(result.config, tmp_path / "out", force=True)
    after = stamps(result.path)
    assert all(after[name] > before[name] for name in before)


def test_models_evaluated_are_kept_where_they_are_asked_for(toy: Callable[..., Path], tmp_path: Path) -> None:
    """Each is the model that its row of the metrics measured."""
    overrides = ["evaluate={every_updates: 10, keep_models: true}", "sweep.learning.lr=[0.1, 0.01]"]
    kept = run(load(toy(), *overrides), tmp_path)
    assert kept.models is not None
    assert kept.models.shape == (5, 2, 3)
    assert torch.equal(kept.models[-1], kept.weights)
    measured = [float(loss) for models in kept.models for loss in task(kept.config).evaluate(models)["test_loss"]]
    assert measured == kept.metrics["test_loss"].to_list()
    (kept.path / "models.safetensors").write_bytes(b"something else")
    with pytest.raises(ResultError, match=r"models\.safetensors: not as the run left it"):
        load_result(kept.path)
    assert run(load(toy()), tmp_path).models is None


def test_another_name_device_or_target_is_the_same_run(toy: Callable[..., Path], tmp_path: Path) -> None:
    first = run(load(toy()), tmp_path)
    before = stamps(first.path)
    again = run(load(toy(), "threads=1", "device=cpu", "evaluate.target_accuracy=0.5"), tmp_path)
    assert stamps(first.path) == before
    assert again.config.evaluate.target_accuracy == 0.5


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors"])
def test_an_unfinished_or_spoilt_folder_is_written_anew(result: Result, tmp_path: Path, name: str) -> None:
    wanted = result.weights
    (result.path / name).unlink()
    (result.path / "metrics.parquet").write_bytes(b"half a table")
    assert torch.equal(run(result.config, tmp_path / "out").weights, wanted)
    load_result(result.path)


def test_a_run_that_is_interrupted_leaves_what_was_there(
    toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(toy())
    before = stamps(run(config, tmp_path).path)

    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("experiments.record.save_weights", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path, force=True)
    assert stamps(folder(config, tmp_path)) == before
    assert list((tmp_path / "toy").iterdir()) == [folder(config, tmp_path)]


def test_what_a_dead_process_left_is_cleared_away_and_a_living_ones_is_not(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [tmp_path / "toy" / f".0123456789ab.{platform.node()}.{pid}" for pid in (dead.pid, os.getppid())]
    for path in left:
        path.mkdir(parents=True)
        (path / "manifest.json").write_text("{}")
    result = run(load(toy()), tmp_path)
    assert [path.exists() for path in left] == [False, True]
    assert [read.path for read in load_results(tmp_path / "toy")] == [result.path]


def test_what_is_no_runs_own_survives_a_run_that_is_forced(result: Result, tmp_path: Path) -> None:
    (result.path / "notes.txt").write_text("mine")
    again = run(result.config, tmp_path / "out", force=True)
    assert (again.path / "notes.txt").read_text() == "mine"
    assert {file.name for file in again.path.parent.iterdir()} == {again.path.name}


def test_messages_are_recorded_where_they_are_asked_for_and_a_run_with_them_serves_one_without(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    plain = run(load(toy()), tmp_path)
    assert (plain.recorded, len(plain.messages)) == (False, 0)
    before = stamps(plain.path)
    logged = run(load(toy(), "record.messages=true"), tmp_path)
    assert logged.path == plain.path
    assert stamps(plain.path)["metrics.parquet"] > before["metrics.parquet"]
    assert list(logged.messages) == list(plain.messages)
    assert len(logged.messages) == logged.manifest["messages"]["sent"] > 0
    assert logged.updates["arrived"].notna().all()
    before = stamps(logged.path)
    assert run(load(toy()), tmp_path).recorded
    assert stamps(logged.path) == before
    run(load(toy()), tmp_path, force=True)
    assert not (logged.path / "messages.parquet").exists()


def test_a_message_log_that_was_changed_is_refused_by_name(toy: Callable[..., Path], tmp_path: Path) -> None:
    path = run(load(toy(), "record.messages=true"), tmp_path).path
    (path / "messages.parquet").write_bytes(b"others")
    with pytest.raises(ResultError, match=r"messages\.parquet: not as the run left it"):
        load_result(path)
    (path / "messages.parquet").unlink()
    with pytest.raises(ResultError, match=r"messages\.parquet: missing"):
        load_result(path)


def test_a_result_from_before_there_were_messages_is_read(result: Result) -> None:
    """Its config has no `record`, its `updates.parquet` no `arrived`."""
    config, updates, manifest = (result.path / name for name in ("config.yaml", "updates.parquet", "manifest.json"))
    config.write_text(config.read_text().replace("record: {messages: false}\n", ""))
    assert "record" not in config.read_text()
    parquet.write_table(parquet.read_table(updates).drop_columns(["arrived"]), updates)
    content = json.loads(manifest.read_text())
    content["files"] |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (config, updates)}
    manifest.write_text(json.dumps(content))
    old = load_result(result.path)
    assert old.updates["arrived"].isna().all()
    assert list(old.updates) == list(result.updates)


def test_processes_may_run_one_sweep_into_one_folder(toy: Callable[..., Path], tmp_path: Path) -> None:
    path = toy("sweep: {seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}")
    command = [sys.executable, "-m", "experiments", "sweep", str(path), "--out", str(tmp_path / "out")]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) for _ in range(2)]
    (one, errors), (other, more) = (process.communicate() for process in started)
    assert [process.returncode for process in started] == [0, 0], errors + more
    assert one == other
    assert len(load_results(tmp_path / "out" / "toy")) == 10
    assert not list((tmp_path / "out" / "toy").glob(".*"))


def test_runs_without_a_sweep_are_read_from_the_folder_above_them(toy: Callable[..., Path], tmp_path: Path) -> None:
    written = [run(load(toy(), f"seed={seed}"), tmp_path) for seed in (0, 1)]
    assert {read.path for read in load_results(tmp_path / "toy")} == {result.path for result in written}


def test_a_result_draws_its_target(toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    monkeypatch.setattr("experiments.figures.comparison", lambda _, **more: given.update(more))
    run(load(toy(), "evaluate.target_accuracy=0.5"), tmp_path).plot()
    assert given["target"] == 0.5


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_is_refused_by_name(result: Result, name: str) -> None:
    file = result.path / name
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ResultError, match="not as the run left it") as caught:
        load_result(result.path)
    assert str(caught.value).startswith(f"{file}: ")
    file.unlink()
    with pytest.raises(ResultError, match=f"{name}: missing"):
        load_result(result.path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not the manifest of a run"),
        ("[]", "not the manifest of a run"),
        ('{"schema": 1, "files": {}, "config": ""}', "expected schema 2, got 1: run it again"),
    ],
)
def test_a_manifest_of_something_else_is_refused(result: Result, text: str, said: str) -> None:
    (result.path / "manifest.json").write_text(text)
    with pytest.raises(ResultError, match=said) as caught:
        load_result(result.path)
    assert "\n" not in str(caught.value)


def test_a_config_of_another_run_is_refused(result: Result) -> None:
    """Also where somebody has made the manifest fit the file."""
    config, manifest = result.path / "config.yaml", result.path / "manifest.json"
    config.write_text(config.read_text().replace("seed: 0", "seed: 1"))
    content = json.loads(manifest.read_text())
    content["files"]["config.yaml"] = hashlib.sha256(config.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content))
    with pytest.raises(ResultError, match=r"config\.yaml: its digest is not the one"):
        load_result(result.path)


def test_a_sweep_is_read_back_with_its_coordinates(toy: Callable[..., Path], tmp_path: Path) -> None:
    more = "sweep: {method: {sync: {algorithm.name: sync_ps}, late: {seed: 3}}, task.noise: [0, 0.1]}"
    written = sweep(load(toy(more)), tmp_path)
    read = load_results(tmp_path / "toy")
    assert [result.labels for result in read] == [result.labels for result in written]
    assert [result.path for result in read] == [result.path for result in written]
    assert load_results(read[0].path)[0].path == read[0].path


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(toy: Callable[..., Path], tmp_path: Path) -> None:
    task = "{model: mlp, hidden: [4], dataset: {name: synthetic, samples: 64}, batch: 8, partition: dirichlet}"
    overrides = [f"task={task}", "sweep.learning.seed=[0, 1]", "sweep.learning.lr=[0.1, 0.2]", "threads=2"]
    path, files = toy(), []
    for seed in "12":
        out = tmp_path / seed
        command = [sys.executable, "-c", SCRIPT, str(path), str(out), *overrides]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed})
        (manifest,) = out.rglob("manifest.json")
        files.append(json.loads(manifest.read_text())["files"])
    assert files[0] == files[1]


SCRIPT = "import sys; from experiments import load, run; run(load(sys.argv[1], *sys.argv[3:]), sys.argv[2])"
