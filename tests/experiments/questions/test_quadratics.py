"""What decides the questions about quadratics, on made-up numbers."""

import numpy as np
import pytest

from laggard.experiments.questions.quadratics import decide_momentum, decide_uneven
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import rows, spread, table


def times(study, seconds, seeds, role="report", deviation=0.01, rates=(0.1, 0.2, 0.4), **settings):
    """Seconds to a loss of each method, least at the middle one of three rates, on seeds that
    choose and on seeds that report.
    """
    parts = []
    for method, best in seconds.items():
        for of, count in (("tune", 4), (role, seeds)):
            for lr, factor in zip(rates, (3.0, 1.0, 2.0), strict=True):
                each = best * factor * spread(1.0, deviation, count)
                parts.append(rows("time_to_0.1", each, of, study, method=method, lr=lr, **settings))
    return parts


RACES = [
    (0.25, 10, "report", 0.01, Word.AGREES),
    (1.5, 10, "report", 0.01, Word.DIFFERS),
    (0.95, 10, "report", 0.5, Word.CANNOT_TELL),
    (0.25, 5, "report", 0.01, Word.CANNOT_TELL),
    (0.25, 10, "seen", 0.01, Word.NOT_DECIDED),
]


@pytest.mark.parametrize(("ringmaster", "seeds", "role", "deviation", "word"), RACES)
def test_ringmaster_is_judged_by_time_ratio(ringmaster, seeds, role, deviation, word):
    """Its threshold of 2 is best on the seeds that choose; 8 takes twice as long."""
    seconds = {"async": 1.0, "sync": 4.0, "rennala 1": 0.5}
    parts = times("uneven", seconds, seeds, role, speeds="i")
    own = {"ringmaster 2": ringmaster, "ringmaster 8": 2 * ringmaster}
    parts += times("uneven", own, seeds, role, deviation, speeds="i")
    answer = decide_uneven(table(*parts))[0]
    assert answer.number.mean.value == pytest.approx(ringmaster, rel=0.01)
    assert answer.judgement.word == word
    assert answer.beside["times as i: Rennala over synchronous"].mean.value == pytest.approx(1 / 8)


def test_best_rate_at_grid_end_has_no_word():
    seconds = {"async": 1.0, "sync": 4.0, "ringmaster 2": 0.25, "rennala 1": 0.5}
    parts = [part[part["lr"] != 0.4] for part in times("uneven", seconds, 10, speeds="i")]
    answer = decide_uneven(table(*parts))[0]
    assert answer.judgement == (Word.CANNOT_TELL, "a best rate lies at an end of its grid")


@pytest.mark.parametrize(
    ("middle", "deviation", "word"),
    [(0.5, 0.01, Word.AGREES), (2.0, 0.01, Word.DIFFERS), (0.97, 0.5, Word.CANNOT_TELL)],
)
def test_middle_number_awaited_is_compared_with_better_end(middle, deviation, word):
    """After 1 s asynchronous SGD has a loss of 1, synchronous of 3; late they have 4 and 1."""
    parts = []
    for wait_for, early, between, late in ((1, 1, 1, 4), (4, 5, middle, 2), (8, 9, 3, 1)):
        scatter = deviation if wait_for == 4 else 0.01
        for part, seconds, loss in (
            ("early", 0.1, early),
            ("early", 1, between),
            ("late", 8, late),
        ):
            each = loss * spread(1.0, scatter, 10)
            measure = f"loss_at_{seconds:g}s"
            parts.append(rows(measure, each, "report", "race", part=part, wait_for=wait_for))
    (answer,) = decide_uneven(table(*parts))
    assert answer.number.mean.value == pytest.approx(1 / middle, rel=0.02)
    assert answer.judgement.word == word
    floor = answer.beside["late, asynchronous over synchronous"]
    assert floor.mean.value == pytest.approx(4.0, rel=0.01)


WAITS = [
    (1.1, 10, 0.01, Word.AGREES),
    (3.0, 10, 0.01, Word.DIFFERS),
    (1.9, 10, 0.5, Word.CANNOT_TELL),
]


@pytest.mark.parametrize(("synchronous", "seeds", "deviation", "word"), WAITS)
def test_waiting_for_quickest_is_judged_by_time_ratio(synchronous, seeds, deviation, word):
    parts = times("waiting", {"async": 1.0}, seeds, tail="heavy")
    awaited = {"m = 16": 9.0, "m = 8": synchronous, "m = 4": 8.0}
    parts += times("waiting", awaited, seeds, deviation=deviation, tail="heavy")
    (answer,) = decide_uneven(table(*parts))
    assert answer.says.startswith("on a quadratic m = 8")
    assert answer.judgement.word == word


def test_least_number_awaited_has_no_word():
    """One below, which was not tried, may be better."""
    seconds = {"async": 1.0, "m = 16": 2.0, "m = 8": 1.1}
    (answer,) = decide_uneven(table(*times("waiting", seconds, 10, tail="heavy")))
    assert answer.judgement == (Word.CANNOT_TELL, "the best m is the least that was tried")


def test_unreached_loss_leaves_the_median():
    parts = times("waiting", {"async": 1.0, "m = 16": 9.0, "m = 8": 1.1}, 20, tail="light")
    parts += times("waiting", {"m = 4": 9.0}, 20, tail="light")
    for part in parts:
        of_eight = (part["method"] == "m = 8") & (part["role"] == "report")
        part.loc[of_eight & (part["seed"] == 0), "value"] = np.inf
    (answer,) = decide_uneven(table(*parts))
    assert answer.number.missing == 1
    assert answer.number.value == pytest.approx(1.1, rel=0.05)
    assert answer.judgement.word == Word.AGREES


FITS = [
    (0.0, 10, "report", Word.AGREES),
    (0.1, 10, "report", Word.DIFFERS),
    (0.02, 10, "report", Word.CANNOT_TELL),
    (0.0, 5, "report", Word.CANNOT_TELL),
    (0.0, 10, "seen", Word.NOT_DECIDED),
]


@pytest.mark.parametrize(("off", "seeds", "role", "word"), FITS)
def test_fitted_momentum_is_compared_at_its_worst_rate(off, seeds, role, word):
    """Off 1 - 1 / P at the largest of three rates alone; constant times move with the rate."""
    parts = []
    for workers in (2, 4):
        for rate in (0.5, 1.0, 1.5):
            at = {"P": workers, "lr": rate / workers}
            scatter = spread(0.0, 0.002, seeds)
            momentum = 1 - 1 / workers + (off if rate == 1.5 else 0.0)
            fitted = momentum + scatter
            parts.append(rows("momentum", fitted, role, "fits", law="exponential", **at))
            parts.append(rows("momentum", rate / 2 + scatter, role, "fits", law="constant", **at))
    (answer,) = decide_momentum(table(*parts))
    assert answer.number.mean.value == pytest.approx(off, abs=0.004)
    change = answer.beside["constant times, 4 workers: its change with the rate"]
    assert change.mean.value == pytest.approx(0.5)
    assert answer.judgement.word == word


@pytest.mark.parametrize(
    ("lost", "deviation", "word"),
    [(1.0, 0.1, Word.AGREES), (-1.0, 0.1, Word.DIFFERS), (0.1, 1.0, Word.CANNOT_TELL)],
)
def test_momentum_best_for_one_is_compared_with_lower(lost, deviation, word):
    """One worker is best at 0.8. With 16 that leaves `lost` decades more than -0.4 does."""
    parts = []
    for role, seeds in (("tune", 4), ("report", 10)):
        for workers, losses in ((1, (-4, -5, -9, -6)), (16, (-6, -5, -6 + lost, -1))):
            for momentum, loss in zip((-0.4, 0.0, 0.8, 0.9), losses, strict=True):
                own = deviation if (workers, momentum) == (16, 0.8) else 0.01
                for lr, more in ((0.1, 1.0), (0.2, 0.0), (0.4, 2.0)):
                    each = 10.0 ** (loss + more + spread(0.0, own, seeds))
                    at = {"workers": workers, "momentum": momentum, "lr": lr}
                    parts.append(rows("loss", each, role, "explicit", **at))
    (answer,) = decide_momentum(table(*parts))
    assert answer.number.mean.value == pytest.approx(lost, abs=1e-6)
    assert answer.beside["best momentum, P = 1"].value == 0.8
    assert answer.judgement.word == word
