"""Random streams: one child of the seed per purpose and rank, independent of all others."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

Drawn = TypeVar("Drawn")
COMPUTE, BATCHES, WEIGHTS, SLOWDOWNS, CHOICES, TIES, APPLY, RECEIVE, REPLY, LATENCY, CRASHES = (
    range(11)
)
START, UPTIME, DOWNTIME = range(11, 14)
"""The purposes of random streams. A stream depends only on the seed, its purpose and its rank:
further workers, or another algorithm, do not change it.
"""


def stream(seed: int, purpose: int, rank: int = 0) -> np.random.Generator:
    """The generator of one purpose of one worker, by `SeedSequence` spawn key (purpose, rank).

    Example:
        >>> stream(7, COMPUTE, 3).random() == stream(7, COMPUTE, 3).random()
        True
    """
    # Servers have negative ranks, but spawn keys are not negative: workers get even ones.
    key = 2 * rank if rank >= 0 else -2 * rank - 1
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, key)))


class StoredStream:
    """A random stream as a stored state; many share one generator: 0.3 kB instead of 1.6.

    Its numbers are those of `stream(seed, purpose, rank)`.
    """

    __slots__ = ("_shared", "_state")

    def __init__(self, shared: np.random.Generator, seed: int, purpose: int, rank: int) -> None:
        self._shared = shared
        self._state = words(stream(seed, purpose, rank))

    def draw(self, draws: Callable[[np.random.Generator], Drawn]) -> Drawn:
        """The result of `draws(generator)`, which has the stream's state in this call only."""
        state, increment, has_uint32, uinteger = self._state
        self._shared.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        drawn = draws(self._shared)
        self._state = words(self._shared)
        return drawn


def words(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """The state of a generator in four integers."""
    state: Any = rng.bit_generator.state
    return state["state"]["state"], state["state"]["inc"], state["has_uint32"], state["uinteger"]


class Streams(Sequence[np.random.Generator]):
    """The generators of one purpose of one worker under several seeds, made at first use."""

    __slots__ = ("_generators", "_purpose", "_rank", "_seeds")

    def __init__(self, seeds: Sequence[int], purpose: int, rank: int) -> None:
        self._seeds = seeds
        self._purpose = purpose
        self._rank = rank
        self._generators: dict[int, np.random.Generator] | None = None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if self._generators is None:  # a run of the clock alone draws no mini-batches
            self._generators = {}
        if place not in self._generators:
            self._generators[place] = stream(self._seeds[place], self._purpose, self._rank)
        return self._generators[place]

    def __len__(self) -> int:
        return len(self._seeds)


def start_seed(seed: int) -> int:
    """The seed of the initial weights for a learning seed."""
    sequence = np.random.SeedSequence(seed, spawn_key=(WEIGHTS,))
    (state,) = sequence.generate_state(1, np.uint64)
    return int(state >> 1)  # torch takes seeds below 2^63


class Seeds(NamedTuple):
    """The seed of the compute times, and the learning seed of each member of the ensemble."""

    cluster: int
    learning: Sequence[int]

    def data(self) -> Sequence[int]:
        """The seeds of the mini-batches: one that all members share, or else one per member."""
        if len(set(self.learning)) == 1:
            return self.learning[:1]
        return self.learning
