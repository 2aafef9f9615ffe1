"""The quadratic is what its formula says, for one model and for many."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic, Tridiagonal

OPTIONS = {"curvature": [1.0, 2.0, 5.0], "optimum": [0.5, -1.0, 2.0], "dtype": torch.float64}


def batches(task, count, seeds=(0,)):
    stream = task.batches(0, [np.random.default_rng(seed) for seed in seeds])
    return [next(stream) for _ in range(count)]


def test_evaluation_is_suboptimality():
    measures = Quadratic(**OPTIONS).evaluate(torch.tensor([[1.5, 1.0, 2.0]], dtype=torch.float64))
    assert measures["test_loss"].item() == pytest.approx((1 * 1 + 2 * 4) / 2)
    assert measures["distance"].item() == pytest.approx(5**0.5)


def test_noise_has_variance_of_mini_batch():
    task = Quadratic(dim=20_000, noise=3.0, batch=9, initial=0.0, dtype=torch.float64)
    gradients, losses = task.gradients(task.start([0])[None], batches(task, 1))
    assert gradients.mean().item() == pytest.approx(0.0, abs=0.03)
    assert gradients.std().item() == pytest.approx(1.0, rel=0.02)
    assert losses.item() == 0


def test_starts_differ_by_seed_with_jitter():
    assert torch.equal(Quadratic(dim=2).start([0, 1]), torch.ones(2, 2))
    start = Quadratic(dim=2, jitter=0.1).start([0, 1, 0])
    assert torch.equal(start[0], start[2])
    assert not torch.equal(start[0], start[1])


def test_worker_without_quadratic_is_refused():
    with pytest.raises(ValueError, match="rank 2 has no quadratic"):
        Quadratic(shift=[0.0, 1.0]).batches(2, [np.random.default_rng(0)])


DIMENSIONS = [1, 2, 7, 60]
SHIFT, SCALE = [0.5, [1.0, -2.0, 0.0, 4.0], -1.0], [1.0, 0.5, 3.0]
FORMS = {
    "diagonal": (Quadratic, {"curvature": 8.0, "condition": 9.0, "optimum": 2.0}),
    "tridiagonal": (Tridiagonal, {}),
}


def matrix(form, dim):
    """A and w* of a form as its definition has them, the latter by a linear solve."""
    if form == "diagonal":
        return np.diag(np.geomspace(8, 8 / 9, dim)), np.full(dim, 2.0)
    A = (2 * np.eye(dim) - np.eye(dim, k=1) - np.eye(dim, k=-1)) / 4
    return A, np.linalg.solve(A, -np.eye(dim)[0] / 4)


def made(form, dim=4, **options):
    kind, own = FORMS[form]
    return kind(dim=dim, dtype=torch.float64, **own, **options)


@pytest.mark.parametrize("dim", DIMENSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_minimum_and_smoothness_match_matrix(form, dim):
    A, optimum = matrix(form, dim)
    task = made(form, dim)
    np.testing.assert_allclose(task.minimizer.numpy(), optimum, rtol=0, atol=1e-13)
    assert task.smoothness == pytest.approx(np.linalg.eigvalsh(A).max(), rel=1e-13)
    assert task.minimum == 0


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_tridiagonal_is_function_of_nesterov(dim):
    """f(w) = 1/2 w^T A w - b^T w with the dense A, and f(w*) = -d / (8 (d + 1)); its gradient by
    autograd.
    """
    A, optimum = matrix("tridiagonal", dim)
    b = torch.from_numpy(-np.eye(dim)[0] / 4)
    weights = torch.from_numpy(
        np.random.default_rng(0).standard_normal((2, 3, dim))
    ).requires_grad_()

    def f(w):
        return ((w @ torch.from_numpy(A)) * w).sum(-1) / 2 - w @ b

    least = -dim / (8 * (dim + 1))
    assert f(torch.from_numpy(optimum)).item() == pytest.approx(least, abs=1e-13)
    task = made("tridiagonal", dim)
    gradients, losses = task.gradients(weights, batches(task, 2))
    torch.testing.assert_close(losses, f(weights) - least, rtol=0, atol=1e-12)
    (expected,) = torch.autograd.grad(f(weights).sum(), weights)
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-13)
    measures = task.evaluate(weights[0])
    torch.testing.assert_close(measures["test_loss"], losses[0])
    torch.testing.assert_close(
        measures["distance"], (weights[0] - torch.from_numpy(optimum)).norm(dim=-1)
    )


def batches_of_all(task, workers, seeds=(0,)):
    return [
        next(task.batches(rank, [np.random.default_rng((seed, rank)) for seed in seeds]))
        for rank in workers
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys", [(), ("shift",), ("scale",), ("shift", "scale")], ids="+".join)
def test_each_worker_has_own_quadratic(form, keys):
    """Dense matrices and autograd give f_i, and a linear solve the minimum of their mean."""
    A, optimum = (torch.from_numpy(part) for part in matrix(form, 4))
    settings = {key: {"shift": SHIFT, "scale": SCALE}[key] for key in keys}
    shift = torch.zeros(3, 4, dtype=torch.float64)
    if "shift" in keys:
        shift = torch.tensor(np.stack([np.broadcast_to(row, 4) for row in SHIFT]))
    scale = torch.tensor(SCALE if "scale" in keys else [1.0] * 3, dtype=torch.float64)
    task = made(form, noise=0.3, batch=9, **settings)

    def f(worker, w):
        v = w - optimum - shift[worker]
        return scale[worker] * ((v @ A) * v).sum(-1) / 2

    def mean(w):
        return sum(f(worker, w) for worker in range(3)) / 3

    order = [2, 0, 1] if keys else [0, 0, 0]
    drawn = batches_of_all(task, order)
    weights = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 2, 4))).requires_grad_()
    gradients, losses = task.gradients(weights, drawn)
    expected = torch.stack([f(worker, weights[k]) for k, worker in enumerate(order)])
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(expected.sum(), weights)
    noise = torch.stack([batch[1] if keys else batch for batch in drawn])[:, None]
    torch.testing.assert_close(gradients, slope + 0.1 * noise, rtol=0, atol=1e-12)
    products = task.hessian_products(weights, weights, drawn)
    factor = scale[order][:, None, None]
    torch.testing.assert_close(products, factor * (weights @ A), rtol=0, atol=1e-12)

    right = sum(s * A @ (optimum + c) for s, c in zip(scale, shift, strict=True))
    least = torch.linalg.solve(scale.sum() * A, right)
    torch.testing.assert_close(task.minimizer, least, rtol=0, atol=1e-12)
    assert task.smoothness == pytest.approx(np.linalg.eigvalsh(scale.mean() * A).max(), rel=1e-13)
    assert task.minimum == pytest.approx(mean(least).item(), abs=1e-12)
    measured = task.evaluate(weights[0])["test_loss"]
    torch.testing.assert_close(measured, mean(weights[0]) - mean(least), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 33, 40_000])
@pytest.mark.parametrize("form", FORMS)
def test_gradient_does_not_depend_on_other_models(form, dim):
    kind, own = FORMS[form]
    task = kind(dim=dim, noise=1.0, jitter=1.0, shift=[0.1, -3.0, 2.0], scale=SCALE, **own)
    weights = task.start(range(12)).reshape(3, 4, dim)
    drawn = batches_of_all(task, range(3), seeds=range(4))
    gradients, losses = task.gradients(weights, drawn)
    for k, (rank, noise) in enumerate(drawn):
        for member in range(4):
            alone = [(rank, noise[member : member + 1])]
            gradient, loss = task.gradients(weights[k : k + 1, member : member + 1], alone)
            assert torch.equal(gradient[0, 0], gradients[k, member])
            assert torch.equal(loss[0, 0], losses[k, member])


def test_million_coordinates_need_no_matrix():
    """A dense matrix would have 4e12 bytes."""
    task = Tridiagonal(dim=1_000_000, shift=[1.0, -1.0])
    weights = task.start([0])[None]
    gradients, losses = task.gradients(weights, batches_of_all(task, [1]))
    # w - w* - c is 1 - k / (d + 1) + 1: a line from 2 to 1, with a jump to 0 at either end
    assert (gradients[0, 0, 0].item(), gradients[0, 0, -1].item()) == pytest.approx(
        (2 / 4, 1 / 4), abs=1e-5
    )
    assert gradients[0, 0, 1:-1].abs().max() < 1e-6
    assert losses.item() == pytest.approx((2**2 + 1**2) / 8, rel=1e-4)
