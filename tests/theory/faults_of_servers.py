"""Faults of parameter servers, local steps and delays."""

import math
from functools import partial

from laggard.simulator import Network
from laggard.simulator.algorithms import (
    asynchronous,
    delayed,
    k_async,
    local_sgd,
    local_steps,
    ssp,
    sync_replicas,
)
from laggard.simulator.algorithms.contrib.dana import DANA, DANASlim
from laggard.simulator.algorithms.contrib.k_batch_sync import KBatchSync, PresentWeights
from laggard.simulator.algorithms.contrib.ringmaster import Ringmaster
from laggard.simulator.algorithms.sharding import Shards
from laggard.simulator.engine import cluster, recovery
from laggard.simulator.learning.rules import damping
from laggard.simulator.learning.rules.rule import Rule
from laggard.simulator.recording import trace
from tests.faults import Replaced, Spoilt, on_spoilt, settings
from tests.theory import (
    test_asynchronous,
    test_dana,
    test_delayed,
    test_failures,
    test_local_steps,
    test_pseudo_code,
    test_rules,
    test_staleness,
    test_times,
)
from tests.theory.faults_of_rules import averaging, state_per_worker


def before_its_update(own):
    """A server that answers the worker that causes an update with the weights before it."""
    before = []

    def apply(*given):
        before.append(own.weights)
        own.apply(*given)

    def send(receiver, content, **named):
        return own.send(receiver, before.pop() if before else content, **named)

    return {"apply": apply, "send": send}


def one_momentum(right):
    """A server that looks ahead by the momentum of its own optimiser."""

    def server(self, own):
        state = self.rule.init(own.weights)
        while True:
            worker, gradient = yield own.receive()
            if gradient is not None:
                weights, state = self.rule.update(own.weights, [gradient], state)
                own.apply(weights, [gradient])
            ahead = own.weights - self.rule.lr * self.momentum * state.optimizer
            own.send(worker, (ahead, own.weights))

    return server


def sending_velocities(own):
    """A worker that sends v in place of m v + g, which is made of g and v."""

    def send(receiver, content, **named):
        if content is not None:
            _, content = content.sources
        return own.send(receiver, content, **named)

    return {"send": send}


def pushing_twice(right):
    last = []

    def push(self, content, size=1.0):
        taken, fetch = content
        messages = right(self, ([*last, *taken], fetch), size)
        last[:] = taken[-1:]
        return messages

    return push


def with_staleness(of):
    """A record in which the staleness of every gradient is another one."""

    def wrong(right):
        def record(self, gradient, whole, counts):
            gradient._staleness = of(gradient._staleness)
            right(self, gradient, whole, counts)

        return record

    return wrong


def keeping(*names):
    """A crash that leaves some attributes of the server as they are."""

    def wrong(right):
        def lose(self, now):
            before = {name: getattr(self._node, name) for name in names}
            number = right(self, now)
            for name, value in before.items():
                setattr(self._node, name, value)
            return number

        return lose

    return wrong


def late(right):
    """Periods counted from the start, not from the last return."""

    def restart(self, now):
        right(self, now)
        self._since, self._periods = 0.0, now // (self._checkpoint.every_seconds or math.inf)

    return restart


def charging_for_compensation(right):
    def server(self, node):
        extra = 0.0 if type(self.rule.compensation) is damping.Uncompensated else 0.01
        return right(self, Spoilt(node, apply_seconds=node.apply_seconds + extra))

    return server


SERVERS = {
    "a checkpoint has no state of the optimiser": (
        Replaced(recovery.Recovery, "lose", keeping("state")),
        partial(test_failures.test_restore_resets_weights_and_optimizer, "adam"),
    ),
    "a server returns with a new optimiser": (
        Replaced(
            asynchronous.AsyncPS,
            "server",
            lambda right: lambda self, own: right(self, setattr(own, "state", None) or own),
        ),
        partial(test_failures.test_crash_with_fresh_checkpoint_is_pause, "async_ps"),
    ),
    "periods of checkpoints go on over a crash": (
        Replaced(recovery.Recovery, "restart", late),
        partial(test_failures.test_mean_age_of_checkpoint_follows_closed_form, 2.0, 1.0),
    ),
    "a checkpoint is never renewed": (
        Replaced(recovery.Recovery, "save_if_due", lambda right: lambda self, now: None),
        test_failures.test_lost_updates_follow_checkpoint_period,
    ),
    "momentum is kept at the workers": (
        Replaced(Rule, "update", state_per_worker),
        partial(test_pseudo_code.test_compensations_match_pseudo_code, "no compensation"),
    ),
    "the server answers before it applies": (
        Replaced(asynchronous.AsyncPS, "server", on_spoilt(before_its_update)),
        partial(test_staleness.test_mean_staleness_is_workers_minus_one, "constant"),
    ),
    "what is accumulated is averaged": (
        Replaced(Rule, "update", averaging),
        test_asynchronous.test_downpour_sum_equals_mean_at_larger_rate,
    ),
    "a replica pushes a gradient twice": (
        Replaced(Shards, "push", pushing_twice),
        partial(test_asynchronous.test_one_replica_equals_sgd, 3),
    ),
    "a fetch is due after every push": (
        Replaced(asynchronous.Downpour, "worker", settings(n_fetch=lambda self: self.n_push)),
        partial(test_staleness.test_rarer_fetches_add_staleness, 2, 4, "exponential"),
    ),
    "a replica pushes after every mini-batch": (
        Replaced(
            asynchronous.Downpour,
            "worker",
            settings(n_push=lambda self: 1, n_fetch=lambda self: 1),
        ),
        partial(test_asynchronous.test_rare_messages_divide_idle_time, 5),
    ),
    "a compensation takes a server time": (
        Replaced(asynchronous.AsyncPS, "server", charging_for_compensation),
        partial(test_rules.test_compensations_take_no_time, "DC-ASGD-c"),
    ),
    "a lost worker goes on": (
        Replaced(vars(cluster), "unite_crashes", lambda right: lambda crashes: []),
        partial(test_failures.test_lost_node_stops_nodes_that_wait_for_it, "sync_ps"),
    ),
    "a lost server goes on": (
        Replaced(vars(cluster), "unite_server_crashes", lambda right: lambda crashes: []),
        partial(test_failures.test_lost_server_stops_all, "async_ps"),
    ),
    "k_async takes a worker twice": (
        Replaced(
            k_async.KAsync,
            "server",
            lambda right: lambda self, own: k_async.SoftSync(self.rule, self.wait_for).server(own),
        ),
        partial(test_staleness.test_staleness_in_groups_depends_on_method, "exponential"),
    ),
    "ssp is a step too generous": (
        Replaced(ssp.SSP, "server", settings(bound=lambda self: self.bound + 1)),
        test_asynchronous.test_ssp_without_slack_is_lock_step,
    ),
    "ringmaster applies what is just too stale": (
        Replaced(
            Ringmaster,
            "server",
            settings(threshold=lambda self: self.threshold + 1),
        ),
        partial(test_asynchronous.test_ringmaster_applies_no_older_gradient, False, 1, Network()),
    ),
    "dana has one momentum for all workers": (
        Replaced(DANA, "server", one_momentum),
        test_dana.test_dana_follows_its_pseudo_code,
    ),
    "dana looks ahead by whole velocities": (
        Replaced(DANA, "momentum", lambda right: lambda self: 1.0),
        test_dana.test_one_worker_follows_nesterov,
    ),
    "dana's gradients forget what was read": (
        Replaced(
            DANA,
            "worker",
            on_spoilt(lambda own: {"compute": lambda ahead, read: own.compute(ahead)}),
        ),
        partial(test_dana.test_dana_has_timeline_of_asynchronous, "dana"),
    ),
    "dana_slim sends its momentum without the gradient": (
        Replaced(DANASlim, "worker", on_spoilt(sending_velocities)),
        test_dana.test_slim_takes_gradients_at_same_weights,
    ),
    "Rennala applies the late": (
        Replaced(
            PresentWeights,
            "server",
            lambda right: lambda self, own: k_async.SoftSync(self.rule, self.gradients).server(own),
        ),
        partial(
            test_staleness.test_synchronous_methods_apply_no_stale_gradient, "k_batch_sync, K = 5"
        ),
    ),
    "Rennala takes one more": (
        Replaced(KBatchSync, "is_enough", settings(gradients=lambda self: self.gradients + 1)),
        test_times.test_groups_take_k_mini_batches,
    ),
    "weights are added as if they were updates": (
        Replaced(local_sgd.LocalSGD, "server", settings(average=lambda self: "updates")),
        partial(test_local_steps.test_mean_of_weights_equals_mean_of_updates, 1),
    ),
    "buffers are forgotten": (
        Replaced(local_sgd.LocalSGD, "worker", settings(reset=lambda self: True)),
        test_local_steps.test_averaging_weights_equals_gradients_for_one_step,
    ),
    "a shard is sent whole gradients": (
        Replaced(
            Shards,
            "push",
            lambda right: (
                lambda self, content, size=1.0: right(self, content, size * len(self._parts))
            ),
        ),
        partial(test_local_steps.test_shards_divide_time_of_round, 4),
    ),
    "DiLoCo's outer step goes the wrong way": (
        Replaced(
            local_steps.OuterOptimizer,
            "next_weights",
            lambda right: (
                lambda self, weights, average, state: right(
                    self, weights, 2 * weights - average, state
                )
            ),
        ),
        test_local_steps.test_outer_optimizer_includes_averaging_and_nesterov,
    ),
    "too few tokens": (
        Replaced(sync_replicas.SyncReplicas, "server", on_spoilt(lambda own: {"workers": 0})),
        partial(test_local_steps.test_pushes_per_update_follow_closed_form, 5),
    ),
    "a delay is one too long": (
        Replaced(
            delayed.Delayed, "mean", lambda right: lambda self, updates: right(self, updates) + 1
        ),
        partial(test_delayed.test_momentum_lowers_stability_limit, "SGD", 1),
    ),
    "staleness counts the gradient's own update": (
        Replaced(trace.Trace, "record", with_staleness(lambda staleness: staleness + 1)),
        partial(test_staleness.test_mean_staleness_is_workers_minus_one, "constant"),
    ),
}
