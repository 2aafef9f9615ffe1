"""The quadratic is what its formula says, for one model and for many."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic, Tridiagonal

OPTIONS = {"curvature": [1.0, 2.0, 5.0], "optimum": [0.5, -1.0, 2.0], "dtype": torch.float64}


def batches(task, count, seeds=(0,)):
    stream = task.batches(0, [np.random.default_rng(seed) for seed in seeds])
    return [next(stream) for _ in range(count)]


def test_the_gradient_is_the_derivative_of_the_loss():
    task = Quadratic(**OPTIONS)
    weights = torch.randn(
        2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    gradients, losses = task.gradients(weights, batches(task, 2))
    (expected,) = torch.autograd.grad(losses.sum(), weights)
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-14)


def test_the_optimum_is_where_loss_distance_and_gradient_vanish():
    task = Quadratic(**OPTIONS, initial=OPTIONS["optimum"])
    weights = task.start([0, 1])
    assert {name: value.tolist() for name, value in task.evaluate(weights).items()} == {
        "test_loss": [0, 0],
        "distance": [0, 0],
    }
    assert not task.gradients(weights[None], batches(task, 1))[0].any()


def test_evaluation_is_exact_suboptimality():
    measures = Quadratic(**OPTIONS).evaluate(torch.tensor([[1.5, 1.0, 2.0]], dtype=torch.float64))
    assert measures["test_loss"].item() == pytest.approx((1 * 1 + 2 * 4) / 2)
    assert measures["distance"].item() == pytest.approx(5**0.5)


def test_noise_has_the_variance_of_a_mini_batch():
    task = Quadratic(dim=20_000, noise=3.0, batch=9, initial=0.0, dtype=torch.float64)
    gradients, losses = task.gradients(task.start([0])[None], batches(task, 1))
    assert gradients.mean().item() == pytest.approx(0.0, abs=0.03)
    assert gradients.std().item() == pytest.approx(1.0, rel=0.02)
    assert losses.item() == 0


def test_eigenvalues_fall_geometrically_to_the_condition_number():
    task = Quadratic(curvature=8.0, dim=4, condition=8.0, initial=1.0, dtype=torch.float64)
    gradients, _ = task.gradients(task.start([0])[None], batches(task, 1))
    torch.testing.assert_close(
        gradients.flatten(), torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=torch.float64)
    )


@pytest.mark.parametrize("dim", [1, 2, 5, 33, 1000, 40_000])
def test_a_model_s_gradient_does_not_depend_on_its_company(dim):
    task = Quadratic(curvature=3.0, dim=dim, condition=10.0, noise=1.0, jitter=1.0)
    weights = task.start(range(12)).reshape(3, 4, dim)
    noise = batches(task, 3)
    gradients, losses = task.gradients(weights, noise)
    for k in range(3):
        for member in range(4):
            gradient, loss = task.gradients(
                weights[k : k + 1, member : member + 1], noise[k : k + 1]
            )
            assert torch.equal(gradient[0, 0], gradients[k, member])
            assert torch.equal(loss[0, 0], losses[k, member])


def test_members_with_their_own_data_seed_draw_as_if_alone():
    task = Quadratic(dim=3)
    (both,) = batches(task, 1, seeds=(1, 2))
    assert torch.equal(both, torch.stack([batches(task, 1, seeds=(seed,))[0] for seed in (1, 2)]))


def test_starts_differ_by_seed_only_where_jitter_is_asked_for():
    assert torch.equal(Quadratic(dim=2).start([0, 1]), torch.ones(2, 2))
    start = Quadratic(dim=2, jitter=0.1).start([0, 1, 0])
    assert torch.equal(start[0], start[2])
    assert not torch.equal(start[0], start[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curvature": -1.0}, "curvature = -1.0"),
        ({"curvature": [1.0, 0.0]}, "positive eigenvalues"),
        ({"curvature": []}, "positive eigenvalues"),
        ({"curvature": [1.0, 2.0], "dim": 3}, "leave dim and condition out"),
        ({"condition": 0.5}, "condition = 0.5"),
        ({"dim": 0}, "dim = 0"),
        ({"batch": 0}, "batch = 0"),
        ({"noise": -1.0}, "noise = -1.0"),
        ({"noise": float("nan")}, "noise = nan"),
        ({"dim": 3, "initial": [1.0, 2.0]}, "initial has 2 coordinates, expected 3"),
    ],
)
def test_what_is_no_quadratic_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Quadratic(**options)


DIMENSIONS = [1, 2, 7, 60]
SHIFT, SCALE = [0.5, [1.0, -2.0, 0.0, 4.0], -1.0], [1.0, 0.5, 3.0]
FORMS = {
    "diagonal": (Quadratic, {"condition": 9.0, "optimum": 2.0}),
    "tridiagonal": (Tridiagonal, {}),
}


def matrix(form, dim):
    """A and w* of a form as its definition has them, the latter by a linear solve."""
    if form == "diagonal":
        return np.diag(np.geomspace(1, 1 / 9, dim)), np.full(dim, 2.0)
    A = (2 * np.eye(dim) - np.eye(dim, k=1) - np.eye(dim, k=-1)) / 4
    return A, np.linalg.solve(A, -np.eye(dim)[0] / 4)


def made(form, dim=4, **options):
    kind, own = FORMS[form]
    return kind(dim=dim, dtype=torch.float64, **own, **options)


@pytest.mark.parametrize("dim", DIMENSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_minimum_and_smoothness_are_those_of_the_dense_matrix(form, dim):
    A, optimum = matrix(form, dim)
    task = made(form, dim)
    np.testing.assert_allclose(task.minimizer.numpy(), optimum, rtol=0, atol=1e-13)
    assert task.smoothness == pytest.approx(np.linalg.eigvalsh(A).max(), rel=1e-13)
    assert task.minimum == 0


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_the_tridiagonal_is_nesterov_s_function_above_its_least_value(dim):
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
@pytest.mark.parametrize("given", [("shift",), ("scale",), ("shift", "scale")], ids="+".join)
def test_each_worker_has_its_own_quadratic_and_their_mean_is_evaluated(form, given):
    """Against f_i with dense matrices and autograd, and the minimum of their mean by a linear
    solve.
    """
    A, optimum = matrix(form, 4)
    shift = [np.broadcast_to(row, 4) if "shift" in given else np.zeros(4) for row in SHIFT]
    scale = SCALE if "scale" in given else [1.0] * 3
    task = made(
        form, noise=0.3, batch=9, **{key: {"shift": SHIFT, "scale": SCALE}[key] for key in given}
    )
    weights = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 2, 4))).requires_grad_()

    def f(worker, w):
        v = w - torch.from_numpy(optimum + shift[worker])
        return scale[worker] * ((v @ torch.from_numpy(A)) * v).sum(-1) / 2

    order = [2, 0, 1]
    drawn = batches_of_all(task, order)
    gradients, losses = task.gradients(weights, drawn)
    expected = torch.stack([f(worker, weights[k]) for k, worker in enumerate(order)])
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(expected.sum(), weights)
    noise = torch.stack([noise for _, noise in drawn])[:, None]
    torch.testing.assert_close(gradients, slope + 0.1 * noise, rtol=0, atol=1e-12)
    products = task.hessian_products(weights, weights, drawn)
    factor = torch.tensor([scale[worker] for worker in order], dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(
        products, factor * (weights @ torch.from_numpy(A)), rtol=0, atol=1e-12
    )

    mean = sum(s * A for s in scale) / 3
    least = np.linalg.solve(
        mean, sum(s * A @ (optimum + c) for s, c in zip(scale, shift, strict=True)) / 3
    )
    np.testing.assert_allclose(task.minimizer.numpy(), least, rtol=0, atol=1e-12)
    assert task.smoothness == pytest.approx(np.linalg.eigvalsh(mean).max(), rel=1e-13)
    at_least = sum(f(worker, torch.from_numpy(least)) for worker in range(3)) / 3
    assert task.minimum == pytest.approx(at_least.item(), abs=1e-12)
    everywhere = sum(f(worker, weights[0]) for worker in range(3)) / 3
    torch.testing.assert_close(
        task.evaluate(weights[0])["test_loss"], everywhere - at_least, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("dim", [2, 33, 40_000])
@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_of_a_worker_does_not_depend_on_its_company(form, dim):
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


def test_a_million_coordinates_need_no_matrix():
    """One would have 4e12 bytes."""
    task = Tridiagonal(dim=1_000_000, shift=[1.0, -1.0])
    weights = task.start([0])[None]
    gradients, losses = task.gradients(weights, batches_of_all(task, [1]))
    # w - w* - c is 1 - k / (d + 1) + 1: a line from 2 to 1, with a jump to 0 at either end
    assert (gradients[0, 0, 0].item(), gradients[0, 0, -1].item()) == pytest.approx(
        (2 / 4, 1 / 4), abs=1e-5
    )
    assert gradients[0, 0, 1:-1].abs().max() < 1e-6
    assert losses.item() == pytest.approx((2**2 + 1**2) / 8, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": [1.0, 2.0], "scale": [1.0]}, "expected 2 numbers"),
        ({"scale": [1.0, 0.0]}, "expected positive numbers"),
        ({"scale": [float("nan")]}, "expected positive numbers"),
        ({"shift": [0.0, [1.0, 2.0]]}, "shift has 2 coordinates, expected 3"),
    ],
)
@pytest.mark.parametrize("kind", [Quadratic, Tridiagonal])
def test_workers_that_are_no_quadratics_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(dim=3, **options)


def test_a_worker_without_a_quadratic_is_refused():
    with pytest.raises(
        ValueError, match="rank 2 has no quadratic: shift and scale are those of 2 workers"
    ):
        Quadratic(shift=[0.0, 1.0]).batches(2, [np.random.default_rng(0)])
