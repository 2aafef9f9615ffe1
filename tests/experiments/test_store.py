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
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from pyarrow import parquet

from laggard import Result, load, load_result, load_results, run, sweep
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.files import ResultError
from laggard.experiments.results.store import FILES, TABLES
from tests.experiments.conftest import TOY, write_manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def result(toy: Callable[..., Path], tmp_path: Path) -> Result:
    return run(load(toy("sweep: {learning.lr: [0.1, 0.2]}")), tmp_path / "out")


def stamps(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in path.iterdir()}


def test_a_run_leaves_exactly_its_files(result: Result, tmp_path: Path) -> None:
    assert result.path == RunSpec(result.config).folder(tmp_path / "out")
    assert {file.name for file in result.path.iterdir()} == {*FILES, "manifest.json"}
    manifest = json.loads((result.path / "manifest.json").read_text())
    for name in FILES:
        assert (
            manifest["files"][name] == hashlib.sha256((result.path / name).read_bytes()).hexdigest()
        )


def test_the_tables_have_the_columns_that_are_promised(result: Result) -> None:
    read = {name: parquet.read_table(result.path / f"{name}.parquet") for name in TABLES}
    versions = ["version_read", "version", "staleness", "mixings"]
    fates = ["time", "worker", "target", "started", "computed", *versions, "status", "arrived"]
    axes = [
        "time",
        "updates",
        "samples",
        "epoch",
        "member",
        "train_loss",
        "test_loss",
        "distance",
        "learning.lr",
    ]
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
    images = (
        "task={model: logistic, dataset: {name: synthetic, samples: 50}, batch: 10}",
        "stop={updates: 4}",
    )
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
    assert (
        run(load(path, "sweep={}", "learning.lr=1e10"), tmp_path).manifest["status"] == "diverged"
    )


def test_a_finished_run_is_not_redone_unless_forced(result: Result, tmp_path: Path) -> None:
    before = stamps(result.path)
    run(result.config, tmp_path / "out")
    assert stamps(result.path) == before
    run(result.config, tmp_path / "out", force=True)
    after = stamps(result.path)
    assert all(after[name] > before[name] for name in before)


def test_models_evaluated_are_kept_where_they_are_asked_for(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    """Each is the model that its row of the metrics measured."""
    overrides = ["evaluate={every_updates: 10, keep_models: true}", "sweep.learning.lr=[0.1, 0.01]"]
    kept = run(load(toy(), *overrides), tmp_path)
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
    assert run(load(toy()), tmp_path).models is None


def test_another_name_device_or_target_is_the_same_run(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    first = run(load(toy()), tmp_path)
    before = stamps(first.path)
    again = run(load(toy(), "threads=1", "device=cpu", "evaluate.target_accuracy=0.5"), tmp_path)
    assert stamps(first.path) == before
    assert again.config.evaluate.target_accuracy == 0.5


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors"])
def test_an_unfinished_or_spoilt_folder_is_written_anew(
    result: Result, tmp_path: Path, name: str
) -> None:
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
        patch.setattr("laggard.experiments.results.store.write_weights", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path, force=True)
    assert stamps(RunSpec(config).folder(tmp_path)) == before
    assert list((tmp_path / "toy").iterdir()) == [RunSpec(config).folder(tmp_path)]


def test_what_a_dead_process_left_is_cleared_away_and_a_living_ones_is_not(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        tmp_path / "toy" / f".0123456789ab.{platform.node()}.{pid}"
        for pid in (dead.pid, os.getppid())
    ]
    for path in left:
        path.mkdir(parents=True)
        (path / "manifest.json").write_text("{}")
    result = run(load(toy()), tmp_path)
    assert [path.exists() for path in left] == [False, True]
    assert [read.path for read in load_results(tmp_path / "toy")] == [result.path]


def test_an_index_that_was_never_finished_is_cleared_away_and_one_in_the_making_is_not(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    """Of this machine's processes it is known whether they live; whatever is an hour old is
    nobody's any more.
    """
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


def test_what_is_no_runs_own_survives_a_run_that_is_forced(result: Result, tmp_path: Path) -> None:
    (result.path / "notes.txt").write_text("mine")
    again = run(result.config, tmp_path / "out", force=True)
    assert (again.path / "notes.txt").read_text() == "mine"
    assert {file.name for file in again.path.parent.iterdir()} == {again.path.name}


def test_messages_are_recorded_where_they_are_asked_for_and_a_run_with_them_serves_one_without(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    plain = run(load(toy()), tmp_path)
    assert (plain.has_messages, len(plain.messages)) == (False, 0)
    before = stamps(plain.path)
    logged = run(load(toy(), "record.messages=true"), tmp_path)
    assert logged.path == plain.path
    assert stamps(plain.path)["metrics.parquet"] > before["metrics.parquet"]
    assert list(logged.messages) == list(plain.messages)
    assert len(logged.messages) == logged.manifest["messages"]["sent"] > 0
    assert logged.updates["arrived"].notna().all()
    before = stamps(logged.path)
    assert run(load(toy()), tmp_path).has_messages
    assert stamps(logged.path) == before
    run(load(toy()), tmp_path, force=True)
    assert not (logged.path / "messages.parquet").exists()


def test_crashes_of_servers_are_recorded_where_there_are_some(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    assert list(run(load(toy()), tmp_path).restores) == [
        "time",
        "back",
        "server",
        "version",
        "lost",
    ]
    crash = "cluster.server_crashes=[{at: 0.05, restore_seconds: 0.01}, {uptime: {law: exponential, mean: 9}, shard: 1}]"
    result = run(
        load(toy(), crash, "algorithm={name: async_ps, shards: 2}", "stop={time: 0.1}"), tmp_path
    )
    assert result.restores.loc[0, ["time", "back", "server"]].tolist() == [0.05, 0.05 + 0.01, -1]
    # no checkpoint
    assert load_result(result.path).restores["lost"].tolist()[:1] == [result.restores["version"][0]]


def test_a_message_log_that_was_changed_is_refused_by_name(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    path = run(load(toy(), "record.messages=true"), tmp_path).path
    (path / "messages.parquet").write_bytes(b"others")
    with pytest.raises(ResultError, match=r"messages\.parquet: it was changed after the run"):
        load_result(path)
    (path / "messages.parquet").unlink()
    with pytest.raises(ResultError, match=r"messages\.parquet: missing"):
        load_result(path)


def test_a_result_from_before_there_were_messages_is_read(result: Result) -> None:
    """Its config has no `record`, its `updates.parquet` no `arrived`."""
    config, updates, manifest = (
        result.path / name for name in ("config.yaml", "updates.parquet", "manifest.json")
    )
    config.write_text(config.read_text().replace("record: {messages: false}\n", ""))
    assert "record" not in config.read_text()
    parquet.write_table(parquet.read_table(updates).drop_columns(["arrived"]), updates)
    content = json.loads(manifest.read_text())
    content["files"] |= {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (config, updates)
    }
    write_manifest(result.path, content)
    old = load_result(result.path)
    assert old.updates["arrived"].isna().all()
    assert list(old.updates) == list(result.updates)


@pytest.mark.slow
def test_processes_may_run_one_sweep_into_one_folder(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    path = toy("sweep: {seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}")
    command = [
        sys.executable,
        "-m",
        "experiments",
        "sweep",
        str(path),
        "--out",
        str(tmp_path / "out"),
    ]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) for _ in range(2)
    ]
    (one, errors), (other, more) = (process.communicate() for process in started)
    assert [process.returncode for process in started] == [0, 0], errors + more
    assert one == other
    assert len(load_results(tmp_path / "out" / "toy")) == 10
    assert not list((tmp_path / "out" / "toy").glob(".*"))


def test_runs_without_a_sweep_are_read_from_the_folder_above_them(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    written = [run(load(toy(), f"seed={seed}"), tmp_path) for seed in (0, 1)]
    assert {read.path for read in load_results(tmp_path / "toy")} == {
        result.path for result in written
    }


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_is_refused_by_name(result: Result, name: str) -> None:
    file = result.path / name
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ResultError, match="it was changed after the run") as caught:
        load_result(result.path)
    assert str(caught.value).startswith(f"{file}: ")
    file.unlink()
    with pytest.raises(ResultError, match=f"{name}: missing"):
        load_result(result.path)


@pytest.mark.parametrize("name", ["metrics.parquet", "updates.parquet", "weights.safetensors"])
@pytest.mark.parametrize(
    "spoil", [lambda content: content[:-100], lambda content: content[:50] + b"\0\0" + content[52:]]
)
def test_results_refuse_a_spoilt_file_by_name_when_it_is_read(
    result: Result, name: str, spoil: Callable[[bytes], bytes]
) -> None:
    file = result.path / name
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))
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
def test_a_file_that_is_none_is_refused_though_its_hash_fits(result: Result, name: str) -> None:
    """A pickle too: what it would do on loading is not done."""
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


def test_nothing_is_ever_unpickled() -> None:
    forbidden = re.compile(r"\b(pickle|torch\.load|joblib\.load|allow_pickle|read_pickle)\b")
    for package in ("experiments", "models"):  # what reads files
        for path in (ROOT / package).rglob("*.py"):
            assert not forbidden.search(path.read_text()), path


class Malicious:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def vouch(path: Path, name: str) -> None:
    """Make the manifest fit a file."""
    content = json.loads((path / "manifest.json").read_text())
    content["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    write_manifest(path, content)


def test_weights_and_manifests_of_another_run_are_refused(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": 9, "runs": []}', "expected schema 3, got 9: run it again"),
        ('{"runs": []}', "not the index of a sweep"),
        ("3", "not the index of a sweep"),
        ('[{"run": "../../elsewhere", "labels": {}}]', "not the index of a sweep"),
        ('[{"run": "0123456789ab", "labels": {"seed": [1]}}]', "not the index of a sweep"),
        (
            '{"schema": 2, "runs": [{"run": "0123456789ab", "labels": {}}]}',
            "none of its 1 runs is finished",
        ),
    ],
)
def test_an_index_of_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ResultError, match=said):
        load_results(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not the manifest of a run"),
        ("[]", "not the manifest of a run"),
        ('{"schema": 2, "files": {}, "config": ""}', "not the manifest of a run"),
        ('{"schema": 1, "files": {}, "config": ""}', "expected schema 3, got 1: run it again"),
    ],
)
def test_a_manifest_of_something_else_is_refused(result: Result, text: str, said: str) -> None:
    (result.path / "manifest.json").write_text(text)
    with pytest.raises(ResultError, match=said) as caught:
        load_result(result.path)
    assert "\n" not in str(caught.value)


def test_a_config_of_another_run_is_refused(result: Result) -> None:
    """Also where somebody has made the manifest's own hash fit its settings."""
    content = json.loads((result.path / "manifest.json").read_text())
    content["settings"]["seed"] = 1
    write_manifest(result.path, content)
    with pytest.raises(ResultError, match=r"manifest\.json: its digest is not the one"):
        load_result(result.path)


def test_a_sweep_is_read_back_with_its_coordinates(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    more = (
        "sweep: {method: {sync: {algorithm.name: sync_ps}, late: {seed: 3}}, task.noise: [0, 0.1]}"
    )
    written = sweep(load(toy(more)), tmp_path)
    read = load_results(tmp_path / "toy")
    assert [result.labels for result in read] == [result.labels for result in written]
    assert [result.path for result in read] == [result.path for result in written]
    assert load_results(read[0].path)[0].path == read[0].path


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    task = "{model: mlp, hidden: [4], dataset: {name: synthetic, samples: 64}, batch: 8, partition: dirichlet}"
    overrides = [
        f"task={task}",
        "sweep.learning.seed=[0, 1]",
        "sweep.learning.lr=[0.1, 0.2]",
        "threads=2",
    ]
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


def test_the_question_is_kept_and_changes_no_run(toy: Callable[..., Path], tmp_path: Path) -> None:
    swept = "sweep: {seed: [0, 1]}"
    results = sweep(load(toy(swept)), tmp_path / "out", jobs=2)
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
def test_the_first_comment_is_the_question_unless_it_is_said(
    toy: Callable[..., Path], head: str, asked: str
) -> None:
    assert load(toy(text=head + TOY.partition("\n")[2])).question == asked


def test_a_result_from_before_questions_were_kept_is_read_without_one(result: Result) -> None:
    manifest = json.loads((result.path / "manifest.json").read_text())
    del manifest["settings"]["question"]
    lines = (result.path / "config.yaml").read_text().splitlines(keepends=True)
    (result.path / "config.yaml").write_text(
        "".join(line for line in lines if not line.startswith("question:"))
    )
    manifest["files"]["config.yaml"] = hashlib.sha256(
        (result.path / "config.yaml").read_bytes()
    ).hexdigest()
    write_manifest(result.path, manifest)
    assert (
        load_result(result.path).config.question
        == load_results(result.path)[0].config.question
        == ""
    )
    assert len(load_results(result.path).metrics) == len(result.metrics)
