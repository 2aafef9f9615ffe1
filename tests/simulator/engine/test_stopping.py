"""When runs end and models are evaluated: the update at which something is due."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard.simulator import AsyncPS, Cluster, Evaluate, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.engine.stopping import first
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import Factor, Markov


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_first_count_at_which_something_is_due(now, ahead):
    asked = []
    assert first(lambda count: asked.append(count) or count >= now + ahead, now) == now + ahead
    assert len(asked) <= 2 * ahead.bit_length() + 2
    assert first(lambda count: False, now) == float("inf")


@pytest.mark.parametrize("every", [1, 3, 2.5])
def test_evaluations_and_ends_come_at_the_update_at_which_they_are_due(every):
    outcome = simulate(
        Cluster(workers=3, compute=Exponential(1.0)),
        AsyncPS(Rule()),
        stop=Stop(updates=20),
        evaluate=Evaluate(every_updates=every),
    )
    due = {0, 20} | {
        int(np.ceil(every * period)) for period in range(1, 21) if every * period <= 20
    }
    assert sorted(set(outcome.metrics["updates"].tolist())) == sorted(due)


LONG = Stop(time=1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"stop": LONG, "evaluate": Evaluate(every_seconds=1e-17)},
            "Evaluate.every_seconds: expected at least",
        ),
        ({"stop": LONG, "compute": Constant(1e-17)}, "Stop.time: expected at most 1e-09 s"),
        (
            {"slowdowns": [Factor(worker=0, factor=1e15)] * 25},
            "Cluster.slowdowns: expected factors",
        ),
        (
            {"slowdowns": [Markov(worker=0, factor=2.0, slow_for=1e-9, fast_for=1e-9)]},
            "Cluster.slowdowns.0.slow_for: expected at least",
        ),
    ],
    ids=str,
)
def test_what_would_be_repeated_for_ever_is_refused(given, message):
    settings = {"stop": Stop(updates=10), **given}
    cluster = Cluster(
        2, **{key: settings.pop(key) for key in ("compute", "slowdowns") if key in settings}
    )
    with pytest.raises(InvalidSettingError) as caught:
        simulate(cluster, AsyncPS(Rule()), **settings)
    assert str(caught.value).startswith(message)
