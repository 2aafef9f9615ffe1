"""Pipelines: messages between stages, and how layers are cut into them."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch

from laggard.models import MLP, Supervised, digits
from laggard.models.layers import Layer
from laggard.simulator import (
    SERVER,
    AsyncPipelines,
    AsyncPS,
    Cluster,
    InvalidSettingError,
    Network,
    Record,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.pipelines import (
    GPipe,
    OneForwardOneBackward,
    PipeDream,
)
from laggard.simulator.algorithms.staging import stage_layers
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.simulator.engine.books import check_books


@pytest.fixture(scope="module")
def network():
    return Supervised(MLP([12, 8, 6]).build, digits(), 16, dtype=torch.float64, threads=1)


def test_slow_stage_sets_pace():
    cluster = Cluster(4, Constant(1.0), slowdowns=[Factor(worker=1, factor=3.0)])
    rows = simulate(cluster, PipeDream(Rule()), Timing(depth=12), stop=Stop(updates=40)).updates
    times = np.unique(rows["time"][rows["target"] == 0])
    np.testing.assert_allclose(np.diff(times)[10:].mean(), 3 / 4, rtol=1e-6)


def test_layers_are_cut_at_given_names(network):
    layers = network.layers()
    assert sum(layer.params for layer in layers) == network.params
    first, second, third = stage_layers(layers, 3, ["full2", "full4"])
    sizes = np.cumsum([12 * 785, 8 * 13 + 6 * 9]).tolist()
    assert first.params == slice(0, sizes[0])
    assert second.params == slice(*sizes)
    assert third.params == slice(sizes[1], network.params)
    activations = [stage.activations * network.params for stage in (first, second)]
    assert activations == pytest.approx([16 * 12, 16 * 6])
    assert first.work + second.work + third.work == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_even_cut_is_best_of_all_cuts(seed):
    rng = np.random.default_rng(seed)
    works, params = rng.integers(1, 9, 9), rng.integers(2, size=9)
    layers = [Layer(f"layer{n}", int(params[n]), 1.0, float(work)) for n, work in enumerate(works)]
    _, *starts = np.flatnonzero(params)
    for stages in range(1, len(starts) + 2):
        cuts = combinations(starts, stages - 1)
        best = min(max(np.add.reduceat(works, [0, *cut])) for cut in cuts)
        largest = max(stage.work for stage in stage_layers(layers, stages))
        assert largest * works.sum() == pytest.approx(best)


@pytest.mark.parametrize(
    ("stages", "cut", "key"),
    [
        (3, ["full9"], "cut"),
        (3, ["full2"], "cut"),
        (3, ["full3", "full2"], "cut"),
        (3, ["flatten", "full2"], "cut"),
        (3, ["full2", "full2"], "cut"),
        (2, ["flatten"], "cut"),
        (5, (), "workers"),
    ],
)
def test_cut_without_layers_in_order_is_refused(stages, cut, key, network):
    with pytest.raises(InvalidSettingError) as caught:
        stage_layers(network.layers(), stages, cut)
    assert caught.value.field == key


def test_limit_on_gradients_counts_those_of_pipeline():
    outcome = simulate(
        Cluster(workers=2), PipeDream(Rule()), Timing(), stop=Stop(gradients=7, time=50.0)
    )
    assert (outcome.reached, outcome.progress.gradients) == ("gradients", 7)


S, M, R = 3, 3, 2


@pytest.mark.parametrize("workers", [4, 6, 9])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_stages_send_to_neighbours_and_replicas(collective, workers):
    algorithm = GPipe(Rule(), replicas=workers // 2 if workers < 9 else 3, collective=collective)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(
        cluster, algorithm, Timing(depth=4), stop=Stop(updates=3), record=Record(messages=True)
    )
    used = zip(*(outcome.message_log[end].tolist() for end in ("sender", "receiver")), strict=True)
    assert set(used) == set(algorithm.links(workers))


@pytest.mark.parametrize(
    ("algorithm", "forward"),
    [
        (GPipe, S - 1 + M),
        (OneForwardOneBackward, S),
        (partial(AsyncPipelines, schedule="gpipe"), S - 1 + M),
        (partial(AsyncPipelines, schedule="1f1b"), S),
    ],
)
def test_each_replica_has_schedule_of_its_pipeline(algorithm, forward):
    """The last stage sends its first gradient back after `forward` passes of 2/3 s and one backward
    of 4/3 s.
    """
    cluster, pipelines = (
        Cluster(R * S, Constant(6.0)),
        algorithm(Rule(), micro_batches=M, replicas=R),
    )
    stop, record = Stop(updates=1), Record(messages=True)
    log = simulate(cluster, pipelines, Timing(depth=S), stop=stop, record=record).message_log
    for last in range(S - 1, R * S, S):
        first = log["sent"][(log["sender"] == last) & (log["receiver"] == last - 1)].min()
        assert first == pytest.approx(forward * 2 / 3 + 4 / 3)


@pytest.mark.parametrize("back", [None, 9.0])
def test_crash_of_stage_stops_only_its_replica(back):
    """It begins again once all its stages are up. Each replica has 5 s for a mini-batch, whose last
    stage is through after 11/3 s, and has its input long before.
    """
    cluster = Cluster(R * S, Constant(3.0), [Crash(worker=1, at=8.0, back=back)])
    algorithm = AsyncPipelines(Rule(), micro_batches=M, replicas=R)
    outcome = simulate(cluster, algorithm, Timing(depth=S), stop=Stop(time=51.0))
    rows = outcome.updates
    updates = np.zeros((R, S))
    np.add.at(updates, (rows["worker"] // S, SERVER - rows["target"]), 1 / M)
    assert outcome.reached == "time"
    made = np.array([[1, 1, 2], [10, 10, 10]])
    if back is not None:
        made[0] += 8  # from 9 s on
    np.testing.assert_allclose(updates, made)


def test_replica_that_begins_again_accounts_for_all():
    crashes = [Crash(rank, at=at, back=at + 1.7) for rank, at in ((0, 2.3), (1, 3.3), (0, 12.1))]
    network = Network(bandwidth=400.0, latency=0.05, message_bytes=40.0)
    cluster = Cluster(R * S, Gamma(1.0, 0.3), crashes, network)
    algorithm = AsyncPipelines(Rule(), replicas=R)
    outcome = simulate(cluster, algorithm, Timing(depth=S), stop=Stop(time=60.0))
    check_books(outcome)
    applied = outcome.updates["status"] == "applied"
    last = outcome.updates["time"][applied & (outcome.updates["worker"] < S)].max()
    assert last > 50


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
