"""What a pipeline learns of a network, from a sample of zeros."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from laggard.models import LSTM, MLP, NETWORKS, LeNet5, Logistic, ResNet, Transformer, Vision
from laggard.models.flat import flatten
from laggard.models.layers import describe_module, layers


def test_work_and_activations_are_counted():
    found = {
        layer.name: layer for layer in layers(LeNet5().build((1, 28, 28), 10), (1, 28, 28), batch=3)
    }
    assert found["conv1"][1:] == (6 * 25 + 6, 3 * 6 * 28 * 28, 6 * 28 * 28 * 25)
    assert found["conv2"][1:] == (16 * 6 * 25 + 16, 3 * 16 * 10 * 10, 16 * 10 * 10 * 6 * 25)
    assert found["pool2"][1:] == (0, 3 * 16 * 5 * 5, 16 * 5 * 5)
    assert found["full1"][1:] == (400 * 120 + 120, 3 * 120, 400 * 120)


def test_network_on_meta_device_has_same_layers():
    with torch.device("meta"):
        empty = LeNet5().build((1, 28, 28), 10)
    assert layers(empty, (1, 28, 28), 2) == layers(LeNet5().build((1, 28, 28), 10), (1, 28, 28), 2)
    assert next(empty.parameters()).device.type == "meta"


def random_network(name, rng):
    """A network of that name, and the shape of an input that it takes."""
    shape = tuple(rng.integers(1, 9, size=rng.integers(1, 4)).tolist())
    if name == "mlp":
        hidden = rng.integers(1, 30, size=rng.integers(0, 4)).tolist()
        return MLP(hidden, str(rng.choice(["relu", "tanh"]))), shape
    if name == "transformer":
        heads = int(rng.integers(1, 4))
        return Transformer(heads * int(rng.integers(1, 6)), int(rng.integers(1, 4)), heads), (
            int(rng.integers(1, 9)),
        )
    if name == "lstm":
        return LSTM(int(rng.integers(1, 9)), int(rng.integers(1, 4))), (int(rng.integers(1, 9)),)
    if name == "resnet":
        network = ResNet(int(rng.choice([8, 14, 20])), str(rng.choice(["batch", "group"])))
        return network, tuple(rng.integers([1, 1, 1], [4, 20, 20]).tolist())
    if name == "vision":
        return Vision(str(rng.choice(["resnet18", "squeezenet1_1"]))), (3, 32, 32)
    return (LeNet5(), (1, 28, 28)) if name == "lenet5" else (Logistic(), shape)


@pytest.mark.parametrize("name", NETWORKS)
def test_description_matches_built_network(name):
    rng = np.random.default_rng(7)
    for _ in range(1 if name == "vision" else 4):
        network, shape = random_network(name, rng)
        classes = int(rng.integers(2, 12))
        with torch.device("meta"):
            built = describe_module(network.build(shape, classes), shape, classes)
        assert network.describe(shape, classes) == built
        assert built.params == sum(
            parameter.numel() for parameter in network.build(shape, classes).parameters()
        )


def test_network_is_left_unchanged():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    before = flatten(module.parameters()).detach().clone()
    layers(module, (4,), 2)
    assert torch.equal(flatten(module.parameters()), before)
    assert not any(part._forward_hooks for part in module.modules())


@pytest.mark.slow  # a fault costs a second, and no result
def test_compiler_of_torch_is_not_imported():
    """Its import takes a second, and activations on the meta device ask for it."""
    code = (
        "import sys, torch\n"
        "from laggard.models import LeNet5\n"
        "from laggard.models.layers import layers\n"
        "with torch.device('meta'): module = LeNet5().build((1, 28, 28), 10)\n"
        "layers(module, (1, 28, 28), 2)\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules), 'imported'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
