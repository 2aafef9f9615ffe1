"""Masks of dropout have the right distribution, and depend on no backend, thread or moment."""

import numpy as np
import pytest
import torch
from torch import nn

from laggard.models import Augmentation, Supervised, Vision
from laggard.models.backends.choice import BACKEND_NAMES
from laggard.models.modules import Dropout, replace_dropout, split_mix, with_draws
from tests.models.images import crops, drawn, images
from tests.models.plain import gradient_by_torch

DATA = images(samples=40, shape=(3, 6, 6))
BITS, P = 64, 0.3


def dense(p=P, inplace=False):
    full = [
        nn.Linear(108, 9),
        nn.Tanh(),
        nn.Dropout(p, inplace),
        nn.Linear(9, 9),
        nn.Dropout(p),
        nn.Linear(9, 4),
    ]
    return nn.Sequential(nn.Flatten(), nn.Dropout(p), *full)


def convolutional(p=P):
    maps = [nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Dropout2d(p)]
    return nn.Sequential(*maps, nn.Flatten(), nn.Dropout(p), nn.Linear(80, 4))


class Twice(nn.Module):
    """One layer of dropout, called twice, and the same under another name."""

    def __init__(self, p=P):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(108, 9), nn.Linear(9, 4), nn.Dropout(p)
        self.again = self.drop

    def forward(self, x):
        return self.last(self.again(self.drop(self.first(x.flatten(1)))))


NETWORKS = {"dense": dense, "convolutional": convolutional, "twice": Twice}


def task(make=dense, data=DATA, **options):
    settings = {"batch": 8, "threads": 1, "device": "cpu", "dtype": torch.float64, **options}
    return Supervised(lambda shape, classes: make(), data, **settings)


def reference(seed, count):
    """Numbers of SplitMix64, in Python's integers."""
    numbers, most = [], 2**BITS
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % most
        z = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 % most
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % most
        numbers.append(z ^ (z >> 31))
    return numbers


def masks(numbers, samples, shapes, p=P, variants=1):
    """The masks of a mini-batch for calls of dropout on such shapes."""
    key = 0
    for place, number in enumerate(numbers.tolist(), 1):
        key += reference(number // samples // variants, place)[-1]
    found = []
    for seed, shape in zip(reference(key % 2**BITS, len(shapes)), shapes, strict=True):
        entries = np.array(reference(seed, int(np.prod(shape))), dtype=np.uint64).astype(np.int64)
        kept = entries.astype(float) >= p * 2.0**BITS - 2.0 ** (BITS - 1)
        found.append(torch.from_numpy(kept / (1 - p)).view(*shape))
    return found


def test_numbers_match_splitmix64():
    """The first numbers for the seed 1234567, as other implementations print them."""
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert reference(1234567, 5) == known
    assert [number % 2**BITS for number in split_mix(torch.tensor(1234567), 5).tolist()] == known


class Masked(nn.Module):
    """A network whose calls of dropout multiply by given masks instead."""

    def __init__(self, module, given):
        super().__init__()
        self.module, self.given = module, iter(given)
        for layer in module.modules():
            if isinstance(layer, nn.Dropout | nn.Dropout2d):
                layer.forward = lambda x: x * next(self.given).to(x)

    def forward(self, x):
        return self.module(x)


SHAPES = {
    "dense": [(8, 108), (8, 9), (8, 9)],
    "convolutional": [(8, 5, 1, 1), (8, 80)],
    "twice": [(8, 9), (8, 9)],
}


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2]], ids=["shared batches", "own batches"])
@pytest.mark.parametrize(
    "augment", [None, Augmentation(crop=1, flip=True)], ids=["plain", "augmented"]
)
@pytest.mark.parametrize("backend", ["threads", "vmap", "vmap-graphs"])
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_have_masks_of_plain_loop(network, backend, augment, seeds):
    made = task(NETWORKS[network], backend=backend, augment=augment)
    weights, variants = (
        made.start([0, 1, 2]).repeat(2, 1, 1),
        1 if augment is None else augment.variants,
    )
    # a recording serves other mini-batches
    for batches in (drawn(made, seeds, 4)[:2], drawn(made, seeds, 4)[2:]):
        gradients, losses = made.gradients(weights, batches)
        for k, member in [(0, 0), (1, 1), (1, 2)]:
            numbers = batches[k] if len(seeds) == 1 else batches[k][member]
            module = Masked(
                NETWORKS[network](), masks(numbers, 40, SHAPES[network], variants=variants)
            ).double()
            x = DATA.train_x[numbers % 40].double()
            if augment is not None:
                x = crops(DATA.train_x, numbers % (40 * variants), augment.crop).double()
            expected = gradient_by_torch(module, weights[k, member], x, DATA.train_y[numbers % 40])
            found = gradients[k, member], losses[k, member]
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in BACKEND_NAMES if name.startswith("unfold")])
def test_unfolding_backends_refuse_dropout(name):
    with pytest.raises(ValueError, match="use 'vmap'"):
        task(backend=name)


def test_nothing_or_everything_can_be_dropped():
    x = torch.ones(5, 7, requires_grad=True)
    for p, expected in ((1.0, 0.0), (1e-30, 1.0)):
        network = nn.Sequential(nn.Dropout(p))
        replace_dropout(network)
        out = with_draws(network)((x, torch.arange(5)))
        assert (out == expected).all()
        (slope,) = torch.autograd.grad(out.sum(), x)
        assert (slope == expected).all()


@pytest.mark.parametrize("network", NETWORKS)
def test_evaluations_drop_nothing(network):
    make = NETWORKS[network]
    dropping, plain = task(make), task(lambda: make(p=0.0))
    weights = plain.start([0, 1])
    for name, values in plain.evaluate(weights).items():
        torch.testing.assert_close(values, dropping.evaluate(weights)[name], rtol=1e-12, atol=1e-12)
    made = task(make, backend="vmap")
    # a pass of training leaves nothing behind
    made.gradients(weights[None, :1], drawn(made, [0], 1))
    for name, values in plain.evaluate(weights).items():
        torch.testing.assert_close(values, made.evaluate(weights)[name], rtol=1e-12, atol=1e-12)


def test_dropout_in_place_changes_nothing():
    usual, in_place = task(), task(lambda: dense(inplace=True))
    weights, batches = usual.start([0])[None], drawn(usual, [0], 1)
    for one, other in zip(
        usual.gradients(weights, batches), in_place.gradients(weights, batches), strict=True
    ):
        assert torch.equal(one, other)


def test_hessian_products_have_masks_of_gradient():
    made = task()
    (batch,), weights = drawn(made, [0], 1), made.start([0])[None]
    direction = torch.from_numpy(np.random.default_rng(1).standard_normal(weights.shape))
    found = made.hessian_products(weights, direction, [batch])
    ahead, behind = (
        made.gradients(weights + sign * 1e-5 * direction, [batch])[0] for sign in (1, -1)
    )
    torch.testing.assert_close(found, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-7)


def test_network_of_torchvision_keeps_dropout_if_asked():
    data = images(16, shape=(3, 32, 32))
    network = Vision("mobilenet_v3_small", dropout=True)
    made = Supervised(network.build, data, 4, threads=1, device="cpu")
    assert [layer.p for layer in made._module(0).modules() if isinstance(layer, Dropout)] == [0.2]
    weights, batches = made.start([0])[None], drawn(made, [0], 2)
    losses = {made.gradients(weights, [batches[0] % 16 + 16 * draw])[1].item() for draw in (0, 1)}
    assert len(losses) == 2
    assert made.gradients(weights, batches[:1])[0].isfinite().all()
    without = Vision("mobilenet_v3_small").describe(data.shape, 4)
    assert network.describe(data.shape, 4) == without
