"""What decides the questions about delay compensation, on made-up numbers."""

from itertools import product
from zlib import crc32

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.compensation import (
    best_settings_of,
    decide_compensation,
    decide_nearness,
    largest_that_trains,
    lies_inside,
)
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table

STRENGTHS, RATES = (0, 2, 5, 10), (0.01, 0.02, 0.04)


def grid(study, gain, seeds, role="report", first=0, best=(5, 0.02), lost=0):
    """ASGD has an error of 0.1 at its best rate, the best strength `gain` times as much; all others
    have more. `lost` runs of the best strength end at chance.
    """
    parts = []
    for strength, lr in product(STRENGTHS, RATES):
        error = 0.1 if strength == 0 else 0.11
        error *= 1.0 if lr == 0.02 else 1.3
        if (strength, lr) == best:
            error = 0.1 * gain
        order = np.random.default_rng(crc32(f"{strength} {lr}".encode())).permutation(seeds)
        values = 1 - spread(error, 0.03 * error, seeds)[order]
        if (strength, lr) == best:
            values[:lost] = 0.1
        own = rows("accuracy", values, role, study, strength=strength, lr=lr)
        parts.append(own.assign(seed=own["seed"] + first))
    return pd.concat(parts)


@CASES
def test_compensation_is_judged_by_error_ratio(right, role, word):
    gain = 0.8 if right else 0.99
    choosing = grid("choosing", 0.8, 20, "report" if role == "report" else "tune", first=1000)
    answer = decide_compensation(table(grid("grid", gain, 20, role), choosing))[0]
    assert answer.judgement.word == word
    mean_is(answer.number, gain, rel=1e-6)
    assert "at a strength of 5" in answer.says
    at_rate = answer.beside["strength 10, rate 0.04: error over ASGD's"]
    mean_is(at_rate, 1.1, rel=1e-6)


def test_lost_runs_are_in_no_ratio():
    """8 of 40 end at chance: the ratio is that of the others, and the difference says so."""
    answer = decide_compensation(
        table(grid("grid", 0.8, 40, lost=8), grid("choosing", 0.8, 20, first=1000))
    )[0]
    assert answer.number.lost == 8
    mean_is(answer.number, 0.8, abs=0.02)
    assert str(answer.judgement) == "cannot tell here: more runs are lost"
    assert "8 of 40" in answer.says
    more = answer.beside["strength 5, rate 0.02: points of error more, lost runs as chance"]
    mean_is(more, 100 * (0.2 * 0.9 + 0.8 * 0.08 - 0.1), abs=0.2)


def test_disagreeing_sets_of_seeds_give_no_verdict():
    """The second set would have chosen a strength that gains nothing."""
    sets = (
        grid("choosing", 0.7, 10, first=1000),
        grid("choosing", 0.8, 10, first=1010, best=(2, 0.02)),
    )
    answer = decide_compensation(table(grid("grid", 0.8, 20), *sets))[0]
    assert str(answer.judgement) == "cannot tell here: the two sets of seeds that choose disagree"


def test_best_rate_at_grid_end_gives_no_verdict():
    rows = table(grid("choosing", 0.8, 4))
    assert best_settings_of(rows) == ((0, 0.02), (5, 0.02))
    assert lies_inside(rows, *best_settings_of(rows))
    for best in ((10, 0.02), (5, 0.04)):
        rows = table(grid("choosing", 0.7, 4, best=best))
        assert not lies_inside(rows, *best_settings_of(rows))


@pytest.mark.parametrize(("error", "word"), [(0.08, Word.AGREES), (0.0995, Word.DIFFERS)])
def test_four_workers_are_judged_by_error_ratio(error, word):
    """DC-ASGD-a has an error of 0.08 with 4 workers where ASGD has 0.1; or hardly less."""
    parts = [grid("grid", 0.8, 20), grid("choosing", 0.8, 20, first=1000)]
    for method, own in (("ASGD", 0.1), ("DC-ASGD-a", error)):
        values = 1 - spread(own, own / 100, 10)
        parts.append(rows("accuracy", values, "report", "workers", method=method, workers=4))
    answer = decide_compensation(table(*parts))[1]
    mean_is(answer.number, error / 0.1, rel=1e-6)
    assert answer.judgement.word == word


@pytest.mark.parametrize(("many", "word"), [(100, Word.AGREES), (1000, Word.DIFFERS)])
def test_largest_strength_is_compared_over_workers(many, word):
    """8 workers tolerate a strength of 500, 32 tolerate 100, or 1,000."""
    parts = [grid("grid", 0.8, 20), grid("choosing", 0.8, 20, first=1000)]
    for workers, most in ((8, 500), (32, many)):
        for strength in (0, 100, 500, 1000, 5000):
            values = spread(0.9 if strength <= most else 0.4, 0.001, 10)
            own = dict(workers=workers, strength=strength)
            parts.append(rows("accuracy", values, "report", "strength", **own))
    answer = decide_compensation(table(*parts))[1]
    mean_is(answer.number, np.log2(many / 500))
    # all seeds are alike here: their interval is a point
    assert answer.judgement.word == word


def test_strength_that_never_trains_is_missing():
    values = {0: 0.9, 10: 0.3, 20: 0.2}
    parts = [rows("accuracy", [reached], strength=own) for own, reached in values.items()]
    assert largest_that_trains(table(*parts)).isna().all()


def nearness(right, role):
    """The compensated gradient is a tenth nearer, or farther; a twentieth nearer later, or farther;
    the ratio of F and H falls from 4 to 2, or grows.
    """
    parts = []
    for strength, nearest in ((3.0, 1.0), (30.0, 0.9), (100.0, 1.3)):
        of = dict(form="adaptive", strength=strength, workers=8)
        for quarter in (1, 2, 3, 4):
            factor = (0.95 if right else 1.05) if quarter == 4 else 1.0
            for study, own_role in (("choosing", "tune"), ("along", role)):
                values = spread(nearest * factor, 0.002, 10)
                parts.append(rows("expansions", values, own_role, study, quarter=quarter, **of))
    for quarter in (1, 2, 3, 4):
        values = spread(0.9 if right else 1.1, 0.002, 10)
        parts.append(rows("closeness", values, role, "own", quarter=quarter, workers=8))
    for part, apart in ((1, 4.0), (10, 2.0)) if right else ((1, 2.0), (10, 4.0)):
        for of, value in (("hessian", 1.0), ("fisher", 1 / apart), ("cosine", 0.7)):
            values = spread(value, 0.01 * value, 10)
            parts.append(rows("variation", values, role, "hessian", of=of, part=part))
    return table(*parts)


@CASES
def test_compensated_gradient_is_judged_by_distance(right, role, word):
    nearer, later, hessian = decide_nearness(nearness(right, role))
    assert [each.judgement.word for each in (nearer, later, hessian)] == [word] * 3
    mean_is(nearer.number, 0.9 if right else 1.1, rel=1e-6)
    assert ("10.0 % nearer" if right else "10.0 % farther") in nearer.says
    mean_is(later.number, 0.95 if right else 1.05, rel=1e-4)
    expected = -np.log(2) if right else np.log(2)
    mean_is(hessian.number, expected, abs=1e-3)
    along = nearer.beside["along ASGD's runs, DC-ASGD-a at 30, 8 workers"]
    mean_is(along, 0.9 * (0.9875 if right else 1.0125), rel=1e-4)


def test_strength_at_end_of_grid_has_no_number():
    rows = nearness(True, "report")
    inside = rows[~((rows["study"] == "choosing") & (rows["strength"] == 100))]
    answers = decide_nearness(inside)
    assert [answer.asks for answer in answers if "later" in answer.asks] == []
    assert not any("DC-ASGD-a at" in name for name in answers[0].beside)


def test_runs_of_compensation_alone_have_one_answer():
    """So it is with another network, where only those were run."""
    every = nearness(True, "report")
    own = every[every["study"] == "own"].dropna(axis="columns", how="all")
    (nearer,) = decide_nearness(own)
    assert nearer.number.mean.value == pytest.approx(0.9, rel=1e-6)
    assert nearer.beside == {}
