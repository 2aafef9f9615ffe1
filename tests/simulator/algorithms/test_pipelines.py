"""Pipelines: their times, their delays, and the gradients that they are made of."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from laggard.models import MLP, Quadratic, Supervised, digits
from laggard.models.layers import Layer
from laggard.simulator import (
    Cluster,
    Delayed,
    Evaluate,
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
    OneForwardOneBackward,
    PipeDream,
)
from laggard.simulator.algorithms.staging import stage_layers
from laggard.simulator.learning.rules import SGD, Adagrad, Adam, DCASGDa, Nesterov
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Factor
from laggard.simulator.timing.streams import BATCHES, start_seed, stream

OPTIMIZERS = [SGD(), SGD(momentum=0.9), Nesterov(), Adagrad(), Adam()]
FLUSHED = [GPipe, OneForwardOneBackward]
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.7), network=Network(bandwidth=1e3, latency=0.01))


class Together:
    """A task whose mini-batches are several of another task's at once, and its gradients their
    mean.
    """

    def __init__(self, task, count):
        self._task, self._count = task, count
        self.batch, self.epoch, self.lanes = count * task.batch, task.epoch, task.lanes
        self.start, self.evaluate = task.start, task.evaluate

    def batches(self, rank, rngs):
        each = self._task.batches(rank, rngs)
        while True:
            yield [next(each) for _ in range(self._count)]

    def gradients(self, weights, batches):
        pairs = [self._task.gradients(weights, list(micro)) for micro in zip(*batches, strict=True)]
        return tuple(torch.stack(each).mean(0) for each in zip(*pairs, strict=True))


@pytest.fixture(scope="module")
def network():
    return Supervised(MLP([12, 8, 6]).build, digits(), 16, dtype=torch.float64, threads=1)


@pytest.fixture
def quadratic():
    return Quadratic(curvature=2.0, dim=7, condition=10.0, noise=0.3, epoch=40, dtype=torch.float64)


def weights_of(cluster, algorithm, task, updates=30):
    stop, evaluate = Stop(updates=updates), Evaluate(every_updates=updates)
    return simulate(cluster, algorithm, task, stop=stop, evaluate=evaluate)


def update_times(algorithm, stages, updates=12, seconds=1.0, **more):
    """When each update of the first stage, the last to make it, is done."""
    cluster = Cluster(workers=stages, compute=Constant(seconds), **more)
    outcome = simulate(
        cluster, algorithm, Timing(depth=12, activations=0.5), stop=Stop(updates=updates)
    )
    rows = outcome.updates
    return np.unique(rows["time"][rows["target"] == 0])


@pytest.mark.parametrize("algorithm", FLUSHED)
@pytest.mark.parametrize(("stages", "micro"), [(1, 3), (2, 2), (3, 4), (4, 8), (6, 2)])
def test_a_flushed_pipeline_of_equal_stages_takes_m_and_s_less_one_slots(algorithm, stages, micro):
    """(M + S - 1)(f + b), with f + b = 1 / S seconds: a bubble of (S - 1) / (M + S - 1)."""
    times = update_times(algorithm(Rule(), micro_batches=micro), stages)
    np.testing.assert_allclose(np.diff(times, prepend=0), (micro + stages - 1) / stages, rtol=1e-9)


def test_without_a_pipeline_one_stage_works_at_a_time():
    np.testing.assert_allclose(np.diff(update_times(Naive(Rule()), 4), prepend=0), 1.0, rtol=1e-9)


def test_activations_cross_every_cut_and_gradients_come_back():
    """Naive, N = 1 model of 100 bytes: forward and back over S - 1 cuts, half a model each."""
    network = Network(bandwidth=1000.0, latency=0.01, message_bytes=100.0)
    times = update_times(Naive(Rule()), 3, network=network)
    np.testing.assert_allclose(
        np.diff(times, prepend=0), 1.0 + 2 * 2 * (0.01 + 50 / 1000), rtol=1e-9
    )


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_pipelines_without_a_flush_have_no_bubble(stages):
    """In the steady state a mini-batch takes as long as one stage needs for it: 1 / S seconds."""
    for algorithm, micro in ((PipeDream(Rule()), 1), (PipeDream2BW(Rule(), micro_batches=6), 6)):
        steady = np.diff(update_times(algorithm, stages, updates=40))[10:]
        np.testing.assert_allclose(steady.mean(), micro / stages, rtol=1e-6)


@pytest.mark.parametrize("stages", [1, 2, 4, 5])
def test_pipedream_s_stage_s_of_n_is_n_less_s_late(stages):
    outcome = simulate(
        Cluster(workers=stages, compute=Gamma(1.0, 0.4)), PipeDream(Rule()), stop=Stop(updates=60)
    )
    for rank in range(stages):
        late = outcome.updates["staleness"][outcome.updates["target"] == rank]
        assert set(late[stages:]) == {stages - 1 - rank}
        assert late[:stages].tolist() == [min(step, stages - 1 - rank) for step in range(stages)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_naive_is_plain_sgd(optimizer, quadratic, network):
    rule = Rule(optimizer, lr=0.05)
    for task in (quadratic, network):
        pipeline = weights_of(UNEVEN, Naive(rule), task).weights
        assert torch.equal(pipeline, weights_of(Cluster(workers=1), Delayed(rule), task).weights)


@pytest.mark.parametrize("algorithm", FLUSHED)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_a_flushed_pipeline_s_gradient_is_that_of_all_micro_batches_together(
    algorithm, optimizer, quadratic, network
):
    rule = Rule(optimizer, lr=0.05)
    for task in (quadratic, network):
        pipeline = weights_of(UNEVEN, algorithm(rule, micro_batches=3), task).weights
        whole = weights_of(Cluster(workers=1), Delayed(rule), Together(task, 3)).weights
        torch.testing.assert_close(pipeline, whole, rtol=1e-12, atol=1e-13)


def test_gpipe_s_gradient_is_that_of_the_mini_batch_cut_up(network):
    """One pass over the three micro-batches joined: the mean of equal means is the mean."""
    batches = network.batches(0, [stream(0, BATCHES, 0)])
    joined = torch.cat([next(batches) for _ in range(3)])
    weights = weights_of(UNEVEN, GPipe(Rule(lr=1.0), micro_batches=3), network, updates=1).weights
    start = network.start([start_seed(0)])
    gradient, _ = network.gradients(start[None], [joined])
    torch.testing.assert_close(start - weights, gradient[0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
@pytest.mark.parametrize("micro", [3, 5])
def test_2bw_is_a_delay_of_one(optimizer, micro, quadratic, network):
    """Compared stage by stage after the same number of its updates: a run may stop between two
    stages' updates.
    """
    rule, updates = Rule(optimizer, lr=0.05), 20
    for task in (quadratic, network):
        delayed = weights_of(
            Cluster(workers=1), Delayed(rule, delay=1), Together(task, micro), updates
        ).weights
        algorithm = _Until(rule, micro_batches=micro, updates=updates)
        outcome = simulate(UNEVEN, algorithm, task, stop=Stop(time=1e6))
        assert outcome.reached == "returned"
        torch.testing.assert_close(outcome.weights, delayed, rtol=1e-12, atol=1e-13)


class _Until(PipeDream2BW):
    """2BW whose stages return after so many updates each."""

    def __init__(self, rule, micro_batches, updates):
        super().__init__(rule, micro_batches=micro_batches)
        object.__setattr__(self, "updates", updates)

    def worker(self, node):
        role, value = super().worker(node), None
        while True:
            event = role.send(value)
            if node.version == self.updates:
                return
            value = yield event


@pytest.mark.parametrize(
    "algorithm", [Naive, GPipe, OneForwardOneBackward, PipeDream, PipeDream2BW]
)
def test_every_gradient_and_message_of_a_pipeline_is_accounted_for(algorithm, quadratic):
    outcome = weights_of(UNEVEN, algorithm(Rule(lr=0.05, compensation=DCASGDa())), quadratic)
    gradients, messages = outcome.gradients, outcome.messages
    assert gradients["started"] == gradients["applied"] + gradients["in flight"]
    assert gradients["applied"] * quadratic.batch == outcome.progress.samples > 0
    assert messages["sent"] == messages["delivered"] + messages["in flight"]
    assert np.isfinite(outcome.metrics["test_loss"]).all()


def test_a_slow_stage_sets_the_pace():
    slow = [Factor(worker=1, factor=3.0)]
    steady = np.diff(update_times(PipeDream(Rule()), 4, updates=40, slowdowns=slow))[10:]
    np.testing.assert_allclose(steady.mean(), 3 / 4, rtol=1e-6)


def test_layers_are_cut_where_it_is_said_and_else_evenly(network):
    layers = network.layers()
    assert [layer.name for layer in layers] == ["flatten", *(f"{kind}{n}" for n in (1, 2, 3, 4)
                                                            for kind in ("full", "relu"))][:-1]  # fmt: skip
    assert sum(layer.params for layer in layers) == network.params
    stages = stage_layers(layers, 3, ["full2", "full4"])
    assert [stage.params for stage in stages] == [slice(0, 12 * 785), slice(12 * 785, 12 * 785 + 8 * 13 + 6 * 9),
                                                  slice(12 * 785 + 8 * 13 + 6 * 9, network.params)]  # fmt: skip
    assert [stage.activations * network.params for stage in stages[:2]] == pytest.approx(
        [16 * 12, 16 * 6]
    )
    assert sum(stage.work for stage in stages) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_the_even_cut_is_the_best_of_all_cuts(seed):
    rng = np.random.default_rng(seed)
    layers = [
        Layer(f"layer{n}", int(rng.integers(2)), 1.0, float(rng.integers(1, 9))) for n in range(9)
    ]
    learning = [n for n, layer in enumerate(layers) if layer.params]
    for stages in range(1, len(learning) + 1):
        cuts = [(0, *cut, len(layers)) for cut in combinations(learning[1:], stages - 1)]
        best = min(
            max(sum(layer.work for layer in layers[a:b]) for a, b in pairwise(cut)) for cut in cuts
        )
        total = sum(layer.work for layer in layers)
        assert max(stage.work for stage in stage_layers(layers, stages)) * total == pytest.approx(
            best
        )


def test_a_stage_may_begin_with_any_layer_but_the_first():
    layers = [Layer(name, 1, 1.0, 1.0) for name in "abc"]
    assert [stage.params for stage in stage_layers(layers, 2, ["b"])] == [slice(0, 1), slice(1, 3)]
    with pytest.raises(InvalidSettingError, match="1 of the layers b, c"):
        stage_layers(layers, 2, ["a"])


@pytest.mark.parametrize(("cut", "expected"), [
    (["full9"], "2 of the layers"), (["full2"], "2 of the layers"), (["full3", "full2"], "in this order"),
    (["flatten", "full2"], "2 of the layers"), (["full2", "full2"], "2 of the layers"),
])  # fmt: skip
def test_a_cut_that_names_no_layers_in_order_is_refused(cut, expected, network):
    with pytest.raises(InvalidSettingError, match=expected):
        stage_layers(network.layers(), 3, cut)


def test_more_stages_than_layers_are_refused(network):
    with pytest.raises(
        InvalidSettingError, match="at most 4 for a pipeline, a stage for each layer"
    ):
        stage_layers(network.layers(), 5)
    with pytest.raises(
        InvalidSettingError, match="micro_batches: expected at least workers - 1 = 3"
    ):
        simulate(UNEVEN, PipeDream2BW(Rule(), micro_batches=2), stop=Stop(updates=1))


def test_one_stage_is_plain_sgd(quadratic):
    one, rule = Cluster(workers=1, compute=Constant(1.0)), Rule(lr=0.05)
    plain = weights_of(one, Delayed(rule), quadratic)
    for algorithm in (Naive(rule), GPipe(rule, micro_batches=1), PipeDream(rule)):
        outcome = weights_of(one, algorithm, quadratic)
        assert torch.equal(outcome.weights, plain.weights)
        assert math.isclose(outcome.progress.time, plain.progress.time)


def test_a_limit_on_gradients_counts_those_that_a_pipeline_promises():
    outcome = simulate(
        Cluster(workers=2), PipeDream(Rule()), Timing(), stop=Stop(gradients=7, time=50.0)
    )
    assert (outcome.reached, outcome.progress.gradients) == ("gradients", 7)
