"""Folders: whole or refused, never redone without need, the same from every process."""

import hashlib
import json
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from pyarrow import parquet

from laggard import load, load_result, load_results, run, sweep
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.files import ResultError
from laggard.experiments.results.store import FILES, SNAPSHOT, remove_stale
from tests.cases import ROOT
from tests.experiments.conftest import TOY, stamps, write_manifest


@pytest.fixture
def result(toy, tmp_path):
    return run(load(toy("sweep: {learning.lr: [0.1, 0.2]}")), tmp_path / "out")


def test_run_leaves_exactly_its_files(result, tmp_path):
    assert result.path == RunSpec(result.config).folder(tmp_path / "out")
    assert {file.name for file in result.path.iterdir()} == {*FILES, "manifest.json"}
    manifest = json.loads((result.path / "manifest.json").read_text())
    for name in FILES:
        assert (
            manifest["files"][name] == hashlib.sha256((result.path / name).read_bytes()).hexdigest()
        )


def test_tables_have_their_documented_columns(result):
    columns = {
        "metrics": "time updates samples epoch bytes member train_loss test_loss distance learning.lr",
        "updates": "time worker target started computed version_read version staleness mixings "
        "status arrived",
        "workers": "worker computing sending waiting down",
    }
    for name, names in columns.items():
        schema = parquet.read_schema(result.path / f"{name}.parquet")
        assert schema.names == names.split()
    assert result.updates["status"].dtype == "category"
    assert set(result.updates["status"]) == {"applied"}
    assert len(result.metrics) == 2 * len(result.metrics["time"].unique())
    assert result.weights.shape == (2, 3)


def test_manifest_records_the_end_of_a_run(result):
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


def test_backend_is_recorded_and_changes_no_run_id(ran, toy, tmp_path):
    task = "task={model: logistic, dataset: {name: synthetic, samples: 50}, batch: 10}"
    words = task, "stop={updates: 4}", "device=cpu"
    first = ran(*words, "backend=unfold-graphs")
    again = load(toy(), *words)
    forced = run(again, tmp_path, force=True)
    assert first.manifest["backend"] == "unfold-graphs"
    assert forced.path == first.path
    assert forced.manifest["backend"] == "threads"


def test_diverged_member_is_named(toy, tmp_path):
    path = toy("sweep: {learning.lr: [0.1, 1e10]}")
    manifest = run(load(path), tmp_path).manifest
    (divergence,) = manifest["diverged"]
    assert divergence["member"] == 1
    assert 0 < divergence["updates"] < 40
    assert manifest["status"] == "finished"
    assert (
        run(load(path, "sweep={}", "learning.lr=1e10"), tmp_path).manifest["status"] == "diverged"
    )


@pytest.mark.parametrize("every", [5, 1000])
def test_run_whose_members_all_diverge_has_diverged(ran, every):
    """Whether an evaluation ends it, or the only one comes after its last update."""
    result = ran("learning.lr=1e10", f"evaluate.every_updates={every}")
    assert result.manifest["status"] == "diverged"
    assert (result.manifest["reached"] == "updates") == (every == 1000)


def test_finished_run_is_simulated_again_only_by_force(result, tmp_path):
    before = stamps(result.path)
    run(result.config, tmp_path / "out")
    assert stamps(result.path) == before
    run(result.config, tmp_path / "out", force=True)
    after = stamps(result.path)
    assert all(after[name] > before[name] for name in before)


def test_evaluated_models_are_stored_on_request(ran):
    """Each stored model gives the values of its row of the metrics."""
    overrides = ["evaluate={every_updates: 10, keep_models: true}", "sweep.learning.lr=[0.1, 0.01]"]
    kept = ran(*overrides)
    assert kept.models is not None
    assert kept.models.shape == (5, 2, 3)
    assert torch.equal(kept.models[-1], kept.weights)
    measured = [
        float(loss)
        for models in kept.models
        for loss in RunSpec(kept.config).task().evaluate(models)["test_loss"]
    ]
    assert measured == kept.metrics["test_loss"].to_list()
    (kept.path / "models.safetensors").write_bytes(b"something else")
    with pytest.raises(ResultError, match=r"models\.safetensors: it was changed after the run"):
        load_result(kept.path)
    assert ran().models is None


def test_device_and_target_change_no_run_id(ran):
    first = ran()
    before = stamps(first.path)
    again = ran("threads=1", "device=cpu", "evaluate.target_accuracy=0.5")
    assert stamps(first.path) == before
    assert again.config.evaluate.target_accuracy == 0.5


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors"])
def test_unfinished_or_damaged_run_is_simulated_again(result, tmp_path, name):
    wanted = result.weights
    (result.path / name).unlink()
    (result.path / "metrics.parquet").write_bytes(b"half a table")
    assert torch.equal(run(result.config, tmp_path / "out").weights, wanted)
    load_result(result.path)


def test_interrupted_run_keeps_the_earlier_result(toy, tmp_path, monkeypatch):
    config = load(toy())
    before = stamps(run(config, tmp_path).path)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("laggard.experiments.results.store.write_weights", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path, force=True)
    assert stamps(RunSpec(config).folder(tmp_path)) == before
    assert list((tmp_path / "toy").iterdir()) == [RunSpec(config).folder(tmp_path)]


def test_folders_of_dead_processes_are_removed(ran, tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        tmp_path / "toy" / f".0123456789ab.{platform.node()}.{pid}"
        for pid in (dead.pid, os.getppid())
    ]
    for path in left:
        path.mkdir(parents=True)
        (path / "manifest.json").write_text("{}")
    result = ran()
    assert [path.exists() for path in left] == [False, True]
    assert [read.path for read in load_results(tmp_path / "toy")] == [result.path]


def test_abandoned_temporary_indices_are_removed(toy, tmp_path):
    """An index of an ended local process is removed at once, any other after one hour."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    path, here, hour = tmp_path / "out" / "toy", platform.node(), 3600
    left = {
        f".sweep.json.{here}.{ended.pid}.part": 0,
        # the number has been given to another process
        f".sweep.json.{here}.{os.getppid()}.part": 2 * hour,
        f".sweep.json.elsewhere.{os.getppid()}.part": 2 * hour,
        f".sweep.json.{ended.pid}.part": 2 * hour,  # of an earlier version
    }
    staying = {
        f".sweep.json.{here}.{os.getppid()}.part": 0,
        f".sweep.json.elsewhere.{ended.pid}.part": hour // 2,
        ".sweep.json.part": 2 * hour,  # none of ours
        f".notes.{here}.{ended.pid}.part": 2 * hour,
    }
    config = load(toy("sweep: {seed: [0]}"))
    for files in (left, staying):
        path.mkdir(parents=True, exist_ok=True)
        for name, age in files.items():
            (path / name).touch()
            os.utime(path / name, 2 * (time.time() - age,))
        sweep(config, tmp_path / "out")
        assert {file.name for file in path.glob(".*")} == ({} if files is left else files).keys()


def test_forced_run_keeps_files_of_the_user(result, tmp_path):
    (result.path / "notes.txt").write_text("mine")
    again = run(result.config, tmp_path / "out", force=True)
    assert (again.path / "notes.txt").read_text() == "mine"
    assert {file.name for file in again.path.parent.iterdir()} == {again.path.name}


def test_messages_are_recorded_on_request(ran):
    plain = ran()
    assert (plain.has_messages, len(plain.messages)) == (False, 0)
    before = stamps(plain.path)
    logged = ran("record.messages=true")
    assert logged.path == plain.path
    assert stamps(plain.path)["metrics.parquet"] > before["metrics.parquet"]
    assert list(logged.messages) == list(plain.messages)
    assert len(logged.messages) == logged.manifest["messages"]["sent"] > 0
    assert logged.updates["arrived"].notna().all()
    before = stamps(logged.path)
    assert ran().has_messages
    assert stamps(logged.path) == before
    ran(force=True)
    assert not (logged.path / "messages.parquet").exists()


def test_crashes_of_servers_are_recorded(ran):
    columns = ["time", "back", "server", "version", "lost"]
    assert list(ran().restores) == columns
    crash = "cluster.server_crashes=[{at: 0.05, restore_seconds: 0.01}, {uptime: {law: exponential, mean: 9}, shard: 1}]"
    result = ran(crash, "algorithm={name: async_ps, shards: 2}", "stop={time: 0.1}")
    assert result.restores.loc[0, ["time", "back", "server"]].tolist() == [0.05, 0.05 + 0.01, -1]
    # no checkpoint
    assert load_result(result.path).restores["lost"].tolist()[:1] == [result.restores["version"][0]]


@pytest.mark.slow
def test_two_processes_share_one_sweep(toy, tmp_path):
    path = toy("sweep: {seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}")
    words = f"-m experiments sweep {path} --out {tmp_path}/out"
    command = [sys.executable, *words.split()]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) for _ in range(2)
    ]
    (one, errors), (other, more) = (process.communicate() for process in started)
    assert [process.returncode for process in started] == [0, 0], errors + more
    assert one == other
    assert len(load_results(tmp_path / "out" / "toy")) == 10
    assert not list((tmp_path / "out" / "toy").glob(".*"))


@pytest.mark.parametrize("name", FILES)
def test_changed_file_is_refused_by_name(result, name):
    file = result.path / name
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ResultError, match="it was changed after the run") as caught:
        load_result(result.path)
    assert str(caught.value).startswith(f"{file}: ")
    file.unlink()
    with pytest.raises(ResultError, match=f"{name}: missing"):
        load_result(result.path)


@pytest.mark.parametrize("name", ["metrics.parquet", "updates.parquet", "weights.safetensors"])
def test_damaged_file_is_refused_when_read(result, name):
    file = result.path / name
    whole = file.read_bytes()
    file.write_bytes(whole[:50] + b"\0\0" + whole[52:])
    (read,) = results = load_results(result.path)
    table = name.partition(".")[0]
    with pytest.raises(ResultError, match="it was changed after the run") as caught:
        getattr(read, table)
    assert str(caught.value).startswith(f"{file}: ")
    if table != "weights":
        with pytest.raises(ResultError, match="it was changed after the run"):
            getattr(results, table)
    assert len(results.workers) == 3  # another file is as it was
    file.write_bytes(whole)
    assert getattr(read, table) is not None


@pytest.mark.parametrize("name", ["metrics.parquet", "weights.safetensors"])
def test_pickle_with_right_hash_is_refused(result, name):
    """The pickle is not executed."""
    file, hit = result.path / name, result.path / "hit"
    file.write_bytes(pickle.dumps(Malicious(str(hit))))
    pickle.loads(file.read_bytes())
    assert hit.exists(), "it does what it should when it is unpickled"
    hit.unlink()
    vouch(result.path, name)
    (read,) = results = load_results(result.path)
    for read_it in (
        lambda: (read.weights, read.metrics),
        lambda: (results[0].weights, results.metrics),
    ):
        with pytest.raises(
            ResultError, match=f"{name}: not a (Parquet table|safetensors file of weights)"
        ):
            read_it()
    assert not hit.exists()


def test_product_never_unpickles():
    forbidden = re.compile(r"\b(pickle|torch\.load|joblib\.load|allow_pickle|read_pickle)\b")
    for package in ("experiments", "models"):  # what reads files
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "by_value.py":  # from the process that started this one, not from files
                assert not forbidden.search(path.read_text()), path


class Malicious:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def vouch(path, name):
    """Make the manifest fit a file."""
    content = json.loads((path / "manifest.json").read_text())
    content["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    write_manifest(path, content)


def test_files_of_another_run_are_refused(toy, tmp_path):
    one, other = sweep(load(toy("sweep: {seed: [0, 1]}")), tmp_path)
    shutil.copy(other.path / "weights.safetensors", one.path)
    with pytest.raises(ResultError, match=r"weights\.safetensors: it was changed after the run"):
        load_results(tmp_path / "toy")[0].weights  # noqa: B018
    shutil.copy(other.path / "manifest.json", one.path)
    with pytest.raises(ResultError, match=r"manifest\.json: the manifest of another run"):
        load_results(tmp_path / "toy")
    with pytest.raises(ResultError, match=r"config\.yaml: it was changed after the run"):
        load_result(one.path)
    settings = json.loads((other.path / "manifest.json").read_text())
    settings["settings"]["seed"] = 7
    write_manifest(other.path, settings)
    with pytest.raises(ResultError, match=r"manifest\.json: its digest is not the one"):
        load_results(other.path)[0].config  # noqa: B018


@pytest.mark.slow
def test_hash_seed_changes_no_byte(toy, tmp_path):
    task = "{model: mlp, hidden: [4], dataset: {name: synthetic, samples: 64}, batch: 8, partition: dirichlet}"
    grid = "sweep={learning.seed: [0, 1], learning.lr: [0.1, 0.2]}"
    overrides = [f"task={task}", grid, "threads=2"]
    path, files = toy(), []
    for seed in "12":
        out = tmp_path / seed
        command = [sys.executable, "-c", SCRIPT, str(path), str(out), *overrides]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed})
        (manifest,) = out.rglob("manifest.json")
        files.append(json.loads(manifest.read_text())["files"])
    assert files[0] == files[1]


SCRIPT = (
    "import sys; from laggard import load, run; run(load(sys.argv[1], *sys.argv[3:]), sys.argv[2])"
)


# ---------------------------------------------------------------------------------------------------
# the question

ASKED = "A noisy quadratic on three uneven workers."


def test_question_is_stored_and_changes_no_run(toy, tmp_path):
    swept = "sweep: {seed: [0, 1]}"
    results = sweep(load(toy(swept)), tmp_path / "out", jobs=1)
    assert [read.config.question for read in load_results(tmp_path / "out" / "toy")] == [ASKED] * 2
    assert load_result(results[0].path).config.question == ASKED  # of config.yaml
    silent = toy(swept, text=TOY.partition("\n")[2])
    assert load(silent).question == ""
    before = stamps(results[0].path)
    assert [result.path for result in sweep(load(silent), tmp_path / "out")] == [
        result.path for result in results
    ]
    assert stamps(results[0].path) == before


@pytest.mark.parametrize(
    ("head", "asked"),
    [
        ("# Who waits?\n", "Who waits?"),
        ("\ufeff---\n\n## Who waits?\n# And why?\n", "Who waits?"),
        ("", ""),
        ("seed: 1  # no question\n# Who waits?\n", ""),
        ("# Who waits?\nquestion: And why?\n", "And why?"),
    ],
)
def test_first_comment_is_the_question(toy, head, asked):
    assert load(toy(text=head + TOY.partition("\n")[2])).question == asked


def test_snapshot_of_living_process_may_be_resumed(tmp_path):
    """A sweep that is started again at once finds its killed workers alive for a moment."""
    run = "0123456789ab"
    private = tmp_path / f".{run}.{platform.node()}.{os.getpid()}"
    private.mkdir()
    assert remove_stale(tmp_path) == frozenset()
    (private / SNAPSHOT).write_bytes(b"")
    assert remove_stale(tmp_path) == {run}
    assert private.is_dir()
