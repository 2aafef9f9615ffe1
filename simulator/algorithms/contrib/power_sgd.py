"""PowerSGD: matrices of gradients are summed as products of two thin ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.collectives.schedule import ALL, Reduction
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import NonNegativeInt, PositiveInt
from laggard.simulator.learning.compression import move_beside
from laggard.simulator.learning.promises import Derived, Promise, known

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PowerSGD(Reducing):
    """PowerSGD: all-reduce of low-rank gradients, by a step of the power method, with error
    feedback.

    For each n x m matrix of the gradient, at node i, from E_i = 0 and the same random Q on:

        M_i = G_i + E_i;    P = orthonormal(sum_i M_i Q);    Q <- mean_i M_i' P;
        G = P Q';    E_i <- M_i - G

    Both sums are all-reduces, and Q is kept for the next step. Vectors are summed whole. All nodes
    have the same G, by which the rule makes its step. With rank >= min(n, m) for all matrices it is
    `all_reduce`, and the E_i add up to 0. The kernel of a convolution is a matrix of its outputs by
    all the rest. Where the task has no matrices, as in a run of the clock alone, gradients are
    summed whole. Staleness 0.

    A node sends s models in three sums, s = (sum of r (n + m) over the matrices + numbers in
    vectors) / d. On a ring of P equal nodes a step takes t_c + 6 (P - 1) alpha +
    2 ((P - 1) / P) s N beta, where the model has both; its arithmetic takes no time. E_i and Q
    restart after a crash.

    Source: Vogels et al. (2019), arXiv 1905.13727, algorithms 1 and 2, where E_i is the part of M_i
    that the mean G leaves out.

    Attributes:
        rank: r, at most min(n, m) of each matrix.
        coin: the seed of the first Q, independent of all other seeds.
    """

    only_collectives: ClassVar[bool] = True

    rank: PositiveInt = field(default=2, kw_only=True)
    coin: NonNegativeInt = field(default=0, kw_only=True)

    def worker(self, node: Node) -> Role:
        nodes = len(node.members)
        factors = Factors(node.shapes, self.rank)
        state = node.state or self.rule.init(node.weights)
        right: Promise = known(factors.first_right(node.weights, self.coin))
        error: Promise = known(0 * node.weights)
        while True:
            gradient = yield node.compute(node.weights)
            whole = Derived((gradient, error), lambda own, error: own + error)
            vectors: Promise = Derived((whole,), factors.vectors_of)
            vectors = yield from self.sum(node, vectors, factors.vector_width, 0)
            left: Promise = Derived((whole, right), factors.times_right)
            left = yield from self.sum(node, left, factors.left_width, 1)
            left = Derived((left,), factors.orthonormal)
            right = Derived((whole, left), factors.times_left)
            right = yield from self.sum(node, right, factors.right_width, 2)
            right = right * (1 / nodes)
            vectors = vectors * (1 / nodes)
            mean = Derived((left, right, vectors), factors.join)
            error = Derived((whole, mean), factors.rest_of)
            counted = gradient.map(lambda _, mean: mean, mean, batches=nodes)
            weights, state = self.rule.update(node.weights, [counted], state)
            node.apply(weights, [gradient], state)

    def sum(self, node: Node, value: Promise, width: int | None, number: int) -> Reduction:
        """The sum of all nodes' values `(ensemble, width)` in all-reduce `number` of a step.

        Args:
            width: None for all parameters.
        """
        params = node.weights.shape[1]
        share = 1.0
        if width is None:
            width = params
        elif width == 0:
            return value
        else:
            share = width / params
        collective = self.collective_of(node.group_size).of_bucket(ALL, share)
        return (yield from collective.reduce(node, value, width, (node.version, number)))


class Matrix(NamedTuple):
    """A matrix of the model: its columns of a gradient, rows, columns, and the rank of G."""

    place: slice
    n: int
    m: int
    rank: int


class Factors:
    """The thin matrices of a gradient `(ensemble, params)`, each kind side by side in one tensor.

    Attributes:
        left_width, right_width: numbers in all P, and in all Q.
        vector_width: numbers in vectors; None, for all parameters, where there are no matrices.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]], rank: int) -> None:
        self._matrices: list[Matrix] = []
        self._vectors: list[slice] = []
        start = 0
        for shape in shapes.values():
            place = slice(start, start + prod(shape))
            start = place.stop
            if len(shape) > 1:
                n, m = shape[0], prod(shape[1:])
                self._matrices.append(Matrix(place, n, m, min(rank, n, m)))
            else:
                self._vectors.append(place)
        self.left_width = sum(n * rank for _, n, _, rank in self._matrices)
        self.right_width = sum(m * rank for _, _, m, rank in self._matrices)
        self.vector_width: int | None = start - sum(n * m for _, n, m, _ in self._matrices)
        if not self._matrices:
            self.vector_width = None
            self._vectors = [slice(None)]

    def first_right(self, weights: "Tensor", coin: int) -> "Tensor":
        """The first Q, the same at all nodes and for all members."""
        import torch

        drawn = np.random.default_rng(coin).standard_normal(self.right_width)
        alike = torch.from_numpy(drawn).to(weights.dtype).repeat(len(weights), 1)
        return move_beside(weights, alike)

    def vectors_of(self, whole: "Tensor") -> "Tensor":
        """The numbers in vectors."""
        return beside([whole[:, place] for place in self._vectors], whole)

    def times_right(self, whole: "Tensor", right: "Tensor") -> "Tensor":
        """M Q."""
        pairs = zip(self._of(whole), self._rights(right), strict=True)
        return beside([(matrix @ factor).flatten(1) for matrix, factor in pairs], whole)

    def times_left(self, whole: "Tensor", left: "Tensor") -> "Tensor":
        """M' P."""
        pairs = zip(self._of(whole), self._lefts(left), strict=True)
        return beside([(matrix.mT @ factor).flatten(1) for matrix, factor in pairs], whole)

    def orthonormal(self, left: "Tensor") -> "Tensor":
        """P with orthonormal columns that span the same space."""
        import torch

        return beside([torch.linalg.qr(own).Q.flatten(1) for own in self._lefts(left)], left)

    def join(self, left: "Tensor", right: "Tensor", vectors: "Tensor") -> "Tensor":
        """The gradient of all P Q' and vectors."""
        import torch

        if not self._matrices:
            return vectors
        params = vectors.shape[1] + sum(n * m for _, n, m, _ in self._matrices)
        whole = vectors.new_empty(len(vectors), params)
        sizes = [place.stop - place.start for place in self._vectors]
        for place, own in zip(self._vectors, vectors.split(sizes, dim=1), strict=True):
            whole[:, place] = own
        pairs = zip(self._lefts(left), self._rights(right), strict=True)
        for matrix, (one, other) in zip(self._matrices, pairs, strict=True):
            whole[:, matrix.place] = torch.matmul(one, other.mT).flatten(1)
        return whole

    def rest_of(self, whole: "Tensor", mean: "Tensor") -> "Tensor":
        """The residual M - G of all matrices; 0 for vectors."""
        rest = whole - mean
        # Those of vectors would add up to 0, and yet grow where nodes' data differ.
        for place in self._vectors:
            rest[:, place] = 0.0
        return rest

    def _of(self, whole: "Tensor") -> "Iterator[Tensor]":
        for place, n, m, _ in self._matrices:
            yield whole[:, place].reshape(-1, n, m)

    def _lefts(self, left: "Tensor") -> "Iterator[Tensor]":
        sizes = [n * rank for _, n, _, rank in self._matrices]
        for own, (_, n, _, rank) in zip(left.split(sizes, dim=1), self._matrices, strict=True):
            yield own.reshape(-1, n, rank)

    def _rights(self, right: "Tensor") -> "Iterator[Tensor]":
        sizes = [m * rank for _, _, m, rank in self._matrices]
        for own, (_, _, m, rank) in zip(right.split(sizes, dim=1), self._matrices, strict=True):
            yield own.reshape(-1, m, rank)


def beside(parts: "Sequence[Tensor]", like: "Tensor") -> "Tensor":
    """Tensors `(ensemble, n)` side by side; none are `(ensemble, 0)`, in the type of `like`."""
    import torch

    return torch.cat([like[:, :0], *parts], dim=1)
