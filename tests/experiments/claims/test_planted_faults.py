"""Faults that a simulator of distributed SGD is prone to: each turns the outcome of a claim, at a small scale."""

import pytest

from experiments.claims import Outcome, claims
from experiments.claims.reproduction import decided
from experiments.claims.studies import carried_out
from simulator.algorithms import k_async, pairwise
from simulator.collectives import circles
from simulator.shards import Shards


def outcomes(name, out, **smaller):
    """The outcomes of a claim's criteria, in order, from runs at smoke scale; `smaller` changes more of its studies."""
    (claim,) = claims([name])
    claim = claim.model_copy(deep=True)
    for study, changes in smaller.items():
        claim.studies[study].smoke.update(changes)
    row, _ = decided(claim, "cpu", carried_out(claim, "smoke", out, 1, lambda _: None))
    return [Outcome(entry.outcome) for entry in row.criteria]


def as_one_message(monkeypatch):
    """A ring is charged as if each node sent its model once: the 2 (P - 1) chunks of N / P bytes add up to N."""

    def cheap(node, receiver, value, tag, size):
        return right(node, receiver, value, tag, size * node.workers / (2 * (node.workers - 1)))

    right = circles.exchange
    monkeypatch.setattr(circles, "exchange", cheap)


def counted_from_the_push(monkeypatch):
    """Staleness counts the updates since the worker pushed, not since it read."""

    def worker(self, node):
        node.send(k_async.SERVER, None, size=0)
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            gradient.version_read = gradient._owner.version
            node.send(k_async.SERVER, gradient)

    monkeypatch.setattr(k_async.ReadComputePush, "worker", worker)


def waited_for(monkeypatch):
    """Who is told to stop ends its mini-batch first."""

    def overtaken(self, work):
        overtaken = yield from right(self, work)
        yield work
        return overtaken

    right = Shards.overtaken
    monkeypatch.setattr(Shards, "overtaken", overtaken)


def not_atomic(monkeypatch):
    """The asked node writes the average when its answer has arrived: the steps that it took since are lost."""

    def answer(self, node):
        while True:
            asker, theirs = yield node.receive(tag=pairwise.ASK)
            mine = node.weights
            yield node.send(asker, mine, tag=pairwise.ANSWER)
            node.weights = mine + (theirs - mine) / 2

    monkeypatch.setattr(pairwise.ADPSGD, "answer", answer)


FAULTS = {
    "all-reduce is charged as one message": ("C1", 0, as_one_message, {}),
    "staleness is counted from the worker's push": (
        "E1",
        0,
        counted_from_the_push,
        {"softsync": {"stop.gradients": 6000}},
    ),
    "cancelled stragglers are still waited for": (
        "F1",
        3,
        waited_for,
        {"timing": {"stop.updates": 400, "sweep.algorithm.wait_for": [16, 13, 10, 8]}, "learnt": {"stop.time": 0.05}},
    ),
    "AD-PSGD's average is not atomic": (
        "D4",
        0,
        not_atomic,
        {"learnt": {"cluster.workers": 8, "task.noise": 0.05, "stop.updates": 120, "evaluate.every_updates": 2}},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_turns_a_claim(fault, tmp_path, monkeypatch):
    name, criterion, plant, smaller = FAULTS[fault]
    assert outcomes(name, tmp_path / "right", **smaller)[criterion] is Outcome.HOLDS
    plant(monkeypatch)
    assert outcomes(name, tmp_path / "wrong", **smaller)[criterion] is Outcome.FAILS
