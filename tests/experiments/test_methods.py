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


def cases():
    """Each config with all of its runs, for `make slow`; in CI those of networks.

    `test_run_hashes` simulates the first run of each method's configs.
    """
    for path in CONFIGS:
        yield pytest.param(path, True, id=f"{path.stem}-all", marks=pytest.mark.slow)
    for path in NETWORKS:
        yield pytest.param(path, False, id=path.stem)


@pytest.mark.parametrize(("path", "every"), list(cases()))
def test_config_runs_in_seconds(path, every, tmp_path):
    """The last run of each config is simulated, or all of them."""
    planned = runs(load(path))
    methods = {run.config.algorithm.name for run in planned}
    assert path in NETWORKS or any(path.stem.startswith(method) for method in methods)
    for run in planned if every else planned[-1:]:
        start = process_time()
        result = run_spec(run, tmp_path)
        spent = process_time() - start
        assert result.manifest["gradients"]["applied"] > 0
        assert spent < SECONDS, f"{dict(run.labels)} takes {spent:.1f} s"
