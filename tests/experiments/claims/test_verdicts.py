"""From numbers to verdicts: intervals by hand, bars on either side, and what decides nothing."""

import math

import pytest
import xarray as xr
from scipy.stats import t as student

from laggard.experiments.claims.claim import Criterion, Joint
from laggard.experiments.claims.verdicts import CriterionOutcome, Verdict, finding, verdict
from laggard.experiments.config.errors import ConfigError

HOLDS, FAILS, OPEN = CriterionOutcome


def found(values, seeds=True, **bars):
    value = xr.DataArray(values, dims="seed" if seeds else ())
    return finding(Criterion("x", "x", **bars), value, "test")


def of_all_seeds(number, draws, **bars):
    """What is found of a number that all seeds make together, which other samples of them make to be `draws`."""
    answers = iter([number, *draws])
    joint = Joint(lambda _: xr.DataArray(next(answers)), xr.DataArray([0.0], dims="seed"))
    return finding(Criterion("x", "x", **bars), joint, "test", len(draws))


@pytest.mark.parametrize(("halves", "outcome"), [(-1.1, HOLDS), (-0.9, OPEN), (0.0, OPEN), (0.9, OPEN), (1.1, FAILS)])
def test_an_interval_within_the_bar_holds_beyond_it_fails_and_across_it_is_open(halves, outcome):
    """Of 4, 5, 6 the mean is 5 and half of the interval t(0.975, 2) / sqrt(3); the bar is so many halves from it."""
    half = student.ppf(0.975, 2) / math.sqrt(3)
    assert found([4.0, 5.0, 6.0], at_least=5 + halves * half).outcome == outcome
    assert found([4.0, 5.0, 6.0], at_most=5 - halves * half).outcome == outcome


def test_both_bars_are_held_at_once():
    close = [0.99, 1.0, 1.01]
    assert found(close, at_least=0.9, at_most=1.1).outcome == HOLDS
    assert found(close, at_least=1.1, at_most=1.2).outcome == FAILS
    assert found(close, at_least=1.0, at_most=1.2).outcome == OPEN


def test_one_seed_decides_nothing_but_a_number_without_seeds_does():
    assert found([5.0], at_least=1.0).outcome == OPEN
    assert found(5.0, seeds=False, at_least=1.0).outcome == HOLDS
    assert found(5.0, seeds=False, at_most=1.0).outcome == FAILS


def test_a_number_of_all_seeds_decides_by_what_other_seeds_would_make_of_it():
    """Of 100 draws the 95 % interval is without the two or three at either end, and never without the number itself."""
    draws = [1.0] * 2 + [2.0] * 10 + [3.0] * 76 + [4.0] * 10 + [9.0] * 2
    number = of_all_seeds(3.0, draws, at_least=2.0, at_most=4.0)
    assert (number.value, number.low, number.high, number.outcome) == (3.0, 2.0, 4.0, HOLDS)
    assert of_all_seeds(3.0, draws, at_most=3.0).outcome == OPEN
    assert of_all_seeds(3.0, draws, at_most=1.0).outcome == FAILS
    assert of_all_seeds(5.0, draws, at_most=4.0).outcome == OPEN
    assert of_all_seeds(1.0, draws, at_least=2.0).outcome == OPEN


def test_where_a_target_was_never_reached_all_seeds_have_to_agree():
    never = math.inf
    assert found([3.0, never, 4.0], at_least=2.0).outcome == HOLDS
    assert found([3.0, never, 4.0], at_most=5.0).outcome == OPEN
    assert found([never, never], at_most=5.0).outcome == FAILS
    assert found([3.0, math.nan, 4.0], at_least=2.0).outcome == OPEN


def test_a_value_with_other_dimensions_is_refused():
    value = xr.DataArray([[1.0, 2.0]], dims=("lr", "seed"))
    with pytest.raises(ConfigError, match=r"A1, criteria: expected a number a seed, but lr is left"):
        finding(Criterion("x", "x", at_most=1.0), value, "A1, criteria")


@pytest.mark.parametrize(("outcomes", "said"), [
    ([HOLDS, HOLDS], Verdict.REPRODUCED), ([HOLDS, OPEN], Verdict.IN_PART), ([HOLDS, FAILS], Verdict.IN_PART),
    ([FAILS, OPEN], Verdict.CONTRADICTED), ([FAILS], Verdict.CONTRADICTED), ([OPEN, OPEN], Verdict.OPEN),
])  # fmt: skip
def test_a_verdict_is_of_all_outcomes(outcomes, said):
    assert verdict(outcomes) is said
