"""Toy experiments."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
