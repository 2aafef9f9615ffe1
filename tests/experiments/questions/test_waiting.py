"""What decides the questions about waiting and averaging, on made-up numbers."""

import pytest

from laggard.experiments.questions.waiting import (
    decide_accumulating,
    decide_averages,
    decide_waiting,
)
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table


def accuracies(key, settings, role, study):
    """Accuracies of 0.98 less what a setting loses, and seconds a sample that halve."""
    parts = []
    for number, (setting, lost) in enumerate(settings.items()):
        values = spread(0.98 - lost, 0.001 * (number > 0), 10)
        parts.append(rows("accuracy", values, role, study, **{key: setting}))
        pace = spread(0.5**number, 1e-6, 10)
        parts.append(rows("seconds_per_sample", pace, role, study, **{key: setting}))
    return parts


@CASES
def test_waiting_for_some_is_judged_by_points(right, role, word):
    lost = 0.0 if right else 0.02
    settings = {"all": 0.0, "95 %": lost, "90 %": lost, "90 %, tokens": lost}
    parts = accuracies("method", settings, role, "most")
    answer = decide_waiting(table(*parts))[0]
    mean_is(answer.number, 100 * lost, abs=1e-6)
    mean_is(answer.beside["time a sample, 95 % over all"], 0.5, rel=1e-4)
    assert answer.judgement.word == word


@CASES
def test_rare_averages_are_judged_by_percentage_points(right, role, word):
    parts = accuracies("steps", {1: 0.0, 16: 0.0 if right else 0.02}, role, "averages")
    answer = decide_averages(table(*parts))[0]
    assert answer.judgement.word == word


@pytest.mark.parametrize(("none", "word"), [(3.0, Word.AGREES), (0.5, Word.DIFFERS)])
def test_backups_are_compared_at_their_best_number(none, word):
    """Two backups take 1 s at their best rate, eight 1.5 s; without they take `none`."""
    settings = {"all": 0.0, "95 %": 0.0, "90 %": 0.0, "90 %, tokens": 0.0}
    parts = accuracies("method", settings, "report", "most")
    for role, seeds in (("tune", 4), ("report", 20)):
        for backups, best in ((0, none), (2, 1.0), (8, 1.5)):
            for lr, factor in ((0.1, 1.0), (0.2, 4.0)):
                times = spread(best * factor, best / 10, seeds)
                parts.append(rows("time_to_0.16", times, role, "backups", backups=backups, lr=lr))
    answer = decide_waiting(table(*parts))[1]
    mean_is(answer.number, none, rel=1e-6)
    assert answer.says == "on a quadratic 2"
    assert answer.judgement.word == word


def test_one_epoch_cannot_tell_whether_accumulating_restores():
    """At 0.002, one worker's high rate, the accumulated loss is 1.5 times the synchronous one."""
    parts = []
    losses = {"one worker": 0.5, "synchronous": 1.0, "asynchronous": 2.0, "accumulated": 1.5}
    for method, loss in losses.items():
        for lr, factor in ((0.001, 1.02), (0.002, 1.0), (0.004, 3.0)):
            each = spread(loss * factor, 0.001, 8)
            parts.append(rows("loss", each, "report", "characters", method=method, lr=lr))
    restored, harm = decide_accumulating(table(*parts))
    mean_is(restored.number, 1.5, rel=1e-3)
    assert restored.judgement.word == Word.CANNOT_TELL
    mean_is(harm.number, 1.0, rel=1e-3)
    assert harm.judgement.word == Word.AGREES
