"""The message log: every message once, at the moments that arithmetic gives, and at no cost to the
events.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from laggard.simulator import (
    P3,
    SERVER,
    Algorithm,
    AsyncPS,
    Cluster,
    Evaluate,
    Network,
    Record,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import Crash

RECORD = Record(messages=True)
NETWORK = Network(bandwidth=100.0, latency=0.25, message_bytes=50.0)  # a model takes 0.5 + 0.25 s


def rows(outcome, *names):
    assert outcome.message_log is not None
    return list(zip(*(outcome.message_log[name].tolist() for name in names), strict=True))


def test_log_has_moments_of_arithmetic():
    """An announcement of 0.25 s, weights of 0.75, a second of work, a gradient of 0.75; the reply
    is under way.
    """
    cluster = Cluster(workers=1, compute=Constant(1.0), network=NETWORK)
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(time=3.0), record=RECORD)
    assert rows(
        outcome, "sent", "sender", "receiver", "bytes", "status", "content", "gradients", "gradient"
    ) == [
        (0.0, 0, SERVER, 0.0, "delivered", "token", 0, -1),
        (0.25, SERVER, 0, 50.0, "delivered", "weights", 0, -1),
        (2.0, 0, SERVER, 50.0, "delivered", "gradient", 1, 0),
        (2.75, SERVER, 0, 50.0, "in flight", "weights", 0, -1),
    ]
    assert outcome.message_log is not None
    np.testing.assert_array_equal(outcome.message_log["arrived"], [0.25, 1.0, 2.75, np.nan])
    np.testing.assert_array_equal(outcome.updates["arrived"], [2.75])
    assert tuple(outcome.message_log) == MESSAGE_COLUMNS


@pytest.mark.parametrize("algorithm", [AsyncPS(Rule()), SyncPS(Rule()), AsyncPS(Rule(), shards=2)])
def test_log_agrees_with_counters_and_moves_no_event(algorithm):
    crashes = [Crash(worker, at=4.0 * worker + 1, back=4.0 * worker + 3) for worker in range(4)]
    cluster = Cluster(4, Exponential(1.0), crashes, NETWORK)
    given = {"stop": Stop(time=30.0), "evaluate": Evaluate(every_seconds=0.7)}
    plain = simulate(cluster, algorithm, **given)
    logged = simulate(cluster, algorithm, record=RECORD, **given)
    assert plain.message_log is None
    assert logged.message_log is not None
    assert np.isnan(plain.updates["arrived"]).all()
    arrived = logged.updates["arrived"]
    for name in plain.updates.keys() - {"arrived"}:
        np.testing.assert_array_equal(plain.updates[name], logged.updates[name], err_msg=name)
    counts = Counter(logged.message_log["status"].tolist())
    assert logged.messages == plain.messages == {"sent": counts.total(), **counts}
    assert logged.messages["lost"] > 0
    log, evaluated = logged.message_log, logged.metrics["time"]
    sent = [log["bytes"][log["sent"] <= time].sum() for time in evaluated]
    np.testing.assert_allclose(logged.metrics["bytes"], sent)
    np.testing.assert_array_equal(logged.metrics["bytes"], plain.metrics["bytes"])
    applied = logged.updates["status"] == "applied"
    assert (arrived[applied] <= logged.updates["time"][applied]).all()
    assert (arrived[applied] >= logged.updates["computed"][applied]).all()


def test_log_names_gradient_of_message():
    """The message is sent when and where its worker has computed the gradient."""
    outcome = simulate(
        Cluster(workers=5, compute=Exponential(1.0), network=NETWORK),
        AsyncPS(Rule()),
        stop=Stop(updates=60),
        record=RECORD,
    )
    log = outcome.message_log
    assert log is not None
    carrying = log["gradient"] >= 0
    of = log["gradient"][carrying]
    assert sorted(of) == list(range(60))
    np.testing.assert_array_equal(log["sender"][carrying], outcome.updates["worker"][of])
    np.testing.assert_array_equal(log["sent"][carrying], outcome.updates["computed"][of])
    np.testing.assert_array_equal(log["arrived"][carrying], outcome.updates["arrived"][of])


def test_gradient_is_in_last_slice():
    cluster, task = Cluster(workers=1, network=NETWORK), Timing(depth=2)
    outcome = simulate(cluster, P3(Rule()), task, stop=Stop(updates=1), record=RECORD)
    slices = [row for row in rows(outcome, "sender", "bytes", "content") if row[:2] == (0, 25.0)]
    assert slices == [(0, 25.0, "other"), (0, 25.0, "gradient")]


@dataclass(frozen=True)
class Batches(Algorithm):
    """A worker sends three gradients in one message, and one of them again."""

    rule: Rule

    def worker(self, node):
        gradients = []
        for _ in range(3):
            gradients.append((yield node.compute(node.weights)))
        yield node.send(SERVER, (None, gradients))
        yield node.send(SERVER, gradients[1])

    def server(self, node):
        _, (_, gradients) = yield node.receive()
        yield node.receive()
        weights, _ = self.rule.update(node.weights, gradients, self.rule.init(node.weights))
        node.apply(weights, gradients)


def test_gradients_arrive_with_their_first_message():
    cluster = Cluster(workers=1, compute=Constant(1.0), network=NETWORK)
    outcome = simulate(cluster, Batches(Rule()), stop=Stop(updates=1), record=RECORD)
    assert rows(outcome, "sent", "arrived", "gradients", "gradient") == [
        (3.0, 3.75, 3, 0),
        (3.75, 4.5, 1, 1),
    ]
    np.testing.assert_array_equal(outcome.updates["arrived"], [3.75] * 3)
