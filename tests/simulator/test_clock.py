"""The clock: the order of what happens at once, its end, and what keeps it quick."""

import gc

import numpy as np
import pandas as pd
import pytest
import simpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from simulator import AsyncPS, Cluster, Evaluate, Rule, Stop, simulate
from simulator.algorithms import ALGORITHMS
from simulator.clock import LAST, Clock
from simulator.collector import PER_WORKER, seldom
from simulator.laws import Exponential
from simulator.milestones import first
from simulator.nothing import Nothing
from simulator.trace import Fates

PRIORITIES = (simpy.events.URGENT, simpy.events.NORMAL, LAST)
PLANS = st.recursive(
    st.just(()),
    lambda inner: st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1e-17]), st.sampled_from(PRIORITIES), inner)),
    max_leaves=30,
)


def told(env, run, plan):
    """The (time, name) of every event of a tree of them, each of which schedules its branches when it happens."""
    heard = []

    def plant(branches, name):
        for number, (delay, priority, inner) in enumerate(branches):
            event = simpy.Event(env)
            event._ok, event._value = True, None
            event.callbacks.append(lambda _, inner=inner, own=(*name, number): happen(inner, own))
            env.schedule(event, priority, delay)

    def happen(inner, name):
        heard.append((env.now, name))
        plant(inner, name)

    plant(plan, ())
    run(env)
    return heard


@given(PLANS)
def test_everything_happens_in_the_order_of_simpy_itself(plan):
    """The queue of the instant changes no order, by `run_out` or by SimPy's own `run` on `step` and `peek`."""
    expected = told(simpy.Environment(), simpy.Environment.run, plan)
    assert told(Clock(), Clock.run_out, plan) == expected
    assert told(Clock(), Clock.run, plan) == expected


def test_the_next_moment_is_now_where_something_waits_for_it():
    clock = Clock()
    assert clock.peek() == simpy.core.Infinity
    clock.timeout(2.0)
    assert clock.peek() == 2.0
    clock.timeout(0.0)
    assert clock.peek() == 0.0
    clock.step()
    clock.step()
    with pytest.raises(simpy.core.EmptySchedule):
        clock.step()


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
    due = {0, 20} | {int(np.ceil(every * period)) for period in range(1, 21) if every * period <= 20}
    assert sorted(set(outcome.metrics["updates"].tolist())) == sorted(due)


@pytest.mark.parametrize("name", ["async_ps", "sync_ps", "sgp", "all_reduce", "dpsgd"])
def test_a_cycle_leaves_nothing_for_the_collector(name):
    """It may look seldom only as long as nothing hangs together in circles once it is over."""
    left = []

    def watch(mileage):
        if mileage.gradients >= 100 * (1 + len(left)):
            left.append(gc.collect())

    enabled = gc.isenabled()
    gc.disable()
    try:
        simulate(Cluster(4, Exponential(1.0)), ALGORITHMS[name](Rule()), stop=Stop(gradients=450), watch=watch)
    finally:
        if enabled:
            gc.enable()
    assert left[1:] == [0] * (len(left) - 1)
    assert len(left) >= 3


def test_a_node_has_no_more_attributes_than_python_keeps_in_shared_keys():
    """One more than thirty, and each of 65,536 workers has a dictionary of its own."""
    nodes = []
    simulate(Cluster(2), AsyncPS(Rule()), stop=Stop(updates=3), observe=lambda run: nodes.extend(run.nodes.values()))
    assert max(len(vars(node)) for node in nodes) <= 30


def test_the_collector_is_as_it_was_afterwards():
    before = gc.get_threshold()
    with seldom(1000):
        assert gc.get_threshold() == (1000 * PER_WORKER, *before[1:])
    assert gc.get_threshold() == before

    def fail():
        with seldom(1000):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.get_threshold() == before


def test_nothing_answers_as_an_empty_tensor_does():
    """Whatever an algorithm may do with weights: the same shape as torch's, and no arithmetic."""
    empty, lr = torch.empty(3, 0), torch.ones(3, 1)
    asked = [
        lambda x: x - 0.1 * x + x / 2.0,
        lambda x: lr * x,
        lambda x: -x,
        lambda x: x[:, 0:0],
        lambda x: x[1],
        lambda x: torch.stack([x, x]),
        lambda x: torch.stack([x, x]).mean(0),
        lambda x: torch.cat([x, x], dim=1),
        lambda x: torch.zeros_like(x),
        lambda x: x.norm(dim=1),
        lambda x: x.isfinite().all(1),
        lambda x: x.clone().mul(2.0),
        lambda x: x.detach(),
        lambda x: (x * x).sum(),
    ]
    for ask in asked:
        assert ask(Nothing(3)).shape == ask(empty).shape
    assert len(Nothing(3)) == 3
    assert Nothing(3).dtype == empty.dtype
    with pytest.raises(AttributeError):
        _ = Nothing(3).stapm


def test_the_fates_of_a_run_come_in_parts_that_make_the_whole():
    fates = simulate(Cluster(3, Exponential(1.0)), AsyncPS(Rule()), stop=Stop(updates=25)).updates
    assert isinstance(fates, Fates)
    parts = list(fates.parts(7))
    assert [len(part["time"]) for part in parts] == [7, 7, 7, len(fates["time"]) - 21]
    for name in fates:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), fates[name], err_msg=name)
    assert list(pd.DataFrame(fates)) == list(dict(fates)) == list(fates.keys()) == [name for name, _ in fates.items()]
    assert "status" in fates
    assert fates.get("nonsense") is None
    np.testing.assert_array_equal(fates["version"], fates["version_read"] + fates["staleness"])
    assert [len(part["time"]) for part in Fates({"time": np.empty(0)}).parts(7)] == [0]
