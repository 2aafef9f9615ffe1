"""Random streams: one child of the seed per purpose and rank, so that a change to one leaves the others alone."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

COMPUTE, BATCHES, WEIGHTS, SLOWDOWNS, CHOICES, TIES = range(6)
"""Purposes. Adding a worker or changing the algorithm leaves every other (purpose, rank) stream as it was."""


def stream(seed: int, purpose: int, rank: int = 0) -> np.random.Generator:
    """The generator of one purpose of one worker, by `SeedSequence` spawn key (purpose, rank).

    Example:
        >>> stream(7, COMPUTE, 3).random() == stream(7, COMPUTE, 3).random()
        True
    """
    key = 2 * rank if rank >= 0 else -2 * rank - 1  # servers have negative ranks, spawn keys none
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, key)))


class Streams(Sequence[np.random.Generator]):
    """The generators of one purpose of one worker under several seeds, each made when it is first used."""

    def __init__(self, seeds: Sequence[int], purpose: int, rank: int) -> None:
        self._made = [partial(stream, seed, purpose, rank) for seed in seeds]
        self._found: dict[int, np.random.Generator] = {}

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place not in self._found:
            self._found[place] = self._made[place]()
        return self._found[place]

    def __len__(self) -> int:
        return len(self._made)


def start_seed(seed: int) -> int:
    """The seed of the initial weights for a learning seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(WEIGHTS,)).generate_state(1, np.uint64)[0] >> 1)


class Seeds(NamedTuple):
    """The seed of the compute times, and the seed of what each member of the ensemble learns."""

    cluster: int
    learning: Sequence[int]

    def data(self) -> Sequence[int]:
        """The seeds of the mini-batches: one where all members share theirs, else one a member."""
        return self.learning[:1] if len(set(self.learning)) == 1 else self.learning
