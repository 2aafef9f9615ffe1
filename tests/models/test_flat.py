"""A vector and a module are one model."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import MLP, LeNet5
from laggard.models.backends.batched import find_device
from laggard.models.backends.threads import Threads
from laggard.models.flat import Bound, flatten, shapes, unflatten


def perceptron():
    """A module in double precision, and two rows of weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = MLP(hidden=(7,)).build((5,), 10).double()
        start = flatten(module.parameters()).detach()
        return module, start + 0.05 * torch.randn(2, len(start), dtype=torch.float64)


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
    module, weights = perceptron()
    bound, x = Bound(module), torch.ones(1, 5, dtype=torch.float64)
    assert torch.equal(flatten(bound.load(weights[1]).parameters()), weights[1])
    assert not torch.equal(bound.load(weights[1])(x), bound.load(weights[0])(x))


def test_gradients_are_taken_under_no_grad():
    module, weights = perceptron()
    data = torch.ones(4, 5, dtype=torch.float64), torch.arange(4), torch.arange(4).expand(2, 4)
    with torch.no_grad():
        gradients, _ = Threads(module, cross_entropy, threads=1).gradients(weights, *data)
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
