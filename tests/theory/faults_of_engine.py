"""Faults of networks, the clock and the arithmetic of gradients."""

from functools import partial
from heapq import heappush
from itertools import count

from laggard.models.quadratic_form import QuadraticForm
from laggard.simulator.engine import machine, membership
from laggard.simulator.learning import gradients, pool
from laggard.simulator.learning.rules import Rescaled
from laggard.simulator.network import fair, fifo, groups, latency, star, transport, varying
from laggard.simulator.timing import events
from laggard.simulator.timing.distributions import Durations
from tests.faults import Replaced
from tests.theory import (
    test_engine,
    test_gossip_times,
    test_heterogeneity,
    test_membership,
    test_network_changes,
    test_networks,
    test_times,
    test_trunks,
)
from tests.theory.test_engine import one_method


def half_as_large(right):
    return lambda self, sender, receiver, size, arrival: right(
        self, sender, receiver, size / 2, arrival
    )


def latency_twice(right):
    def between(*given):
        latency, beside, route = right(*given)
        return 2 * latency, beside, route

    return between


def trunks_of_ones_own(right):
    messages = count()

    def between(*given):
        latency, links = right(*given)
        return latency, {(str(next(messages)), *ends): speed for ends, speed in links.items()}

    return between


def shares_alike(right):
    def rate(self):
        flows = [flow for link in self._touched for flow in link.flows]
        right(self)
        for flow in flows:
            flow.rate = min(link.bandwidth / len(link.flows) for link in flow.route)
            flow.end = self._env.now + flow.left / flow.rate
            heappush(self._ends, (flow.end, flow.number, flow))

    return rate


def half_duplex(right):
    return lambda self, ends, speed: right(
        self, ("up", ends[1]) if ends[0] == "down" else ends, speed
    )


def forgetful_queue(right):
    def enter(self, flow, hop, tail):
        flow.route[hop].free = 0.0
        right(self, flow, hop, tail)

    return enter


def overtaking(right):
    return lambda self, sender, receiver, delay, seconds, arrival: self._env.after(
        delay + seconds, arrival
    )


def without_caps(right):
    def balance(self, flows):
        self._level = self.link.bandwidth / flows

    return balance


def another_duration_each(right):
    streams = {}
    return lambda self: right(self) + 1e-3 * streams.setdefault(id(self), len(streams))


def cancel_the_gradient_only(right):
    def cancel(self):
        if self.gradient is not None and self.gradient.status == gradients.IN_FLIGHT:
            self.gradient.cancel()

    return cancel


def at_other_weights(right):
    def evaluate(self, wanted, others):
        together = [*wanted, *others]
        for gradient in together:
            gradient.weights = gradient.weights + 1e-9 * len(together)
        right(self, wanted, others)

    return evaluate


def staying_after_return(right):
    def stay(self, rank):
        if self._services.env.now == 0:
            right(self, rank)

    return stay


def leaving_at_once(right):
    return lambda self: self._services.membership.leave(self.rank)


ENGINE = {
    "workers that come back stay for ever": (
        Replaced(membership.Membership, "_stay", staying_after_return),
        test_membership.test_constant_stays_are_up_exactly,
    ),
    "workers leave in the middle of a mini-batch": (
        Replaced(membership.MemberNode, "leave_if_done", leaving_at_once),
        test_membership.test_coming_and_going_workers_make_their_share,
    ),
    "messages are half as large": (
        Replaced(transport.Transport, "carry", half_as_large),
        partial(test_networks.test_message_takes_latency_and_transfer, 0.25, "fair"),
    ),
    "latency is paid twice": (
        Replaced(transport.Transport, "_between", latency_twice),
        partial(test_networks.test_message_takes_latency_and_transfer, 0.0, "fair"),
    ),
    "cards are half duplex": (
        Replaced(transport.Transport, "_link", half_duplex),
        partial(test_networks.test_directions_of_card_do_not_share, "fair"),
    ),
    "a queue forgets what it serves": (
        Replaced(fifo.FifoSharing, "_enter", forgetful_queue),
        partial(test_networks.test_gather_and_scatter_take_equal_time, False, "fifo"),
    ),
    "fair sharing does not notice arrivals": (
        Replaced(
            fair.FairSharing,
            "_group",
            lambda right: lambda self, met: star.ProcessorSharingStar(self._env, next(iter(met))),
        ),
        partial(test_networks.test_later_message_shares_card, "fair"),
    ),
    "a link of a single message is as fast as the level": (
        Replaced(star.ProcessorSharingStar, "_balance", without_caps),
        test_networks.test_fair_sharing_is_max_min_fair,
    ),
    "messages do not share a trunk": (
        Replaced(groups.Trunks, "between", trunks_of_ones_own),
        partial(test_trunks.test_two_data_centres_share_one_trunk, 8, "fair"),
    ),
    "a trunk shares alike, whatever limits a message elsewhere": (
        Replaced(fair.MaxMin, "_solve_rates", shares_alike),
        test_trunks.test_unequal_trunks_leave_rest_to_others,
    ),
    "rates are not solved anew at a change": (
        Replaced(varying.VaryingFairSharing, "_change", lambda right: lambda self: None),
        test_network_changes.test_two_messages_share_changing_card,
    ),
    "messages overtake others": (
        Replaced(latency.Latencies, "schedule", overtaking),
        test_network_changes.test_messages_to_node_do_not_overtake,
    ),
    "durations are another worker's": (
        Replaced(Durations, "next", another_duration_each),
        test_engine.test_worker_keeps_durations_in_other_runs,
    ),
    "a slow worker is as fast as the others": (
        Replaced(machine, "apply_slowdowns", lambda right: lambda seconds, now, slowdowns: seconds),
        partial(test_gossip_times.test_slow_node_delays_synchronous_peers_only, "sync_ps"),
    ),
    "cancelled work goes on": (
        Replaced(events.Work, "cancel", cancel_the_gradient_only),
        partial(
            test_times.test_update_takes_kth_duration_with_cancelling,
            "exponential: (H_P - H_(P-K)) / mu",
        ),
    ),
    "rescaled workers count as others do": (
        Replaced(
            Rescaled,
            "correct",
            lambda right: lambda self, value, gradient, weights, state, lr: (value, state),
        ),
        partial(
            test_heterogeneity.test_low_rate_ends_at_weighted_optimum, "1 : 2", "by measured times"
        ),
    ),
    "a worker learns what its neighbour should": (
        Replaced(
            QuadraticForm,
            "batches",
            lambda right: lambda self, rank, rngs: right(self, (rank + 1) % self.workers, rngs),
        ),
        test_heterogeneity.test_gradients_per_worker_follow_speed,
    ),
    "gradients are those of other weights": (
        Replaced(pool.GradientPool, "_evaluate", at_other_weights),
        partial(one_method, "deferred = immediate evaluation"),
    ),
}
