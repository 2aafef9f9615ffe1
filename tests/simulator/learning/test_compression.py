"""Compressors: what they keep, ties, members of an ensemble."""

import torch

from laggard.simulator.learning.compression import keep_indices, top_k


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
