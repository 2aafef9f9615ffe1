"""Results that version 0.1 wrote are read, also where their configs have keys and methods that are
gone.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from laggard import load_results, summary
from laggard.experiments.cli import main
from laggard.experiments.results.store import load_result

STORED = Path(__file__).parent / "results_0_1"
"""`async_ps` with `n_push`, `sync_ps` with `wait_for`, and with `local_steps` too, which no method
has now.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "toy"))


def test_its_tables_are_read() -> None:
    results = load_results(STORED)
    assert (len(results), results.planned) == (3, 3)
    table = summary(results)
    assert table["method"].tolist() == ["backup"] * 2 + ["mixed"] * 2 + ["downpour"] * 2
    assert table["learning.lr"].tolist() == [0.05, 0.1] * 3
    assert (table["updates"] == 20).all()
    for result, rows in zip(results, (table[:2], table[2:4], table[4:]), strict=True):
        applied = result.updates["status"] == "applied"
        assert np.allclose(rows["staleness"], result.updates.loc[applied, "staleness"].mean())
        assert load_result(result.path).config.as_dict() == result.config.as_dict()


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["table", "--target", "0.6"], None),
        (["plot", "--to", "figure.png"], "figure.png"),
        (["report"], "report.html"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_read_it(
    folder: Path, command: list[str], written: str | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    assert main([command[0], str(folder), *command[1:]]) == 0, capsys.readouterr().err
    assert written is None or (folder / written).stat().st_size > 1000
