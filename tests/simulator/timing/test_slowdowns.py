"""Slowdowns stretch work by integrating a worker's speed."""

import itertools
import math
import random
from itertools import pairwise

import numpy as np
import pytest

from laggard.simulator import AsyncPS, Cluster, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import (
    Crash,
    Factor,
    Markov,
    Window,
    apply_slowdowns,
    unite_crashes,
)
from laggard.simulator.timing.streams import stream


@pytest.mark.parametrize(
    ("now", "seconds"),
    [(0.0, 1.0), (0.5, 2.5), (1.0, 2.5), (2.0, 1.75), (2.9, 1.075), (3.0, 1.0), (9.0, 1.0)],
)
def test_window_slows_work_inside_it(now, seconds):
    """4 times slower from 1 to 3 s: work of 1 s begun at 0.5 does half by 1 s, and half in the next
    2 s.
    """
    assert apply_slowdowns(1.0, now, [Window(0, factor=4.0, start=1.0, end=3.0)]) == pytest.approx(
        seconds
    )


def test_overlapping_windows_multiply():
    windows = [Window(0, factor=2.0, start=0.0, end=4.0), Window(0, factor=3.0, start=2.0, end=6.0)]
    # 2 s at 1/2, 2 s at 1/6, 2 s at 1/3, then full speed: 1 + 1/3 + 2/3 = 2 s of work in 6 s
    assert apply_slowdowns(2.5, 0.0, windows) == pytest.approx(6.5)


def down_at(crashes, rank, time):
    """Whether a worker is down, by each crash on its own."""
    return any(
        rank in crash.ranks and crash.at <= time and (crash.back is None or time < crash.back)
        for crash in crashes
    )


def test_united_crashes_are_the_union_of_intervals():
    """Random intervals on a grid, so that many touch; their union by testing each cell."""
    for seed in range(200):
        rng = random.Random(seed)
        crashes = []
        for _ in range(rng.randrange(1, 9)):
            at = rng.randrange(20) / 2
            back = rng.choice([None, at + rng.randrange(1, 8) / 2, at + rng.randrange(1, 8) / 2])
            crashes.append(Crash(workers=rng.sample(range(3), 2), at=at, back=back))
        united = unite_crashes(crashes)
        for rank in range(3):
            for cell in range(40):
                moment = cell / 2 + 0.25
                assert down_at(crashes, rank, moment) == down_at(united, rank, moment)
            spans = sorted(
                (crash.at, crash.back or math.inf) for crash in united if rank in crash.ranks
            )
            assert all(end < start for (_, end), (start, _) in pairwise(spans))


def test_adjacent_outages_are_one_crash():
    crashes = [Crash(0, at=2.0, back=4.0), Crash(0, at=0.0, back=2.0)]
    cluster = Cluster(1, Constant(0.5), slowdowns=crashes)
    updates = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=10)).updates
    assert updates["time"][-1] == 9.0


def test_slowdown_that_stops_time_is_refused():
    class Stuck:
        def hits(self, rank):
            return True

        def at(self, time):
            return math.inf, math.inf

    with pytest.raises(InvalidSettingError, match="a positive factor"):
        apply_slowdowns(1.0, 0.0, [Stuck()])


def test_group_is_slow_together():
    cluster = Cluster(workers=4, slowdowns=[Window(workers=[0, 2], factor=2.0, start=1.0, end=3.0)])
    assert [len(cluster.slowdowns_of(rank)) for rank in range(4)] == [1, 0, 1, 0]


CHAIN = Markov(0, factor=5.0, slow_for=2.0, fast_for=6.0)


def states(path, until):
    """The states up to a moment: (factor, begins, ends)."""
    found, time = [], 0.0
    while time < until:
        factor, end = path.at(time)
        found.append((factor, time, end))
        time = end
    return found


def test_markov_path_alternates_for_exponential_times():
    path = states(CHAIN.bound(stream(3, 0)), 40_000.0)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(path))
    for factor, mean in {5.0: 2.0, 1.0: 6.0}.items():
        dwell = np.array([end - begin for own, begin, end in path if own == factor])
        assert dwell.mean() == pytest.approx(mean, abs=5 * mean / math.sqrt(len(dwell)))
        assert dwell.std() == pytest.approx(mean, rel=5 * math.sqrt(2 / len(dwell)))


@pytest.mark.parametrize("moment", [0.0, 3.0, 1e9])
def test_path_is_always_stationary(moment):
    """A machine is slow with probability 1/4 at every time, and its state changes later."""
    draws, slow = 2000, 0
    for seed in range(draws):
        path = CHAIN.bound(stream(seed, 0))
        path.at(0.0)
        factor, until = path.at(moment)
        assert until > moment
        assert path.at(moment) == (factor, until)
        slow += factor == 5.0
    assert slow / draws == pytest.approx(0.25, abs=4.5 * math.sqrt(0.25 * 0.75 / draws))


def test_path_depends_only_on_seed():
    one, other = CHAIN.bound(stream(5, 0)), CHAIN.bound(stream(5, 0))
    moments = np.random.default_rng(0).uniform(0, 100, 50)
    forwards = {moment: one.at(moment) for moment in sorted(moments)}
    assert forwards == {moment: other.at(moment) for moment in sorted(moments, reverse=True)}
    assert one.at(50.0) != CHAIN.bound(stream(6, 0)).at(50.0)


def times(seed=0, slowdowns=(), workers=4):
    """When each worker's gradients were through, by worker."""
    cluster = Cluster(workers=workers, compute=Exponential(1.0), slowdowns=slowdowns)
    updates = simulate(cluster, AsyncPS(Rule()), stop=Stop(time=60.0), seed=seed).updates
    return [updates["time"][updates["worker"] == rank].tolist() for rank in range(workers)]


def test_random_slowdown_moves_no_other_worker():
    plain, slowed = times(), times(slowdowns=[Markov(1, factor=9.0, slow_for=5.0, fast_for=5.0)])
    assert [plain[rank] == slowed[rank] for rank in range(4)] == [True, False, True, True]
    assert slowed == times(slowdowns=[Markov(1, factor=9.0, slow_for=5.0, fast_for=5.0)])
    assert slowed != times(seed=1, slowdowns=[Markov(1, factor=9.0, slow_for=5.0, fast_for=5.0)])


def test_path_belongs_to_place_in_list():
    chain = {"factor": 9.0, "slow_for": 5.0, "fast_for": 5.0}
    bound = Cluster(
        workers=4, slowdowns=[Markov(0, **chain), Markov(0, **chain), Factor(1, factor=2.0)]
    ).bound(7)
    first, second = ([path.at(moment) for moment in range(50)] for path in bound.slowdowns_of(0))
    assert first != second
    another = Cluster(workers=2, slowdowns=[Markov(1, **chain)]).bound(7)
    assert [another.slowdowns_of(1)[0].at(moment) for moment in range(50)] == first
    assert bound.slowdowns_of(1) == [Factor(1, factor=2.0)]


def test_group_shares_one_path():
    cluster = Cluster(
        workers=3, slowdowns=[Markov(workers=[0, 2], factor=9.0, slow_for=5.0, fast_for=5.0)]
    ).bound(0)
    assert cluster.slowdowns_of(0)[0] is cluster.slowdowns_of(2)[0]
    assert cluster.slowdowns_of(1) == []


def test_unbound_markov_raises():
    with pytest.raises(TypeError, match="bind it to a stream first"):
        CHAIN.at(0.0)
