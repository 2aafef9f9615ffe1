"""One import name: everything is `laggard...`, whatever lies beside a user's script, and importing
it is quick.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import laggard
from laggard.simulator import ALGORITHMS

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "laggard",
    "simulator",
    "models",
    "experiments",
    "tests",
    "notebooks",
    "configs",
    "docs",
    ".github",
    ".ci",
)
SUFFIXES = (".py", ".ipynb", ".yaml", ".md", ".toml", ".cfg", ".txt", ".jinja")
EXEMPT = (
    "tests/test_architecture.py",
    "tests/architecture.yaml",
    "tests/test_import_name.py",
    "CHANGELOG.md",
)
"""Files that name folders of the package with dots, plant violations, or tell what a module was
called before.
"""

PARTS = {
    package: "|".join(
        sorted({path.stem for path in (ROOT / package).iterdir() if not path.name.startswith("_")})
    )
    for package in ("simulator", "models", "experiments")
}
DOTTED = re.compile(
    "|".join(rf"(?<![\w./]){package}\.(?:{parts})\b" for package, parts in PARTS.items())
)
QUOTED = re.compile(
    r"[\"'](?:simulator|models|experiments)(?:\.[a-z_]\w*)+(?::\w+)?[\"'](?<!\.safetensors[\"'])"
)
IMPORTED = re.compile(
    r"\bfrom (?:simulator|models|experiments)(?:\.\w+)* import\b"
    r"|\bimport (?:[\w.]+, *)*(?:simulator|models|experiments)(?:\.\w+)*(?= *(?:[,;]| as |\\n|\"|$))"
)
FROM_LAGGARD = re.compile(r"\bfrom laggard(?:\.\w+)* import .*")
COMMAND = re.compile(r"-m (?:simulator|models|experiments)\.")


def bare_names(text):
    """The lines in which a module of the package goes by a name without `laggard.`."""
    found = []
    for line in text.splitlines():
        rest = FROM_LAGGARD.sub("", line)
        if any(pattern.search(rest) for pattern in (DOTTED, QUOTED, IMPORTED, COMMAND)):
            found.append(line.strip())
    return found


def texts():
    """Every text of the project, by its path; of a notebook the sources of its cells."""
    top = [
        path
        for path in ROOT.iterdir()
        if path.is_file() and (path.suffix in SUFFIXES or path.name == "Makefile")
    ]
    inner = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
    ]
    for path in [*top, *inner]:
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        if name not in EXEMPT:
            yield name, text


def python(code, cwd, *options):
    """What another interpreter prints."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code], cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_named_with_laggard():
    found = {name: bare_names(text) for name, text in texts()}
    assert len(found) > 300
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import json, {models}",
        "from {simulator}.engine.node import Node",
        'script = "import {models}\\nprint(1)"',
        "as in `{models}.backends`, and in `{experiments}.config`",
        "python -m {experiments}.cli list",
        'part = "{simulator}.gone"',
    ],
)
def test_planted_bare_name_is_found(line):
    assert bare_names(
        line.format(simulator="simulator", models="models", experiments="experiments")
    )


def test_folders_beside_a_script_disturb_nothing(tmp_path):
    for name in ("simulator", "models", "experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the wrong folder')\n")
    (tmp_path / "script.py").write_text(
        "from laggard import LeNet5, load, simulate\nprint(load.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "laggard.experiments.config.load\n"


def test_every_method_is_imported_from_laggard():
    for method in ALGORITHMS.values():
        assert getattr(laggard, method.__name__) is method
        assert method.__name__ in dir(laggard)
    assert "load" in dir(laggard)
    with pytest.raises(AttributeError, match="no attribute 'Gone'"):
        _ = laggard.Gone


def test_command_runs_as_module(tmp_path):
    """`test_sweeping.py` runs `python -m experiments`."""
    done = subprocess.run(
        [sys.executable, "-m", "laggard", "list", "topologies"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "exponential" in done.stdout
