"""Faults of federated methods and of DiLoCo: clients, rounds, corrections, outer steps."""

from functools import partial

from laggard.simulator.algorithms import clients, local_all_reduce, local_steps
from laggard.simulator.algorithms.contrib import (
    async_diloco,
    decoupled_diloco,
    fedavg,
    fedbuff,
    streaming_diloco,
)
from laggard.simulator.learning.rules.contrib import cgad, heloco
from laggard.simulator.learning.weights import total
from tests.faults import Replaced, on_spoilt, settings
from tests.theory import test_clients, test_diloco


def by_clients_asked(right):
    """The shared control moves by the mean over the C clients of a round, not by 1/M of the sum."""

    def total_of(values):
        return total(values) * (3 / len(values))

    return total_of


def by_weights(right):
    """A buffer whose sum is divided by the sum of the weights of staleness."""

    def merge(self, weights, answers):
        factors = [(1 + answer.staleness) ** -self.power for answer in answers]
        return weights + (right(self, weights, answers) - weights) * self.buffer / sum(factors)

    return merge


def away_from_server(right):
    """The proximal term with the opposite sign."""

    def correction(self, read, more):
        return lambda gradient, model: right(self, 2 * model - read, more)(gradient, model)

    return correction


def waits_for_ever(right):
    def init(self, node, timeout=None):
        right(self, node, None)

    return init


def at_once(right):
    """A model that is corrected as one vector."""

    def step(self, *given):
        return right(self, *given[:-1], {})

    return step


def by_the_rate(right):
    """Rounds that grow as 1 / s, as the theory of a fixed alpha without QSR has them."""

    def steps_of_round(self, node, state):
        return max(self.local_steps, round(right(self, node, state) ** 0.5))

    return steps_of_round


def never_late(right):
    def rule_step(self, node, change, state, staleness):
        return right(self, node, change, state, 0)

    return rule_step


def whenever_pushed(right):
    """A grace that begins anew with each push."""

    def set_due(self, now, quorum, workers, grace):
        self.due = float("inf")
        right(self, now, quorum, workers, grace)

    return set_due


def without_state(right):
    """An outer step whose momentum is forgotten."""

    def next_weights(self, weights, average, state):
        new, _ = right(self, weights, average, state)
        return new, state

    return next_weights


def never_too_late(right):
    def take(self, learner, push):
        right(self, learner, push._replace(merges=self.merges))

    return take


def by_learners(right):
    """A mean in which a learner of few steps counts as much as any other."""
    return lambda self, pushes: right(self, [push._replace(steps=1) for push in pushes])


def at_most_one_model(own):
    return {"send": lambda to, content, size=1.0: own.send(to, content, size=min(1.0, size))}


def twice_as_large(own):
    return {"send": lambda to, content, size=1.0: own.send(to, content, size=2 * size)}


LEARNERS = partial(test_diloco.test_decoupled_learners_match_loop, "mean")
CLIENTS = {
    "other arrivals make no part of the momentum's step": (
        Replaced(async_diloco.AsyncDiLoCo, "step", settings(spread=lambda self: 0.0)),
        test_diloco.test_other_arrivals_share_momentum_step,
    ),
    "late changes count in full": (
        Replaced(
            async_diloco.AsyncDiLoCo,
            "server",
            settings(staleness_weight=lambda self: "constant"),
        ),
        test_diloco.test_late_changes_count_less,
    ),
    "a fragment's momentum is forgotten": (
        Replaced(local_steps.OuterOptimizer, "next_weights", without_state),
        partial(test_diloco.test_streamed_fragments_match_loop, 1),
    ),
    "changes of fragments merged since are merged": (
        Replaced(decoupled_diloco.Fragment, "take", never_too_late),
        LEARNERS,
    ),
    "a grace begins anew with each push": (
        Replaced(decoupled_diloco.Fragment, "set_due", whenever_pushed),
        LEARNERS,
    ),
    "learners of few steps count as much": (
        Replaced(decoupled_diloco.DecoupledDiLoCo, "mean_of", by_learners),
        LEARNERS,
    ),
    "a fragment costs twice its bytes": (
        Replaced(decoupled_diloco.DecoupledDiLoCo, "worker", on_spoilt(twice_as_large)),
        test_diloco.test_decoupled_messages_are_fragments,
    ),
    "clients are drawn alike": (
        Replaced(
            clients.Clients,
            "draw",
            lambda right: lambda self, count, by_samples=False: right(self, count),
        ),
        test_clients.test_clients_are_drawn_by_samples,
    ),
    "clients drawn by samples count by samples": (
        Replaced(fedavg.FedAvg, "average", settings(sample=lambda self: "uniform")),
        test_clients.test_clients_drawn_by_samples_count_equally,
    ),
    "the shared control is not the mean of the clients'": (
        Replaced(fedavg, "total", by_clients_asked),
        test_clients.test_shared_control_is_mean_of_clients_controls,
    ),
    "SCAFFOLD makes a step too many": (
        Replaced(
            fedavg.Scaffold, "worker", settings(local_steps=lambda self: self.local_steps + 1)
        ),
        test_clients.test_scaffold_of_single_steps_is_gradient_descent,
    ),
    "controls cost no bytes": (
        Replaced(fedavg.Scaffold, "worker", on_spoilt(at_most_one_model)),
        partial(test_clients.test_round_of_one_client_has_bytes_of_models, "scaffold", 4),
    ),
    "tensors are corrected together": (
        Replaced(heloco.HeLoCo, "step", at_once),
        test_diloco.test_tensors_are_corrected_one_by_one,
    ),
    "small changes are corrected as much as large ones": (
        Replaced(heloco.HeLoCo, "correct", settings(relative=lambda self: 0.0)),
        test_diloco.test_conflicting_changes_are_shortened_and_others_turned,
    ),
    "aligned changes are turned": (
        Replaced(heloco.HeLoCo, "correct", settings(aligned=lambda self: 1.0)),
        test_diloco.test_aligned_changes_are_not_corrected,
    ),
    "late changes are taken for fresh ones": (
        Replaced(async_diloco.AsyncDiLoCo, "rule_step", never_late),
        test_diloco.test_outer_rules_are_their_loops,
    ),
    "late changes make no moments decay": (
        Replaced(
            cgad.CGAD,
            "step",
            lambda right: (
                lambda self, *given, **named: (
                    right(self, *given, **named)[0],
                    given[1],
                )
            ),
        ),
        test_diloco.test_outer_rules_are_their_loops,
    ),
    "every arrival makes a step of the momentum": (
        Replaced(
            async_diloco.AsyncDiLoCo,
            "server",
            settings(momentum_every=lambda self: 1),
        ),
        test_diloco.test_arrivals_sum_to_one_step_of_nesterov,
    ),
    "slow workers make as many steps": (
        Replaced(
            async_diloco.AsyncDiLoCo, "steps", lambda right: lambda self, *_: self.local_steps
        ),
        test_diloco.test_slow_workers_make_fewer_steps,
    ),
    "a streaming node keeps nothing of its own": (
        Replaced(streaming_diloco.StreamingDiLoCo, "worker", settings(keep=lambda self: 0.0)),
        test_diloco.test_streaming_keeps_part_of_own_fragment,
    ),
    "a streaming node merges a step late": (
        Replaced(
            streaming_diloco.StreamingDiLoCo,
            "worker",
            settings(overlap=lambda self: self.overlap + 1),
        ),
        partial(test_diloco.test_streaming_hides_messages_behind_local_steps, 0),
    ),
    "a radial mean that is a plain one": (
        Replaced(decoupled_diloco.DecoupledDiLoCo, "mean_of", settings(merge=lambda self: "mean")),
        test_diloco.test_radial_mean_keeps_the_length_of_changes,
    ),
    "a server of learners waits for all": (
        Replaced(decoupled_diloco.DecoupledDiLoCo, "server", settings(quorum=lambda self: None)),
        test_diloco.test_learners_never_wait,
    ),
    "nodes of uneven shards count equally in a collective": (
        Replaced(
            local_all_reduce.LocalAllReduce, "worker", settings(weighting=lambda self: "equal")
        ),
        partial(
            test_diloco.test_average_by_collective_equals_server,
            "diloco_all_reduce",
            "diloco",
        ),
    ),
    "rounds grow with the inverse of the rate": (
        Replaced(local_all_reduce.QSR, "steps_of_round", by_the_rate),
        partial(
            test_diloco.test_rounds_grow_with_the_inverse_square_of_the_rate,
            test_diloco.HALVED,
            "a rate that is halved twice",
        ),
    ),
    "rounds of a warm-up are long": (
        Replaced(local_all_reduce, "WarmUp", lambda right: type(None)),
        partial(
            test_diloco.test_rounds_grow_with_the_inverse_square_of_the_rate,
            test_diloco.WARMED,
            "the same after a warm-up",
        ),
    ),
    "the shared control counts a round's clients for all": (
        Replaced(fedavg, "total", by_clients_asked),
        test_clients.test_scaffold_with_sampled_clients_equals_its_pseudo_code,
    ),
    "clients keep their momentum from one request to the next": (
        Replaced(clients, "restart_optimizer", lambda right: lambda node, rule, state: state),
        test_clients.test_fedavg_with_all_clients_is_local_sgd,
    ),
    "clients make a step too many": (
        Replaced(
            clients.ModelClients, "worker", settings(local_steps=lambda self: self.local_steps + 1)
        ),
        test_clients.test_fixed_point_of_fedavg_is_not_the_minimum,
    ),
    "the proximal term drives clients away": (
        Replaced(fedavg.FedProx, "correction", away_from_server),
        test_clients.test_fedprox_ends_at_its_fixed_point,
    ),
    "a buffer is too large by one": (
        Replaced(fedbuff.FedBuff, "answers", lambda right: lambda self: self.buffer + 1),
        partial(test_clients.test_mean_staleness_follows_buffer_size, 10, 5),
    ),
    "a stale buffer counts as a fresh one": (
        Replaced(fedbuff.FedBuff, "merge", by_weights),
        test_clients.test_buffer_is_divided_by_its_answers,
    ),
    "a server never gives clients up": (
        Replaced(clients.Clients, "__init__", waits_for_ever),
        partial(test_clients.test_time_out_frees_slot_of_crashed_client, 3.0, 198.0),
    ),
}
