"""The networks are the ones their docstrings describe."""

import pytest
import torch
from torch import nn

from laggard.models import MLP, NETWORKS, LeNet5, Logistic


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_lenet5_has_known_number_of_parameters():
    assert parameters(LeNet5().build((1, 28, 28), 10)) == 61_706


def test_relu_after_pooling_is_relu_before_pooling():
    module = LeNet5().build((1, 28, 28), 10).double()
    layers = list(module)
    for pool in (1, 4):
        assert isinstance(layers[pool], nn.MaxPool2d)
        layers[pool : pool + 2] = layers[pool + 1], layers[pool]
    x = torch.randn(9, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    usual = nn.Sequential(*layers)
    assert torch.equal(module(x), usual(x))
    weights = tuple(module.parameters())
    pairs = zip(
        *(torch.autograd.grad(net(x).square().sum(), weights) for net in (module, usual)),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_builds_by_default(name):
    shape, outputs = (1, 28, 28), (2, 10)
    if name == "vision":
        shape = (3, 28, 28)
    elif name in ("transformer", "lstm"):
        shape, outputs = (12,), (2, 12, 10)
    assert NETWORKS[name]().build(shape, 10)(torch.zeros(2, *shape)).shape == outputs
