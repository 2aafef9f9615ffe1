"""Weights without a parameter, of runs that are timed alone."""

import pytest
import torch

from laggard.simulator.learning.empty import EmptyWeights
from laggard.simulator.learning.weights import mean


def test_nothing_answers_as_an_empty_tensor_does():
    """Whatever an algorithm may do with weights: the same shape as torch's, and no arithmetic."""
    empty, lr = torch.empty(3, 0), torch.ones(3, 1)
    asked = [
        lambda x: x - 0.1 * x + x / 2.0,
        lambda x: lr * x,
        lambda x: -x,
        lambda x: x[:, 0:0],
        lambda x: x[1],
        lambda x: torch.stack([x, x]),
        lambda x: torch.stack([x, x]).mean(0),
        lambda x: torch.cat([x, x], dim=1),
        lambda x: torch.zeros_like(x),
        lambda x: x.norm(dim=1),
        lambda x: x.isfinite().all(1),
        lambda x: x.clone().mul(2.0),
        lambda x: x.detach(),
        lambda x: (x * x).sum(),
    ]
    for ask in asked:
        assert ask(EmptyWeights(3)).shape == ask(empty).shape
    assert len(EmptyWeights(3)) == 3
    assert EmptyWeights(3).dtype == empty.dtype
    with pytest.raises(AttributeError):
        _ = EmptyWeights(3).stapm


@pytest.mark.parametrize(("device", "stacked"), [("cpu", 64 * 3 * 1001), ("meta", 5000)])
def test_a_mean_stacks_few_columns_at_once_but_on_a_cpu(device, stacked, monkeypatch):
    each = list(torch.randn(64, 3, 1001, generator=torch.Generator().manual_seed(0)).to(device))
    whole, sizes, stack = torch.stack(each).mean(0), [], torch.stack
    monkeypatch.setattr("laggard.simulator.learning.weights.STACKED", 5000)
    monkeypatch.setattr(torch, "stack", lambda piece: sizes.append(stack(piece).numel()) or stack(piece))
    found = mean(each)
    assert found.shape == whole.shape
    assert 0.9 * stacked < max(sizes) <= stacked
    if device == "cpu":
        assert torch.equal(found, whole)
