"""Faults of federated methods: clients, rounds, corrections and buffers."""

from functools import partial
from typing import Any

from laggard.simulator.algorithms import clients
from laggard.simulator.algorithms.contrib import fedavg, fedbuff
from laggard.simulator.learning.weights import total
from tests.faults import Replaced, settings
from tests.theory import test_clients


def by_clients_asked(right: Any) -> Any:
    """The shared control moves by the mean over the C clients of a round, not by 1/M of the sum."""

    def total_of(values: Any) -> Any:
        return total(values) * (3 / len(values))

    return total_of


def by_weights(right: Any) -> Any:
    """A buffer whose sum is divided by the sum of the weights of staleness."""

    def merge(self: Any, weights: Any, answers: Any) -> Any:
        factors = [(1 + answer.staleness) ** -self.power for answer in answers]
        return weights + (right(self, weights, answers) - weights) * self.buffer / sum(factors)

    return merge


def away_from_server(right: Any) -> Any:
    """The proximal term with the opposite sign."""

    def local_step(self: Any, model: Any, gradient: Any, state: Any, read: Any, more: Any) -> Any:
        return right(self, model, gradient, state, 2 * model - read, more)

    return local_step


def waits_for_ever(right: Any) -> Any:
    def init(self: Any, node: Any, timeout: Any = None) -> None:
        right(self, node, None)

    return init


CLIENTS = {
    "the shared control counts a round's clients for all": (
        Replaced(fedavg, "total", by_clients_asked),
        test_clients.test_scaffold_with_sampled_clients_equals_its_pseudo_code,
    ),
    "clients keep their momentum from one request to the next": (
        Replaced(clients.Federated, "begin", lambda right: lambda self, node, state: state),
        test_clients.test_fedavg_with_all_clients_is_local_sgd,
    ),
    "clients make a step too many": (
        Replaced(
            clients.Federated, "worker", settings(local_steps=lambda self: self.local_steps + 1)
        ),
        test_clients.test_fixed_point_of_fedavg_is_not_the_minimum,
    ),
    "the proximal term drives clients away": (
        Replaced(fedavg.FedProx, "local_step", away_from_server),
        test_clients.test_fixed_point_of_fedprox,
    ),
    "a buffer is too large by one": (
        Replaced(fedbuff.FedBuff, "answers", lambda right: lambda self: self.buffer + 1),
        partial(test_clients.test_mean_staleness_of_buffered_answers, 10, 5),
    ),
    "a stale buffer counts as a fresh one": (
        Replaced(fedbuff.FedBuff, "merge", by_weights),
        test_clients.test_buffer_is_divided_by_its_answers,
    ),
    "a server never gives clients up": (
        Replaced(clients.Clients, "__init__", waits_for_ever),
        partial(test_clients.test_crash_costs_no_slot_where_there_is_a_time_out, 3.0, 198.0),
    ),
}
