"""Asynchronous replicas of a pipeline: their schedules, the versions of their stages, crashes, and
what is refused.
"""

import numpy as np
import pytest

from laggard.simulator import (
    SERVER,
    AsyncPipelines,
    AsyncPS,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.network.topology import Complete, Ring
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.failures import ServerCrash
from laggard.simulator.timing.slowdowns import Crash

S, M, R = 3, 3, 2
UNEVEN = Cluster(R * S, compute=Gamma(1.0, 0.7), network=Network(bandwidth=1e3, latency=0.01))


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


@pytest.mark.parametrize(("replicas", "differ"), [(R, True), (1, False)])
def test_stages_read_different_versions_with_several_replicas(replicas, differ):
    stages = R * S // replicas
    algorithm, task = (
        AsyncPipelines(Rule(), micro_batches=1, replicas=replicas),
        Timing(depth=stages),
    )
    rows = simulate(UNEVEN, algorithm, task, stop=Stop(updates=60)).updates
    versions = by_mini_batch(rows, stages)
    assert (np.ptp(versions, axis=1) > 0).any() == differ


def test_micro_batches_of_stage_read_one_version():
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R)
    rows = simulate(UNEVEN, algorithm, Timing(depth=S), stop=Stop(updates=60)).updates
    updates = np.stack(
        [rows[column].reshape(-1, M) for column in ("target", "version", "worker", "version_read")]
    )
    assert (updates == updates[..., :1]).all()


@pytest.mark.parametrize("back", [None, 9.0])
def test_crash_of_stage_stops_its_replica_alone(back):
    """Each has 5 s for a mini-batch, whose last stage is through after 11/3 s, and has its input
    long before.
    """
    cluster = Cluster(R * S, Constant(3.0), [Crash(worker=1, at=8.0, back=back)])
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R)
    outcome = simulate(cluster, algorithm, Timing(depth=S), stop=Stop(time=51.0))
    rows = outcome.updates
    updates = np.zeros((R, S))
    np.add.at(updates, (rows["worker"] // S, SERVER - rows["target"]), 1 / M)
    assert outcome.reached == "time"
    np.testing.assert_allclose(updates, [[1, 1, 2], [10, 10, 10]])


def test_servers_on_machine_of_replica_answer_at_once():
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


@pytest.mark.parametrize(
    ("settings", "cluster", "key"),
    [
        ({"replicas": 4}, {}, "replicas"),
        ({}, {}, "at most 4"),
        ({"replicas": 3, "cut": ["layer9"]}, {}, "1 of the layers layer2"),
        ({"replicas": 3}, {"network": Network(topology=Complete())}, "topology"),
        ({"replicas": 3}, {"network": Network(topology=Ring())}, "topology"),
        (
            {"replicas": 3},
            {"server_crashes": [ServerCrash(at=1.0, restore_seconds=1.0)]},
            "server_crashes",
        ),
    ],
)
def test_settings_that_cannot_run_are_refused(settings, cluster, key):
    cluster, algorithm = Cluster(6, **cluster), AsyncPipelines(Rule(), **settings)
    with pytest.raises(InvalidSettingError, match=key):
        simulate(cluster, algorithm, Timing(depth=4), stop=Stop(updates=1))
