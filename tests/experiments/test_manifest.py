"""Manifests and indices vouch for themselves, and every key that is read has its type."""

import json
import random
import shutil

import pytest

from laggard import load, load_results, sweep
from laggard.experiments.cli import main
from laggard.experiments.results.files import ResultError, seal
from laggard.experiments.results.result import open_run
from tests.experiments.conftest import TOY, write_manifest

READ = ["run", "config", "status", "reached", "mileage", "gradients", "evaluated", "messages", "diverged", "seeds",
        "device", "threads", "versions", "files", "wall_seconds", "cpu_capability"]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of two runs, which no test changes."""
    out = tmp_path_factory.mktemp("whole")
    (out / "toy.yaml").write_text(f"{TOY}sweep: {{seed: [0, 1]}}", encoding="utf-8")
    sweep(load(out / "toy.yaml"), out)
    return out / "toy"


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of them."""
    return shutil.copytree(whole, tmp_path / "out" / "toy")


def first_of(folder):
    path = load_results(folder)[0].path
    return path, json.loads((path / "manifest.json").read_text())


@pytest.mark.parametrize("name", ["manifest.json", "sweep.json"])
def test_flipped_bit_is_detected(folder, name):
    path, _ = first_of(folder)
    file = path / name if name == "manifest.json" else folder / name
    whole, rng = file.read_bytes(), random.Random(7)
    content = json.loads(whole)
    for _ in range(400):
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            load_results(folder)
        except ResultError:
            pass
        else:
            assert json.loads(file.read_bytes()) == content, f"bit {bit} of byte {place}"


@pytest.mark.parametrize("key", READ)
def test_entry_of_another_type_is_refused(folder, key):
    path, content = first_of(folder)
    for wrong in ({}, [5], [{"member": 0}], None, 1.5, "x", True):
        if wrong == {} and key in ("files", "messages"):
            continue  # then each file is missing, by name; and no message was counted
        write_manifest(path, {**content, key: wrong})
        if key in ("reached", "device", "cpu_capability") and wrong == "x":
            continue
        if key == "wall_seconds" and wrong == 1.5:
            continue
        with pytest.raises(ResultError, match=r"manifest\.json: not the manifest of a run$"):
            open_run(path)


@pytest.mark.parametrize("entry", [{"status": "diverged"}, {"versions": None}, {"schema": 2}])
def test_changed_manifest_is_refused_and_simulated_again(entry, folder, toy, mistake):
    path, content = first_of(folder)
    (other,) = (result.path for result in load_results(folder) if result.path != path)
    before = (other / "manifest.json").stat().st_mtime_ns
    (path / "manifest.json").write_text(json.dumps(content | entry))
    for command in ("table", "plot", "report"):
        output = mistake(command, folder)
        assert output.startswith(f"{path / 'manifest.json'}: ")
    again = sweep(load(toy("sweep: {seed: [0, 1]}")), folder.parent)
    assert again[0].manifest["files"] == content["files"]
    assert (other / "manifest.json").stat().st_mtime_ns == before


INDEX = {"runs": [{"run": "0123456789ab", "labels": {}}]}


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "\xff\xfe",
        [],
        3,
        {"schema": 3, "runs": [], "self": []},
        {"schema": 2, **INDEX},
        seal({"runs": []}),
        seal({"runs": [{"run": "../../elsewhere", "labels": {}}]}),
        seal({"runs": [{"run": "0123456789ab", "labels": {"seed": [1]}}]}),
        {**seal(INDEX), "runs": [{"run": "0123456789ab", "labels": {"seed": 7}}]},
    ],
)
@pytest.mark.parametrize("name", ["sweep.json", "manifest.json"])
def test_damaged_json_is_refused_in_one_line(folder, name, content):
    file = folder / name
    if name == "manifest.json":
        file = first_of(folder)[0] / name
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultError, match=f"{name}: ") as caught:
        load_results(folder)
    assert "\n" not in str(caught.value)


def test_index_without_finished_runs_is_refused(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps(seal(INDEX)))
    with pytest.raises(ResultError, match="none of its 1 runs is finished"):
        load_results(tmp_path)


def test_result_of_another_version_is_named(folder, toy, drawn, capsys):
    path, content = first_of(folder)
    write_manifest(path, {**content, "versions": {**content["versions"], "laggard": "0.0.9"}})
    command = ["sweep", str(toy("sweep: {seed: [0, 1]}")), "--out", str(folder.parent), "--all"]
    assert main(command) == 0
    output = capsys.readouterr()
    assert "of 2 runs 1 by laggard 0.0.9; this is laggard " in output.err
    heading, first, second = output.out.splitlines()[:3]
    column = heading.split().index("laggard")
    assert first.split()[column] == "0.0.9" != second.split()[column]
    assert main(["report", str(folder), "--to", str(folder / "page.html")]) == 0
    assert "0.0.9" in (folder / "page.html").read_text().partition("Versions")[0]
    shutil.rmtree(path)
    assert main(command) == 0
    output = capsys.readouterr()
    assert "laggard" not in output.out.splitlines()[0]
    assert "by laggard" not in output.err


def test_two_grids_of_one_name_keep_their_files(toy, tmp_path, drawn, capsys):
    """The quickstart, a grid based on it, and `run` of the same config have one name."""
    folder = tmp_path / "out" / "toy"
    seeds, rates = "sweep: {seed: [0, 1]}", "sweep: {task.noise: [0.1, 0.2, 0.3]}"

    def asked(command, *more, grid=seeds):
        assert main([command, str(toy(grid)), *more, "--out", str(folder.parent)]) == 0
        return capsys.readouterr().err

    def shown(where=folder):
        return [dict(result.labels) for result in load_results(where)]

    first, second = [{"seed": 0}, {"seed": 1}], [{"task.noise": noise} for noise in (0.1, 0.2, 0.3)]
    assert "another grid" not in asked("sweep")
    (folder / "report.html").write_text("the report of the first grid", encoding="utf-8")
    whole = {
        name: (folder / name).read_bytes() for name in ("sweep.json", "figure.png", "report.html")
    }
    output = asked("sweep", grid=rates)
    (aside,) = folder.glob("sweep-*")
    assert f"is now {aside}\n" in output
    assert (shown(), shown(aside)) == (second, first)
    assert {name: (aside / name).read_bytes() for name in whole} == whole
    assert not (folder / "report.html").exists()
    assert "another grid" not in asked("sweep", grid=rates)
    assert "another grid" not in asked("run", "sweep={}", "seed=7")
    assert (shown(), shown(aside)) == (second, first)  # a run is no part of a sweep
    asked("sweep")
    assert shown() == first
    assert (folder / "report.html").read_bytes() == whole["report.html"]


def test_earlier_sweep_draws_beside_its_own_index(toy, tmp_path):
    from laggard.experiments.config.grid import runs
    from laggard.experiments.results.store import sweep_folder, write_index

    one, other = (
        runs(load(toy(grid))) for grid in ("sweep: {seed: [0, 1]}", "sweep: {seed: [0, 2]}")
    )
    assert write_index(one, tmp_path) is None
    assert sweep_folder(one, tmp_path) == tmp_path / "toy"
    aside = write_index(other, tmp_path)
    assert aside == sweep_folder(one, tmp_path)
    assert sweep_folder(other, tmp_path) == tmp_path / "toy"
    assert write_index(one, tmp_path) != aside
    assert sweep_folder(one, tmp_path) == tmp_path / "toy"
