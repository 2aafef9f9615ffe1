"""From numbers to verdicts: intervals by hand, bars on either side, and what decides nothing."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import t as student

from laggard.experiments.claims.claim import Criterion, Joint
from laggard.experiments.claims.verdicts import (
    CriterionOutcome,
    RowEntry,
    Verdict,
    finding,
    seeds_needed,
    share_interval,
    verdict,
)
from laggard.experiments.config.errors import ConfigError

HOLDS, FAILS, OPEN = CriterionOutcome


def found(values, seeds=True, **bars):
    value = xr.DataArray(values, dims="seed" if seeds else ())
    return finding(Criterion("x", "x", **bars), value, "test")


def of_all_seeds(number, draws, **bars):
    """What is found of a number that all seeds make together, which other samples of them make to
    be `draws`.
    """
    answers = {0: number, len(draws): draws}
    joint = Joint(
        lambda values: xr.DataArray(answers[values.sizes.get("draw", 0)]),
        xr.DataArray([0.0], dims="seed"),
    )
    return finding(Criterion("x", "x", **bars), joint, "test", len(draws))


@pytest.mark.parametrize(
    ("halves", "outcome"), [(-1.1, HOLDS), (-0.9, OPEN), (0.0, OPEN), (0.9, OPEN), (1.1, FAILS)]
)
def test_an_interval_within_the_bar_holds_beyond_it_fails_and_across_it_is_open(halves, outcome):
    """Of 4, 5, 6 the mean is 5 and half of the interval t(0.975, 2) / sqrt(3); the bar is so many
    halves from it.
    """
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
    """Of 100 draws the 95 % interval is without the two or three at either end, and never without
    the number itself.
    """
    draws = [1.0] * 2 + [2.0] * 10 + [3.0] * 76 + [4.0] * 10 + [9.0] * 2
    number = of_all_seeds(3.0, draws, at_least=2.0, at_most=4.0)
    assert (number.value, number.low, number.high, number.outcome) == (3.0, 2.0, 4.0, HOLDS)
    assert of_all_seeds(3.0, draws, at_most=3.0).outcome == OPEN
    assert of_all_seeds(3.0, draws, at_most=1.0).outcome == FAILS
    assert of_all_seeds(5.0, draws, at_most=4.0).outcome == OPEN
    assert of_all_seeds(1.0, draws, at_least=2.0).outcome == OPEN


def test_the_interval_of_a_number_of_all_seeds_leaves_out_a_fortieth_of_the_draws_at_either_end():
    """Each end is the least draw up to which there are 2.5 %, or 97.5 %, of 1 to 1000."""
    number = of_all_seeds(500.0, [float(draw) for draw in range(1, 1001)], at_least=0.0)
    assert (number.low, number.high) == (25.0, 975.0)


def test_where_a_target_was_never_reached_all_seeds_have_to_agree():
    never = math.inf
    assert found([3.0, never, 4.0], at_least=2.0).outcome == HOLDS
    assert found([3.0, never, 4.0], at_most=5.0).outcome == OPEN
    assert found([never, never], at_most=5.0).outcome == FAILS
    assert found([3.0, math.nan, 4.0], at_least=2.0).outcome == OPEN


def test_a_value_with_other_dimensions_is_refused():
    value = xr.DataArray([[1.0, 2.0]], dims=("lr", "seed"))
    with pytest.raises(
        ConfigError, match=r"A1, criteria: expected a number a seed, but lr is left"
    ):
        finding(Criterion("x", "x", at_most=1.0), value, "A1, criteria")


def entry(outcome, control=False):
    return RowEntry(
        says="it",
        value=1.0,
        low=1.0,
        high=1.0,
        values=[1.0],
        seeds=False,
        outcome=outcome,
        control=control,
    )


@pytest.mark.parametrize(("outcomes", "said"), [
    ([HOLDS, HOLDS], Verdict.HOLDS), ([HOLDS, OPEN], Verdict.IN_PART), ([HOLDS, FAILS], Verdict.IN_PART),
    ([FAILS, OPEN], Verdict.FAILS), ([FAILS], Verdict.FAILS), ([OPEN, OPEN], Verdict.OPEN),
])  # fmt: skip
def test_a_verdict_is_of_all_outcomes(outcomes, said):
    assert verdict([entry(outcome) for outcome in outcomes]) is said


@pytest.mark.parametrize(
    ("control", "said"), [(HOLDS, Verdict.FAILS), (OPEN, Verdict.OPEN), (FAILS, Verdict.SILENT)]
)
def test_a_control_makes_no_verdict_but_can_take_it_away(control, said):
    """One that holds leaves the verdict to the claims, even where nothing else holds."""
    assert verdict([entry(FAILS), entry(control, control=True)]) is said


def test_a_share_of_seeds_has_its_exact_interval():
    """By hand: 8 of 8 were seen with a share of 0.025^(1/8) in one case of 40; binomial sums for 3
    of 10.
    """
    low, high = share_interval(8, 8)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 8)), 1.0)
    assert share_interval(0, 8) == (0.0, pytest.approx(1 - 0.025 ** (1 / 8)))
    low, high = share_interval(3, 10)
    assert sum(
        math.comb(10, k) * low**k * (1 - low) ** (10 - k) for k in range(3, 11)
    ) == pytest.approx(0.025)
    assert sum(
        math.comb(10, k) * high**k * (1 - high) ** (10 - k) for k in range(4)
    ) == pytest.approx(0.025)


def test_four_of_five_seeds_leave_a_share_open_and_all_of_ten_do_not():
    some = found([True] * 4 + [False], at_least=0.5)
    assert (some.outcome, some.value, some.measured) == (OPEN, 0.8, "4 of 5 (0.2836 to 0.9949)")
    assert found([True] * 10, at_least=0.6).outcome == HOLDS
    assert found([False] * 10, at_least=0.6).outcome == FAILS


def test_a_choice_at_an_end_of_its_grid_leaves_a_claim_open_but_no_control():
    value = xr.DataArray([1.0, 1.0, 1.0], dims="seed")
    for control, outcome in ((False, OPEN), (True, HOLDS)):
        criterion = Criterion("x", "x", at_least=0.5, control=control)
        assert finding(criterion, value, "test", at_edge=True).outcome == outcome


def needed(values, seeds=True, **bars):
    return seeds_needed(Criterion("x", "x", **bars), found(values, seeds, **bars))


@pytest.mark.parametrize(
    "bars",
    [
        {"at_least": 4.95},
        {"at_most": 5.05},
        {"at_least": 4.95, "at_most": 6.0},
        {"at_least": 4.95, "at_most": 5.2},
    ],
)
def test_so_many_seeds_of_the_same_mean_and_spread_would_decide(bars):
    """Of 4, 5 and 6, ten times each, the mean is 0.05 from the bar; t s / sqrt(n) of that many
    seeds is 0.05.
    """
    values = [4.0, 5.0, 6.0] * 10
    count = needed(values, **bars)
    assert student.ppf(0.975, 29) * np.std(values, ddof=1) / math.sqrt(count) == pytest.approx(
        0.05, rel=1e-3
    )


def test_a_share_needs_as_many_seeds_as_its_interval_says():
    """7 of 10 against a half: Clopper and Pearson's lower end is 0.3475, 0.3525 below 0.7, and the
    bar is 0.2 below.
    """
    assert needed([True] * 7 + [False] * 3, at_least=0.5) == math.ceil(10 * (0.3525 / 0.2) ** 2)


@pytest.mark.parametrize(
    ("values", "seeds", "bars"),
    [
        ([4.0, 5.0, 6.0], True, {"at_least": 1.0}),
        ([4.0, 5.0, 6.0], True, {"at_least": 5.0}),
        ([4.0, 5.0, 6.0], True, {"at_least": 5.0, "at_most": 5.5}),
        ([4.0, 5.0, math.inf], True, {"at_least": 5.0}),
        ([4.0, 5.0, math.nan], True, {"at_least": 5.0}),
        (5.0, False, {"at_least": 6.0}),
    ],
)
def test_no_number_of_seeds_is_said_where_none_decides_or_all_is_decided(values, seeds, bars):
    assert needed(values, seeds, **bars) is None
