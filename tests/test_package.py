"""The wheel: what a checkout reaches by links is there as files, once, and works where there is no
checkout.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

import laggard

ROOT = Path(__file__).parents[1]
SOURCES = (
    "laggard",
    "simulator",
    "models",
    "experiments",
    "configs",
    "results/questions",
)
FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
EXPECTED = (
    "__init__.py",
    "__main__.py",
    "py.typed",
    "simulator/__init__.py",
    "models/backends/compiled/kernels.py",
    "examples/quickstart.yaml",
    "models/digits.npz",
    "answers/delay-rate.csv",
    "experiments/laggard.mplstyle",
    "experiments/league/page.html",
    "experiments/report/page.html",
    "experiments/report/page.css",
    "experiments/questions/first.md.jinja",
    "experiments/templates/algorithm/name.py.txt",
)


def call(*command, cwd):
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, links and all, so that nothing is left behind in the checkout."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    call(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        copy,
        cwd=out,
    )
    (path,) = out.glob("laggard-*.whl")
    return path


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """The programs of an environment that has the wheel, and finds what laggard needs where this
    one has it.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("-packages"))
    )
    programs = folder / "bin"
    call(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-deps", "--no-index", wheel,
         cwd=folder)  # fmt: skip
    return programs


def test_version_agrees_with_citation_and_changelog():
    cited = dict(
        line.partition(": ")[::2] for line in (ROOT / "CITATION.cff").read_text().splitlines()
    )
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest.groups() == (laggard.__version__, cited["date-released"])
    assert cited["version"] == laggard.__version__


@pytest.mark.slow
def test_wheel_has_every_file_once(wheel):
    names = Counter(ZipFile(wheel).namelist())
    assert max(names.values()) == 1
    assert {name.split("/")[0] for name in names} == {
        "laggard",
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    assert [name for name in EXPECTED if f"laggard/{name}" not in names] == []
    for package in ("simulator", "models", "experiments"):
        modules = {f"laggard/{path.relative_to(ROOT)}" for path in (ROOT / package).rglob("*.py")}
        assert modules == {
            name
            for name in names
            if name.startswith(f"laggard/{package}/") and name.endswith(".py")
        }
    links = [("configs", "examples", suffix) for suffix in (".yaml", ".csv", ".json", ".txt")]
    links.append(("results/questions", "answers", ".csv"))
    for folder, link, suffix in links:
        files = {
            f"laggard/{link}/{path.relative_to(ROOT / folder)}"
            for path in (ROOT / folder).rglob(f"*{suffix}")
        }
        assert files == {
            name for name in names if name.startswith(f"laggard/{link}/") and name.endswith(suffix)
        }


@pytest.mark.slow
def test_wheel_is_small(wheel):
    assert wheel.stat().st_size <= 1.5e6


@pytest.mark.slow
def test_installed_package_works_without_checkout(elsewhere, tmp_path):
    where = call(
        elsewhere / "python", "-c", "import laggard; print(laggard.__file__)", cwd=tmp_path
    ).strip()
    assert Path(where).is_relative_to(elsewhere.parent)
    assert "quickstart" in call(
        elsewhere / "laggard", "validate", "example:quickstart", cwd=tmp_path
    )
    assert "async_ps" in call(elsewhere / "laggard", "list", "methods", cwd=tmp_path)
    assert "delay-rate" in call(elsewhere / "laggard", "reproduce", "--list", cwd=tmp_path)
    stored = call(elsewhere / "laggard", "reproduce", "delay-rate", "--stored", cwd=tmp_path)
    assert "log rate against log (2 D + 1)" in stored


@pytest.mark.slow
@pytest.mark.parametrize("name", ["10_gossip_and_heterogeneous_data", "11_a_method_of_ones_own"])
def test_notebook_runs_with_the_wheel_alone(name, elsewhere, tmp_path):
    execute = (
        "import sys, nbclient, nbformat, laggard;"
        "nbclient.execute(nbformat.read(sys.argv[1], 4), cwd='work'); print(laggard.__file__)"
    )
    notebook = ROOT / f"notebooks/{name}.ipynb"
    (tmp_path / "work").mkdir()
    where = call(elsewhere / "python", "-c", execute, notebook, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(elsewhere.parent)
    assert list((tmp_path / "results/notebook").glob("*/*/manifest.json"))
