"""What is written out for convolutions, run by the interpreter: random networks, whose compilation
would take long.

Arrays are NumPy's there, so that an index beyond the end of one is an error.
"""

import copy

import numba
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.compiled_cache import execute_source
from laggard.models.backends.compiled import compiler, network
from laggard.models.backends.compiled.compiler import source
from laggard.models.backends.threads import Threads
from laggard.models.flat import flatten
from tests.cases import quick
from tests.models.plain import gradient_by_torch

SAMPLES, CLASSES = 37, 3


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch, tmp_path):
    no_vectors = tmp_path / "vectors.py"
    no_vectors.write_text("")
    monkeypatch.setattr(compiler, "VECTORS", no_vectors)

    def passes():
        module = execute_source(source())
        return compiler.Passes(module.differentiate, module.predict)

    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    monkeypatch.setattr(network, "compile_passes", passes)


def random_network(rng):
    """Convolutions and what may follow each, then two linear layers; of inputs `(channels, height,
    width)`.
    """
    shape = channels, height, width = [int(n) for n in rng.integers((1, 5, 5), (4, 12, 12))]
    units = [nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.LeakyReLU(0.1), nn.Identity()]
    layers = []
    for _ in range(rng.integers(1, 4)):
        kernel = [int(rng.integers(1, min(4, side) + 1)) for side in (height, width)]
        padding = [int(rng.integers(0, min(3, side))) for side in kernel]
        outputs = int(rng.integers(1, 10))
        layers.append(
            nn.Conv2d(
                channels, outputs, tuple(kernel), padding=tuple(padding), bias=bool(rng.integers(2))
            )
        )
        channels = outputs
        height, width = (
            side - k + 1 + 2 * pad
            for side, k, pad in zip((height, width), kernel, padding, strict=True)
        )
        follow = [copy.deepcopy(units[rng.integers(len(units))])]
        if min(height, width) > 1 and rng.integers(2):
            follow.insert(int(rng.integers(2)), nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers += follow
    features = channels * height * width
    layers += [
        nn.Flatten(),
        nn.Linear(features, 5),
        nn.ReLU(),
        nn.Linear(5, CLASSES, bias=bool(rng.integers(2))),
    ]
    return nn.Sequential(*layers), shape


@pytest.mark.parametrize("seed", quick(range(100), only=[2, 12]))
def test_random_networks_have_gradients_of_autograd(seed):
    """Of autograd in double precision, so that only one side has rounded."""
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, shape = random_network(rng)
        weights = flatten(module.parameters()).detach()[None].repeat(2, 1)
        weights += 0.1 * torch.randn(weights.shape)
        x, y = torch.randn(SAMPLES, *shape), torch.randint(CLASSES, (SAMPLES,))
    x[..., : shape[2] // 3] = -0.4  # ties where it is pooled
    index = torch.from_numpy(rng.integers(SAMPLES, size=(2, int(rng.integers(1, 40)))))
    exact = copy.deepcopy(module).double()
    backend = Threads(module, cross_entropy, 1)
    backend._mine = None  # autograd would need it
    gradients, losses = backend.gradients(weights, x, y, index)
    outputs = backend.outputs(weights, x)
    for row, batch in enumerate(index):
        own, inputs = weights[row].double(), x.double()
        gradient, loss = gradient_by_torch(exact, own, inputs[batch], y[batch])
        assert abs(losses[row] - loss) < 1e-6 * max(1, loss)
        # 0 where all units are dead
        assert (gradients[row] - gradient).abs().max() <= 2e-6 * gradient.abs().max()
        expected = exact(inputs).detach()
        assert (outputs[row] - expected).abs().max() <= 2e-6 * expected.abs().max()
