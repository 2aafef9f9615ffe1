"""TensorFlow's tokens: what they let through, what they waste, and when they are no different from
waiting for all.
"""

import numpy as np
import pytest

from laggard.simulator import (
    Cluster,
    KSync,
    Network,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms.sync_replicas import SyncReplicas
from laggard.simulator.timing.slowdowns import Crash, Factor


def run(cluster, updates=6, **options):
    return simulate(cluster, SyncReplicas(Rule(lr=0.05), **options), stop=Stop(updates=updates))


def test_early_worker_contributes_twice_with_initial_tokens():
    cluster = Cluster(workers=3, slowdowns=[Factor(worker=0, factor=0.25)])
    early, clean = (run(cluster, updates=1, num_tokens=n).updates for n in (-1, 0))
    assert sorted(early["worker"].tolist()) == [0, 0, 0]
    assert early["time"].tolist() == [0.75] * 3
    assert sorted(clean["worker"].tolist()) == [0, 1, 2]


def test_backup_replicas_are_not_backup_workers():
    """A quick worker takes a token that a slow one leaves: it may contribute twice, where
    `wait_for` counts workers.
    """
    cluster = Cluster(
        workers=3, slowdowns=[Factor(worker=1, factor=10.0), Factor(worker=2, factor=10.5)]
    )
    tokens = run(cluster, updates=1, replicas_to_aggregate=2, num_tokens=1)
    workers = simulate(cluster, KSync(Rule(), wait_for=2), stop=Stop(updates=1))
    assert tokens.updates["worker"].tolist() == [0, 0]
    assert tokens.progress.time == 2.0
    assert workers.updates["worker"].tolist() == [0, 1]
    assert workers.progress.time == 10.0


@pytest.mark.parametrize("tokens", [-1, 3])
def test_fewest_tokens_are_enough(tokens):
    """R = 5 of 2 workers: the first step needs 3 besides those that the workers hold."""
    outcome = run(Cluster(2), updates=20, replicas_to_aggregate=5, num_tokens=tokens)
    assert outcome.reached == "updates"


def test_second_gradient_of_returned_worker_counts():
    slow, down = Factor(worker=2, factor=10.0), Crash(worker=0, at=1.5, back=2.0)
    outcome = run(Cluster(workers=3, slowdowns=[slow, down]), updates=6, num_tokens=0)
    assert outcome.updates["worker"][:3].tolist() == [0, 0, 1]
    assert outcome.updates["time"][:3].tolist() == [3.0] * 3
    assert outcome.reached == "updates"


def test_token_awaited_before_crash_is_not_lost():
    """The update comes while the worker computes again: there is no answer to its former
    incarnation, and it asks again after its push.
    """
    latency, slow, down = 0.1, Factor(worker=2, factor=2.5), Crash(worker=0, at=1.5, back=2.0)
    cluster = Cluster(workers=3, slowdowns=[slow, down], network=Network(latency=latency))
    updates = run(cluster, updates=6, num_tokens=0).updates
    mine = np.argsort(updates["started"][updates["worker"] == 0])
    started, computed = (
        updates[column][updates["worker"] == 0][mine] for column in ("started", "computed")
    )
    assert started[1] == pytest.approx(2.0 + 2 * latency)
    assert (started[1:] - computed[:-1] >= 2 * latency - 1e-9).all()
