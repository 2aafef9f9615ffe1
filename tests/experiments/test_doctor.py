"""The doctor says what is wrong, with its remedy, and only then."""

import configparser
import shutil
import sys
from pathlib import Path

import pytest
import torch

from laggard.experiments import doctor
from laggard.experiments.cli import main
from laggard.models import cifar
from laggard.models.data import IDX_FILES
from tests.models.releases import write_cifar

ROOT = Path(__file__).parents[2]


def idx(*sizes: int) -> bytes:
    content = 1
    for size in sizes:
        content *= size
    return (
        bytes([0, 0, 8, len(sizes)])
        + b"".join(size.to_bytes(4, "big") for size in sizes)
        + bytes(content)
    )


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small MNIST of whole files."""
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in IDX_FILES:
        (raw / name).write_bytes(idx(3, 2, 2) if "images" in name else idx(3))
    return raw


def states(out: Path) -> dict[str, doctor.Diagnosis]:
    return {finding.subject: finding for finding in doctor.diagnose(out)}


def test_here_a_run_can_work(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--out", str(tmp_path / "results")]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "a run can work here"
    assert f"torch         {torch.__version__}" in printed
    assert not (tmp_path / "results").exists()


def test_data_are_whole_or_not(data: Path, tmp_path: Path) -> None:
    assert states(tmp_path)["mnist"].state == "ok"
    assert states(tmp_path)["fashion_mnist"].state == "missing"
    whole = (data / IDX_FILES[0]).read_bytes()
    for spoilt in (whole[:-1], whole + b"x", b"<html>", b"", whole[:3], whole[:6]):
        (data / IDX_FILES[0]).write_bytes(spoilt)
        found = states(tmp_path)["mnist"]
        assert (found.state, IDX_FILES[0] in found.said) == ("missing", True)
        assert found.remedy
    (data / IDX_FILES[0]).unlink()
    assert f"without {IDX_FILES[0]}" in states(tmp_path)["mnist"].said


def test_releases_of_cifar_are_whole_or_not(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CIFAR10", "CIFAR100"):
        release = getattr(cifar, name)._replace(records=2, tests=2)
        monkeypatch.setattr(cifar, name, release)
        assert f"without {release.train[0]}" in states(tmp_path)[name.lower()].said
        write_cifar(data.parents[1], release)
        assert states(tmp_path)[name.lower()].state == "ok"
        file = data.parents[1] / release.folder / release.test
        file.write_bytes(file.read_bytes()[:-1])
        found = states(tmp_path)[name.lower()]
        assert (found.state, f"{release.test} is not whole" in found.said) == ("missing", True)
        assert found.remedy


def test_a_version_outside_the_bounds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_requirements", lambda: ["numpy>=1000"])
    found = states(tmp_path)["numpy"]
    assert found.state == "missing"
    assert found.said.endswith("expected >=1000")


def test_a_folder_that_cannot_be_written_is_broken(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["doctor", "--out", str(tmp_path / "file")]) == 1
    printed = capsys.readouterr().out
    assert "! results" in printed
    assert "--out FOLDER" in printed
    assert printed.splitlines()[-1] == "1 thing to mend before a run can work"


def test_a_library_that_is_missing_or_fails_is_broken(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ill.py").write_text("raise OSError('libill.so: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "_requirements", lambda: ["laggard-no-such>=1", "numpy>=1.26"])
    monkeypatch.setattr(doctor, "IMPORTED", {"numpy": "ill"})
    found = states(tmp_path)
    assert (found["laggard-no-such"].state, found["laggard-no-such"].said) == (
        "broken",
        "not installed",
    )
    assert found["numpy"].state == "broken"
    assert "its import fails: OSError: libill.so: no such file" in found["numpy"].said
    assert found["numpy"].remedy


def test_torchvision_is_imported_and_most_runs_do_not_need_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    found = states(tmp_path)["torchvision"]
    assert found.state == "missing"
    assert "its import fails" in found.said
    assert "same index" in found.remedy


def test_an_incomplete_checkout_is_named(tmp_path: Path) -> None:
    for name in ("simulator", "models", "experiments", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    assert doctor._installation(tmp_path).state == "ok"
    (tmp_path / "experiments" / "commands" / "results.py").unlink()
    found = doctor._installation(tmp_path)
    assert (found.state, "experiments/commands/results.py" in found.said) == ("broken", True)


def test_what_is_asked_for_is_what_the_package_requires(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    libraries = {line.partition(">")[0] for line in config["options"]["install_requires"].split()}
    assert libraries <= set(states(tmp_path))
    assert set(doctor.IMPORTED) <= libraries
    monkeypatch.setattr(doctor, "ROOT", tmp_path)  # as a wheel has it: without setup.cfg
    assert libraries <= set(states(tmp_path))


def test_every_line_is_one_line(data: Path, tmp_path: Path) -> None:
    for finding in doctor.diagnose(tmp_path):
        assert "\n" not in finding.said + finding.remedy
        assert bool(finding.remedy) == (finding.state != "ok")
