"""Crops and reflections equal those of a plain loop, are uniform, and depend on no backend, thread
or moment.
"""

from itertools import islice

import numpy as np
import pytest
import torch

from laggard.models import MLP, Augmentation, LeNet5, ResNet, Supervised
from laggard.models.backends.choice import BACKEND_NAMES
from laggard.models.backends.graphs import RECORD
from laggard.models.variants import Variants, make_variants
from tests.models.images import crops, drawn, images
from tests.models.plain import gradient_by_torch

SMALL = MLP(hidden=(6,))
BOTH = Augmentation(crop=2, flip=True)
RGB, GREY = images(samples=40, shape=(3, 7, 9)), images(samples=40, shape=(1, 28, 28))


def task(network=SMALL, data=RGB, **options):
    return Supervised(
        network.build,
        data,
        **{"batch": 8, "threads": 1, "augment": BOTH, "device": "cpu", **options},
    )


def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("augment", [BOTH, Augmentation(crop=3), Augmentation(flip=True)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 6, 4)])
def test_every_variant_equals_plain_loop(augment, shape):
    x = torch.from_numpy(rng(1).standard_normal((3, *shape)))
    variants = Variants(x, augment.variants, augment.apply)
    numbers = torch.arange(len(variants))
    expected = crops(x, numbers, augment.crop)
    assert torch.equal(variants[numbers], expected)
    assert torch.equal(variants.index_select(0, numbers), expected)
    assert torch.equal(variants[numbers.view(3, -1)], expected.unflatten(0, (3, -1)))
    assert len(torch.unique(expected, dim=0)) == len(numbers)


@pytest.mark.parametrize("augment", [BOTH, Augmentation(flip=True)])
def test_draws_of_large_data_set_fit_64_bits(augment):
    samples = 1 << 30
    x, y = (
        torch.zeros(1, 1, 5, 5).expand(samples, -1, -1, -1),
        torch.zeros(1, dtype=torch.int64).expand(samples),
    )
    _, _, variants = make_variants(x, y, augment, drops=True)
    assert samples * variants < 1 << 63 <= samples * (variants + augment.variants)


def chi_square(counts):
    """Pearson's statistic of equally likely cells, over its deviation from its mean, for (cells -
    1) degrees.
    """
    expected, degrees = counts.mean(), counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees)


def test_variants_are_uniform_and_independent():
    augment = Augmentation(crop=1, flip=True)
    made = task(data=images(samples=40, shape=(3, 4, 4)), augment=augment)
    epochs = [
        np.concatenate(
            [batch.numpy() for batch in islice(made.batches(rank, [rng([7, rank])]), 5 * 400)]
        )
        for rank in range(2)
    ]
    of = [np.empty((400, 40), dtype=int) for _ in epochs]  # (epoch, sample) -> variant
    for variants, numbers in zip(of, epochs, strict=True):
        for epoch, row in enumerate(numbers.reshape(400, 40)):
            variants[epoch, row % 40] = row // 40
    first, second = of
    pairs = {
        "alone": first.ravel(),
        "sample": (first + 18 * np.arange(40)).ravel(),
        "next epoch": (first[1:] + 18 * first[:-1]).ravel(),
        "next sample": (first[:, 1:] + 18 * first[:, :-1]).ravel(),
        "worker": (first + 18 * second).ravel(),
    }
    cells = {"alone": 18, "sample": 18 * 40}
    for name, codes in pairs.items():
        counts = np.bincount(codes, minlength=cells.get(name, 18**2))
        assert counts.size == cells.get(name, 18**2)
        assert abs(chi_square(counts)) < 4, name


@pytest.mark.parametrize("seeds", [[3], [3, 4]], ids=["shared batches", "own batches"])
def test_augmentation_does_not_change_drawn_samples(seeds):
    plain, augmented = drawn(task(augment=None), seeds, 30), drawn(task(), seeds, 30)
    for one, other in zip(plain, augmented, strict=True):
        assert torch.equal(one, other % 40)
    for member, seed in enumerate(seeds):
        alone = drawn(task(), [seed], 30)
        together = [batch if len(seeds) == 1 else batch[member] for batch in augmented]
        assert all(map(torch.equal, together, alone))


def plainly(module, data, row, numbers):
    """The gradient and the loss of one mini-batch by autograd."""
    x = crops(data.train_x, numbers, BOTH.crop).to(row)
    return gradient_by_torch(module, row, x, data.train_y[numbers % len(data.train_y)])


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2]], ids=["shared batches", "own batches"])
@pytest.mark.parametrize(
    ("network", "data", "dtype", "backend"),
    [
        # compiled; by autograd
        *[(LeNet5(), GREY, dtype, "threads") for dtype in (torch.float32, torch.float64)],
        (SMALL, RGB, torch.float32, "threads"),
        (ResNet(depth=8, norm="batch"), RGB, torch.float64, "threads"),
        *[(SMALL, RGB, torch.float64, name) for name in BACKEND_NAMES],
        (LeNet5(), GREY, torch.float64, "vmap"),
        (LeNet5(), GREY, torch.float64, "unfold-graphs"),
    ],
)
def test_gradients_match_autograd(network, data, dtype, backend, seeds):
    made = task(network, data, dtype=dtype, backend=backend)
    weights = made.start([0, 1, 2]).repeat(2, 1, 1)
    module, tolerance = (
        network.build(data.shape, data.classes).to(dtype),
        1e-5 if dtype == torch.float32 else 1e-11,
    )
    # a recording serves other mini-batches
    for batches in (drawn(made, seeds, 4)[:2], drawn(made, seeds, 4)[2:]):
        gradients, losses = made.gradients(weights, batches)
        for k, member in np.ndindex(2, 3):
            numbers = batches[k] if len(seeds) == 1 else batches[k][member]
            gradient, loss = plainly(module, data, weights[k, member], numbers)
            torch.testing.assert_close(
                gradients[k, member], gradient, rtol=tolerance, atol=tolerance
            )
            torch.testing.assert_close(losses[k, member], loss, rtol=tolerance, atol=tolerance)


def test_one_recording_serves_all_mini_batches(monkeypatch):
    recorded = []
    monkeypatch.setitem(RECORD, "cpu", lambda run, pool: recorded.append(run) or run)
    made = task(backend="vmap-graphs")
    for batch in drawn(made, [0], 5):
        made.gradients(made.start([0])[None], [batch])
    assert len(recorded) == 1


@pytest.mark.parametrize(
    "network", [SMALL, ResNet(depth=8, norm="batch")], ids=["plain", "batch norm"]
)
def test_evaluations_have_original_images(network):
    plain, augmented = task(network, augment=None), task(network)
    weights = plain.start([0, 1])
    for name, values in plain.evaluate(weights).items():
        assert torch.equal(values, augmented.evaluate(weights)[name])


def test_nothing_changes_without_crop_and_flip():
    plain, idle = task(augment=None), task(augment=Augmentation())
    for one, other in zip(drawn(plain, [0], 9), drawn(idle, [0], 9), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype == torch.int32
    assert idle._x is idle._data.train_x
    assert idle._y is idle._data.train_y
