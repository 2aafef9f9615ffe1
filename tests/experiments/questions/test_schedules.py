"""What decides the questions about when gradients are late and at which rate, on made-up numbers."""

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.schedules import (
    batch_slopes,
    decide_batch,
    decide_warm_up,
    decide_when,
)
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table, words

AGREES, DIFFERS, OPEN = Word.AGREES, Word.DIFFERS, Word.CANNOT_TELL


# --- delay-batch

RATES = (0.01, 0.1, 1.0, 10.0)


def batches(cliffs, delay=8, role="report", study="updates"):
    """Runs of two batches, a decade apart, that train up to the rate `cliffs` of each."""
    parts = []
    for batch, edge in zip((10, 100), cliffs, strict=True):
        for lr in RATES:
            own = [0.9 if lr <= edge else 0.1] * 8
            parts.append(rows("accuracy", own, role, study, delay=delay, batch=batch, lr=lr))
    return parts


@CASES
def test_cliff_falls_as_the_batch_grows(right, role, word):
    """The slope of log cliff_rate against log batch at a delay of 8."""
    cliffs = (1.0, 0.1) if right else (0.1, 0.1)
    (answer,) = decide_batch(table(*batches(cliffs, 8, role), *batches((1.0, 1.0), 0, role)))
    assert answer.judgement.word is word
    mean_is(answer.number, -1 if right else 0, abs=1e-6)


def test_cliff_beyond_the_rates_leaves_the_verdict_open():
    parts = batches((10.0, 0.1))
    assert batch_slopes(table(*parts))[8].isna().all()
    (answer,) = decide_batch(table(*parts))
    assert answer.judgement == (OPEN, "a largest rate lies beyond the rates tried")


def test_equal_epochs_give_no_verdict():
    """Larger batches make fewer updates; the share taken is of the accuracy above the least."""
    parts = batches((1.0, 0.1), 32, study="epochs")
    for delay, accuracy in ((0, 0.9), (8, 0.5)):
        for batch in (10, 100):
            for lr in (0.1, 1.0):
                own = [accuracy if batch == 100 else 0.9] * 8
                parts.append(
                    rows("accuracy", own, "seen", "shares", delay=delay, batch=batch, lr=lr)
                )
    parts.append(rows("accuracy", [0.1] * 8, "seen", "shares", delay=32, batch=10, lr=1.0))
    epochs, shares = decide_batch(table(*parts))
    assert epochs.judgement == (OPEN, "larger batches make fewer updates")
    mean_is(shares.beside["taken at a batch of 100, rate 1"], 0.5)
    mean_is(shares.beside["taken at a batch of 10, rate 1"], 0)


# --- warm-up


def curve(start, during, end, deviation=0.0, role="report", lr=0.1):
    """Accuracies at the epochs 1, 2 and 4 of a start."""
    return pd.concat(
        [
            rows(
                f"accuracy_at_{epoch}",
                spread(mean, deviation, 10),
                role,
                "starts",
                start=start,
                lr=lr,
            )
            for epoch, mean in ((1, during), (2, 0.2), (4, end))
        ]
    )


@CASES
def test_warm_up_helps_while_it_lasts(right, role, word):
    """Right is half of the accuracy more by the middle, wrong none more."""
    during = 0.7 if right else 0.2
    answers = decide_warm_up(
        table(
            curve("at once", 0.2, 0.1, role=role),
            curve("warm-up", during, 0.1, 0.002, role),
        )
    )
    assert words(answers)[0] is word
    mean_is(answers[0].number, 100 * (during - 0.2), abs=0.06)


@pytest.mark.parametrize(("end", "word"), [(0.1, AGREES), (0.7, DIFFERS)])
def test_warm_up_does_not_last(end, word):
    """A run keeps what the warm-up gave if it ends no lower than its best until then."""
    starts = (curve("at once", 0.2, 0.1), curve("warm-up", 0.6, end, 0.001))
    answers = decide_warm_up(table(*starts))
    assert words(answers) == [AGREES, word]
    mean_is(answers[0].number, 40, abs=0.1)
    kept = answers[1].beside["share of runs that keep their best of the warm-up"]
    assert kept.mean.value == (end > 0.6)


def test_warm_up_is_judged_at_the_lowest_rate():
    """A higher rate stands beside, and its lost runs are no gain."""
    lost = curve("at once", 0.2, 0.1, lr=1.0)
    lost.loc[lost["seed"] < 3, ["value", "lost"]] = np.nan, True
    answers = decide_warm_up(
        table(
            curve("at once", 0.2, 0.1),
            curve("warm-up", 0.6, 0.1, 0.001),
            lost,
            curve("warm-up", 0.3, 0.1, 0.001, lr=1.0),
        )
    )
    mean_is(answers[0].number, 40, abs=0.1)
    beside = answers[0].beside["at a rate of 1"]
    assert (beside.mean.value, beside.lost) == (pytest.approx(10, abs=0.1), 0)


def test_schedule_has_little_effect():
    ends = {"at once": 0.1, "warm-up": 0.1, "cosine": 0.101, "step": 0.4, "over the delay": 0.9}
    answers = decide_warm_up(table(*(curve(start, 0.2, end, 0.001) for start, end in ends.items())))
    assert words(answers)[2] is AGREES
    assert [of.mean.value for of in answers[2].beside.values()] == pytest.approx([30, 80], abs=0.1)


# --- delay-when


def whens(first, last, role="report", study="one rate", **settings):
    return [
        rows("accuracy", spread(mean, 0.001, 10), role, study, when=when, **settings)
        for when, mean in (("never", 0.9), ("first", first), ("last", last))
    ]


def test_delays_are_compared_at_one_rate_first():
    """At the lowest of the rates. A run does not recover from its last epoch, so that no number
    tells whether papers are right; the other comparisons are no criterion.
    """
    parts = whens(0.8, 0.7, lr=0.1) + whens(0.5, 0.8, lr=0.2)
    parts += whens(0.7, 0.8, study="lowered") + whens(0.6, 0.8, role="seen", study="own rates")
    answers = decide_when(table(*parts))
    assert words(answers) == [Word.CANNOT_TELL, Word.NONE, Word.NONE]
    assert [answer.number.mean.value for answer in answers] == pytest.approx([-10, 10, 20])
    mean_is(answers[0].beside["at a rate of 0.2"], 30)
    mean_is(answers[0].beside["in the last"], 20)


@pytest.mark.parametrize(("early", "word"), [(1.5, AGREES), (0.9, DIFFERS)])
def test_variance_is_largest_in_the_first_epoch(early, word):
    """Over the largest later one of each seed."""
    parts = [
        rows("variation", spread(value, 0.01, 10), study="variation", of=of, part=part)
        for of in ("variance", "change")
        for part, value in ((1, 2 * early), (2, 1.0), (3, 2.0))
    ]
    (answer,) = decide_when(table(*parts))
    assert answer.judgement.word is word
    mean_is(answer.number, early, rel=0.01)
