"""Batch normalisation: gradients by the mini-batch's statistics, evaluations by those of a fixed
sample.
"""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import ResNet, Supervised
from laggard.models.recalibration import CALIBRATED
from tests.models.images import images
from tests.models.plain import gradient_by_torch

DATA = images(samples=200)
BATCH = 12


def perceptron(shape, classes, **options):
    """With a layer of batch normalisation that is called twice, one that is never called, and one
    without weights.
    """

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.full, self.again = nn.Linear(int(np.prod(shape)), 10), nn.Linear(10, 10)
            self.twice, self.idle = nn.BatchNorm1d(10, **options), nn.BatchNorm1d(5, **options)
            self.last, self.plain = (
                nn.Linear(10, classes),
                nn.BatchNorm1d(10, affine=False, **options),
            )

        def forward(self, x):
            x = self.twice(self.full(x.flatten(1))).relu()
            return self.last(self.plain(self.twice(self.again(x)).relu()))

    return Net()


NETWORKS = {"resnet8": ResNet(8).build, "perceptron": perceptron}
each = pytest.mark.parametrize("network", NETWORKS)


def supervised(network, data=DATA, **given):
    given = {"threads": 1, "dtype": torch.float64, "device": "cpu", **given}
    return Supervised(NETWORKS[network], data, BATCH, **given)


def recalibrated(network, weights, data=DATA):
    """As torch does it: running statistics are averages over the mini-batches that pass by; then
    evaluation mode.
    """
    module = NETWORKS[network](data.shape, data.classes).double()
    nn.utils.vector_to_parameters(weights, module.parameters())
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    samples = len(data.train_y)
    order = torch.from_numpy(np.random.default_rng(0).permutation(samples))
    with torch.no_grad():
        for start in range(0, min(samples, CALIBRATED) // BATCH * BATCH, BATCH):
            module(data.train_x[order[start : start + BATCH]].double())
    return module.eval()


@each
@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_evaluation_is_torch_after_recalibration(network, backend):
    task = supervised(network, backend=backend)
    weights = task.start([0, 1]) * 1.1
    found = task.evaluate(weights)
    for member, row in enumerate(weights):
        module = recalibrated(network, row)
        with torch.no_grad():
            logits = module(DATA.test_x.double())
        loss = cross_entropy(logits, DATA.test_y)
        assert found["test_loss"][member].item() == pytest.approx(loss.item(), rel=1e-10)
        accuracy = (logits.argmax(1) == DATA.test_y).double().mean()
        assert found["test_accuracy"][member].item() == pytest.approx(accuracy.item())


@each
@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_gradient_has_statistics_of_own_mini_batch(network, backend):
    task = supervised(network, backend=backend)
    weights = task.start([3, 4])[None]
    (batch,) = [next(task.batches(0, [np.random.default_rng(1)]))]
    gradients, losses = task.gradients(weights, [batch])
    for member in range(2):
        module, row = NETWORKS[network](DATA.shape, DATA.classes).double(), weights[0, member]
        x, y = DATA.train_x[batch].double(), DATA.train_y[batch]
        gradient, loss = gradient_by_torch(module, row, x, y)
        torch.testing.assert_close(gradients[0, member], gradient, rtol=1e-10, atol=1e-10)
        assert losses[0, member].item() == pytest.approx(loss.item(), rel=1e-12)


@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_evaluation_depends_only_on_weights(backend):
    """Earlier computations, other ensemble members and other test samples do not change an
    evaluation.
    """
    task = supervised("perceptron", backend=backend)
    weights = task.start([0, 1, 2])
    before = task.evaluate(weights)
    task.gradients(weights[None] + 1.0, [next(task.batches(0, [np.random.default_rng(0)]))])
    again = task.evaluate(weights)
    whole = task._outputs(weights, DATA.test_x.double())
    parts = torch.cat([task._outputs(weights, x) for x in DATA.test_x.double().split(7)], dim=1)
    torch.testing.assert_close(whole, parts, rtol=1e-12, atol=1e-12)
    for name in before:
        assert torch.equal(before[name], again[name])
        alone = torch.cat([task.evaluate(row[None])[name] for row in weights])
        torch.testing.assert_close(
            alone, before[name], rtol=0, atol=0 if backend == "threads" else 1e-12
        )


def test_statistics_have_bounded_number_of_samples():
    data = images(samples=CALIBRATED + 500)
    order = np.random.default_rng(0).permutation(len(data.train_y))
    others = torch.from_numpy(order[CALIBRATED // BATCH * BATCH :])
    far = data.train_x.index_add(0, others, torch.full_like(data.train_x[others], 100.0))
    weights = supervised("perceptron", data).start([0])

    def loss(train_x):
        task = supervised("perceptron", replace(data, train_x=train_x))
        return task.evaluate(weights)["test_loss"]

    assert torch.equal(loss(data.train_x), loss(far))
    assert not torch.equal(loss(data.train_x), loss(data.train_x + 0.1))


def test_module_without_tracking_is_evaluated_alike():
    """Torch's own evaluation would depend on the chunks of the test set."""

    def untracked(shape, classes):
        return perceptron(shape, classes, track_running_stats=False)

    one = supervised("perceptron")
    other = Supervised(untracked, DATA, BATCH, threads=1, dtype=torch.float64, device="cpu")
    weights = one.start([5])
    assert torch.equal(one.evaluate(weights)["test_loss"], other.evaluate(weights)["test_loss"])


def test_layers_in_evaluation_mode_keep_statistics():
    def frozen(shape, classes):
        layers = OrderedDict(flat=nn.Flatten(), norm=nn.BatchNorm1d(int(np.prod(shape))))
        layers["norm"].running_mean += 0.5
        layers["norm"].running_var += 2.0
        layers["norm"].eval()
        return nn.Sequential(layers | {"full": nn.Linear(int(np.prod(shape)), classes)})

    task = Supervised(frozen, DATA, 1, threads=1, dtype=torch.float64, device="cpu")
    weights = task.start([0])
    module = frozen(DATA.shape, DATA.classes).double()
    nn.utils.vector_to_parameters(weights[0], module.parameters())
    with torch.no_grad():
        loss = cross_entropy(module(DATA.test_x.double()), DATA.test_y)
    assert task.evaluate(weights)["test_loss"].item() == pytest.approx(loss.item(), rel=1e-12)


def test_mini_batch_of_one_sample_is_refused():
    with pytest.raises(
        ValueError, match="batch = 1: expected at least 2 under batch normalisation"
    ):
        Supervised(ResNet(8).build, DATA, 1)
    Supervised(ResNet(8, "group").build, DATA, 1)
