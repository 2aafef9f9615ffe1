"""The guards of books, spread and accuracy are guards: a fault is planted in the product, and the test must fail."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simulator import Deadlock
from tests import test_properties as properties
from tests.experiments.test_planted_faults import Fault
from tests.simulator import test_spread as spread


def cases(name):
    """Random cases of one method, as `test_properties` has them, until one fails; it is not made smaller."""
    test = properties.test_whatever_is_simulated_ends_with_its_books_in_order.hypothesis.inner_test
    few = settings(max_examples=40, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                   suppress_health_check=list(HealthCheck))  # fmt: skip
    few(given(data=st.data())(test))(name=name)


GUARDS = {
    "consensus": spread.test_consensus_is_the_root_mean_square_distance_to_the_mean,
    "crashed": spread.test_a_crashed_node_s_model_is_not_in_the_mean,
    "accuracy": spread.test_a_run_stops_at_the_accuracy_that_a_member_reaches_first,
    "async_ps": lambda: cases("async_ps"),
    "sync_ps": lambda: cases("sync_ps"),
    "dpsgd": lambda: cases("dpsgd"),
}
FAULTS = {
    "distances are to the first node": Fault(
        "consensus", "spread:Spread.note", {"(node.weights - mean)": "(node.weights - nodes[0].weights)"}
    ),
    "the mean model is half of it": Fault(
        "consensus", "spread:Spread.note", {"(node.weights - mean)": "(node.weights - 0.5 * mean)"}
    ),
    "the distance is a mean, not a root mean square": Fault(
        "consensus", "spread:Spread.note", {".square().mean(0).sqrt()": ".mean(0)"}
    ),
    "members are mixed up": Fault("consensus", "spread:Spread.note", {"distances.flatten()": "distances.T.flatten()"}),
    "who is down still counts": Fault("crashed", "simulation:Simulation._live", {"node.life % 2 == 0": "True"}),
    "only the first member is compared": Fault(
        "accuracy", "learning:Learning.accuracy", {"measured.nan_to_num().max()": "measured[0]"}
    ),
    "the mean member is compared": Fault("accuracy", "learning:Learning.accuracy", {".max()": ".mean()"}),
    "the accuracy before is compared": Fault(
        "accuracy",
        "learning:Learning.accuracy",
        {"self._measures[-1]": "self._measures[max(-2, -len(self._measures))]"},
    ),
    "a gradient is booked twice": Fault("async_ps", "accounts:Accounts.apply", {"+= len(fresh)": "+= 2 * len(fresh)"}),
    "a gradient meets its fate twice": Fault(
        "async_ps", "simulation:Simulation._settled", {"counts)": "True)\n    self.trace.counts[gradient.status] += 1"}
    ),
    "gradients that are computed are not booked": Fault(
        "sync_ps", "node:Node.compute", {"started += 1": "started += 0"}
    ),
    "a message is lost, and nobody books it": Fault(
        "sync_ps",
        "mailbox:Mailbox.deliver",
        {"if receives:": "if message.tag is None and len(self.heard) > 1:\n        return\n    if receives:"},
    ),
    "a message is booked as delivered and as lost": Fault(
        "async_ps", "simulation:Simulation.lost", {"sender = self": "self.books.delivered += 1\n    sender = self"}
    ),
    "half of the time busy is booked as waiting": Fault(
        "dpsgd", "node:Node.close", {"- self.spent[BUSY]": "- 0.5 * self.spent[BUSY]"}
    ),
}


@pytest.mark.parametrize("guard", ["async_ps", "sync_ps", "dpsgd"])
def test_without_a_fault_these_cases_are_in_order(guard):
    GUARDS[guard]()


@pytest.mark.parametrize("name", FAULTS)
def test_a_guard_finds_the_fault_that_is_planted(name, monkeypatch):
    FAULTS[name].plant(monkeypatch)
    with pytest.raises((AssertionError, Deadlock)):
        GUARDS[FAULTS[name].check]()
