"""What decides the questions about when gradients are late and at which rate, on made-up numbers."""

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.schedules import (
    batch_slopes,
    decide_batch,
    decide_by_staleness,
    decide_ramp,
    decide_stable,
    decide_warm_up,
    decide_when,
)
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import rows, spread, table

AGREES, DIFFERS, OPEN, SEEN = Word.AGREES, Word.DIFFERS, Word.CANNOT_TELL, Word.NOT_DECIDED
CASES = pytest.mark.parametrize(
    ("value", "deviation", "seeds", "role", "word"),
    [
        ("right", 0.002, 10, "report", AGREES),
        ("wrong", 0.002, 10, "report", DIFFERS),
        ("right", 0.6, 10, "report", OPEN),
        ("right", 0.002, 5, "report", OPEN),
        ("right", 0.002, 10, "seen", SEEN),
    ],
)


def words(answers):
    return [answer.judgement.word for answer in answers]


# --- delay-batch

RATES = (0.01, 0.1, 1.0, 10.0)


def batches(cliffs, delay=8, seeds=8, role="report", study="updates"):
    """Runs of two batches, a decade apart, that train up to the rate `cliffs` of each."""
    parts = []
    for batch, edge in zip((10, 100), cliffs, strict=True):
        edges = np.broadcast_to(edge, seeds)
        for lr in RATES:
            own = np.where(lr <= edges, 0.9, 0.1)
            parts.append(rows("accuracy", own, role, study, delay=delay, batch=batch, lr=lr))
    return parts


@pytest.mark.parametrize(
    ("cliffs", "seeds", "role", "word"),
    [
        ((1.0, 0.1), 8, "report", AGREES),
        ((0.1, 0.1), 8, "report", DIFFERS),
        ((1.0, [0.1, 1.0] * 4), 8, "report", OPEN),
        ((1.0, 0.1), 5, "report", OPEN),
        ((1.0, 0.1), 8, "seen", SEEN),
    ],
)
def test_cliff_falls_as_the_batch_grows(cliffs, seeds, role, word):
    """The slope of log cliff against log batch at a delay of 8."""
    (answer,) = decide_batch(
        table(*batches(cliffs, 8, seeds, role), *batches((1.0, 1.0), 0, role=role))
    )
    assert answer.judgement.word is word
    expected = np.mean(np.log10(np.broadcast_to(cliffs[1], seeds) / cliffs[0]))
    assert answer.number.mean.value == pytest.approx(expected, abs=1e-6)


def test_cliff_beyond_the_rates_leaves_the_word_open():
    parts = batches((10.0, 0.1))
    assert batch_slopes(table(*parts))[8].isna().all()
    (answer,) = decide_batch(table(*parts))
    assert answer.judgement == (OPEN, "a cliff lies beyond the rates tried")


def test_equal_epochs_carry_no_word():
    """Larger batches make fewer updates; the share taken is of the accuracy above the least."""
    parts = batches((1.0, 0.1), study="epochs")
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
    assert shares.beside["taken at a batch of 100, rate 1"].mean.value == pytest.approx(0.5)
    assert shares.beside["taken at a batch of 10, rate 1"].mean.value == pytest.approx(0)


# --- warm-up


def curve(start, during, end, deviation=0.0, seeds=10, role="report", lr=0.1):
    """Accuracies at the epochs 1, 2 and 4 of a start."""
    return pd.concat(
        [
            rows(
                f"accuracy_at_{epoch}",
                spread(mean, deviation, seeds),
                role,
                "starts",
                start=start,
                lr=lr,
            )
            for epoch, mean in ((1, during), (2, 0.2), (4, end))
        ]
    )


@CASES
def test_warm_up_helps_while_it_lasts(value, deviation, seeds, role, word):
    """Right is half a point of accuracy more by the middle, wrong none more."""
    during = {"right": 0.7, "wrong": 0.2}[value]
    answers = decide_warm_up(
        table(
            curve("at once", 0.2, 0.1, seeds=seeds, role=role),
            curve("warm-up", during, 0.1, deviation, seeds, role),
        )
    )
    assert words(answers)[0] is word
    assert answers[0].number.mean.value == pytest.approx(100 * (during - 0.2), abs=30 * deviation)


@pytest.mark.parametrize(("end", "word"), [(0.1, AGREES), (0.7, DIFFERS)])
def test_warm_up_does_not_last(end, word):
    """A run keeps what the warm-up gave if it ends no lower than its best until then."""
    starts = (curve("at once", 0.2, 0.1), curve("warm-up", 0.6, end, 0.001))
    answers = decide_warm_up(table(*starts))
    assert words(answers) == [AGREES, word]
    assert answers[0].number.mean.value == pytest.approx(40, abs=0.1)
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
    assert answers[0].number.mean.value == pytest.approx(40, abs=0.1)
    beside = answers[0].beside["at a rate of 1"]
    assert (beside.mean.value, beside.lost) == (pytest.approx(10, abs=0.1), 0)


def test_schedule_has_little_effect():
    ends = {"at once": 0.1, "warm-up": 0.1, "cosine": 0.101, "step": 0.4, "over the delay": 0.9}
    answers = decide_warm_up(table(*(curve(start, 0.2, end, 0.001) for start, end in ends.items())))
    assert words(answers)[2] is AGREES
    assert [of.mean.value for of in answers[2].beside.values()] == pytest.approx([30, 80], abs=0.1)


# --- delay-when


def whens(first, last, deviation=0.001, seeds=10, role="report", study="one rate", **settings):
    values = {"never": spread(0.9, 0.0, seeds), "first": spread(first, deviation, seeds)}
    values["last"] = spread(last, 0.0, seeds)
    return [
        rows("accuracy", own, role, study, when=when, **settings) for when, own in values.items()
    ]


@CASES
def test_delay_hurts_most_near_the_start(value, deviation, seeds, role, word):
    first, last = {"right": (0.7, 0.8), "wrong": (0.8, 0.7)}[value]
    answers = decide_when(table(*whens(first, last, deviation, seeds, role, lr=0.1)))
    assert words(answers) == [word]


def test_delays_are_compared_at_one_rate_first():
    """At the lowest of the rates; other comparisons carry no word."""
    parts = whens(0.8, 0.7, lr=0.1) + whens(0.5, 0.8, lr=0.2)
    parts += whens(0.7, 0.8, study="lowered") + whens(0.6, 0.8, role="seen", study="own rates")
    answers = decide_when(table(*parts))
    assert words(answers) == [DIFFERS, Word.NONE, Word.NONE]
    assert [answer.number.mean.value for answer in answers] == pytest.approx([-10, 10, 20])
    assert answers[0].beside["at a rate of 0.2"].mean.value == pytest.approx(30)
    assert answers[0].beside["in the last"].mean.value == pytest.approx(20)


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
    assert answer.number.mean.value == pytest.approx(early, rel=0.01)


# --- rate-by-staleness


def synchronous(own, deviation=0.001, seeds=10, role="report"):
    return [
        rows("accuracy", spread(0.98, 0.0, seeds), role, "synchronous", method="synchronous"),
        rows("accuracy", spread(own, deviation, seeds), role, "synchronous", method="by staleness"),
    ]


@CASES
def test_division_by_staleness_reaches_the_synchronous_level(value, deviation, seeds, role, word):
    own = {"right": 0.979, "wrong": 0.95}[value]
    answers = decide_by_staleness(table(*synchronous(own, deviation, seeds, role)))
    assert words(answers) == [word]


def test_lost_runs_are_apart():
    """More lost runs than the opponent has leave the word open, whatever the others reach."""
    level, own = synchronous(0.98)
    own.loc[own["seed"] < 6, ["value", "lost"]] = np.nan, True
    (answer,) = decide_by_staleness(table(level, own))
    assert answer.number.lost == 6
    assert answer.judgement == (OPEN, "more runs are lost")


def test_one_collapsed_run_parts_mean_and_median():
    level, own = synchronous(0.98)
    own.loc[own["seed"] == 3, "value"] = 0.1
    (answer,) = decide_by_staleness(table(level, own))
    assert answer.judgement.word is OPEN
    assert answer.number.median.value == pytest.approx(0, abs=0.1)


def test_own_staleness_is_held_against_a_constant_rate():
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
    assert answer.number.mean.value == pytest.approx(3)
    assert answer.beside["nearly even"].mean.value == pytest.approx(0)
    assert answer.judgement.word is Word.NONE


@pytest.mark.parametrize(("late", "word"), [(0.978, AGREES), (0.95, DIFFERS)])
def test_rate_over_n_is_judged_at_the_least_delay(late, word):
    values = {"whole rate": 0.98, "128 late": 0.5, "16 late": late, "lr / 17 alone": 0.979}
    parts = [
        rows("accuracy", spread(value, 0.001, 10), study="delays", setting=setting)
        for setting, value in values.items()
    ]
    (answer,) = decide_by_staleness(table(*parts))
    assert answer.judgement.word is word
    assert answer.number.mean.value == pytest.approx(100 * (0.98 - late), abs=0.1)
    assert answer.beside["lost, 128 late"].mean.value == pytest.approx(48, abs=0.1)


# --- staleness-ramp


@pytest.mark.parametrize(
    ("failed", "seeds", "role", "word"),
    [
        (18, 20, "report", AGREES),
        (1, 20, "report", DIFFERS),
        (9, 20, "report", OPEN),
        (5, 5, "report", OPEN),
        (18, 20, "seen", SEEN),
    ],
)
def test_training_fails_without_a_ramp(failed, seeds, role, word):
    """To fail is to end below half of the median with the ramp."""
    at_once = np.where(np.arange(seeds) < failed, 0.4, 0.5)
    answers = decide_ramp(
        table(
            rows("accuracy", [0.9] * seeds, role, "start", start="ramp"),
            rows("accuracy", at_once, role, "start", start="at once"),
        )
    )
    assert words(answers) == [word]
    assert answers[0].number.mean.value == failed / seeds


def test_lost_run_has_failed():
    answers = decide_ramp(
        table(
            rows("accuracy", [0.9] * 10, study="start", start="ramp"),
            rows("accuracy", [np.nan] * 4 + [0.9] * 6, study="start", start="at once"),
        )
    )
    assert answers[0].number.mean.value == 0.4


def test_error_grows_with_staleness():
    """Ratios of errors to those without delay; a reported figure is no bar."""
    parts = [
        rows("accuracy", [1 - error] * 10, study="ladder", delay=delay)
        for delay, error in (("no delay", 0.1), ("20", 0.15), ("50", 0.3))
    ]
    (answer,) = decide_ramp(table(*parts))
    assert answer.number.mean.value == pytest.approx(3)
    assert answer.beside["at 20"].mean.value == pytest.approx(1.5)
    assert answer.judgement.word is Word.NONE


# --- stable-rate


def growths(last, seeds=8, role="report", study="smooth", rates=(0.6, 0.8, 1.0, 1.2), **settings):
    """The growth of seeds that come back up to the rate `last`, one a seed, and leave beyond."""
    last = np.broadcast_to(last, seeds)
    parts = [
        rows(
            "leaving",
            np.where(lr <= last, 0.5, 2.0),
            role,
            study,
            of="growth",
            lr=lr,
            **settings,
        )
        for lr in rates
    ]
    parts.append(rows("leaving", [1e-4] * seeds, role, study, of="slope", lr=0.6, **settings))
    return parts


@pytest.mark.parametrize(
    ("last", "seeds", "role", "word"),
    [
        (0.95, 8, "report", AGREES),
        (0.6, 8, "report", DIFFERS),
        ([0.6, 0.95] * 4, 8, "report", OPEN),
        (0.95, 5, "report", OPEN),
        (0.95, 8, "seen", SEEN),
        (1.2, 8, "report", OPEN),
    ],
)
def test_minimum_is_stable_up_to_theory(last, seeds, role, word):
    """Halfway from the last rate that comes back to the next; a grid that ends there has none."""
    rates = (0.6, 0.95, 1.05, 1.2)
    parts = growths(last, seeds, role, rates=rates, momentum=0.0, delay=2)
    (answer,) = decide_stable(table(*parts))
    assert answer.judgement.word is word
    if last == 1.2:
        assert answer.judgement.why == "a limit lies beyond the rates tried"
    if last == 0.6:
        assert answer.number.mean.value == pytest.approx((0.6 * 0.95) ** 0.5)


def test_networks_have_an_answer_each():
    smooth = growths(1.0, momentum=0.0, delay=2) + growths(0.8, momentum=0.9, delay=2)
    kinks = growths(0.6, study="kinks", momentum=0.0, delay=2)
    answers = decide_stable(table(*smooth, *kinks))
    assert [answer.number.mean.value for answer in answers] == pytest.approx(
        [1.2**0.5, (0.6 * 0.8) ** 0.5]
    )
    assert answers[0].beside["at a delay of 2, momentum 0.9"].mean.value == pytest.approx(0.8**0.5)
