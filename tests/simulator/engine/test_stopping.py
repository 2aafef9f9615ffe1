"""When runs end and models are evaluated: the update at which something is due."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard.simulator import AsyncPS, Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.engine.stopping import first
from laggard.simulator.timing.distributions import Exponential


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_first_finds_least_count_by_bisection(now, ahead):
    asked = []
    assert first(lambda count: asked.append(count) or count >= now + ahead, now) == now + ahead
    assert len(asked) <= 2 * ahead.bit_length() + 2
    assert first(lambda count: False, now) == float("inf")


@pytest.mark.parametrize("every", [1, 3, 2.5])
def test_evaluations_come_at_updates_when_due(every):
    cluster, stop = Cluster(3, Exponential(1.0)), Stop(updates=20)
    outcome = simulate(cluster, AsyncPS(Rule()), stop=stop, evaluate=Evaluate(every_updates=every))
    due = np.ceil(every * np.arange(20 // every + 1))
    assert sorted(set(outcome.metrics["updates"])) == sorted({*due, 20})
