"""Weights without a parameter, of runs that are timed alone."""

from types import SimpleNamespace

import pytest
import torch

from laggard.simulator.learning.empty import EmptyWeights
from laggard.simulator.learning.weights import mean, stamp


def test_empty_weights_answer_as_empty_tensor():
    """Each operation of an algorithm gives the same shape as in torch, without arithmetic."""
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
    assert isinstance(EmptyWeights(3).clone(), EmptyWeights)
    assert isinstance(torch.cat([EmptyWeights(3), EmptyWeights(3)], dim=1), EmptyWeights)
    with pytest.raises(AttributeError):
        _ = EmptyWeights(3).stapm


@pytest.mark.parametrize("weights", [EmptyWeights(2), torch.ones(2, 3)])
def test_alias_has_own_stamp(weights):
    one, other = (SimpleNamespace(rank=rank, version=rank, mixings=0) for rank in (3, 4))
    first = stamp(weights, one)
    assert (first.stamp, stamp(first, other).stamp) == ((one, 3, 0), (other, 4, 0))
    assert getattr(first.detach(), "stamp", None) is None


@pytest.mark.parametrize("count", [2, 5, 8, 64])
def test_mean_of_ensemble_matches_members(count):
    """The means agree bit for bit for every tensor width, and have the right value."""
    each = list(torch.randn(count, 3, 1001, generator=torch.Generator().manual_seed(0)))
    before = torch.stack(each)
    whole = mean(each)
    for member in range(3):
        assert torch.equal(
            mean([model[member : member + 1, :333] for model in each]),
            whole[member : member + 1, :333],
        )
    torch.testing.assert_close(
        whole, torch.stack(each).double().mean(0).float(), rtol=1e-6, atol=1e-6
    )
    assert torch.equal(torch.stack(each), before)
