"""Configs of methods and networks run within seconds."""

from pathlib import Path
from time import process_time

import pytest

from laggard import load
from laggard.experiments.config.grid import runs
from laggard.experiments.running.run import run_spec

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted((FOLDER / "methods").glob("*.yaml"))
NETWORKS = sorted((FOLDER / "networks").glob("*.yaml"))
SECONDS = 20.0
"""What one run may take of the processor: three are meant; neighbours and measuring coverage
multiply them.
"""


def test_every_network_has_a_config():
    assert {load(path).task.model for path in NETWORKS} == {"resnet", "vision", "lstm"}


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_network_config_starts(path, tmp_path):
    """The last run of each, for one update: `make slow` runs all to their ends.

    Of a tenth of the samples, since batch statistics are taken from the whole training set.
    """
    last = runs(load(path, "stop={updates: 1}", "evaluate={}", "task.validation=0.9"))[-1]
    assert run_spec(last, tmp_path).manifest["gradients"]["applied"] > 0


# `test_run_hashes` simulates the first run of each method's configs in CI.
@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS + NETWORKS, ids=lambda path: path.stem)
def test_config_runs_in_seconds(path, tmp_path):
    planned = runs(load(path))
    methods = {run.config.algorithm.name for run in planned}
    assert path in NETWORKS or any(path.stem.startswith(method) for method in methods)
    for run in planned:
        start = process_time()
        result = run_spec(run, tmp_path)
        spent = process_time() - start
        assert result.manifest["gradients"]["applied"] > 0
        assert spent < SECONDS, f"{dict(run.labels)} takes {spent:.1f} s"
