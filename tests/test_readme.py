"""What the README says can be done is done here, and its numbers are those of the stored ones."""

import re

import pandas as pd
import pytest
from matplotlib import image

from laggard import load, sweep
from laggard.experiments.questions.catalogue import QUESTIONS
from laggard.experiments.questions.presentation import interval_text
from laggard.experiments.questions.store import read_numbers
from tests.documents import ROOT, Reader, blocks, commands

README = ROOT / "README.md"


def test_readme_is_short_and_shows_commands():
    assert len(README.read_text().splitlines()) <= 150
    assert sum(block.language == "python" for block in blocks(README)) >= 2
    assert {"make quickstart", "make test"} <= {
        line.partition("#")[0].strip() for line in commands(README)
    }


@pytest.mark.long
def test_readme_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    Reader(tmp_path, monkeypatch, capsys).follow(README)


def test_first_page_prints_a_staleness_near_theory(capsys):
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(code, {})
    assert float(capsys.readouterr().out) == pytest.approx(7, abs=0.1)


@pytest.mark.slow
def test_first_command_draws_the_picture(tmp_path):
    """Another processor may round one test sample of 297 elsewhere, which moves a few pixels.

    One of another maker takes other square roots, which DC-ASGD-a amplifies: on an EPYC its line
    moves by points, and the axis of accuracy with it. Of the panels of accuracy, the upper half,
    3 % of the picture differed then; the legend and the staleness below are the same everywhere.
    """
    results = sweep(load(ROOT / "configs/quickstart.yaml"), tmp_path)
    results.plot(tmp_path / "redrawn.png")
    redrawn = image.imread(tmp_path / "redrawn.png")
    stored = image.imread(ROOT / "notebooks/quickstart.png")
    assert redrawn.shape == stored.shape
    different = (redrawn != stored).any(axis=-1)
    assert different.mean() < 0.05
    legend, below = len(different) // 14, len(different) // 2
    assert not different[:legend].any()
    assert not different[below:].any()


def test_readme_has_the_numbers_of_the_answers():
    """The slopes, and what the rate and the delay take, as the stored numbers have them."""
    said = " ".join(README.read_text().split())
    sgd, adam = QUESTIONS["delay-rate"].decide(read_numbers("delay-rate"))
    assert f"{interval_text(sgd.number.mean)} for SGD with momentum" in said
    assert f"{interval_text(adam.number.mean)} for Adam" in said
    cause = QUESTIONS["delay-cause"].decide(read_numbers("delay-cause"))[0]
    mean = cause.number.mean
    points = f"{mean.value:.1f} ({mean.low:.1f}, {mean.high:.1f}) points"
    assert f"the low learning rate alone costs {points}" in said


def test_readme_bounds_the_stored_errors():
    stored = (
        pd.read_csv(ROOT / "results/real/comparison.csv").set_index("quantity")["difference"].abs()
    )
    worst = 100 * stored["updates/s"].max(), 100 * stored["waiting"].max()
    words = (
        r"predict another within ([\d.]+) % in updates per second and ([\d.]+) points in waiting"
    )
    said = re.search(words, " ".join(README.read_text().split()))
    assert said
    for bound, found in zip(map(float, said.groups()), worst, strict=True):
        assert found <= bound < found + 0.1
