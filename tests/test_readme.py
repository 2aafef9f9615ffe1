"""What the README says can be done: its Python runs, its quick commands run, its files exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli import main
from simulator import ALGORITHMS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
PYTHON = [body for language, body in BLOCKS if language == "python"]
LINES = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]
QUICK = [line.split("#")[0].strip() for line in LINES if line.startswith("laggard") and "MNIST" not in line]


def execute(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_has_commands_and_python():
    assert len(PYTHON) >= 2
    assert len(QUICK) >= 5
    assert any(line.startswith("make quickstart") for line in LINES)
    assert any(line.startswith("make test") for line in LINES)


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.splitlines()[0])
def test_python_of_the_readme_runs(block, tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "example.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{block}")
    execute(sys.executable, "example.py", cwd=tmp_path)


@pytest.mark.long
def test_quick_commands_of_the_readme_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    """In this process: that the console has `laggard` is tested elsewhere, and starting it takes three seconds."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for command in QUICK:
        arguments = [word for part in shlex.split(command)[1:] for word in expanded(part, tmp_path)]
        code = main(arguments)
        said = capsys.readouterr()
        assert code == 0, f"{command}: {said.err}"
        assert said.out.strip(), command


def expanded(word, folder):
    """A shell's view of `configs/*.yaml`."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


def test_linked_files_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_method_and_every_config_of_one_stands_in_the_table():
    assert [name for name in ALGORITHMS if f"`{name}`" not in README] == []
    configs = [path.relative_to(ROOT) for path in (ROOT / "configs/methods").glob("*.yaml")]
    assert [str(path) for path in configs if f"({path})" not in README] == []
