"""When runs end and models are evaluated: the update at which something is due."""

from hypothesis import given
from hypothesis import strategies as st

from laggard.simulator.engine.stopping import first


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_first_finds_least_count_by_bisection(now, ahead):
    asked = []
    assert first(lambda count: asked.append(count) or count >= now + ahead, now) == now + ahead
    assert len(asked) <= 2 * ahead.bit_length() + 2
    assert first(lambda count: False, now) == float("inf")
