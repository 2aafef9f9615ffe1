"""Asynchronous replicas of a pipeline: their schedules, the versions of their stages, crashes, and
what is refused.
"""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    SERVER,
    AsyncPipelines,
    AsyncPS,
    Cluster,
    Evaluate,
    InvalidSettingError,
    Network,
    Record,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.learning.rules import DCASGDa
from laggard.simulator.network.topology import Complete, Ring
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.failures import ServerCrash
from laggard.simulator.timing.slowdowns import Crash

S, M, R = 3, 3, 2
SCHEDULES = pytest.mark.parametrize(("schedule", "forward"), [("gpipe", S - 1 + M), ("1f1b", S)])
UNEVEN = Cluster(R * S, compute=Gamma(1.0, 0.7), network=Network(bandwidth=1e3, latency=0.01))


@SCHEDULES
def test_each_replica_has_the_schedule_of_its_pipeline(schedule, forward):
    """The last stage sends its first gradient back after so many forward passes of 2/3 s and one
    backward of 4/3 s.
    """
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R, schedule=schedule)
    cluster, stop = Cluster(R * S, Constant(6.0)), Stop(updates=1)
    log = simulate(
        cluster, algorithm, Timing(depth=S), stop=stop, record=Record(messages=True)
    ).message_log
    for last in range(S - 1, R * S, S):
        first = log["sent"][(log["sender"] == last) & (log["receiver"] == last - 1)].min()
        assert first == pytest.approx(forward * 2 / 3 + 4 / 3)


def by_mini_batch(rows, stages):
    """The versions `(mini-batches, stages)` that the stages of the first replica read for each of
    its mini-batches.
    """
    read = [
        rows["version_read"][(rows["target"] == SERVER - s) & (rows["worker"] == stages - 1)]
        for s in range(stages)
    ]
    complete = min(len(versions) for versions in read)
    return np.stack([versions[:complete] for versions in read], axis=1)


def test_stages_of_one_mini_batch_may_have_seen_different_numbers_of_updates():
    algorithm = AsyncPipelines(Rule(), micro_batches=1, replicas=R)
    versions = by_mini_batch(
        simulate(UNEVEN, algorithm, Timing(depth=S), stop=Stop(updates=60)).updates, S
    )
    assert (np.ptp(versions, axis=1) > 0).any()
    alone = AsyncPipelines(Rule(), micro_batches=1)
    versions = by_mini_batch(
        simulate(UNEVEN, alone, Timing(depth=R * S), stop=Stop(updates=60)).updates, R * S
    )
    assert (np.ptp(versions, axis=1) == 0).all()


def test_all_micro_batches_of_a_stage_read_one_version():
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R)
    rows = simulate(UNEVEN, algorithm, Timing(depth=S), stop=Stop(updates=60)).updates
    updates = np.stack(
        [rows[column].reshape(-1, M) for column in ("target", "version", "worker", "version_read")]
    )
    assert (updates == updates[..., :1]).all()


def test_every_gradient_and_message_is_accounted_for():
    task = Quadratic(curvature=2.0, dim=7, condition=10.0, noise=0.3, epoch=40, dtype=torch.float64)
    algorithm = AsyncPipelines(Rule(lr=0.05, compensation=DCASGDa()), micro_batches=M, replicas=R)
    outcome = simulate(
        UNEVEN, algorithm, task, stop=Stop(updates=30), evaluate=Evaluate(every_updates=30)
    )
    gradients, messages = outcome.gradients, outcome.messages
    assert gradients["started"] == gradients["applied"] + gradients["in flight"]
    assert gradients["applied"] * task.batch == outcome.progress.samples > 0
    assert messages["sent"] == messages["delivered"] + messages["in flight"]
    assert np.isfinite(outcome.metrics["test_loss"]).all()


@pytest.mark.parametrize("back", [None, 9.0])
def test_a_crash_of_a_stage_stops_its_replica_alone(back):
    """Each has 5 s for a mini-batch, whose last stage is through after 11/3 s, and has its input
    long before.
    """
    cluster = Cluster(R * S, Constant(3.0), [Crash(worker=1, at=8.0, back=back)])
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R)
    outcome = simulate(cluster, algorithm, Timing(depth=S), stop=Stop(time=51.0))
    rows = outcome.updates
    per_stage = {
        replica: [
            np.sum((rows["target"] == SERVER - s) & (rows["worker"] == replica * S + S - 1)) / M
            for s in range(S)
        ]
        for replica in range(R)
    }
    assert outcome.reached == "time"
    assert per_stage == {0: [1, 1, 2], 1: [10, 10, 10]}


def test_servers_on_the_machines_of_the_first_replica_answer_it_at_once():
    """Replicas of one stage: 4 s for a gradient, and 3 s for each message to the other replica and
    from it.
    """
    network = Network(bandwidth=1.0, message_bytes=3.0, colocated=True)
    outcomes = [
        simulate(Cluster(2, Constant(4.0), network=network), algorithm, stop=Stop(time=100.0))
        for algorithm in (
            AsyncPipelines(Rule(), micro_batches=1, replicas=2, backward=1.0),
            AsyncPS(Rule()),
        )
    ]
    pushed = [np.bincount(outcome.updates["worker"], minlength=2).tolist() for outcome in outcomes]
    assert pushed[0] == pushed[1] == [25, 10]


REFUSED = {
    "a divisor of workers = 6, so that all replicas have as many stages, got 4": ({"replicas": 4}, {}),
    "at most 4 for a pipeline, a stage for each layer of the model, got 6": ({}, {}),
    "1 of the layers layer2, layer3, layer4, in this order": ({"replicas": 3, "cut": ["layer9"]}, {}),
    "topology: expected auto, since AsyncPipelines sends from 0 to -1, got 'complete'": (
        {"replicas": 3}, {"network": Network(topology=Complete())},
    ),
    "topology: expected auto, since AsyncPipelines sends from 0 to -1, got 'ring'": (
        {"replicas": 3}, {"network": Network(topology=Ring())},
    ),
    "server_crashes: expected none, since no server of AsyncPipelines returns": (
        {"replicas": 3}, {"server_crashes": [ServerCrash(at=1.0, restore_seconds=1.0)]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_run_is_refused(message):
    settings, cluster = REFUSED[message]
    with pytest.raises(InvalidSettingError) as caught:
        simulate(
            Cluster(6, **cluster),
            AsyncPipelines(Rule(), **settings),
            Timing(depth=4),
            stop=Stop(updates=1),
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
