"""What decides the questions about gossip, slow nodes and full cards, on made-up numbers."""

import math
from zlib import crc32

import numpy as np
import pytest

from laggard.experiments.questions.gossip import decide_accuracy, decide_late, decide_time
from laggard.experiments.questions.slow_nodes import decide_full_card, decide_slow_node
from laggard.experiments.questions.words import Word
from tests.experiments.questions.made_up import CASES, mean_is, rows, spread, table


def seeds_of(measure, mean, deviation, role, study, **settings):
    """Ten seeds whose order is another one for each setting, so that pairs vary as much as they
    do.
    """
    values = spread(mean, deviation, 10)
    order = np.random.default_rng(crc32(repr(settings).encode())).permutation(10)
    return rows(measure, values[order], role, study, **settings)


def late(right, role):
    """Late messages cost 0.1 points, or 2."""
    parts = []
    for tau in (0, 1, 2):
        mean = 0.98 - (0.001 if right else 0.02) * (tau > 0)
        parts.append(seeds_of("accuracy", mean, 2e-4, role, "late", tau=tau, lr=2 - tau))
        pace = spread(1.0 / (tau + 1), 1e-6, 10)
        parts.append(rows("seconds_per_sample", pace, role, "late", tau=tau))
        parts.append(rows("time_to_0.9", pace, role, "late", tau=tau))
    return table(*parts)


@CASES
def test_late_messages_are_judged_by_points(right, role, word):
    one, two = decide_late(late(right, role))
    assert one.judgement.word == two.judgement.word == word
    mean_is(one.number, 0.1 if right else 2.0, rel=1e-6)
    assert one.beside["time to the target, 2 late over waiting"].value == pytest.approx(1 / 3)
    assert "in 0.50 of the time" in one.says


def test_best_rate_at_grid_end_gives_no_verdict():
    tuned = [
        rows("accuracy", spread(0.9 + lr / 100, 1e-3, 5), "tune", "late", tau=tau, lr=lr)
        for tau in (0, 1)
        for lr in (1, 2, 3)
    ]
    one, _ = decide_late(table(late(True, "report"), *tuned))
    assert str(one.judgement) == "cannot tell here: a best rate lies at an end of its grid"
    # the seeds that chose gain a point from rate 1, of one late, to rate 2, of who waits
    by_rate = one.beside["points lost at the rate of 1 late by who waits, seeds that chose"]
    mean_is(by_rate, 1.0, rel=1e-6)


@CASES
def test_gossip_is_judged_by_points(right, role, word):
    """All-reduce is 0.2 points better with 16 nodes and 1 with 64; or 2 with both, 3 with pairs."""
    parts = []
    ahead = {16: 0.002, 64: 0.01} if right else {16: 0.02, 64: 0.02}
    for nodes, more in ahead.items():
        for method, mean in (("all_reduce", 0.95), ("sgp", 0.95 - more)):
            own = dict(method=method, nodes=nodes)
            parts.append(seeds_of("accuracy", mean, 5e-4, role, "step", **own))
    for method, mean in (("all_reduce", 0.95), ("adpsgd", 0.949 if right else 0.92)):
        own = dict(method=method)
        parts.append(seeds_of("accuracy", mean, 5e-4, role, "pairs", **own))
    answers = decide_accuracy(table(*parts))
    assert [answer.judgement.word for answer in answers] == [word] * 3
    values = [answer.number.mean.value for answer in answers]
    assert values == pytest.approx([0.2, 0.8, 0.1] if right else [2.0, 0.0, 3.0], abs=1e-6)
    assert "points worse" in answers[0].says


def test_parts_that_have_not_run_have_no_answer():
    parts = [
        seeds_of("accuracy", mean, 5e-4, "report", "step", method=method, nodes=16)
        for method, mean in (("all_reduce", 0.95), ("sgp", 0.94))
    ]
    (answer,) = decide_accuracy(table(*parts))
    mean_is(answer.number, 1.0, abs=1e-6)


def slow_node(right, role):
    """All-reduce takes 4 times AD-PSGD's time at 10 times, or twice; AD-PSGD slows not, or by 2."""
    means = {
        ("adpsgd", 1): 5,
        ("adpsgd", 10): 5,
        ("adpsgd", 100): 5 if right else 10,
        ("overlapped", 1): 5,
        ("overlapped", 10): 20 if right else 10,
    }
    parts = []
    for (method, slowness), mean in means.items():
        own = dict(method=method, slowness=slowness)
        parts.append(seeds_of("time_to_0.9", mean, 0.02 * mean, role, "trained", **own))
    for method in ("adpsgd", "all_reduce", "overlapped", "adpsgd_overlap"):
        for slowness in (1, 100):
            own = dict(method=method, slowness=slowness)
            parts.append(rows("seconds_per_sample", [slowness] * 10, role, "clock", **own))
    return table(*parts)


@CASES
def test_slow_node_is_judged_by_time_ratio(right, role, word):
    main, bears = decide_slow_node(slow_node(right, role))
    assert main.judgement.word == bears.judgement.word == word
    mean_is(main.number, 4 if right else 2, rel=1e-6)
    assert main.beside["the same without a slow node"].value == pytest.approx(1)
    assert main.beside["throughput kept by overlapped at 100 times"].value == pytest.approx(0.01)


@pytest.mark.parametrize("method", ["overlapped", "adpsgd"])
def test_no_ratio_where_one_side_misses_target(method):
    numbers = slow_node(True, "report")
    misses = (numbers["method"] == method) & (numbers["measure"] == "time_to_0.9")
    main, bears = decide_slow_node(numbers.assign(value=numbers["value"].mask(misses, math.inf)))
    assert "too few" in main.says
    assert ("too few" in bears.says) == (method == "adpsgd")


@CASES
def test_full_card_is_judged_by_time_ratio(right, role, word):
    """A full card takes 3 times as long, or a tenth longer; the server is full with 32 workers, or
    never.
    """
    parts = []
    for network, mean in (("free", 1.0), ("congested", 3.0 if right else 1.1)):
        own = dict(network=network)
        parts.append(seeds_of("time_to_0.9", mean, 0.02 * mean, role, "card", **own))
    for method in ("async_ps", "adpsgd"):
        for workers in (4, 64):
            served = min(workers, 32) if right and method == "async_ps" else workers
            own = dict(method=method, workers=workers)
            mean = 1 / served
            parts.append(seeds_of("seconds_per_sample", mean, 0.02 * mean, role, "clock", **own))
    cost, full = decide_full_card(table(*parts))
    assert cost.judgement.word == full.judgement.word == word
    mean_is(cost.number, 3.0 if right else 1.1, rel=1e-6)
    assert full.beside["workers whose gradients the card carries"].value == pytest.approx(
        32 if right else 64, rel=1e-6
    )
    (alone,) = decide_full_card(table(*parts[:2]))  # the clock has not run
    assert alone.number == cost.number


def slow_network(role, all_reduce, gossip):
    """A table of ten seeds, which reach the target after the given mean numbers of epochs."""
    parts = []
    for method, workers, mean in (
        ("all_reduce", 32, all_reduce),
        ("SGP", 32, gossip),
        ("SGP", 4, 2.0),
    ):
        own = dict(method=method, workers=workers)
        parts.append(seeds_of("epochs_to_0.9", mean, 0.02 * mean, role, "trained", **own))
    for method, each in (("SGP", 1.0), ("overlapped", 1.0), ("ring", 2.0), ("tree", 3.0)):
        for workers in (4, 32):
            for link in ("10 Gb/s", "1 Gb/s"):
                own = dict(method=method, workers=workers, link=link)
                parts.append(rows("seconds_per_update", [each], role, "clock", **own))
    return table(*parts)


@CASES
def test_slow_network_is_judged_by_time_ratio(right, role, word):
    """An iteration takes as long by a ring, and 3 times by a tree; SGP needs half of the epochs, or
    twice as many.
    """
    ring, tree = decide_time(slow_network(role, 4.0, 2.0 if right else 8.0))
    assert ring.judgement.word == word
    mean_is(ring.number, 2.0 if right else 0.5, rel=1e-6)
    mean_is(tree.number, 3 * ring.number.mean.value, rel=1e-6)
    assert ring.beside["SGP with 4 nodes over SGP with 32"].value == pytest.approx(
        8 if right else 2, rel=1e-6
    )


def test_opponent_that_never_reaches_the_target_is_slower():
    numbers = slow_network("report", 4.0, 2.0)
    late = (numbers["method"] == "all_reduce") & (numbers["measure"] == "epochs_to_0.9")
    ring, _ = decide_time(numbers.assign(value=numbers["value"].mask(late, math.inf)))
    assert "too few" in ring.says
    assert ring.judgement.word is Word.AGREES
