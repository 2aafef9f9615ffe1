"""Slowdowns stretch work by integrating a worker's speed."""

import math

import pytest

from simulator import AsyncPS, Cluster, Invalid, Rule, Stop, simulate
from simulator.laws import Constant
from simulator.slowdowns import SLOWDOWNS, Factor, Window, stretched


def test_no_slowdown_is_full_speed():
    assert stretched(2.0, 5.0, []) == 2.0


def test_factors_multiply():
    assert stretched(2.0, 0.0, [Factor(0, 5.0), Factor(0, 0.5)]) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("now", "seconds"),
    [(0.0, 1.0), (0.5, 2.5), (1.0, 2.5), (2.0, 1.75), (2.9, 1.075), (3.0, 1.0), (9.0, 1.0)],
)
def test_a_window_slows_only_what_falls_into_it(now, seconds):
    """4 times slower from 1 to 3 s: work of 1 s begun at 0.5 does half by 1 s, and half in the next 2 s."""
    assert stretched(1.0, now, [Window(0, 4.0, 1.0, 3.0)]) == pytest.approx(seconds)


def test_windows_that_overlap_multiply_where_they_do():
    windows = [Window(0, 2.0, 0.0, 4.0), Window(0, 3.0, 2.0, 6.0)]
    # 2 s at 1/2, 2 s at 1/6, 2 s at 1/3, then full speed: 1 + 1/3 + 2/3 = 2 s of work in 6 s
    assert stretched(2.5, 0.0, windows) == pytest.approx(6.5)


def test_only_the_named_worker_is_slow():
    cluster = Cluster(workers=3, compute=Constant(1.0), slowdowns=[Factor(1, 4.0)])
    updates = simulate(cluster, AsyncPS(Rule()), stop=Stop(time=8.0)).updates
    assert [int((updates["worker"] == rank).sum()) for rank in range(3)] == [8, 2, 8]


@pytest.mark.parametrize(
    "wrong",
    [lambda: Factor(0, 0.0), lambda: Factor(-1, 2.0), lambda: Window(0, 2.0, 3.0, 3.0), lambda: Window(0, 2.0, -1, 3)],
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(Invalid):
        wrong()


def test_a_slowdown_of_nobody_is_refused():
    with pytest.raises(Invalid, match=r"Cluster.slowdowns.0.worker: expected a rank below workers = 2, got 2"):
        Cluster(workers=2, slowdowns=[Factor(2, 5.0)])


def test_a_slowdown_that_stops_time_is_refused():
    class Stuck:
        def hits(self, rank):
            return True

        def at(self, time):
            return math.inf, math.inf

    with pytest.raises(Invalid, match="a positive factor"):
        stretched(1.0, 0.0, [Stuck()])


def test_the_table_is_complete():
    assert set(SLOWDOWNS.values()) == {Factor, Window}
