"""What decides the questions about constant delays, on made-up numbers."""

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.delay import (
    cliff_rate,
    decide_cause,
    decide_range,
    decide_rate,
    decide_speedup,
)
from laggard.experiments.questions.numbers import select
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table


def epochs(optimiser, delay, alone, seeds, role, lr):
    return rows(
        "epochs_to_0.98",
        spread(alone, alone / 50, seeds),
        role,
        "targets",
        optimiser=optimiser,
        delay=delay,
        lr=lr,
    )


def speedups(never=False):
    """Adam and SGD without delay and with 9 workers, which take 3 epochs at the best rate."""
    parts = []
    for optimiser in ("adam", "momentum"):
        for delay, best in ((0, 1.0), (8, 3.0)):
            for lr, factor in ((0.1, 2.0), (0.2, 1.0), (0.4, 3.0)):
                parts.append(epochs(optimiser, delay, best * factor, 3, "tune", lr))
            parts.append(epochs(optimiser, delay, best, 8, "report", 0.2))
        parts.append(epochs(optimiser, 32, 5.0, 3, "tune", 0.2))
        last = epochs(optimiser, 32, 5.0, 8, "report", 0.2)
        if never:
            last["value"] = np.inf
        parts.append(last)
    return table(*parts)


def test_speed_up_is_taken_at_chosen_rates():
    """(D + 1) e(0) / e(D) at the chosen rates: 9 * 1 / 3 and 33 * 1 / 5, the greater one first."""
    answers = decide_speedup(speedups())
    assert [answer.number.mean.value for answer in answers] == pytest.approx([6.6, 6.6], rel=1e-9)
    mean_is(answers[0].beside["with 9 workers"], 3.0, rel=1e-9)
    assert answers[0].number.seeds == 8
    assert not answers[0].seen


def test_missed_target_has_no_speed_up():
    answers = decide_speedup(speedups(never=True))
    mean_is(answers[0].number, 3.0, rel=1e-9)
    assert "with 33, 8 of 8 miss the budget" in answers[0].says
    assert answers[0].beside["with 33 workers"].missing == 8


def workers_epochs(value, role, count, lr):
    return rows(
        "epochs_to_0.98",
        spread(value, value / 50, count),
        role,
        "workers",
        optimiser="adam",
        times="stragglers",
        lr=lr,
    )


def test_workers_are_compared_with_one_at_the_rate_that_other_seeds_chose():
    """One worker takes 1 epoch and 33 take 3, at a longest delay of 32: 33 * 1 / 3."""
    tuned = [workers_epochs(9.0, "tune", 3, 0.1), workers_epochs(3.0, "tune", 3, 0.3)]
    report = [workers_epochs(9.0, "report", 8, 0.1), workers_epochs(3.0, "report", 8, 0.3)]
    adam, momentum = decide_speedup(table(speedups(), *tuned, *report))
    mean_is(adam.beside["with 33 workers and stragglers"], 11.0, rel=1e-9)
    assert [says for says in momentum.beside if "stragglers" in says] == []
    assert adam.number.mean.value == pytest.approx(6.6), "their delay is not constant"
    assert adam.says.endswith("; with 33 workers and stragglers 11 times sooner")


def test_workers_that_miss_the_target_have_no_speed_up():
    parts = [workers_epochs(3.0, "tune", 3, 0.3), workers_epochs(3.0, "report", 8, 0.3)]
    parts[1].loc[0, "value"] = np.inf
    adam, _ = decide_speedup(table(speedups(), *parts))
    assert adam.beside["with 33 workers and stragglers"].missing == 1
    assert "stragglers" not in adam.says


def cliffs(fall, role="report"):
    """Accuracies on a grid of rates whose cliff_rate falls as (2 D + 1)^fall, for both optimisers."""
    rates = 10.0 ** np.arange(-6, 1, 0.25)
    parts = []
    for optimiser in ("momentum", "adam"):
        for delay in (0, 8, 32, 128):
            edge = 0.1 * (2 * delay + 1) ** fall
            for rate in rates:
                reached = 0.9 if rate <= edge * 1.001 else 0.1
                each = spread(reached, 0.001, 8)
                parts.append(
                    rows("accuracy", each, role, "rates", optimiser=optimiser, delay=delay, lr=rate)
                )
    return table(*parts)


@CASES
def test_cliff_slope_is_fitted_over_delays(right, role, word):
    fall = -1.0 if right else 0.2
    for answer in decide_rate(cliffs(fall, role)):
        # the grid has steps of a quarter decade
        mean_is(answer.number, fall, abs=0.15)
        assert answer.judgement.word == word


def test_new_seeds_of_an_optimiser_hide_no_other():
    new = select(cliffs(-1.0), optimiser="momentum")
    momentum, adam = decide_rate(table(new, select(cliffs(-1.0, "seen"), optimiser="adam")))
    assert not momentum.seen
    assert adam.seen


def test_cliff_at_grid_end_has_no_rate():
    inside = pd.Series([0.9, 0.9, 0.1], pd.Index([0.1, 0.2, 0.4], name="lr"))
    assert cliff_rate(inside) == 0.2
    assert np.isnan(cliff_rate(inside.iloc[:2]))


@pytest.mark.parametrize(
    ("noise", "says"),
    [(1e-6, "mostly the low rate"), (0.05, "points, the delay 2.0, which are not")],
)
def test_loss_is_split_into_rate_and_delay(noise, says):
    """0.99 without delay, 0.95 at the low rate, 0.93 with the delay at its best rate, which seeds
    tell from the other part or not.
    """
    parts = []
    for role, seeds in (("tune", 3), ("report", 8)):
        for optimiser in ("momentum", "adam"):
            for delay, lr, reached in (
                (0, 0.1, 0.99),
                (0, 0.001, 0.95),
                (256, 0.1, 0.1),
                (256, 0.001, 0.93),
            ):
                for epochs in (10, 30):
                    own = noise if reached == 0.93 else 1e-6
                    value = spread(reached - 0.1 * (epochs == 10), own, seeds)
                    measure = f"accuracy_at_{epochs}"
                    settings = dict(optimiser=optimiser, batch=32, delay=delay, lr=lr)
                    parts.append(rows(measure, value, role, "grid", **settings))
    for answer in decide_cause(table(*parts)):
        mean_is(answer.number, 4.0, abs=1e-3)
        mean_is(answer.beside["the delay, of 6.0 points in all"], 2, abs=1e-3)
        assert says in answer.says
        assert answer.judgement.word == Word.NONE


@pytest.mark.parametrize(("adagrad", "word"), [(12, Word.AGREES), (4, Word.DIFFERS)])
def test_width_of_rates_is_compared_by_optimiser(adagrad, word):
    """SGD works at eight rates, a sixth of a decade apart; Adagrad at more, or at fewer.

    New seeds under Downpour leave the widths at constant delays, whose seeds had been seen.
    """
    parts = []
    for optimiser, working in (("sgd", 8), ("adagrad", adagrad)):
        for number in range(20):
            works = 2 <= number < 2 + working
            value = spread(0.95 if works else 0.3, 1e-3, 8)
            lr = 10 ** (number / 6)
            parts.append(rows("accuracy", value, "report", "downpour", optimiser=optimiser, lr=lr))
    delays = cliffs(-1.0, "seen").assign(study="delays")
    answer = decide_range(table(*parts, delays))[0]
    mean_is(answer.number, (adagrad - 8) / 6, abs=1e-6)
    assert answer.judgement.word == word
    assert len(answer.beside) == 2 * delays["delay"].nunique()
    (alone,) = decide_range(table(*parts))
    assert alone.number == answer.number
    assert alone.beside == {}
