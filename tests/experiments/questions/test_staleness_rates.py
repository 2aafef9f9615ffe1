"""What decides the questions about rates divided by staleness, ramps and minima, on made-up numbers."""

import numpy as np
import pytest

from laggard.experiments.questions.staleness_rates import (
    decide_by_staleness,
    decide_ramp,
    decide_stable,
)
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table, words

AGREES, DIFFERS, OPEN = Word.AGREES, Word.DIFFERS, Word.CANNOT_TELL


# --- rate-by-staleness


def synchronous(own, role="report"):
    return [
        rows("accuracy", spread(0.98, 0.0, 10), role, "synchronous", method="synchronous"),
        rows("accuracy", spread(own, 0.001, 10), role, "synchronous", method="by staleness"),
    ]


@CASES
def test_division_by_staleness_reaches_the_synchronous_level(right, role, word):
    own = 0.979 if right else 0.95
    answers = decide_by_staleness(table(*synchronous(own, role)))
    assert words(answers) == [word]


def test_own_staleness_is_compared_with_a_constant_rate():
    """First where times have a heavy tail; no paper has a bar for it."""
    parts = [
        rows(
            "accuracy",
            spread(0.9 + gain * (rule == "by staleness"), 0.0, 10),
            study="rates",
            times=times,
            rule=rule,
        )
        for times, gain in (("even", 0.0), ("heavy tail", 0.03))
        for rule in ("constant", "by staleness")
    ]
    (answer,) = decide_by_staleness(table(*parts))
    mean_is(answer.number, 3)
    mean_is(answer.beside["nearly even"], 0)
    assert answer.judgement.word is Word.NONE


@pytest.mark.parametrize(("late", "word"), [(0.978, AGREES), (0.95, DIFFERS)])
def test_rate_over_n_is_judged_at_least_delay(late, word):
    values = {"whole rate": 0.98, "128 late": 0.5, "16 late": late, "lr / 17 alone": 0.979}
    parts = [
        rows("accuracy", spread(value, 0.001, 10), study="delays", setting=setting)
        for setting, value in values.items()
    ]
    (answer,) = decide_by_staleness(table(*parts))
    assert answer.judgement.word is word
    mean_is(answer.number, 100 * (0.98 - late), abs=0.1)
    mean_is(answer.beside["lost, 128 late"], 48, abs=0.1)


# --- staleness-ramp


def test_training_fails_without_a_ramp():
    """To fail is to end below half of the median with the ramp, or to be lost; a recalled claim
    gets no verdict.
    """
    at_once = [np.nan] * 4 + [0.4] * 2 + [0.5] * 4
    answers = decide_ramp(
        table(
            rows("accuracy", [0.9] * 10, study="start", start="ramp"),
            rows("accuracy", at_once, study="start", start="at once"),
        )
    )
    assert words(answers) == [Word.NONE]
    assert answers[0].number.mean.value == 0.6


def test_error_grows_with_staleness():
    """Ratios of errors to those without delay; a reported figure is no bar."""
    parts = [
        rows("accuracy", [1 - error] * 10, study="ladder", delay=delay)
        for delay, error in (("no delay", 0.1), ("20", 0.15), ("50", 0.3))
    ]
    (answer,) = decide_ramp(table(*parts))
    mean_is(answer.number, 3)
    mean_is(answer.beside["at 20"], 1.5)
    assert answer.judgement.word is Word.NONE


# --- stable-rate


def growths(last, role="report", study="smooth", rates=(0.6, 0.8, 1.0, 1.2), **settings):
    """The growth of seeds that come back up to the rate `last` and leave beyond."""
    parts = [
        rows(
            "leaving", [0.5 if lr <= last else 2.0] * 8, role, study, of="growth", lr=lr, **settings
        )
        for lr in rates
    ]
    parts.append(rows("leaving", [1e-4] * 8, role, study, of="slope", lr=0.6, **settings))
    return parts


def stable_up_to(last, role="report"):
    parts = growths(last, role, rates=(0.6, 0.95, 1.05, 1.2), momentum=0.0, delay=2)
    (answer,) = decide_stable(table(*parts))
    return answer


@CASES
def test_minimum_is_stable_up_to_theory(right, role, word):
    """Halfway from the last rate that comes back to the next."""
    answer = stable_up_to(0.95 if right else 0.6, role)
    assert answer.judgement.word is word
    if not right:
        mean_is(answer.number, (0.6 * 0.95) ** 0.5, abs=1e-4)


def test_grid_below_the_limit_gives_no_verdict():
    assert stable_up_to(1.2).judgement == (OPEN, "a limit lies beyond the rates tried")


def test_each_network_has_an_answer():
    smooth = growths(1.0, momentum=0.0, delay=2) + growths(0.8, momentum=0.9, delay=2)
    kinks = growths(0.6, study="kinks", momentum=0.0, delay=2)
    answers = decide_stable(table(*smooth, *kinks))
    assert [answer.number.mean.value for answer in answers] == pytest.approx(
        [1.2**0.5, (0.6 * 0.8) ** 0.5], abs=1e-4
    )
    mean_is(answers[0].beside["at a delay of 2, momentum 0.9"], 0.8**0.5, abs=1e-4)
