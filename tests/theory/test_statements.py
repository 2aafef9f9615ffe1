"""A statement fails where it should, and the page shows it."""

import math

import numpy as np
import pytest
import torch

from tests.theory import page, statements
from tests.theory.statements import (
    Statement,
    at_most,
    batch_means,
    close,
    differ,
    difference,
    equal,
    mean_is,
    same,
)

ONES = torch.ones(2, 3, dtype=torch.float64)
NEARLY = ONES * (1 + 2**-50)
NANS = torch.full_like(ONES, math.nan)


def fails(state, *given, **named):
    with pytest.raises(AssertionError, match="does not hold"):
        state("", *given, source="", **named)


def test_identity_is_exact_and_arithmetic_to_rounding():
    same("", ONES, ONES.clone(), source="")
    fails(same, ONES, NEARLY)
    close("", ONES, NEARLY, source="")
    fails(close, ONES, ONES * (1 + 1e-11))
    fails(close, [ONES, ONES], [ONES, ONES * 2])
    differ("", ONES, ONES * 2, source="")
    fails(differ, ONES, NEARLY)


@pytest.mark.parametrize("other", [NANS, torch.ones(2, 2)])
def test_incomparable_models_differ_infinitely(other):
    assert difference(ONES, other) == math.inf
    fails(same, ONES, other)
    fails(close, NANS, NANS)


def test_tolerance_is_standard_error_of_samples():
    samples = np.random.default_rng(0).normal(5.0, 2.0, 400)
    mean_is("", 5.0, samples, source="")
    (statement,) = statements.made
    assert statement.tolerance == pytest.approx(4 * samples.std(ddof=1) / 20, rel=1e-6)
    fails(mean_is, 5.0 + 2 * statement.tolerance, samples)


def test_wrong_value_within_tolerance_fails():
    samples = np.random.default_rng(0).normal(5.0, 2.0, 400)
    mean_is("", 5.0, samples, source="", wrong=6.0)
    fails(mean_is, 5.0, samples, wrong=5.1)
    fails(equal, 5.0, 5.0, wrong=5.0)


def test_worst_of_several_numbers_is_measured():
    equal("", 2.0, [2.0, 2.0 + 1e-12], source="")
    fails(equal, 2.0, [[2.0, 1.5], [2.1, 2.0]])
    assert statements.made[-1].measured == 1.5
    fails(equal, 2.0, [])
    fails(equal, 2.0, math.nan)
    at_most("", 2.0, [1.0, 2.0], source="")
    fails(at_most, 2.0, [1.0, 2.1])


def test_batch_means_allow_for_correlation():
    steps = np.random.default_rng(0).normal(0.0, 1.0, 5000)
    correlated = np.convolve(steps, np.ones(20), "valid")
    mean_is("", 0.0, batch_means(correlated, 50), source="")
    mean_is("", 0.0, correlated, source="")
    honest, naive = (made.tolerance for made in statements.made)
    assert honest > 2 * naive
    assert len(batch_means(np.arange(103), 10)) == 10


def test_page_has_a_row_for_each_statement():
    stated = [
        (
            ("staleness", "mean_staleness_is_workers_minus_one"),
            Statement("P - 1 for every law", "Little's law", 15.0, 14.9, 0.2, wrong=16.0),
        ),
        (
            ("staleness", "mean_staleness_is_workers_minus_one"),
            Statement("no source of its own", "derived", 0.0, math.nan),
        ),
        (
            ("times", "groups_take_k_mini_batches"),
            Statement("a bound", "derived", 2.0, 1.5, 1e-9, "<="),
        ),
    ]
    text = page.render(stated)
    assert "| P - 1 for every law | 15, not 16 | 14.9 | 0.2 |" in text
    assert "| a bound | <= 2 | 1.5 | 1e-09 |" in text
