"""Compressors: pure functions that keep k of d numbers of each member, and set the others to 0.

A compressor C of gossip needs |v - C(v)|^2 <= (1 - k/d) |v|^2, in the mean if it is random.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def top_k(values: "Tensor", k: int) -> "Tensor":
    """Keep the k numbers of greatest magnitude of each member of `values` `(ensemble, params)`.

    Of equal ones those of the lowest index are kept, so that a member of an ensemble keeps what a
    run of its own does. k numbers and their indices are sent: 2 k / d models.

    Example:
        >>> import torch
        >>> top_k(torch.tensor([[1.0, -3.0, 3.0, 2.0]]), 2)
        tensor([[ 0., -3.,  3.,  0.]])
    """
    import torch

    order = values.abs().sort(dim=1, descending=True, stable=True).indices
    kept = order[:, :k]
    return torch.zeros_like(values).scatter(1, kept, values.gather(1, kept))


def keep_indices(values: "Tensor", indices: Sequence[int]) -> "Tensor":
    """Keep the numbers of `values` `(ensemble, params)` at k indices, the same for all members.

    Where the indices are drawn at random it is random-k. A receiver that draws the same ones needs
    no indices: k / d models are sent.
    """
    import torch

    mask = torch.zeros(values.shape[1], dtype=torch.bool)
    mask[list(indices)] = True
    return values.where(mask.to(values.device), 0.0)
