"""The quadratic is what its formula says, for one model and for many."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic

OPTIONS = {"curvature": [1.0, 2.0, 5.0], "optimum": [0.5, -1.0, 2.0], "dtype": torch.float64}


def batches(task, count, seeds=(0,)):
    stream = task.batches(0, [np.random.default_rng(seed) for seed in seeds])
    return [next(stream) for _ in range(count)]


def test_the_gradient_is_the_derivative_of_the_loss():
    task = Quadratic(**OPTIONS)
    weights = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
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
    torch.testing.assert_close(gradients.flatten(), torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("dim", [1, 2, 5, 33, 1000, 40_000])
def test_a_model_s_gradient_does_not_depend_on_its_company(dim):
    task = Quadratic(curvature=3.0, dim=dim, condition=10.0, noise=1.0, jitter=1.0)
    weights = task.start(range(12)).reshape(3, 4, dim)
    noise = batches(task, 3)
    gradients, losses = task.gradients(weights, noise)
    for k in range(3):
        for member in range(4):
            gradient, loss = task.gradients(weights[k : k + 1, member : member + 1], noise[k : k + 1])
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
