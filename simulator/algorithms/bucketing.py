"""A gradient cut into buckets of layers, which are sent while the backward pass goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.task import Layer

FIRST_BUCKET = 2.0**20
"""The largest size of the first bucket (bytes), as in PyTorch: communication begins early."""
UNKNOWN_LAYERS = 100
"""The number of equal layers of a model whose task has none."""


class Bucket(NamedTuple):
    """Consecutive layers whose gradients are sent together.

    Attributes:
        columns: the parameters of these layers.
        size: the size of a message with their gradients, in models.
        ready: the share of a mini-batch's work after which the gradients are computed.
    """

    columns: slice
    size: float
    ready: float


@dataclass(frozen=True)
class Bucketed(Algorithm):
    """A method that can send its gradients in buckets, while the backward pass goes on.

    Buckets are filled from the last layer on, and closed once they have c bytes, the first once it
    has 1 MiB. A mini-batch takes f seconds forward and b backward; layer l has the part b_l of b,
    in proportion to its work. Bucket k of c_k bytes is computed at r_k and exchanged at e_k, for
    R(c) the seconds in which c bytes are exchanged:

        r_k = f + sum of b_j over the layers j of the buckets 1 .. k,
        e_k = max(r_k, e_{k-1}) + R(c_k)

    One bucket means no overlap; on a free network e_k = r_k, which is f + b for the last. Weights
    are the same bit for bit. The last bucket is ready when the work is done, also if the first
    layers have no parameters.

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
        """The buckets of the model of `node`, in the order in which they are sent."""
        params = node.weights.shape[1]
        if self.bucket_bytes is None:
            return [Bucket(slice(0, params), 1.0, 1.0)]
        limit, backward = self.bucket_bytes, self.backward
        return fill_buckets(node.layers, params, node.model_bytes, limit, backward)


def fill_buckets(
    layers: Sequence[Layer], params: int, model_bytes: float, bucket_bytes: float, backward: float
) -> list[Bucket]:
    """The buckets of a model, its last layers first.

    Args:
        layers: the model's; none stand for many equal ones. Without parameters, all layers have the
            same size.
        params: the number of its parameters.
        model_bytes: the size of its message.
        bucket_bytes: the bytes at which a bucket is closed, at the end of a layer.
        backward: the work of a backward pass in forward passes.
    """
    sizes = [layer.params for layer in layers] or equal_parts(params, UNKNOWN_LAYERS)
    works = [layer.work for layer in layers] or [1.0] * UNKNOWN_LAYERS
    if not any(sizes):
        sizes = [1] * len(sizes)
    total = sum(sizes)
    total_work = sum(works) or 1.0
    buckets = []
    limit = min(FIRST_BUCKET, bucket_bytes)
    done = 0.0
    stop = start = total  # ends of the open bucket, in units of `sizes`
    for size, work in zip(reversed(sizes), reversed(works), strict=True):
        start -= size
        done += work
        is_full = model_bytes * (stop - start) / total >= limit
        # A layer without parameters closes no bucket, and the first layers are the last bucket.
        if is_full and size and start:
            ready = (1 + backward * min(done / total_work, 1.0)) / (1 + backward)
            columns = slice(params * start // total, params * stop // total)
            buckets.append(Bucket(columns, (stop - start) / total, ready))
            stop, limit = start, bucket_bytes
    return [*buckets, Bucket(slice(0, params * stop // total), stop / total, 1.0)]


def equal_parts(whole: int, count: int) -> list[int]:
    """Divide `whole` into `count` parts whose sizes differ by at most one."""
    return [whole * (part + 1) // count - whole * part // count for part in range(count)]
