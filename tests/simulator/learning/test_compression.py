"""Compressors: what they keep, ties, members of an ensemble."""

import numpy as np
import pytest
import torch

from laggard.simulator.learning.compression import keep_indices, top_k


@pytest.mark.parametrize("k", [1, 3, 7])
def test_greatest_numbers_are_kept(k):
    values = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = top_k(values, k)
    assert ((kept != 0).sum(1) == k).all()
    assert (kept == values)[kept != 0].all()
    assert (kept.abs().where(kept != 0, torch.inf).amin(1) >= (values - kept).abs().amax(1)).all()
    left = (values - kept).square().sum(1)
    assert (left <= (1 - k / 7) * values.square().sum(1) * (1 + 1e-12)).all()


def test_bound_is_met_by_equal_numbers():
    """No smaller factor than 1 - k / d holds."""
    values = torch.ones(1, 8, dtype=torch.float64)
    left = (values - top_k(values, 3)).square().sum()
    assert left / values.square().sum() == 1 - 3 / 8


def test_ties_fall_to_lowest_index_in_any_ensemble():
    row = torch.tensor([[1.0, -2.0, 2.0, 0.5, 2.0, -1.0] * 50])
    alone = top_k(row, 70)
    lowest = torch.arange(300)[(row.abs() == 2)[0]][:70]
    assert alone.nonzero()[:, 1].tolist() == lowest.tolist()
    together = top_k(torch.cat([torch.flip(row, [1]), row, 0 * row]), 70)
    assert torch.equal(together[1:2], alone)


def test_indices_are_same_for_all_members():
    values = torch.arange(1.0, 13.0).view(3, 4)
    kept = keep_indices(values, [2, 0])
    assert kept.tolist() == [[1, 0, 3, 0], [5, 0, 7, 0], [9, 0, 11, 0]]


def test_values_are_not_changed_in_place():
    values = torch.randn(2, 5)
    before = values.clone()
    top_k(values, 2)
    keep_indices(values, [1])
    assert torch.equal(values, before)


def test_random_indices_leave_share_in_mean():
    """E |v - C(v)|^2 = (1 - k/d) |v|^2, within four standard errors of 4000 draws."""
    values, coin = torch.tensor([[3.0, 1.0, 0.0, -2.0, 5.0]]), np.random.default_rng(0)
    left = []
    for _ in range(4000):
        kept = keep_indices(values, coin.choice(5, 2, replace=False).tolist())
        left.append(float((values - kept).square().sum() / values.square().sum()))
    error = np.std(left, ddof=1) / len(left) ** 0.5
    assert abs(np.mean(left) - (1 - 2 / 5)) <= 4 * error
