"""A gradient cut into buckets of layers, which are sent while the backward pass goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.task import Layer

FIRST_BUCKET = 2.0**20
"""Bytes of the first bucket at most, as in PyTorch: communication begins early."""
UNKNOWN_LAYERS = 100
"""As many equal layers has a model whose task has none."""


class Bucket(NamedTuple):
    """Consecutive layers whose gradients are sent together.

    Attributes:
        columns: their parameters.
        size: of a message with their gradients, in models.
        ready: the share of a mini-batch's work after which these are all there.
    """

    columns: slice
    size: float
    ready: float


@dataclass(frozen=True)
class Bucketed(Algorithm):
    """A method that can send its gradients in buckets, while the backward pass goes on.

    A mini-batch takes f seconds forward and b back; layer l has a share b_l of b, as of the
    network's work. Buckets are filled from the last layer on, and closed once they have c bytes,
    the first once it has 1 MiB. With R(c) the seconds in which c bytes are exchanged, the k-th is
    there after r_k, and exchanged after e_k:

        r_k = f + sum of b_j over the layers j of the buckets 1 .. k,
        e_k = max(r_k, e_{k-1}) + R(c_k)

    One bucket is no overlap, and on a free network e_k = r_k: f + b for the last. Weights are the
    same bit for bit. The last bucket is there when the work is done, also if the first layers have
    no parameters.

    Attributes:
        bucket_bytes: c; without it, the whole gradient is sent once it is computed. PyTorch has
        26,214,400.
        backward: b / f.

    Source: Li et al. (2020), arXiv 2006.15704, section 3.2.3; Sergeev & Del Balso (2018), arXiv
    1802.05799.
    """

    bucket_bytes: Positive | None = field(default=None, kw_only=True)
    backward: Positive = field(default=2.0, kw_only=True)

    def buckets(self, node: Node) -> list[Bucket]:
        """The buckets of the model of `node`, in the order in which they are sent; one without
        `bucket_bytes`.
        """
        if self.bucket_bytes is None:
            return [Bucket(slice(0, node.weights.shape[1]), 1.0, 1.0)]
        return fill_buckets(
            node.layers, node.weights.shape[1], node.model_bytes, self.bucket_bytes, self.backward
        )


def fill_buckets(
    layers: Sequence[Layer], params: int, model_bytes: float, bucket_bytes: float, backward: float
) -> list[Bucket]:
    """The buckets of a model, its last layers first.

    Args:
        layers: the model's; none stand for many equal ones. Where no layer has parameters, all
            weigh the same.
        params: the number of its parameters.
        model_bytes: the size of its message.
        bucket_bytes: the bytes at which a bucket is closed, at the end of a layer.
        backward: the work of a backward pass in forward passes.
    """
    weights = [layer.params for layer in layers] or equal_parts(params, UNKNOWN_LAYERS)
    works = [layer.work for layer in layers] or [1.0] * UNKNOWN_LAYERS
    if not any(weights):
        weights = [1] * len(weights)
    whole, work = sum(weights), sum(works) or 1.0
    buckets, limit, done = [], min(FIRST_BUCKET, bucket_bytes), 0.0
    stop = rest = whole
    for weight, own in zip(reversed(weights), reversed(works), strict=True):
        rest, done = rest - weight, done + own
        if weight and rest and model_bytes * (stop - rest) / whole >= limit:
            ready = (1 + backward * min(done / work, 1.0)) / (1 + backward)
            buckets.append(
                Bucket(
                    slice(*(params * end // whole for end in (rest, stop))),
                    (stop - rest) / whole,
                    ready,
                )
            )
            stop, limit = rest, bucket_bytes
    return [*buckets, Bucket(slice(0, params * stop // whole), stop / whole, 1.0)]


def equal_parts(whole: int, count: int) -> list[int]:
    """`whole` in so many parts, which differ by one at most."""
    return [whole * (part + 1) // count - whole * part // count for part in range(count)]
