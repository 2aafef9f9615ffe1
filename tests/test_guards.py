"""The guards of books, spread and accuracy are guards: a fault is planted in the product, and the
test must fail.
"""

import pytest

from laggard.simulator import ALGORITHMS, Deadlock
from laggard.simulator.engine import evaluations, machine, simulation
from laggard.simulator.recording import counters, metrics, trace
from laggard.simulator.recording.trace import BUSY, WAITING
from tests import test_properties as properties
from tests.faults import Replaced
from tests.simulator.recording import test_metrics as spread


def cases(name):
    """Random cases of one method, as `test_properties` has them, until one fails."""
    properties.hold(properties.check_case, 200 * len(ALGORITHMS), name)


GUARDS = {
    "consensus": spread.test_consensus_is_distance_to_mean_model,
    "crashed": spread.test_model_of_crashed_node_is_not_in_mean,
    "accuracy": spread.test_run_stops_at_accuracy_of_first_member,
    "async_ps": lambda: cases("async_ps"),
    "sync_ps": lambda: cases("sync_ps"),
    "dpsgd": lambda: cases("dpsgd"),
}


def noting(wrong_mean=lambda nodes, mean: mean, wrong_row=lambda row, nodes: None):
    """`Spread.note` with another mean model, a row that `wrong_row` changes, and what that answers,
    if anything.
    """

    def of(right):
        def note(self, progress, nodes, mean, measures):
            answer = right(self, progress, nodes, wrong_mean(nodes, mean), measures)
            return answer if (wrong := wrong_row(self._rows[-1], len(nodes))) is None else wrong

        return note

    return of


def mix_members(row, nodes):
    row["distance"] = row["distance"].reshape(nodes, -1).T.flatten()


def accuracy(of):
    """The accuracy that `of` makes of all that was measured so far."""
    return lambda right: (
        lambda self: float(of([row["test_accuracy"].nan_to_num() for row in self._measures]))
    )


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
    "distances are to the first node": (
        "consensus",
        Replaced(metrics.Spread, "note", noting(lambda nodes, mean: nodes[0].weights)),
    ),
    "the mean model is half of it": (
        "consensus",
        Replaced(metrics.Spread, "note", noting(lambda nodes, mean: 0.5 * mean)),
    ),
    "the distance is a mean, not a root mean square": (
        "consensus",
        Replaced(
            metrics.Spread,
            "note",
            noting(wrong_row=lambda row, nodes: row["distance"].reshape(nodes, -1).mean(0)),
        ),
    ),
    "members are mixed up": (
        "consensus",
        Replaced(metrics.Spread, "note", noting(wrong_row=mix_members)),
    ),
    "who is down still counts": (
        "crashed",
        Replaced(evaluations.Evaluations, "_live", lambda right: lambda self: self._models),
    ),
    "only the first member is compared": (
        "accuracy",
        Replaced(metrics.Learning, "accuracy", accuracy(lambda measured: measured[-1][0])),
    ),
    "the mean member is compared": (
        "accuracy",
        Replaced(metrics.Learning, "accuracy", accuracy(lambda measured: measured[-1].mean())),
    ),
    "the accuracy before is compared": (
        "accuracy",
        Replaced(metrics.Learning, "accuracy", accuracy(lambda measured: measured[-2:][0].max())),
    ),
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


@pytest.mark.parametrize("guard", ["async_ps", "sync_ps", "dpsgd"])
def test_guard_passes_without_fault(guard):
    GUARDS[guard]()


@pytest.mark.parametrize("name", FAULTS)
def test_guard_finds_the_fault_that_is_planted(name, monkeypatch):
    guard, fault = FAULTS[name]
    fault.plant(monkeypatch)
    with pytest.raises((AssertionError, Deadlock)):
        GUARDS[guard]()
