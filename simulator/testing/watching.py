"""Nodes that note what they hand out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simulator.algorithm import Algorithm, Role
from simulator.events import Message, Work
from simulator.gradients import Gradient
from simulator.node import Node


class Handed(NamedTuple):
    """A tensor that a node handed out, with torch's count of its changes in place and a copy of what it was."""

    what: str
    tensor: Tensor
    changes: int
    was: Tensor

    def unchanged(self) -> bool:
        """Whether it is what it was, also to torch."""
        same = torch.allclose(self.tensor, self.was, rtol=0, atol=0, equal_nan=True)
        return same and self.tensor._version == self.changes


def watched(algorithm: Algorithm, see: Callable[[Node], None]) -> Algorithm:
    """The same algorithm, whose nodes are shown to `see` before their roles start."""
    roles, seen = algorithm.roles, set[int]()

    def shown(role: Callable[[Node], Role], node: Node) -> Role:
        if node.rank not in seen:
            seen.add(node.rank)
            see(node)
        return role(node)

    def all_shown(workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        return {rank: [partial(shown, role) for role in on] for rank, on in roles(workers).items()}

    twin = copy(algorithm)
    object.__setattr__(twin, "roles", all_shown)
    return twin


def watch(handed: list[Handed], gradients: list[Gradient], node: Node) -> None:
    """Note, with copies, what `node` hands out."""

    class Watched(type(node)):  # type: ignore[misc]
        @property
        def weights(self) -> Tensor:
            return super().weights  # type: ignore[no-any-return]

        @weights.setter
        def weights(self, weights: Tensor) -> None:
            Node.weights.fset(self, weights)  # type: ignore[attr-defined]
            self.hand(f"the model of node {self.rank} after {self.version} updates", super().weights)

        def compute(self, weights: Tensor, *args: Any, **given: Any) -> Work:
            self.hand(f"what node {self.rank} computed at", weights)
            work: Work = super().compute(weights, *args, **given)
            if work.gradient is not None:
                gradients.append(work.gradient)
            return work

        def promise(self, weights: Tensor, *args: Any, **given: Any) -> Gradient:
            self.hand(f"what node {self.rank} took a gradient at", weights)
            gradient: Gradient = super().promise(weights, *args, **given)
            gradients.append(gradient)
            return gradient

        def send(self, receiver: int, content: Any, *args: Any, **given: Any) -> Message:
            self.hand(f"what node {self.rank} sent to node {receiver}", content)
            message: Message = super().send(receiver, content, *args, **given)
            return message

        def hand(self, what: str, content: Any) -> None:
            for tensor in _tensors(content):
                handed.append(Handed(what, tensor, tensor._version, tensor.detach().clone()))

    node.__class__ = Watched


def _tensors(content: Any) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping):
        yield from _tensors(list(content.values()))
    elif isinstance(content, list | tuple):
        for item in content:
            yield from _tensors(item)
