"""What a compensation leaves of a gradient on a slope is what its formula says."""

import numpy as np
import pytest

from laggard.experiments.theory.stability import compensation_table
from laggard.simulator.learning.rules import COMPENSATIONS

LR, SLOPE, TAUS = 0.05, 2.0, np.array([0, 1, 3, 9])
EXPECTED = {
    "none": np.ones(4),
    "staleness": 1 / np.maximum(1, TAUS),
    "one_over_n": np.full(4, 1 / 5),
    "delay_adaptive": 1 / np.maximum(1, LR * TAUS / 0.3),
    "gap_aware": 1 / (1 + TAUS),
    "rescaled": np.ones(4),  # workers of equal times
    "dc_asgd_c": 1 / (1 + 0.4 * SLOPE**2 * LR * TAUS),
    "dc_asgd_a": 1 / (1 + 3.0 * SLOPE * LR * TAUS),
}


@pytest.fixture(scope="module")
def left():
    settings = {
        "delay_adaptive": {"ceiling": 0.3},
        "dc_asgd_c": {"strength": 0.4},
        "dc_asgd_a": {"strength": 3.0},
    }
    return compensation_table(TAUS.tolist(), lr=LR, slope=SLOPE, workers=5, settings=settings)


def test_every_compensation_has_a_row(left):
    assert list(left.index) == list(COMPENSATIONS)


@pytest.mark.parametrize("name", [name for name in COMPENSATIONS if name in EXPECTED])
def test_remaining_shares_follow_formulas(left, name):
    np.testing.assert_allclose(left.loc[name], EXPECTED[name], rtol=1e-3)
