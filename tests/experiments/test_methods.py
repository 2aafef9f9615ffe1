"""Every config in `configs/methods/`: it asks a question and answers it within seconds; every
method has one.
"""

from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from laggard import load
from laggard.experiments.config.grid import runs
from laggard.experiments.running.run import run_spec
from laggard.simulator import ALGORITHMS

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "methods").glob("*.yaml"))
SECONDS = 20.0
"""What one run may take of the processor: three are meant; neighbours and measuring coverage
multiply them.
"""


def test_every_method_has_a_config() -> None:
    without = [
        name for name in ALGORITHMS if not any(path.stem.startswith(name) for path in CONFIGS)
    ]
    assert not without, f"no configs/methods/<method>*.yaml for {', '.join(without)}"


def cases() -> Iterator[Any]:
    """Each config with its last run, and for `make slow` with all; in CI one config of each
    method.
    """
    for path in CONFIGS:
        main = path.stem in ALGORITHMS or path.stem == "all_reduce_ring"
        yield pytest.param(
            path, False, id=f"{path.stem}-last", marks=[] if main else [pytest.mark.slow]
        )
        yield pytest.param(path, True, id=f"{path.stem}-all", marks=pytest.mark.slow)


@pytest.mark.parametrize(("path", "every"), list(cases()))
def test_a_methods_config_answers_its_question_in_seconds(
    path: Path, every: bool, tmp_path: Path
) -> None:
    """Of its runs the last, or all of them."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")
    planned = runs(load(path))
    methods = {run.config.algorithm.name for run in planned}
    assert any(path.stem.startswith(method) for method in methods), f"it runs {', '.join(methods)}"
    for run in planned if every else planned[-1:]:
        start = process_time()
        result = run_spec(run, tmp_path)
        spent = process_time() - start
        assert result.manifest["gradients"]["applied"] > 0
        assert spent < SECONDS, f"{dict(run.labels)} takes {spent:.1f} s"
