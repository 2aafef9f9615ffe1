"""A vector and a module are one model, whose gradient depends on no other."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import MLP, LeNet5
from laggard.models.backends.batched import find_device
from laggard.models.backends.threads import Threads
from laggard.models.flat import Bound, flatten, shapes, unflatten

SAMPLES, BATCH, MODELS = 40, 5, 6


def problem(network, shape):
    """A module, `MODELS` rows of weights, inputs, labels, and a mini-batch of indices per model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = network.build(shape, 10).double()
        start = flatten(module.parameters()).detach()
        weights = start + 0.05 * torch.randn(MODELS, len(start), dtype=torch.float64)
        x = torch.randn(SAMPLES, *shape, dtype=torch.float64)
        return (
            module,
            weights,
            x,
            torch.randint(10, (SAMPLES,)),
            torch.randint(SAMPLES, (MODELS, BATCH)),
        )


def test_unflatten_inverts_flatten():
    module = LeNet5().build((1, 28, 28), 10)
    flat = flatten(module.parameters()).detach()
    views = unflatten(flat, shapes(module))
    assert flat.shape == (61_706,)
    assert all(
        torch.equal(view, parameter)
        for view, parameter in zip(views, module.parameters(), strict=True)
    )
    assert torch.equal(flatten(views), flat)
    assert views[3].untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_bound_module_has_row_that_it_loaded():
    module, weights, x, *_ = problem(MLP(hidden=(7,)), (5,))
    bound = Bound(module)
    assert torch.equal(flatten(bound.load(weights[1]).parameters()), weights[1])
    assert not torch.equal(bound.load(weights[1])(x), bound.load(weights[2])(x))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradient_does_not_depend_on_other_models(threads):
    """An odd number of parameters lets rows of a stack begin at every alignment, on which last
    digits depend.
    """
    module, weights, x, y, index = problem(MLP(hidden=(37,)), (6,))
    together = Threads(module, cross_entropy, threads).gradients(weights, x, y, index)
    alone = Threads(module, cross_entropy, threads=1)
    for row in range(MODELS):
        gradient, loss = alone.gradients(weights[row : row + 1].clone(), x, y, index[row : row + 1])
        assert torch.equal(gradient[0], together[0][row])
        assert torch.equal(loss[0], together[1][row])


def test_gradients_are_taken_under_no_grad():
    module, weights, x, y, index = problem(MLP(hidden=(7,)), (5,))
    with torch.no_grad():
        gradients, _ = Threads(module, cross_entropy, threads=1).gradients(weights, x, y, index)
    assert gradients.abs().sum() > 0


def test_missing_devices_and_threads_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="no GPU"):
        find_device("cuda")
    with pytest.raises(ValueError, match="'tpu'"):
        find_device("tpu")
    with pytest.raises(ValueError, match="threads = 0"):
        Threads(nn.Linear(1, 1), cross_entropy, threads=0)
