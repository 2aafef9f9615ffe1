"""`gradient.map`: a promise that is its gradient in all but the value."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import AsyncPS, Cluster, Rule, Stop, simulate
from laggard.simulator.algorithms.sharding import Shards
from laggard.simulator.learning.gradients import DROPPED, IN_FLIGHT
from laggard.simulator.learning.pool import GradientPool
from laggard.simulator.learning.promises import evaluate
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.distributions import Exponential


@pytest.fixture
def pool():
    task = Quadratic()
    return GradientPool(task, task.start([0]), lambda *_: None)


def promise(pool):
    model = SimpleNamespace(rank=2, version=5, mixings=1)
    gradient = pool.promise(4, model, torch.ones(1, 2), torch.zeros(1))
    gradient.due = 0.0
    return gradient, model


def test_mapped_gradient_differs_only_in_value(pool):
    gradient, model = promise(pool)
    mapped = gradient.map(lambda own: -3 * own)
    model.version += 2
    for name in ("worker", "version_read", "mixed_read", "staleness", "version", "target", "share"):
        assert getattr(mapped, name) == getattr(gradient, name), name
    assert mapped.weights is gradient.weights
    assert mapped.whole is gradient
    assert mapped.piece(7) is mapped  # one owner alone
    assert torch.equal(mapped.value, -3 * gradient.value)


def test_batches_multiply_share(pool):
    gradient, _ = promise(pool)
    assert (
        gradient.map(lambda own: own, batches=4).map(lambda own: own, batches=2).share
        == 8 * gradient.share
    )


def test_function_is_called_once_when_asked(pool):
    calls = []
    gradient, _ = promise(pool)
    mapped = gradient.map(lambda own, *theirs: calls.append(len(theirs)) or own, gradient, gradient)
    assert (calls, pool.evaluated) == ([], 0)
    once, again = mapped.map(lambda own: own + 1), mapped[0:1]
    evaluate([once, again, mapped])
    assert torch.equal(once.value[:, :1], again.value + 1)
    assert (calls, pool.evaluated) == ([2], 1)


def test_status_is_that_of_gradient(pool):
    gradient, _ = promise(pool)
    mapped = gradient.map(lambda own: own)
    assert mapped.status == IN_FLIGHT
    mapped.drop()
    assert (gradient.status, mapped.status, pool.evaluated) == (DROPPED, DROPPED, 0)
    with pytest.raises(RuntimeError, match="was dropped"):
        gradient.resolve("applied")


def test_dropped_gradient_can_be_fed_back(pool):
    gradient, _ = promise(pool)
    error = gradient.map(lambda own: own / 2)
    error.drop()
    later, _ = promise(pool)
    fed_back = later.map(lambda own, error: own + error, error)
    assert torch.equal(fed_back.value, later.value + gradient.value / 2)


@dataclass(frozen=True)
class Halved(AsyncPS):
    """`async_ps` whose workers send half of their gradients."""

    def worker(self, node):
        servers = Shards(node, self.shards)
        servers.announce()
        while True:
            weights = yield from servers.read()
            gradient = yield node.compute(weights)
            doubled = gradient.map(lambda own: own * 2)
            servers.push(doubled.map(lambda own, raw: own - raw - raw / 2, gradient))


@pytest.mark.parametrize("shards", [1, 2])
def test_half_of_gradient_is_half_of_learning_rate(shards):
    mapped, plain = (
        simulate(Cluster(3, Exponential(1.0)), algorithm, Quadratic(), stop=Stop(updates=40))
        for algorithm in (
            Halved(Rule(lr=0.125), shards=shards),
            AsyncPS(Rule(lr=0.0625), shards=shards),
        )
    )
    assert fingerprint(mapped) == fingerprint(plain)
    assert mapped.gradients == plain.gradients
