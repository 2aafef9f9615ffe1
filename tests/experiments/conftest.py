"""Toy experiments."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiments import plugins

TOY = """\
# A noisy quadratic on three uneven workers.
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}, seed: 5}
algorithm: async_ps
task: {model: quadratic, dim: 3, condition: 10, noise: 0.2, jitter: 0.5, epoch: 20}
learning: {lr: 0.1}
stop: {updates: 40}
"""


@pytest.fixture
def toy(tmp_path: Path) -> Callable[[str], Path]:
    """Writes the toy config, with more YAML below it, to a file."""

    def write(more: str = "", text: str = TOY) -> Path:
        path = tmp_path / "toy.yaml"
        path.write_text(text + more, encoding="utf-8")
        return path

    return write


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[str, str], Path]]:
    """Writes a module beside the toy config; afterwards no module of the test is known any more."""
    path, folders, hashes = list(sys.path), dict(plugins.FOLDERS), dict(plugins._hashes)

    def write(name: str, source: str) -> Path:
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        return file

    yield write
    sys.path[:] = path
    for now, before in ((plugins.FOLDERS, folders), (plugins._hashes, hashes)):
        now.clear()
        now.update(before)
    for name, loaded in list(sys.modules.items()):
        if str(getattr(loaded, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
