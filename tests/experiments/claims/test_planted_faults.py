"""Faults that a simulator of distributed SGD is prone to: each turns the verdict on a claim, at a
small scale.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from laggard.experiments.claims import Verdict, claims
from laggard.experiments.claims.arrays import as_studies
from laggard.experiments.claims.reproduction import evaluate_claim
from laggard.experiments.claims.studies import run_studies
from laggard.simulator.algorithms import gossip, k_async
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.sharding import Shards
from laggard.simulator.learning.rules import DCASGDa, DCASGDc
from laggard.simulator.network.topology import SERVER

WORSE = {
    Verdict.HOLDS: (Verdict.IN_PART, Verdict.FAILS),
    Verdict.IN_PART: (Verdict.FAILS,),
}


def verdict(name, out, **smaller):
    """The verdict on a claim as at `cpu`, from runs at smoke scale; `smaller` changes more of its
    studies.
    """
    (claim,) = claims([name])
    studies = {
        key: replace(study, smoke={**study.smoke, **smaller.get(key, {})})
        for key, study in claim.studies.items()
    }
    claim = replace(claim, studies=studies)
    found = run_studies(claim, "smoke", out, 1, lambda _: None)
    how = {
        "grids": [],
        "chosen": [],
        "at_edge": False,
        "runs": {},
        "version": "",
        "machine": [],
        "taken": "",
    }
    return evaluate_claim(claim, "cpu", as_studies(found), how)[0].verdict


def aliased(monkeypatch):
    """What DC-ASGD keeps of a worker's weights is no copy: it is the live model. Public ports do
    so.
    """
    for kind in (DCASGDc, DCASGDa):

        def correct(self, value, gradient, weights, state, lr, right=kind.correct):
            return right(self, value, SimpleNamespace(weights=weights), weights, state, lr)

        monkeypatch.setattr(kind, "correct", correct)


def as_one_message(monkeypatch):
    """A ring is charged as if each node sent its model once: the 2 (P - 1) chunks of N / P bytes
    add up to N.
    """

    def cheap(workers):
        share = workers / (2 * (workers - 1))
        return [
            [replace(step, size=step.size * share) for step in phase]
            for phase in ring.phases(workers)
        ]

    ring = COLLECTIVES["ring"]
    monkeypatch.setitem(COLLECTIVES, "ring", replace(ring, phases=cheap))


def counted_from_the_push(monkeypatch):
    """Staleness counts the updates since the worker pushed, not since it read."""

    def worker(self, node):
        node.send(SERVER, None, size=0)
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            gradient.version_read = gradient._owner.version
            node.send(SERVER, gradient)

    monkeypatch.setattr(k_async.ReadComputePush, "worker", worker)


def waited_for(monkeypatch):
    """Who is told to stop ends its mini-batch first."""

    def wait_until_overtaken(self, work):
        overtaken = yield from right(self, work)
        yield work
        return overtaken

    right = Shards.wait_until_overtaken
    monkeypatch.setattr(Shards, "wait_until_overtaken", wait_until_overtaken)


def not_atomic(monkeypatch):
    """The asked node writes the average when its answer has arrived: the steps that it took since
    are lost.
    """

    def answer(self, node):
        while True:
            asker, theirs = yield node.receive(tag=gossip.ASK)
            mine = node.weights
            yield node.send(asker, mine, tag=gossip.ANSWER)
            node.weights = mine + (theirs - mine) / 2

    monkeypatch.setattr(gossip.ADPSGD, "answer", answer)


# a minute, ten times what each of the others takes
LONGER = "cancelled stragglers are still waited for"
LONG = (LONGER, "AD-PSGD's average is not atomic", "all-reduce is charged as one message")
FOUR = {"stop.updates": 2000, "sweep.seeds": 4}  # of eight, so that others are cancelled
BY_WORKERS, BY_GRADIENTS = (
    {**FOUR, f"sweep.algorithm.{key}": [4]} for key in ("wait_for", "gradients")
)
FAULTS = {
    "DC-ASGD's backup is an alias": ("B1", aliased, {}),
    "all-reduce is charged as one message": ("C1", as_one_message, {}),
    "staleness is counted from the worker's push": (
        "E1",
        counted_from_the_push,
        {"softsync": {"stop.gradients": 6000}},
    ),
    LONGER: (
        "H1",
        waited_for,
        {
            **dict.fromkeys(("sync", "asynchronous", "shifted"), BY_WORKERS),
            **dict.fromkeys(("batch_sync", "batch_async"), BY_GRADIENTS),
        },
    ),
    "AD-PSGD's average is not atomic": (
        "D4",
        not_atomic,
        {
            "learnt": {
                "cluster.workers": 8,
                "task.noise": 0.05,
                "stop.updates": 120,
                "evaluate.every_updates": 2,
            }
        },
    ),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in FAULTS]
)
def test_a_fault_turns_a_verdict(fault, tmp_path, monkeypatch):
    name, plant, smaller = FAULTS[fault]
    right = verdict(name, tmp_path / "right", **smaller)
    assert right in (Verdict.HOLDS, Verdict.IN_PART)
    plant(monkeypatch)
    assert verdict(name, tmp_path / "wrong", **smaller) in WORSE[right]
