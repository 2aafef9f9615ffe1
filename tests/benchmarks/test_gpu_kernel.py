"""The fused kernel of LeNet-5's gradient, compiled as C++, beside autograd in float64."""

import shutil

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from laggard.models import LeNet5
from tests.benchmarks.gpu.kernel import PARAMETERS, OnCpu, block_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here"),
]
MODELS = 5


@pytest.mark.parametrize("group", [4, 8])
@pytest.mark.parametrize("batch", [1, 31, 32, 33])
def test_kernel_is_autograd(group, batch, tmp_path):
    kernel = OnCpu(tmp_path, group)
    assert kernel.block_bytes == block_bytes(group)
    generator = torch.Generator().manual_seed(batch)
    module = LeNet5().build((1, 28, 28), 10).double()
    start = parameters_to_vector(module.parameters()).detach().float()
    weights = start + 0.02 * torch.randn(MODELS, PARAMETERS, generator=generator)
    x = torch.randn(500, 1, 28, 28, generator=generator)
    y = torch.randint(10, (500,), generator=generator)
    index = torch.randint(500, (MODELS, batch), generator=generator)
    found = kernel(weights, x, y, index)
    for model in range(MODELS):
        vector_to_parameters(weights[model].double(), module.parameters())
        loss = cross_entropy(module(x[index[model]].double()), y[index[model]])
        exact = parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))
        error = (found.values[model] - exact).abs().max() / exact.abs().max()
        assert float(error) < 1e-6
        assert float(found.losses[model]) == pytest.approx(float(loss.detach()), rel=1e-5)
