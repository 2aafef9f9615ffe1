"""What a `decide` takes from a table of numbers."""

import math

import pandas as pd
import pytest

from laggard.experiments.questions.numbers import (
    points_ahead,
    points_behind,
    reporting,
    times_as_large,
)
from tests.experiments.questions.made_up import mean_is, rows, table

OWN = pd.Series([0.9, 0.8, math.nan, 0.7], [0, 1, 2, 3])
OTHER = pd.Series([0.5, math.nan, 0.4, 0.5], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("compare", "expected"),
    [(points_ahead, 30.0), (points_behind, -30.0), (times_as_large, 1.6)],
)
def test_opponents_lost_runs_are_counted_apart(compare, expected):
    """The opponent loses seed 1: that is in no pair, and no loss of the first side."""
    found = compare(OWN, OTHER)
    mean_is(found, expected)
    assert found.lost == 1


def test_new_seeds_decide_alone():
    """Seeds that had been seen are never pooled with them."""
    new = rows("accuracy", [0.1, 0.2], "report")
    found, seen = reporting(table(rows("accuracy", [0.9] * 9, "seen"), new))
    assert (len(found), seen) == (2, False)
    found, seen = reporting(table(rows("accuracy", [0.9] * 9, "seen")))
    assert (len(found), seen) == (9, True)
