"""What decides the questions about quadratics, on made-up numbers."""

import numpy as np
import pytest

from laggard.experiments.questions.quadratics import decide_momentum, decide_uneven
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table


def times(study, seconds, role="report", seeds=10, **settings):
    """Seconds to a loss of each method, least at the middle one of three rates, on seeds that
    choose and on seeds that report.
    """
    parts = []
    for method, best in seconds.items():
        for of, count in (("tune", 4), (role, seeds)):
            for lr, factor in ((0.1, 3.0), (0.2, 1.0), (0.4, 2.0)):
                each = best * factor * spread(1.0, 0.01, count)
                parts.append(rows("time_to_0.1", each, of, study, method=method, lr=lr, **settings))
    return parts


@CASES
def test_ringmaster_is_judged_by_time_ratio(right, role, word):
    """Its threshold of 2 is best on the seeds that choose; 8 takes twice as long."""
    ringmaster = 0.25 if right else 1.5
    seconds = {"async": 1.0, "sync": 4.0, "rennala 1": 0.5}
    seconds |= {"ringmaster 2": ringmaster, "ringmaster 8": 2 * ringmaster}
    answer = decide_uneven(table(*times("uneven", seconds, role, speeds="i")))[0]
    mean_is(answer.number, ringmaster, rel=0.01)
    assert answer.judgement.word == word
    mean_is(answer.beside["times as i: Rennala over synchronous"], 1 / 8)


def test_best_rate_at_grid_end_gives_no_verdict():
    seconds = {"async": 1.0, "sync": 4.0, "ringmaster 2": 0.25, "rennala 1": 0.5}
    parts = [part[part["lr"] != 0.4] for part in times("uneven", seconds, speeds="i")]
    answer = decide_uneven(table(*parts))[0]
    assert answer.judgement == (Word.CANNOT_TELL, "a best rate lies at an end of its grid")


@pytest.mark.parametrize(("middle", "word"), [(0.5, Word.AGREES), (2.0, Word.DIFFERS)])
def test_middle_number_awaited_is_compared_with_better_end(middle, word):
    """After 1 s asynchronous SGD has a loss of 1, synchronous of 3; late they have 4 and 1."""
    parts = []
    for wait_for, early, between, late in ((1, 1, 1, 4), (4, 5, middle, 2), (8, 9, 3, 1)):
        for part, seconds, loss in (
            ("early", 0.1, early),
            ("early", 1, between),
            ("late", 8, late),
        ):
            each = loss * spread(1.0, 0.01, 10)
            measure = f"loss_at_{seconds:g}s"
            parts.append(rows(measure, each, "report", "race", part=part, wait_for=wait_for))
    (answer,) = decide_uneven(table(*parts))
    mean_is(answer.number, 1 / middle, rel=0.02)
    assert answer.judgement.word == word
    floor = answer.beside["late, asynchronous over synchronous"]
    mean_is(floor, 4.0, rel=0.01)


@pytest.mark.parametrize(("synchronous", "word"), [(1.1, Word.AGREES), (3.0, Word.DIFFERS)])
def test_waiting_for_quickest_is_judged_by_time_ratio(synchronous, word):
    seconds = {"async": 1.0, "m = 16": 9.0, "m = 8": synchronous, "m = 4": 8.0}
    (answer,) = decide_uneven(table(*times("waiting", seconds, tail="heavy")))
    assert answer.says.startswith("on a quadratic m = 8")
    assert answer.judgement.word == word


def test_least_number_awaited_gives_no_verdict():
    """One below, which was not tried, may be better."""
    seconds = {"async": 1.0, "m = 16": 2.0, "m = 8": 1.1}
    (answer,) = decide_uneven(table(*times("waiting", seconds, tail="heavy")))
    assert answer.judgement == (Word.CANNOT_TELL, "the best m is the least that was tried")


def test_unreached_loss_leaves_the_median():
    seconds = {"async": 1.0, "m = 16": 9.0, "m = 8": 1.1, "m = 4": 9.0}
    parts = times("waiting", seconds, seeds=20, tail="light")
    for part in parts:
        of_eight = (part["method"] == "m = 8") & (part["role"] == "report")
        part.loc[of_eight & (part["seed"] == 0), "value"] = np.inf
    (answer,) = decide_uneven(table(*parts))
    assert answer.number.missing == 1
    assert answer.number.value == pytest.approx(1.1, rel=0.05)
    assert answer.judgement.word == Word.AGREES


@CASES
def test_fitted_momentum_is_compared_at_its_worst_rate(right, role, word):
    """Off 1 - 1 / P at the largest of three rates alone; constant times move with the rate."""
    off = 0.0 if right else 0.1
    parts = []
    for workers in (2, 4):
        for rate in (0.5, 1.0, 1.5):
            at = {"P": workers, "lr": rate / workers}
            scatter = spread(0.0, 0.002, 10)
            momentum = 1 - 1 / workers + (off if rate == 1.5 else 0.0)
            fitted = momentum + scatter
            parts.append(rows("momentum", fitted, role, "fits", law="exponential", **at))
            parts.append(rows("momentum", rate / 2 + scatter, role, "fits", law="constant", **at))
    (answer,) = decide_momentum(table(*parts))
    mean_is(answer.number, off, abs=0.004)
    change = answer.beside["constant times, 4 workers: its change with the rate"]
    mean_is(change, 0.5)
    assert answer.judgement.word == word


@pytest.mark.parametrize(("lost", "word"), [(1.0, Word.AGREES), (-1.0, Word.DIFFERS)])
def test_best_momentum_of_one_worker_is_compared_with_lower(lost, word):
    """One worker is best at 0.8. With 16 that leaves `lost` decades more than -0.4 does."""
    parts = []
    for role, seeds in (("tune", 4), ("report", 10)):
        for workers, losses in ((1, (-4, -5, -9, -6)), (16, (-6, -5, -6 + lost, -1))):
            for momentum, loss in zip((-0.4, 0.0, 0.8, 0.9), losses, strict=True):
                for lr, more in ((0.1, 1.0), (0.2, 0.0), (0.4, 2.0)):
                    each = 10.0 ** (loss + more + spread(0.0, 0.01, seeds))
                    at = {"workers": workers, "momentum": momentum, "lr": lr}
                    parts.append(rows("loss", each, role, "explicit", **at))
    (answer,) = decide_momentum(table(*parts))
    mean_is(answer.number, lost, abs=1e-6)
    assert answer.beside["best momentum, P = 1"].value == 0.8
    assert answer.judgement.word == word
