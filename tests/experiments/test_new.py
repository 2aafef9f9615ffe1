"""`laggard new`: what it writes runs as it is, passes its own test, and overwrites nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laggard import load_results
from laggard.experiments.cli import main
from laggard.experiments.config.listing import TEMPLATES
from tests.cases import ROOT

KINDS = sorted(path.name for path in TEMPLATES.iterdir())


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The current directory, with an entry of every kind."""
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        assert main(["new", kind, f"my_own_{kind}"]) == 0
    return tmp_path


def test_new_writes_three_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        assert main(["new", kind, f"my_{kind}"]) == 0
        module, config, test = capsys.readouterr().out.splitlines()
        assert module == f"my_{kind}.py"
        assert config == f"my_{kind}.yaml: laggard run my_{kind}.yaml"
        assert test == f"test_my_{kind}.py: pytest test_my_{kind}.py"
        assert len(Path(module).read_text().splitlines()) <= 55
        assert Path(f"my_{kind}.yaml").read_text().splitlines()[0].endswith("?")
    assert len(list(tmp_path.iterdir())) == 3 * len(KINDS)


@pytest.mark.slow
def test_generated_tests_pass(written):
    command = [sys.executable, "-m", "pytest", "-q", *(f"test_my_own_{kind}.py" for kind in KINDS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_generated_config_runs(kind, tmp_path, monkeypatch, module, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", kind, f"my_own_{kind}"]) == 0
    monkeypatch.setattr("laggard.experiments.figures.comparison", lambda *_, **__: None)
    capsys.readouterr()
    assert main(["run", f"my_own_{kind}.yaml"]) == 0
    (run,) = load_results(f"results/my_own_{kind}")
    assert run.manifest["status"] == "finished"
    assert run.manifest["gradients"]["applied"] >= 100
    # a data set is a function
    entry = f"my_own_{kind}" if kind == "dataset" else f"MyOwn{kind.capitalize()}"
    assert f"my_own_{kind}:{entry}" in (run.path / "config.yaml").read_text()


def test_generated_files_pass_ruff(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        main(["new", kind, f"my_{kind}"])
    ruff = [sys.executable, "-m", "ruff"]
    lint = ["check", "--isolated", "--line-length", "120", "--select", "E,F,W,I,UP,B,SIM,PT,RUF"]
    for command in (lint, ["format", "--isolated", "--check", "--line-length", "120"]):
        done = subprocess.run([*ruff, *command, "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("there", ["mine.py", "mine.yaml", "test_mine.py"])
def test_nothing_is_overwritten(there, tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).write_text("mine")
    assert mistake("new", "algorithm", "mine") == f"{there}: exists already: nothing is written\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]
