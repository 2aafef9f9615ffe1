"""Every config in `configs/networks/` asks a question and answers it within seconds."""

from pathlib import Path

import pytest

from laggard import load
from laggard.experiments.config.grid import runs
from laggard.experiments.running.run import run_spec

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "networks").glob("*.yaml"))


def test_there_is_one_for_each_network_that_no_other_config_uses() -> None:
    assert {load(path).task.model for path in CONFIGS} == {"resnet", "vision", "lstm"}


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["last", "all"]
)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_networks_config_answers_its_question(path: Path, every: bool, tmp_path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")
    planned = runs(load(path))
    for run in planned if every else planned[-1:]:
        assert run_spec(run, tmp_path).manifest["gradients"]["applied"] > 0
