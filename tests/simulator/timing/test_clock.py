"""The clock: the order of what happens at once, its end, and what keeps it quick."""

import gc

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from laggard.simulator import AsyncPS, Cluster, Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.timing.clock import (
    LAST,
    MAX_CANCELLED,
    NEW_OBJECTS_PER_WORKER,
    Clock,
    rare_collections,
)
from laggard.simulator.timing.distributions import Exponential

PRIORITIES = (simpy.events.URGENT, simpy.events.NORMAL, LAST)
PLANS = st.recursive(
    st.just(()),
    lambda inner: st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.5, 1.0, 1e-17]), st.sampled_from(PRIORITIES), inner)
    ),
    max_leaves=30,
)


def events_of(env, run, plan):
    """The (time, name) of every event of a tree of them, each of which schedules its branches when
    it happens.
    """
    happened = []

    def plant(branches, name):
        for number, (delay, priority, inner) in enumerate(branches):
            event = simpy.Event(env)
            event._ok, event._value = True, None
            event.callbacks.append(lambda _, inner=inner, own=(*name, number): happen(inner, own))
            env.schedule(event, priority, delay)

    def happen(inner, name):
        happened.append((env.now, name))
        plant(inner, name)

    plant(plan, ())
    run(env)
    return happened


@given(PLANS)
def test_events_happen_in_order_of_simpy(plan):
    """The queue of the instant changes no order."""
    expected = events_of(simpy.Environment(), simpy.Environment.run, plan)
    assert events_of(Clock(), Clock.run_to_end, plan) == expected


@pytest.mark.parametrize("name", ["async_ps", "sync_ps", "sgp", "all_reduce", "dpsgd"])
def test_cycle_leaves_nothing_for_collector(name):
    """The collector may run seldom only if a finished cycle leaves no reference cycles."""
    left = []

    def watch(progress):
        if progress.gradients >= 100 * (1 + len(left)):
            left.append(gc.collect())

    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what there was before takes long to look through
    try:
        simulate(
            Cluster(4, Exponential(1.0)),
            ALGORITHMS[name](Rule()),
            stop=Stop(gradients=450),
            watch=watch,
        )
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
    assert left[1:] == [0] * (len(left) - 1)
    assert len(left) >= 3


def test_cancelled_events_leave_queue():
    clock, passed, longest = Clock(), [], 0
    others = 500

    def cancel_two():
        nonlocal longest
        passed.append(clock.now)
        for delay in (1e9, 3.5):
            clock.cancel(clock.call_in(delay, lambda: passed.append("cancelled")))
        longest = max(longest, len(clock._queue))
        if len(passed) < 3 * MAX_CANCELLED:
            clock.call_in(1.0, cancel_two)

    for number in range(others):
        clock.call_in(2e9 + number, lambda: None)
    clock.call_in(1.0, cancel_two)
    clock.run_to_end()
    assert passed == list(range(1, 3 * MAX_CANCELLED + 1))
    assert clock.now == 2e9 + others - 1
    assert longest <= MAX_CANCELLED + 2 * others + 10
    assert clock.pending == 0


def test_node_has_at_most_thirty_attributes():
    """One more than thirty, and each of 65,536 workers has a dictionary of its own."""
    nodes = []
    simulate(
        Cluster(2),
        AsyncPS(Rule()),
        stop=Stop(updates=3),
        observe=lambda run: nodes.extend(run.nodes.values()),
    )
    assert max(len(vars(node)) for node in nodes) <= 30


def test_collector_is_restored():
    before = gc.get_threshold()
    with rare_collections(1000):
        assert gc.get_threshold() == (1000 * NEW_OBJECTS_PER_WORKER, *before[1:])
    assert gc.get_threshold() == before

    def fail():
        with rare_collections(1000):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.get_threshold() == before
