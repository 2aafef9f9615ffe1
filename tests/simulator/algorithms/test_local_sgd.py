"""Local SGD and DiLoCo: rounds of local steps, and what the server makes of their average."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    DiLoCo,
    InvalidSettingError,
    KSync,
    LocalSGD,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.learning.rules import (
    SGD,
    Adagrad,
    Adam,
    Nesterov,
    RMSProp,
    WarmUp,
    schedules,
)
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor, Window
from laggard.simulator.timing.streams import BATCHES, stream

LINEAR = [SGD(), SGD(momentum=0.9), Nesterov(momentum=0.8)]
OTHERS = [Adagrad(), RMSProp(decay=0.95), Adam()]
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
LR, ROUNDS = 0.03, 30
PLAIN = {"outer_optimizer": "sgd", "outer_lr": 1.0, "outer_momentum": 0.0}


def weights_of(algorithm, task, cluster=UNEVEN, rounds=ROUNDS):
    return simulate(cluster, algorithm, task, stop=Stop(updates=rounds)).weights


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


SCHEDULES = [schedules.Constant(), WarmUp(length=1.0), WarmUp(length=20.0, unit="updates")]


@pytest.mark.parametrize("optimizer", LINEAR, ids=repr)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_one_local_step_of_a_linear_rule_is_synchronous_sgd(
    optimizer, schedule, quadratic, perceptron
):
    """Also under a schedule: a worker's epochs are the cluster's."""
    rule = Rule(optimizer, LR, schedule)
    for task in (quadratic, perceptron):
        gradients = weights_of(SyncPS(rule), task)
        for average in ("weights", "updates"):
            assert_close(gradients, weights_of(LocalSGD(rule, 1, average), task))


@pytest.mark.parametrize("optimizer", OTHERS, ids=repr)
def test_a_rule_that_is_not_linear_averages_differently(optimizer, quadratic):
    rule = Rule(optimizer, LR)
    assert (
        weights_of(LocalSGD(rule, 1), quadratic) - weights_of(SyncPS(rule), quadratic)
    ).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"local_steps": 1, "reset": True}, SyncPS),
        ({"local_steps": 2}, partial(SyncPS, accumulate=2)),
        ({"local_steps": 1, "wait_for": 3}, partial(KSync, wait_for=3)),
    ],
    ids=repr,
)
def test_nor_is_momentum_the_same_where_buffers_are_reset_or_steps_are_many_or_some_are_late(
    options, other, quadratic
):
    rule = Rule(SGD(momentum=0.9), LR)
    assert (
        weights_of(LocalSGD(rule, **options), quadratic) - weights_of(other(rule), quadratic)
    ).abs().max() > 1e-6


@pytest.mark.parametrize("optimizer", LINEAR + OTHERS, ids=repr)
@pytest.mark.parametrize("method", [LocalSGD, partial(DiLoCo, outer_lr=0.5)], ids=repr)
@pytest.mark.parametrize(
    "options", [{"local_steps": 1}, {}, {"wait_for": 3}, {"reset": True}, {"shards": 2}], ids=repr
)
def test_averaged_weights_are_averaged_updates(optimizer, method, options, quadratic):
    weights, updates = (
        weights_of(
            method(Rule(optimizer, LR), average=of, **{"local_steps": 3, **options}), quadratic
        )
        for of in ("weights", "updates")
    )
    assert_close(weights, updates)


def test_many_steps_are_each_taken_where_the_one_before_led(quadratic):
    P, H, models = UNEVEN.workers, 3, [quadratic.start([0])] * UNEVEN.workers
    streams = [quadratic.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    for _ in range(ROUNDS):
        for rank, batches in enumerate(streams):
            for _ in range(H):
                models[rank] = (
                    models[rank]
                    - LR * quadratic.gradients(models[rank][None], [next(batches)])[0][0]
                )
        models = [torch.stack(models).mean(0)] * P
    assert_close(weights_of(LocalSGD(Rule(lr=LR), H), quadratic), models[0])


def test_reset_forgets_the_buffers_and_not_the_schedule(quadratic):
    """For one step momentum's fresh buffer is the gradient: plain SGD, under a schedule too."""
    forgetful, plain = (
        Rule(optimizer, LR, WarmUp(length=1.0)) for optimizer in (SGD(momentum=0.9), SGD())
    )
    assert_close(
        weights_of(LocalSGD(forgetful, 1, reset=True), quadratic),
        weights_of(LocalSGD(plain, 1), quadratic),
    )


@pytest.mark.parametrize("optimizer", LINEAR + OTHERS, ids=repr)
def test_diloco_with_a_plain_outer_step_is_local_sgd(optimizer, quadratic):
    rule = Rule(optimizer, LR)
    local = weights_of(LocalSGD(rule, 5), quadratic)
    assert_close(local, weights_of(DiLoCo(rule, 5, **PLAIN), quadratic))
    assert (local - weights_of(DiLoCo(rule, 5), quadratic)).abs().max() > 1e-3


@pytest.mark.parametrize("H", [1, 7])
def test_without_noise_a_round_shrinks_every_coordinate_by_its_own_power(H):
    """(1 - lr h)^H a round, however many workers there are."""
    h = [1.0, 4.0, 0.3]
    end = weights_of(
        LocalSGD(Rule(lr=0.1), H), Quadratic(curvature=h, dtype=torch.float64), rounds=9
    )
    expected = (1 - 0.1 * torch.tensor([h], dtype=torch.float64)) ** (9 * H)
    assert_close(end, expected)


@pytest.mark.parametrize(("outer", "nesterov"), [("nesterov", True), ("sgd", False)])
def test_diloco_is_momentum_on_the_curvature_of_a_whole_round(outer, nesterov):
    """To the outer optimiser a round is a gradient k w, k = 1 - (1 - lr h)^H: (w, b) moves by a
    matrix of its own.
    """
    h, lr, H, outer_lr, momentum, rounds = 2.0, 0.1, 6, 0.7, 0.9, 25
    k = 1 - (1 - lr * h) ** H
    if nesterov:  # w - outer_lr (k w + momentum b'), b' = momentum b + k w
        step = np.array(
            [[1 - outer_lr * k * (1 + momentum), -outer_lr * momentum**2], [k, momentum]]
        )
    else:
        step = np.array([[1 - outer_lr * k, -outer_lr * momentum], [k, momentum]])
    expected = (np.linalg.matrix_power(step, rounds) @ [1.0, 0.0])[0]
    options = {"outer_optimizer": outer, "outer_lr": outer_lr, "outer_momentum": momentum}
    task = Quadratic(curvature=h, dtype=torch.float64)
    end = weights_of(DiLoCo(Rule(lr=lr), H, **options), task, rounds=rounds)
    assert float(end) == pytest.approx(expected, rel=1e-11)


def test_a_round_costs_two_messages_a_worker_and_counts_all_its_mini_batches():
    P, H, rounds = 4, 5, 20
    task = Quadratic(batch=2, epoch=100, noise=0.1)
    outcome = simulate(UNEVEN, LocalSGD(Rule(lr=0.02), H), task, stop=Stop(updates=rounds))
    assert outcome.gradients["applied"] == outcome.gradients["started"] == rounds * P * H
    assert outcome.progress.samples == 2 * rounds * P * H
    assert outcome.messages["sent"] == P + P + 2 * P * rounds
    assert (outcome.updates["staleness"] == 0).all()


def test_a_round_takes_its_steps_and_the_servers_card_twice():
    """H t_c + 2 alpha + 2 P N beta under fair sharing, and what an update costs the server."""
    P, H, compute, alpha, size, bandwidth, apply_seconds = 8, 5, 1.0, 0.125, 3.0, 12.0, 0.5
    network = Network(bandwidth=bandwidth, latency=alpha, message_bytes=size)
    cluster = Cluster(P, Constant(compute), network=network, apply_seconds=apply_seconds)
    updates = simulate(cluster, DiLoCo(Rule(), H), stop=Stop(updates=10)).updates
    rounds = np.diff(np.unique(updates["time"]))
    np.testing.assert_allclose(
        rounds, H * compute + 2 * alpha + 2 * P * size / bandwidth + apply_seconds
    )


def test_a_worker_that_was_down_counts_once_a_round():
    """Down after it brought its model, worker 0 waits for the round's end; down before, all wait
    for it.
    """
    slow, after, before = (
        Factor(worker=2, factor=10.0),
        Crash(0, at=2.5, back=3.0),
        Crash(1, at=21.5, back=30.0),
    )
    outcome = simulate(
        Cluster(3, slowdowns=[slow, after, before]), LocalSGD(Rule(), 2), stop=Stop(updates=3)
    )
    assert outcome.reached == "updates"
    assert outcome.progress.time == 60.0
    applied = outcome.updates["status"] == "applied"
    read, worker = outcome.updates["version_read"][applied], outcome.updates["worker"][applied]
    assert all(
        Counter(worker[read == version].tolist()) == {0: 2, 1: 2, 2: 2} for version in range(3)
    )
    assert (outcome.gradients["cancelled"], outcome.gradients["dropped"]) == (1, 0)
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)


@pytest.mark.parametrize("end", [7.0, 30.0])
def test_a_worker_that_crashes_after_its_push_is_answered_once(end):
    """Back at 7.5 s it is not meant by the update of 8 s; its announcement of 8.5 s gets the
    weights.
    """
    slow, down = Window(worker=1, factor=5.0, start=0.0, end=end), Crash(worker=0, at=5.0, back=7.5)
    cluster = Cluster(workers=2, slowdowns=[slow, down], network=Network(latency=1.0))
    outcome = simulate(cluster, LocalSGD(Rule(), 1), stop=Stop(updates=5))
    status, staleness = outcome.updates["status"], outcome.updates["staleness"]
    assert (
        np.sort(outcome.updates["worker"][status == "applied"].reshape(5, 2)).tolist()
        == [[0, 1]] * 5
    )
    assert (staleness[status == "applied"] == 0).all()
    assert "dropped" not in status
    assert outcome.messages["lost"] == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: LocalSGD(Rule(), 0), "local_steps"),
        (
            lambda: LocalSGD(Rule(), average="models"),
            "average: expected weights or updates, got 'models'",
        ),
        (lambda: LocalSGD(Rule(), wait_for=0), "wait_for"),
        (
            lambda: LocalSGD(Rule(), wait_for=5).check(UNEVEN),
            "wait_for: expected at most workers = 4",
        ),
        (lambda: DiLoCo(Rule(), 0), "local_steps"),
        (lambda: DiLoCo(Rule(), outer_lr=0.0), "outer_lr"),
        (lambda: DiLoCo(Rule(), outer_momentum=1.0), "outer_momentum"),
        (
            lambda: DiLoCo(Rule(), outer_optimizer="adam"),
            "outer_optimizer: expected nesterov or sgd, got 'adam'",
        ),
    ],
)
def test_settings_out_of_range_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        wrong()
