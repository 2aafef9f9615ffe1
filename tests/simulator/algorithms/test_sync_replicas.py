"""TensorFlow's tokens: what they let through, what they waste, and when they are no different from
waiting for all.
"""

from collections import Counter

import numpy as np
import pytest
import torch

from laggard.simulator import (
    Cluster,
    InvalidSettingError,
    KSync,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms.sync_replicas import SyncReplicas
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor


def run(cluster, task=None, updates=200, rule=None, **options):
    return simulate(
        cluster, SyncReplicas(rule or Rule(lr=0.05), **options), task, stop=Stop(updates=updates)
    )


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9), Adam()], ids=repr)
def test_a_token_each_and_none_to_begin_with_is_lock_step(optimizer, quadratic):
    cluster, rule = Cluster(workers=4, compute=Gamma(1.0, 0.5)), Rule(optimizer, lr=0.03)
    tokens = run(cluster, quadratic, updates=40, rule=rule, num_tokens=0)
    lock_step = simulate(cluster, SyncPS(rule), quadratic, stop=Stop(updates=40))
    assert torch.equal(tokens.weights, lock_step.weights)
    np.testing.assert_array_equal(tokens.updates["time"], lock_step.updates["time"])
    assert not torch.equal(tokens.weights, run(cluster, quadratic, updates=40, rule=rule).weights)


@pytest.mark.parametrize(
    ("P", "R", "tokens"),
    [(8, 5, -1), (8, 5, 0), (8, 1, 0), (5, 5, -1), (3, 7, -1), (3, 7, 4), (3, 7, 9)],
)
@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0)])
def test_an_update_costs_as_many_pushes_as_it_makes_tokens(P, R, tokens, law):
    """max(R, P), of which R count; tokens and pushes of the start and the end differ by the initial
    tokens and P.
    """
    updates = 400
    outcome = run(
        Cluster(workers=P, compute=law), updates=updates, replicas_to_aggregate=R, num_tokens=tokens
    )
    fates = outcome.gradients
    assert fates["applied"] == R * updates
    assert abs(fates["dropped"] - (max(R, P) - R) * updates) <= max(R, P) + P + max(tokens, R)
    assert (outcome.updates["staleness"][outcome.updates["status"] == "applied"] == 0).all()


@pytest.mark.parametrize("P", [2, 6])
def test_equal_workers_waste_a_gradient_each_on_the_tokens_of_the_start(P):
    """Their second push holds the first step's token, and is dropped though it is taken at the
    newest weights.
    """
    outcome = run(Cluster(workers=P, compute=Constant(1.0)), updates=30)
    dropped = outcome.updates["status"] == "dropped"
    assert Counter(outcome.updates["worker"][dropped].tolist()) == dict.fromkeys(range(P), 1)
    assert (outcome.updates["time"][dropped] == 2.0).all()
    assert (outcome.updates["staleness"][dropped] == 0).any(), (
        "fresh, and dropped for its token's sake"
    )
    assert outcome.progress.time == 31.0


def test_an_early_worker_contributes_twice_with_the_tokens_of_the_start():
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


def test_more_replicas_than_workers_are_several_mini_batches_each():
    P, each = 4, 3
    outcome = run(
        Cluster(workers=P, compute=Constant(1.0)),
        updates=50,
        replicas_to_aggregate=each * P,
        num_tokens=2 * P,
    )
    assert outcome.progress.time == 50 * each
    assert outcome.gradients["dropped"] == 0


@pytest.mark.parametrize("tokens", range(-1, 4))
def test_too_few_tokens_are_refused_and_the_fewest_are_enough(tokens):
    """R = 5 of 2 workers: the first step needs 3 besides what the workers hold."""
    algorithm, cluster = (
        SyncReplicas(Rule(), replicas_to_aggregate=5, num_tokens=tokens),
        Cluster(workers=2),
    )
    if tokens in (-1, 3):
        assert simulate(cluster, algorithm, stop=Stop(updates=20)).reached == "updates"
    else:
        with pytest.raises(
            InvalidSettingError,
            match="num_tokens: expected -1, or at least replicas_to_aggregate - workers = 3",
        ):
            simulate(cluster, algorithm, stop=Stop(updates=20))


@pytest.mark.parametrize("wrong", [{"num_tokens": -2}, {"replicas_to_aggregate": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        SyncReplicas(Rule(), **wrong)


def test_a_worker_that_comes_back_holds_the_present_step_and_its_second_gradient_counts():
    slow, down = Factor(worker=2, factor=10.0), Crash(worker=0, at=1.5, back=2.0)
    outcome = run(Cluster(workers=3, slowdowns=[slow, down]), updates=6, num_tokens=0)
    assert outcome.updates["worker"][:3].tolist() == [0, 0, 1]
    assert outcome.updates["time"][:3].tolist() == [3.0] * 3
    assert outcome.reached == "updates"
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)


def test_nobody_takes_the_token_that_a_worker_waited_for_when_it_went_down():
    """The update comes while it computes anew: it has no answer to its former life, and asks again
    after its push.
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
