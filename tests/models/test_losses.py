"""Losses against their closed-form gradients, by every backend."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import (
    BinaryLoss,
    CrossEntropyLoss,
    Dirichlet,
    LogisticLoss,
    MeanSquaredLoss,
    SquaredLoss,
    Supervised,
    synthetic,
)
from laggard.models.losses import penalty
from laggard.models.networks import MLP, Logistic

DOUBLE = torch.float64
TWO, FOUR = (synthetic(samples=40, features=5, classes=classes) for classes in (2, 4))
RNG = torch.Generator().manual_seed(7)
NUMBERS = replace(
    TWO,
    train_y=torch.randn(40, dtype=DOUBLE, generator=RNG),
    test_y=torch.randn(10, dtype=DOUBLE, generator=RNG),
    classes=1,
    label_kind="numbers",
)
SETS = replace(
    TWO,
    train_y=torch.randint(2, (40, 3), generator=RNG),
    test_y=torch.randint(2, (10, 3), generator=RNG),
    classes=3,
    label_kind="sets",
)
BATCHES = [torch.tensor([3, 7, 11, 2]), torch.tensor([0, 39, 5, 6])]
BACKENDS = pytest.mark.parametrize("backend", ["threads", "vmap", "unfold"])


def linear(data, loss, **given):
    """A linear network, at two models of two members."""
    task = Supervised(
        Logistic().build, data, batch=4, loss=loss, dtype=DOUBLE, device="cpu", threads=1, **given
    )
    weights = torch.randn(
        2, 2, task.params, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)
    )
    return task, weights


def by_hand(data, outputs, slopes, weights):
    """Gradients `(2, 2, params)` and losses `(2, 2)`: `slopes` gives d loss / d outputs and losses,
    a row each.

    Of o = W x + b: dW = 1/B sum s x', db = 1/B sum s.
    """
    x, y = data.train_x.to(DOUBLE), data.train_y
    gradients, losses = torch.empty_like(weights), torch.empty(2, 2, dtype=DOUBLE)
    for k, member in np.ndindex(2, 2):
        model, batch = weights[k, member], BATCHES[k]
        matrix, bias = model[: outputs * 5].view(outputs, 5), model[outputs * 5 :]
        slope, loss = slopes(x[batch] @ matrix.T + bias, y[batch])
        gradients[k, member] = torch.cat([(slope.T @ x[batch]).flatten(), slope.sum(0)]) / len(
            batch
        )
        losses[k, member] = loss.mean()
    return gradients, losses


def squared(outputs, labels):
    rest = outputs - torch.eye(4, dtype=DOUBLE)[labels]
    return rest, (rest * rest).sum(1) / 2


def logistic(outputs, labels):
    sign = (2.0 * labels - 1)[:, None]
    return -sign / (1 + torch.exp(sign * outputs)), torch.log1p(torch.exp(-sign * outputs))


def smoothed(outputs, labels):
    wanted = 0.8 * torch.eye(4, dtype=DOUBLE)[labels] + 0.2 / 4
    return outputs.softmax(1) - wanted, -(wanted * outputs.log_softmax(1)).sum(1)


def mean_squared(outputs, labels):
    rest = outputs[:, 0] - labels
    return 2 * rest[:, None], rest**2


def binary(outputs, labels):
    sign = 2.0 * labels - 1
    losses = torch.log1p(torch.exp(-sign * outputs)).mean(1)
    return -sign / (1 + torch.exp(sign * outputs)) / 3, losses


CASES = {
    "mean_squared": (NUMBERS, 1, MeanSquaredLoss, mean_squared),
    "binary": (SETS, 3, BinaryLoss, binary),
    "squared": (FOUR, 4, SquaredLoss, squared),
    "logistic": (TWO, 1, LogisticLoss, logistic),
    "smoothed": (FOUR, 4, lambda **given: CrossEntropyLoss(smoothing=0.2, **given), smoothed),
}
every_loss = pytest.mark.parametrize("name", CASES)


@every_loss
@pytest.mark.parametrize("strength", [0.0, 0.3])
@BACKENDS
def test_gradients_and_losses_match_hand_calculation(name, strength, backend):
    data, outputs, loss, slopes = CASES[name]
    task, weights = linear(data, loss(regularizer=strength), backend=backend)
    gradients, losses = by_hand(data, outputs, slopes, weights)
    squares = weights**2
    expected = gradients + strength * 2 * weights / (1 + squares) ** 2
    mine, my_losses = task.gradients(weights, BATCHES)
    torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        my_losses, losses + strength * (squares / (1 + squares)).sum(-1), rtol=1e-12, atol=0
    )


@every_loss
@BACKENDS
def test_evaluation_has_loss_and_accuracy(name, backend):
    data, outputs, loss, slopes = CASES[name]
    task, weights = linear(data, loss(regularizer=0.3), backend=backend)
    measured = task.evaluate(weights[0])
    for member, model in enumerate(weights[0]):
        matrix, bias = model[: outputs * 5].view(outputs, 5), model[outputs * 5 :]
        predicted = data.test_x.to(DOUBLE) @ matrix.T + bias
        expected = (
            slopes(predicted, data.test_y)[1].mean() + 0.3 * (model**2 / (1 + model**2)).sum()
        )
        torch.testing.assert_close(measured["test_loss"][member], expected, rtol=1e-12, atol=0)
        if name == "mean_squared":
            assert "test_accuracy" not in measured
            continue
        if name == "binary":
            whole_sets = [
                bool((row > 0).equal(y > 0)) for row, y in zip(predicted, data.test_y, strict=True)
            ]
            assert float(measured["test_accuracy"][member]) == sum(whole_sets) / 10
            continue
        classes = predicted.argmax(1) if outputs > 1 else predicted[:, 0] > 0
        hits = sum(int(one) == int(other) for one, other in zip(classes, data.test_y, strict=True))
        assert float(measured["test_accuracy"][member]) == hits / len(data.test_y)


@every_loss
def test_hessian_products_are_differences_of_gradients(name):
    data, _, loss, _ = CASES[name]
    task, weights = linear(data, loss(regularizer=0.3))
    step = 1e-5 * torch.randn(
        weights.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(2)
    )
    difference = (
        task.gradients(weights + step, BATCHES)[0] - task.gradients(weights - step, BATCHES)[0]
    )
    products = task.hessian_products(weights, step, BATCHES)
    torch.testing.assert_close(2 * products, difference, rtol=1e-7, atol=1e-13)


def test_regulariser_does_not_depend_on_other_models():
    """With two threads, torch splits a long row that is the only one."""
    models, threads = (
        torch.randn(5, 40_001, generator=torch.Generator().manual_seed(3)),
        torch.get_num_threads(),
    )
    torch.set_num_threads(2)
    try:
        assert torch.equal(penalty(models), torch.cat([penalty(model[None]) for model in models]))
    finally:
        torch.set_num_threads(threads)


def test_logistic_loss_needs_two_classes():
    with pytest.raises(
        ValueError, match="expected cross_entropy or squared, since there are 4 classes"
    ):
        Supervised(MLP().build, FOUR, batch=4, loss=LogisticLoss())


def test_default_loss_follows_kind_of_labels():
    for data, loss in ((FOUR, CrossEntropyLoss), (NUMBERS, MeanSquaredLoss), (SETS, BinaryLoss)):
        implied, named = (linear(data, given)[0] for given in (None, loss()))
        weights = named.start([0])[None]
        batches = BATCHES[:1]
        expected = named.gradients(weights, batches)[0]
        assert implied.gradients(weights, batches)[0].equal(expected)


@pytest.mark.parametrize(
    ("data", "loss", "expected"),
    [
        (NUMBERS, CrossEntropyLoss(), "loss = cross_entropy: expected mean_squared, since labels"),
        (NUMBERS, torch.nn.functional.l1_loss, "loss = FunctionLoss: expected mean_squared"),
        (SETS, LogisticLoss(), "loss = logistic: expected binary, since labels are sets"),
        (FOUR, BinaryLoss(), "expected cross_entropy or squared or logistic, since labels are cl"),
    ],
)
def test_loss_for_other_labels_is_refused(data, loss, expected):
    with pytest.raises(ValueError, match=expected):
        linear(data, loss)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda each: each, r"got shape \(2,\) for 2 samples: take the mean"),
        (lambda each: each.mean().item(), "a scalar tensor, got float"),
        (lambda each: each.mean().detach(), "with a gradient, got one without"),
    ],
)
def test_custom_loss_must_be_scalar_with_gradient(value, expected):
    def distance(outputs, targets):
        return value((outputs[:, 0] - targets).abs())

    with pytest.raises(ValueError, match=rf"^distance: expected the mean loss .*{expected}"):
        linear(FOUR, distance)


@pytest.mark.parametrize("data", [NUMBERS, SETS])
def test_partition_by_label_refuses_numbers_and_sets(data):
    with pytest.raises(ValueError, match=r"partition: expected .*disjoint"):
        linear(data, None, partition=Dirichlet(), workers=2)
