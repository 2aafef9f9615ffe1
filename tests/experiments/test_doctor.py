"""The doctor reports what is wrong, with its remedy."""

import configparser
from importlib.metadata import version

import pytest

from laggard.experiments import doctor
from laggard.experiments.cli import main
from laggard.models.data import IDX_FILES
from tests.cases import ROOT


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The folder of an MNIST."""
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name in IDX_FILES:
        (folder / name).touch()
    return folder


def diagnoses(out):
    return {check.subject: check for check in doctor.diagnose(out)}


def test_doctor_finds_that_laggard_runs_here(data, tmp_path, capsys):
    assert main(["doctor", "--out", str(tmp_path / "results")]) == 0
    # not torch.__version__: a wheel for CUDA adds its build to that alone
    assert f"torch         {version('torch')}\n" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()
    for check in doctor.diagnose(tmp_path):
        assert "\n" not in check.text + check.remedy
        assert bool(check.remedy) == (check.state != "ok")


def test_doctor_names_missing_files_of_data_sets(data, tmp_path):
    assert diagnoses(tmp_path)["mnist"].state == "ok"
    (data / IDX_FILES[0]).unlink()
    mnist = diagnoses(tmp_path)["mnist"]
    assert (mnist.state, IDX_FILES[0] in mnist.text) == ("missing", True)
    assert IDX_FILES[1] not in mnist.text
    assert diagnoses(tmp_path)["cifar10"].state == "missing"


def test_folder_that_cannot_be_written_is_broken(data, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["doctor", "--out", str(tmp_path / "file")]) == 1
    *_, results, last = capsys.readouterr().out.splitlines()
    assert results.startswith("! results")
    assert "--out FOLDER" in results
    assert last.startswith("1 problem ")


def test_doctor_reports_missing_and_failing_packages(data, tmp_path, monkeypatch):
    (tmp_path / "ill.py").write_text("raise OSError('libill.so: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "REQUIRED_PACKAGES", ("laggard-no-such", "numpy"))
    monkeypatch.setattr(doctor, "OPTIONAL_PACKAGES", {"other-no-such": "extra"})
    monkeypatch.setattr(doctor, "IMPORT_NAMES", {"numpy": "ill"})
    found = diagnoses(tmp_path)
    assert (found["laggard-no-such"].state, found["numpy"].state) == ("broken", "broken")
    assert "OSError: libill.so: no such file" in found["numpy"].text
    assert found["other-no-such"].state == "missing"
    assert found["other-no-such"].remedy == "pip install 'laggard[extra]'"


def test_doctor_checks_the_packages_of_setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    required = [line.partition(">")[0] for line in config["options"]["install_requires"].split()]
    assert sorted(required) == sorted(doctor.REQUIRED_PACKAGES)
    for package, extra in doctor.OPTIONAL_PACKAGES.items():
        assert package in config["options.extras_require"][extra]
