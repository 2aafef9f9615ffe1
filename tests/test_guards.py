"""The guard of the books is one: where a fault is planted in the product, a random case of
`test_properties` fails.
"""

import pytest
from hypothesis import Phase

from laggard.simulator import ALGORITHMS, Deadlock
from laggard.simulator.engine import machine, simulation
from laggard.simulator.recording import counters, trace
from laggard.simulator.recording.trace import BUSY, WAITING
from tests import test_properties as properties
from tests.faults import Replaced


def apply_twice(right):
    def apply(self, gradients):
        fresh = right(self, gradients)
        self.applied += len(fresh)
        return fresh

    return apply


def settle_twice(right):
    def record(self, gradient, whole, counts):
        right(self, gradient, whole, True)
        self.counts[gradient.status] += 1

    return record


def start_none(right):
    def compute(self, *given, **more):
        work = right(self, *given, **more)
        self._counters.started -= 1
        return work

    return compute


def lose_some(right):
    def deliver(message):
        if message.receiver.mailbox.first is None or message.sender.rank != 1:
            right[0](message)

    return (deliver,)


def deliver_the_lost(right):
    def record_loss(self, message):
        self.counters.delivered += 1
        right(self, message)

    return record_loss


def wait_while_busy(right):
    def close(self):
        right(self)
        self.spent[WAITING] += 0.5 * self.spent[BUSY]

    return close


FAULTS = {
    "a gradient is booked twice": ("async_ps", Replaced(counters.Counters, "apply", apply_twice)),
    "a gradient meets its fate twice": ("async_ps", Replaced(trace.Trace, "record", settle_twice)),
    "gradients that are computed are not booked": (
        "sync_ps",
        Replaced(machine.Machine, "compute", start_none),
    ),
    "a message is lost, and nobody books it": (
        "sync_ps",
        Replaced(machine, "MESSAGE_ARRIVES", lose_some),
    ),
    "a message is booked as delivered and as lost": (
        "sync_ps",
        Replaced(simulation.Simulation, "record_loss", deliver_the_lost),
    ),
    "half of the time busy is booked as waiting": (
        "dpsgd",
        Replaced(machine.Machine, "close", wait_while_busy),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_guard_finds_the_fault_that_is_planted(name, monkeypatch):
    method, fault = FAULTS[name]
    fault.plant(monkeypatch)
    with pytest.raises((AssertionError, Deadlock)):
        properties.hold(
            properties.check_case, 200 * len(ALGORITHMS), method, phases=[Phase.generate]
        )
