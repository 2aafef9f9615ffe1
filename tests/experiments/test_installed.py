"""Plugins of installed packages: a name of their own, their source in the run's id."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from laggard import ConfigError, load
from laggard.experiments.cli import main
from laggard.experiments.config import installed
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.listing import describe_entries
from tests.experiments.test_plugins import ABSOLUTE, PAIRS, PIECES

GROUPS = {
    "algorithm": "Server", "distribution": "Law", "slowdown": "Slow", "topology": "Star",
    "optimizer": "Plain", "compensation": "Late", "schedule": "Steady", "task": "Bowl",
    "network": "Net",
    "dataset": "blobs", "partition": "Dealt",
}  # fmt: skip


@pytest.fixture
def install(tmp_path, monkeypatch, module):
    """Installs a package into a folder on Python's path, as pip would, with its entry points."""
    site = tmp_path / "site-packages"

    def write(name, entries, sources):
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[laggard.{group}]\n{key} = {value}" for group, key, value in entries]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        for file, source in sources.items():
            path = site / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        monkeypatch.setattr(sys, "path", [*dict.fromkeys([*sys.path, str(site)])])

    return write


def test_entry_points_serve_as_any_kind_of_plugin(install, toy):
    entries = [(group, f"my_{name.lower()}", f"pieces.a:{name}") for group, name in GROUPS.items()]
    install("pieces", entries, {"__init__.py": "", "a.py": PIECES})
    for before, own in PAIRS.values():
        named = own
        for name in GROUPS.values():
            named = named.replace(f"'pieces:{name}'", f"my_{name.lower()}")
        full = own.replace("pieces:", "pieces.a:")
        one, other = load(toy(), *before, named), load(toy(), *before, full)
        assert "pieces" not in named
        assert RunSpec(one).id != RunSpec(other).id
        parts = [
            str(config.as_dict()).replace("pieces.a:", "my_").lower() for config in (one, other)
        ]
        assert parts[0] == parts[1]


def test_package_is_found_after_its_folder_was_read(install, toy):
    """As in a notebook, where pip installs a package between two configs."""
    install("early", [("compensation", "his", "early:Absolute")], {"__init__.py": ABSOLUTE})
    with pytest.raises(ConfigError, match="mine"):
        load(toy(), "learning.compensation=mine")
    install("late", [("compensation", "mine", "late:Absolute")], {"__init__.py": ABSOLUTE})
    assert load(toy(), "learning.compensation=mine").learning.compensation.name == "mine"


def test_config_folder_without_packages_is_not_read_again(toy, monkeypatch, tmp_path):
    """Reading all packages takes longer than loading a config."""
    load(toy())
    reads = []
    monkeypatch.setattr(installed, "entry_points", lambda: reads.append(1) or entry_points())
    folder = tmp_path / "another"
    folder.mkdir()
    load(toy().rename(folder / "toy.yaml"))
    assert str(folder) in sys.path
    assert reads == []


def test_source_of_installed_package_is_in_id(install, ran, tmp_path):
    source = ABSOLUTE.replace("value.abs()", "factor() * value.abs()")
    sources = {
        "__init__.py": "",
        "a.py": "from late.b import factor\n" + source,
        "b.py": "def factor():\n    return 1\n",
    }
    install("late", [("compensation", "mine", "late.a:Absolute")], sources)
    first = ran("learning.compensation=mine")
    (tmp_path / "site-packages/late/b.py").write_text("def factor():\n    return 5\n")
    second = ran("learning.compensation=mine")
    assert first.path != second.path
    assert not torch.equal(first.weights, second.weights)
    for name in ("late", "late.a", "late.b"):
        sys.modules.pop(name, None)


def test_entry_point_is_refused_without_plugins(install, toy, tmp_path, mistake):
    hit = tmp_path / "hit"
    source = f"import pathlib\npathlib.Path({str(hit)!r}).touch()\n{ABSOLUTE}"
    install("late", [("compensation", "mine", "late:Absolute")], {"__init__.py": source})
    words = ["validate", str(toy()), "learning.compensation=mine"]
    assert "learning.compensation.name: expected a known name" in mistake(*words, "--no-plugins")
    assert list(describe_entries(["compensations"]))[-1] == "  mine: late:Absolute, of late 1.0"
    assert not hit.exists()
    assert main(words) == 0
    assert hit.exists()
    sys.modules.pop("late", None)


def test_two_entries_of_one_name_are_reported(install, toy):
    for name, entry in (("one", "mine"), ("two", "mine"), ("three", "none")):
        value = f"{name}:Absolute"
        install(name, [("compensation", entry, value)], {"__init__.py": ABSOLUTE})
    with pytest.raises(ConfigError, match=r"one 1\.0 and two 1\.0: name one as one:Absolute or"):
        load(toy(), "learning.compensation=mine")
    with pytest.warns(UserWarning, match="none is laggard's own; write three:Absolute"):
        assert load(toy()).learning.compensation.name == "none"


PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "late"
version = "1.0"
[project.entry-points."laggard.compensation"]
mine = "late:Absolute"
[tool.setuptools]
py-modules = ["late"]
"""


@pytest.mark.slow
def test_wheel_brings_its_method(toy, tmp_path):
    project, site = tmp_path / "project", tmp_path / "site"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "late.py").write_text(ABSOLUTE)
    options = "--quiet --no-deps --no-index --no-build-isolation --disable-pip-version-check"
    words = [sys.executable, "-m", "pip", "install", *options.split(), "--target", site, project]
    subprocess.run(words, check=True)
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{site}"}
    grid = "sweep={seed: [0, 1], learning.compensation: [mine, none]}"
    words = [sys.executable, "-m", "laggard", "sweep", toy(), grid, "--jobs", "2", "--quiet"]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True)
    assert len(list((tmp_path / "results/toy").glob("*/weights.safetensors"))) == 4
