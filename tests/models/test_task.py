"""A supervised task keeps the engine's promises: pure functions of ensembles, and common random
numbers.
"""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from laggard.models import (
    MLP,
    ByLabel,
    Disjoint,
    Quadratic,
    Supervised,
    synthetic,
)
from laggard.models.task import member_losses

DATA = synthetic(samples=50, features=4, classes=3)


def task(**options):
    return Supervised(MLP(hidden=(6,)).build, DATA, **{"batch": 8, "threads": 2, **options})


def rng(seed):
    return np.random.default_rng(seed)


def drawn(iterator, count):
    return [batch.tolist() for batch in islice(iterator, count)]


def test_start_matches_torch_by_seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        module = MLP(hidden=(6,)).build((4,), 3)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    state = torch.get_rng_state()
    start = task().start([7, 1, 7])
    assert torch.equal(start[0], expected)
    assert torch.equal(start[0], start[2])
    assert not torch.equal(start[0], start[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(task(dtype=torch.float64).start([7])[0], expected.double())


def test_epoch_is_permutation_and_remainder_wraps():
    # 200 indices: four epochs of 50, whose ends cut batches of 8
    batches = drawn(task().batches(0, [rng(0)]), 25)
    assert {len(batch) for batch in batches} == {8}
    indices = np.concatenate(batches).reshape(4, 50)
    assert (np.sort(indices) == np.arange(50)).all()
    assert (indices[0] != indices[1]).any()


def test_large_batch_repeats_samples_of_shard():
    made = task(batch=30, partition=Disjoint(), workers=5)
    (batch,) = drawn(made.batches(2, [rng(0)]), 1)
    assert len(batch) == 30
    assert np.unique(batch, return_counts=True)[1].tolist() == [3] * 10


def test_worker_draws_from_own_shard():
    made = task(partition=ByLabel(), workers=3, partition_seed=1)
    seen = [set(np.concatenate(drawn(made.batches(rank, [rng(0)]), 20))) for rank in range(3)]
    assert set.union(*seen) == set(range(50))
    assert sum(map(len, seen)) == 50
    again = task(partition=ByLabel(), workers=3, partition_seed=1)
    assert drawn(again.batches(1, [rng(0)]), 20) == drawn(made.batches(1, [rng(0)]), 20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "by autograd"])
@pytest.mark.parametrize("own", [False, True], ids=["shared batches", "own batches"])
def test_ensemble_is_its_members(own, dtype):
    """An odd number of parameters lets rows begin at every alignment, on which last digits depend."""
    made = task(dtype=dtype)
    weights = made.start(range(12)).reshape(4, 3, -1)
    batches = list(islice(made.batches(0, [rng(seed) for seed in range(3 if own else 1)]), 4))
    gradients, losses = made.gradients(weights, batches)
    measures = made.evaluate(weights[0])
    assert gradients.shape == weights.shape
    for member in range(3):
        for k in range(4):
            batch = batches[k][member] if own else batches[k]
            gradient, loss = made.gradients(weights[k : k + 1, member : member + 1], [batch])
            assert torch.equal(gradient[0, 0], gradients[k, member])
            assert torch.equal(loss[0, 0], losses[k, member])
        for name, value in made.evaluate(weights[0, member : member + 1]).items():
            assert torch.equal(value[0], measures[name][member])


@pytest.mark.parametrize(
    "made",
    [task(), task(backend="vmap"), Quadratic(dim=30, noise=1.0)],
    ids=["threads", "vmap", "quadratic"],
)
def test_weights_are_left_unchanged(made):
    weights = made.start([0, 1]).clone()[None]
    copy, version = weights.clone(), weights._version
    made.gradients(weights, [next(made.batches(0, [rng(0)]))])
    made.evaluate(weights[0])
    assert torch.equal(weights, copy)
    assert weights._version == version


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: task(batch=0), "batch = 0"),
        (lambda: task(partition=Disjoint()), "workers = None"),
        (lambda: task(partition=Disjoint(), workers=3).batches(3, [rng(0)]), "rank 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(("device", "calls"), [("cpu", 5), ("meta", 1)])
def test_losses_of_members_are_one_call_on_gpu(device, calls):
    counted = []

    def loss(outputs, targets):
        counted.append(len(outputs))
        return nn.functional.cross_entropy(outputs, targets)

    outputs, targets = (
        torch.rand(5, 30, 3, device=device),
        torch.zeros(30, dtype=torch.int64, device=device),
    )
    losses = member_losses(loss, outputs, targets)
    assert (losses.shape, len(counted)) == ((5,), calls)
    if device == "cpu":
        assert torch.equal(losses, torch.stack([loss(output, targets) for output in outputs]))
