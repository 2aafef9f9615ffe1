"""Faults of collectives, gossip and pipelines."""

from dataclasses import replace
from functools import partial

from laggard.simulator.algorithms import (
    bucketing,
    gossip,
    pipelines,
    push_sum,
    slicing,
    staging,
)
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.collectives.schedule import Parts
from laggard.simulator.algorithms.contrib import p3
from laggard.simulator.learning.promises import total
from laggard.simulator.learning.rules.rule import Rule
from laggard.simulator.network.config import Network
from laggard.simulator.network.mixing import MIXINGS
from laggard.simulator.network.topology.regular import Exponential
from tests.faults import Replaced, on_spoilt, settings
from tests.theory import (
    test_collectives,
    test_gossip,
    test_gossip_methods,
    test_gossip_times,
    test_parameter_server,
    test_pipelines,
)
from tests.theory.faults_of_rules import at_the_weights_read


def own_parts(wrong):
    """What a node receives in the steps that are `wrong`: not the sender's parts, but its own
    again.
    """

    def take(right):
        def received(self, step, sender, parts):
            right(self, step, sender, self.give(step, sender) if wrong(step) else parts)

        return received

    return take


def whole_models(right):
    def phases(workers):
        return [
            [replace(step, size=step.size if step.adds else 1.0) for step in phase]
            for phase in right(workers)
        ]

    return phases


def forward_at_the_end(right):
    def layers(self, node):
        *front, last = right(self, node)
        return [
            *(each._replace(forward=0.0) for each in front),
            last._replace(forward=len(front) * last.forward),
        ]

    return layers


def whole_weights(right):
    def begin(self, own, *given):
        before = own.weight
        x = right(self, own, *given)
        own.weight = before
        return x

    return begin


def answering(share, pause):
    """The passive side of AD-PSGD that goes `share` of the way, at once or while a message
    passes.
    """

    def answer(self, own):
        while True:
            asker, theirs = yield own.receive(tag=gossip.ASK)
            mine = own.weights
            if pause:
                yield own.send(asker, None, tag="pause", size=0)
            own.weights = mine + share * (theirs - mine)
            own.send(asker, mine, tag=gossip.ANSWER)

    return lambda right: answer


def without_itself(right):
    def others(own, step, mixing, *models):
        return right(own, step, replace(mixing, own=0.0), *models)

    return others


def own_mean(self, own, size, pieces):
    yield own.work(0.0)
    return pieces[0].map(lambda _, summed: summed / len(pieces), total(pieces), batches=len(pieces))


OTHER_ORDER = {
    "combine_then_adapt": "adapt_then_combine",
    "adapt_then_combine": "combine_then_adapt",
}
NODES = {
    "a ring adds its own chunk twice": (
        Replaced(
            Parts, "take", own_parts(lambda step: step.adds and step.cut == 4 and step.count == 1)
        ),
        partial(test_collectives.test_all_reduce_equals_synchronous_server, 6),
    ),
    "a ring sends whole models": (
        Replaced(
            COLLECTIVES, "ring", lambda right: replace(right, phases=whole_models(right.phases))
        ),
        partial(test_collectives.test_collective_time_follows_closed_form, "ring", 8, "fair"),
    ),
    "a host's workers have a card each": (
        Replaced(Network, "machine", lambda right: lambda self, rank, workers: rank),
        partial(test_collectives.test_hierarchical_time_follows_closed_form, 8, 2),
    ),
    "buckets wait for the whole gradient": (
        Replaced(
            bucketing,
            "fill_buckets",
            lambda right: lambda *given: [bucket._replace(ready=1.0) for bucket in right(*given)],
        ),
        partial(test_collectives.test_buckets_are_exchanged_in_order, "ring", 0.25),
    ),
    "slices go in order": (
        Replaced(p3.Stream, "put", lambda right: lambda self, layer, send: right(self, 0, send)),
        partial(test_collectives.test_p3_sends_front_layers_first, 0.11),
    ),
    "an all-reduce sums slices in order": (
        Replaced(
            slicing.SliceQueue, "put", lambda right: lambda self, layer, item: right(self, 0, item)
        ),
        partial(test_collectives.test_ring_sums_front_layers_first, 0.4),
    ),
    "a forward pass waits for all layers": (
        Replaced(slicing.Sliced, "layers", forward_at_the_end),
        partial(test_collectives.test_p3_sends_front_layers_first, 0.11),
    ),
    "slices bring a model that is not all new": (
        Replaced(p3.P3, "answer", lambda right: lambda self, *given: right(self, *given[:-1], -1)),
        partial(test_parameter_server.test_slices_by_priority_change_no_weight, "p3", "fifo"),
    ),
    "push-sum ignores w": (
        Replaced(push_sum.SGP, "model", lambda right: lambda self, x, own: x),
        partial(test_gossip.test_models_tend_to_mean_of_starts, "a digraph", 0),
    ),
    "a gradient is applied to z": (
        Replaced(Rule, "update", at_the_weights_read),
        partial(test_gossip.test_push_sum_conserves_weight_and_models, "sgp, P = 8, overlap 1"),
    ),
    "weights are those of a star on every graph": (
        Replaced(MIXINGS, "metropolis", lambda right: lambda *given: 1 / given[-1]),
        partial(
            test_gossip_methods.test_models_match_loop_over_metropolis_matrices,
            "ring",
            "combine_then_adapt",
            "",
        ),
    ),
    "an average is not atomic": (
        Replaced(gossip.ADPSGD, "answer", answering(0.5, pause=True)),
        partial(test_gossip.test_pairs_conserve_sum, "adpsgd"),
    ),
    "pairs average after the gradient": (
        Replaced(gossip.OverlapADPSGD, "worker", lambda right: gossip.ADPSGD.worker),
        partial(
            test_gossip_times.test_average_time_follows_closed_form,
            "adpsgd_overlap",
            "max(t_c, 2 E)",
            2.0,
            "fair",
        ),
    ),
    "overlap waits for its own exchange": (
        Replaced(push_sum.SGP, "worker", lambda right: push_sum.SGP.in_step),
        partial(
            test_gossip_times.test_step_time_follows_closed_form,
            "sgp, one peer, overlap 1",
            2.0,
            "fair",
        ),
    ),
    "overlap SGP waits for one exchange at a time": (
        Replaced(push_sum.OverlapSGP, "worker", settings(overlap=lambda self: 1)),
        partial(test_gossip_times.test_push_interval_follows_closed_form, 4, 1, 0.1, "fifo"),
    ),
    "shares that come between two pushes are left": (
        Replaced(
            push_sum.OverlapSGP, "worker", on_spoilt(lambda own: {"arrived": lambda tag: False})
        ),
        partial(test_gossip_methods.test_late_shares_match_loop_over_matrices, 5, 1),
    ),
    "what is under way still counts for its sender": (
        Replaced(push_sum.OverlapSGP, "begin", whole_weights),
        partial(test_gossip.test_push_sum_conserves_weight_and_models, "osgp, tau = 3, H = 1"),
    ),
    "an exponential graph has wrong hops": (
        Replaced(
            Exponential, "hops", lambda right: lambda *given: [hop + 1 for hop in right(*given)]
        ),
        test_gossip.test_one_exponential_peer_averages_in_log2_steps,
    ),
    "an exponential graph has one hop": (
        Replaced(Exponential, "hops", lambda right: lambda *given: [1 for _ in right(*given)]),
        test_gossip.test_distance_follows_lowered_rate_in_log2_steps,
    ),
    "the backward pass uses the newest weights": (
        Replaced(
            staging,
            "join_slices",
            lambda right: lambda read: right([each.stamp[0].weights for each in read]),
        ),
        test_pipelines.test_weight_stashing_delays_each_stage,
    ),
    "GPipe lets one micro-batch forward at a time": (
        Replaced(pipelines.GPipe, "warm_up", lambda right: lambda self, own: 1),
        partial(test_pipelines.test_bubble_follows_closed_form, "gpipe", 6),
    ),
    "replicas keep their gradients to themselves": (
        Replaced(pipelines.GPipe, "average", lambda right: own_mean),
        partial(test_pipelines.test_replicas_equal_data_parallel_workers, "gpipe"),
    ),
    "a stage sends its replicas the whole model": (
        Replaced(
            pipelines.GPipe,
            "average",
            lambda right: lambda self, own, size, given: right(self, own, 1.0, given),
        ),
        partial(
            test_pipelines.test_replicated_stages_sum_gradients_after_flush, "gpipe", (1, 5, 9)
        ),
    ),
    "2BW has one version": (
        Replaced(
            staging.Carriage,
            "forward",
            lambda right: lambda self, weights: right(self, self._node.weights),
        ),
        partial(test_pipelines.test_micro_batches_use_previous_weights, 3),
    ),
}
