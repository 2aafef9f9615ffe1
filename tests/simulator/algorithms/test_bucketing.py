"""Gradients in buckets: what is in them, when a step is over, and that nothing else changes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.models.layers import Layer
from laggard.simulator import (
    AllReduce,
    Cluster,
    Evaluate,
    Network,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.bucketing import FIRST_BUCKET, fill_buckets
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.learning.rules import Adam
from laggard.simulator.timing.distributions import Constant, Gamma
from tests.cases import quick

DEPTH, P = 12, 4
N = 24 * FIRST_BUCKET
"""Bytes of a model whose layers have two first buckets' each."""


def layer(params, work):
    return Layer("", params, 0.0, work)


@pytest.mark.parametrize("seed", range(20))
def test_buckets_are_smallest_runs_of_whole_layers(seed):
    """Buckets begin at the last layer; all except the last have at least `limit` bytes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 50, rng.integers(1, 30)) * rng.integers(0, 2)
    layers = [layer(int(size), rng.random()) for size in sizes]
    params, scale, c = int(sizes.sum()), 1e5, float(rng.uniform(0.05, 5.0)) * FIRST_BUCKET
    backward = float(rng.uniform(0.5, 3.0))
    buckets = fill_buckets(layers, params, scale * params, c, backward)
    starts = [bucket.columns.start for bucket in buckets]
    stops = [bucket.columns.stop for bucket in buckets]
    ends = np.cumsum([0, *sizes])
    assert set(starts) <= set(ends.tolist())
    assert (stops[0], starts[-1]) == (params, 0)
    assert stops[1:] == starts[:-1]
    shares = [(stop - start) / max(params, 1) for start, stop in zip(starts, stops, strict=True)]
    assert [bucket.size for bucket in buckets] == pytest.approx(shares if params else [1.0])
    works = np.array([each.work for each in layers])
    for number, bucket in enumerate(buckets[:-1]):
        limit = c if number else min(c, FIRST_BUCKET)
        first_layer = np.searchsorted(ends, starts[number], side="right") - 1
        assert scale * (stops[number] - starts[number]) >= limit
        assert scale * (stops[number] - ends[first_layer + 1]) < limit
        done = works[first_layer:].sum() / works.sum()
        ready = (1 + backward * done) / (1 + backward)
        assert bucket.ready == pytest.approx(ready, rel=1e-12)
    assert buckets[-1].ready == 1.0


def test_task_without_layers_has_equal_buckets():
    assert fill_buckets([], 0, 0.0, 1.0, 2.0) == [(slice(0, 0), 1.0, 1.0)]
    buckets = fill_buckets([], 1000, 10 * FIRST_BUCKET, 2 * FIRST_BUCKET, 2.0)
    assert [bucket.columns.start for bucket in buckets] == [900, 700, 500, 300, 100, 0]
    timing = fill_buckets(Timing(depth=4).layers(), 0, 4 * FIRST_BUCKET, 1.0, 2.0)
    assert [bucket.size for bucket in timing] == [0.25] * 4
    assert [bucket.ready for bucket in timing] == pytest.approx([0.5, 4 / 6, 5 / 6, 1.0], rel=1e-12)


def seconds(algorithm, bandwidth, latency=0.0, updates=4, task=None, **more):
    """What each update takes, with t_c = 1 s; the first begins when the model has been read."""
    network = Network(bandwidth=bandwidth, latency=latency, message_bytes=N)
    cluster = Cluster(P, Constant(1.0), network=network, **more)
    rows = simulate(
        cluster, algorithm, task or Timing(depth=DEPTH), stop=Stop(updates=updates)
    ).updates
    return np.diff(np.unique(rows["started"]))


@pytest.mark.parametrize("backward", [0.5, 1.0, 3.0])
def test_share_of_backward_pass_decides_when_buckets_begin(backward):
    """f = 1 / (1 + backward), and the first of twelve buckets is there after b / 12 more; the ring
    then takes 2 (P - 1) / P N beta.
    """
    algorithm = AllReduce(Rule(), bucket_bytes=1.0, backward=backward)
    end = (1 + backward / DEPTH) / (1 + backward) + 2 * (P - 1) / P * 4.0
    np.testing.assert_allclose(seconds(algorithm, N / 4.0), end, rtol=1e-9)


def test_server_updates_bucket_on_arrival():
    """On a free network only the last bucket's share of an update's cost comes after the
    gradient.
    """
    took = seconds(SyncPS(Rule(), bucket_bytes=1.0), math.inf, apply_seconds=0.12)
    np.testing.assert_allclose(took, 1.0 + 0.12 / DEPTH, rtol=1e-9)
    np.testing.assert_allclose(
        seconds(SyncPS(Rule()), math.inf, apply_seconds=0.12), 1.12, rtol=1e-9
    )


def test_accumulated_gradients_are_sent_with_last_mini_batch():
    took = seconds(SyncPS(Rule(), bucket_bytes=1.0, accumulate=3), math.inf)
    np.testing.assert_allclose(took[2::3], 1.0, rtol=1e-12)
    took = seconds(SyncPS(Rule(), bucket_bytes=1.0, accumulate=2), N / 0.1)
    np.testing.assert_allclose(took[1::2], 1 + 2 * P * 0.1 / DEPTH, rtol=1e-9)


WITHOUT = [AllReduce(Rule(Adam()), collective) for collective in COLLECTIVES] + [
    SyncPS(Rule(Adam()), **more)
    for more in ({}, {"shards": 2}, {"accumulate": 2}, {"shards": 3, "accumulate": 2})
]


@pytest.mark.parametrize("workers", quick([1, 3, 5, 8], only=[5]))
@pytest.mark.parametrize("algorithm", WITHOUT)
def test_weights_are_same_in_buckets(algorithm, workers, perceptron):
    """They agree bit for bit: thirteen float32 parameters in buckets of one to five, and a network
    in its two layers.
    """
    if getattr(algorithm, "shards", 1) > workers:
        algorithm = replace(algorithm, shards=1)
    network = Network(bandwidth=300.0, latency=0.01)
    cluster = Cluster(workers, Gamma(1.0, 0.5), network=network)
    single = Quadratic(dim=13, noise=1.0, condition=30.0, dtype=torch.float32)
    more = {"stop": Stop(updates=5), "evaluate": Evaluate(every_updates=5), "ensemble": 2}
    for task, buckets in ((single, (1.0, 20.0)), (perceptron, (1.0,))):
        whole = simulate(cluster, algorithm, task, **more)
        for c in buckets:
            parts = simulate(cluster, replace(algorithm, bucket_bytes=c), task, **more)
            assert torch.equal(parts.weights, whole.weights)
            assert parts.messages["sent"] > whole.messages["sent"] or workers == 1
