"""Pipelines: messages between stages, and how layers are cut into them."""

import math
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch

from laggard.models import MLP, Supervised, digits
from laggard.models.layers import Layer
from laggard.simulator import (
    Cluster,
    Delayed,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.contrib.pipedream_2bw import PipeDream2BW
from laggard.simulator.algorithms.pipelines import (
    GPipe,
    Naive,
    PipeDream,
)
from laggard.simulator.algorithms.staging import stage_layers
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Factor


@pytest.fixture(scope="module")
def network():
    return Supervised(MLP([12, 8, 6]).build, digits(), 16, dtype=torch.float64, threads=1)


def update_times(algorithm, stages, updates=12, **more):
    """When each update of the first stage, the last to make it, is done."""
    task, cluster = Timing(depth=12, activations=0.5), Cluster(stages, Constant(1.0), **more)
    rows = simulate(cluster, algorithm, task, stop=Stop(updates=updates)).updates
    return np.unique(rows["time"][rows["target"] == 0])


def test_activations_cross_every_cut_and_back():
    """Naive, N = 1 model of 100 bytes: forward and back over S - 1 cuts, half a model each."""
    network = Network(bandwidth=1000.0, latency=0.01, message_bytes=100.0)
    took = np.diff(update_times(Naive(Rule()), 3, network=network), prepend=0)
    np.testing.assert_allclose(took, 1.0 + 2 * 2 * (0.01 + 50 / 1000), rtol=1e-9)


def test_slow_stage_sets_pace():
    slow = [Factor(worker=1, factor=3.0)]
    steady = np.diff(update_times(PipeDream(Rule()), 4, updates=40, slowdowns=slow))[10:]
    np.testing.assert_allclose(steady.mean(), 3 / 4, rtol=1e-6)


def test_layers_are_cut_as_told(network):
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
    ("stages", "cut", "text"),
    [
        (3, ["full9"], "2 of the layers"),
        (3, ["full2"], "2 of the layers"),
        (3, ["full3", "full2"], "in this order"),
        (3, ["flatten", "full2"], "2 of the layers"),
        (3, ["full2", "full2"], "2 of the layers"),
        (2, ["flatten"], "1 of the layers"),
        (5, (), "at most 4"),
    ],
)
def test_cut_without_layers_in_order_is_refused(stages, cut, text, network):
    with pytest.raises(InvalidSettingError, match=text):
        stage_layers(network.layers(), stages, cut)


def test_2bw_refuses_too_few_micro_batches():
    algorithm = PipeDream2BW(Rule(), micro_batches=2)
    with pytest.raises(InvalidSettingError, match=r"micro_batches: .* workers - 1 = 3"):
        simulate(Cluster(4), algorithm, stop=Stop(updates=1))


@pytest.mark.parametrize("algorithm", [Naive, partial(GPipe, micro_batches=1), PipeDream])
def test_one_stage_is_plain_sgd(algorithm, quadratic):
    one, other = (
        simulate(Cluster(1), method(Rule(lr=0.05)), quadratic, stop=Stop(updates=30))
        for method in (algorithm, Delayed)
    )
    assert torch.equal(one.weights, other.weights)
    assert math.isclose(one.progress.time, other.progress.time)


def test_limit_on_gradients_counts_those_of_pipeline():
    outcome = simulate(
        Cluster(workers=2), PipeDream(Rule()), Timing(), stop=Stop(gradients=7, time=50.0)
    )
    assert (outcome.reached, outcome.progress.gradients) == ("gradients", 7)
