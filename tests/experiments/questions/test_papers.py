"""Pages of papers: figures drawn from numbers, and the claims of each paper."""

import re

import numpy as np
import pytest

from laggard.experiments.config.load import load
from laggard.experiments.questions.numbers import reporting
from laggard.experiments.questions.papers import (
    GRADIENT_SECONDS,
    PAPERS,
    error_by_workers,
    over_asgd,
    speed_up_by_slowness,
    stable_rate_by_delay,
)
from laggard.experiments.questions.store import read_numbers
from tests.documents import ROOT
from tests.experiments.questions.made_up import rows, table


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_figure_of_a_paper_has_points(paper):
    points, _ = reporting(paper.points(read_numbers(paper.question)))
    assert {"line", "x", "seed", "value", "lost"} <= set(points)
    assert np.isfinite(points["value"].mask(points["lost"])).any()


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_command_of_page_runs_all_its_questions(paper):
    text = (ROOT / "docs" / "papers" / f"{paper.key}.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\.\./questions/([\w-]+)\.md", text))
    (command,) = re.findall(r"laggard reproduce (.+) --dry-run", text)
    assert linked <= set(command.split())


def test_speed_up_is_over_one_node():
    config = load(ROOT / "configs/studies/slow-node-clock.yaml")
    assert config.cluster.compute.mean == GRADIENT_SECONDS
    settings = dict(method="adpsgd", slowness=10)
    own = rows("seconds_per_sample", [0.001, 0.0005], "report", "clock", **settings)
    drawn = speed_up_by_slowness(table(own))
    assert drawn["value"].tolist() == pytest.approx([10, 20])
    assert set(drawn["line"]) == {"AD-PSGD"}


def test_errors_are_over_the_mean_of_asgd():
    plain = rows("accuracy", [0.9, 0.7], "report", "workers", method="ASGD", workers=4)
    own = rows("accuracy", [0.9, np.nan], "report", "workers", method="DC-ASGD-a", workers=4)
    # neither the runs that chose nor those that had been seen are in the mean
    chose = rows("accuracy", [0.1], "tune", "workers", method="ASGD", workers=4)
    known = rows("accuracy", [0.2], "seen", "workers", method="ASGD", workers=4)
    drawn = error_by_workers(table(plain, own, chose, known))
    assert drawn["value"].tolist()[:3] == pytest.approx([0.5, 1.5, 0.5])
    assert np.isnan(drawn["value"].iloc[3])
    assert over_asgd({"ASGD": (8.0, 10.0), "own": (4.0, 5.0)})["own, reported"] == {4: 0.5, 8: 0.5}


def test_stable_rates_are_times_the_limit_of_theory():
    """Without momentum and at a delay of 1 a quadratic of curvature 1 is stable up to a rate of 1."""
    parts = [
        rows("leaving", [growth], "report", "smooth", of="growth", momentum=0.0, delay=1, lr=rate)
        for rate, growth in ((0.9, 0.5), (1.0, 0.9), (1.21, 2.0))
    ]
    drawn = stable_rate_by_delay(table(*parts))
    assert drawn["value"].tolist() == pytest.approx([1.1])
