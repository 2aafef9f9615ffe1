"""Faults of gossip for data that differ, of random matchings and of relayed sums."""

from dataclasses import replace
from functools import partial

from laggard.simulator.algorithms import averaging, gossip
from laggard.simulator.algorithms.contrib import choco, d2, matcha, qg_dsgdm, relay_sgd
from laggard.simulator.learning.rules.rule import Rule
from tests.faults import Replaced, settings
from tests.theory import test_gossip_data, test_gossip_times
from tests.theory.faults_of_nodes import OTHER_ORDER, without_itself


def as_dpsgd(order):
    """The nodes of D-PSGD in the place of others."""
    return lambda right: lambda self, node: gossip.DPSGD(self.rule, order).worker(node)


def one_model(right):
    """Messages that take the time of one model, whatever they carry."""

    def tell(node, step, mixing, *models, size=1.0):
        right(node, step, mixing, *models, size=size / len(models))

    return tell


def with_own_zero(right):
    """Messages that have twice what the sender adds to its own copy."""

    def tell(node, step, mixing, *models, size=1.0):
        right(node, step, mixing, *(2 * model for model in models), size=size)

    return tell


def relaying(change):
    """Nodes that relay `change(received)` in the place of what they received."""

    def wrong(right):
        def relay(self, node, step, weights, received):
            return right(self, node, step, weights, change(received))

        return relay

    return wrong


def to_everybody(received):
    """What was received as if from nobody: it is sent back to where it came from."""
    return {-1 - peer: sums for peer, sums in received.items()}


minimum = test_gossip_data.test_corrected_gossip_reaches_minimum_of_mean_loss
loop = test_gossip_data.test_models_match_loop_over_matrices
GOSSIP = {
    "gradient tracking's messages have one model": (
        Replaced(averaging, "tell", one_model),
        partial(
            test_gossip_times.test_step_time_follows_closed_form,
            "gradient_tracking, ring",
            2.0,
            "fair",
        ),
    ),
    "D2 forgets what averages have changed": (
        Replaced(d2.D2, "worker", as_dpsgd("adapt_then_combine")),
        partial(minimum, "d2, W", "wheel"),
    ),
    "a schedule is ignored": (
        Replaced(Rule, "rate", lambda right: lambda self, state: self.lr),
        test_gossip_data.test_sum_moves_by_gradients_at_scheduled_rate,
    ),
    "nodes average without themselves": (
        Replaced(averaging, "combine", without_itself),
        partial(test_gossip_data.test_complete_graph_equals_server, "d2"),
    ),
    "D-PSGD's bias is that of the other order": (
        Replaced(gossip.DPSGD, "worker", settings(order=lambda self: OTHER_ORDER[self.order])),
        partial(test_gossip_data.test_averages_of_models_have_bias_of_closed_form, "wheel"),
    ),
    "quasi-global momentum adapts after it combined": (
        Replaced(qg_dsgdm.QGDSGDm, "worker", as_dpsgd("combine_then_adapt")),
        partial(test_gossip_data.test_special_settings_equal_dpsgd, "qg_dsgdm, b = 0, decay unset"),
    ),
    "quasi-global momentum is not divided by the rate": (
        Replaced(qg_dsgdm, "reciprocal", lambda right: lambda rate: 1.0),
        partial(loop, "qg_dsgdm, mu = b", "ring"),
    ),
    "sums are sent back to where they came from": (
        Replaced(relay_sgd.RelaySGD, "relay", relaying(to_everybody)),
        partial(test_gossip_data.test_relayed_models_are_late_by_distance, "path", False),
    ),
    "each node has a coin of its own": (
        Replaced(
            matcha.MATCHA,
            "worker",
            lambda right: lambda self, node: right(replace(self, coin=node.rank), node),
        ),
        partial(test_gossip_data.test_random_matchings_match_loop, "ring"),
    ),
    "the default weight is that of no random matching": (
        Replaced(matcha, "best_weight", lambda right: lambda graph, P, c: right(graph, P, 1.0)),
        partial(test_gossip_data.test_default_weight_minimises_bound_on_distances, "ring", 0.5),
    ),
    "matchings are half as often active": (
        Replaced(matcha.MATCHA, "worker", settings(activation=lambda self: self.activation / 2)),
        test_gossip_data.test_mean_mixing_matches_laplacian,
    ),
    "all matchings are always active": (
        Replaced(matcha.MATCHA, "worker", settings(activation=lambda self: 1.0)),
        test_gossip_times.test_matchings_cost_messages_and_seconds_of_active_edges,
    ),
    "top-k keeps the smallest numbers": (
        Replaced(
            choco,
            "top_k",
            lambda right: lambda values, k: values - right(values, values.shape[1] - k),
        ),
        partial(loop, "choco, top 2 of 5, gamma .4", "ring"),
    ),
    "what is sent is not added to the node's own copy": (
        Replaced(choco, "tell", with_own_zero),
        partial(test_gossip_data.test_compressed_gossip_conserves_sum, "top_k"),
    ),
    "compressed messages cost whole models": (
        Replaced(choco.CHOCO, "size", lambda right: lambda self, params: 1.0),
        partial(
            test_gossip_times.test_step_time_follows_closed_form,
            "choco, top 25 %, ring",
            2.0,
            "fair",
        ),
    ),
}
