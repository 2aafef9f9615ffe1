"""The networks are the ones their docstrings describe."""

import pytest
import torch

from laggard.models import MLP, LeNet5, Logistic
from laggard.models.flat import flatten
from tests.benchmarks.plain import text_book_lenet5
from tests.models.plain import gradient_by_torch


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_lenet5_matches_textbook():
    """Its ReLU follows pooling: the same function, and the same gradient."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(9, 1, 28, 28, dtype=torch.float64, generator=generator)
    y = torch.arange(9)
    own, other = LeNet5().build((1, 28, 28), 10).double(), text_book_lenet5().double()
    weights = flatten(own.parameters()).detach()
    found, expected = (gradient_by_torch(module, weights, x, y) for module in (own, other))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_lenet5_refuses_other_inputs():
    with pytest.raises(ValueError, match=r"expected inputs of shape \(1, 28, 28\), got \(20,\)"):
        LeNet5().build((20,), 4)


def test_full_networks_have_given_sizes():
    assert parameters(Logistic().build((1, 28, 28), 10)) == 7_850
    assert (
        parameters(MLP(hidden=(30, 20)).build((5,), 3)) == 5 * 30 + 30 + 30 * 20 + 20 + 20 * 3 + 3
    )
    assert parameters(MLP(hidden=()).build((5,), 3)) == parameters(Logistic().build((5,), 3))
    with pytest.raises(ValueError, match="hidden"):
        MLP(hidden=(3, 0))


def test_tanh_network_without_biases_is_odd():
    """f(-x) = -f(x) does not hold for ReLU networks."""
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for activation, odd in (("tanh", True), ("relu", False)):
        network = MLP(hidden=(30, 20), activation=activation).build((5,), 3)
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
            assert torch.allclose(network(-x), -network(x), atol=1e-6) is odd
