"""Random streams: one child of the seed per purpose and rank, so that a change to one leaves the
others alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

Drawn = TypeVar("Drawn")
COMPUTE, BATCHES, WEIGHTS, SLOWDOWNS, CHOICES, TIES, APPLY, RECEIVE, REPLY, LATENCY, CRASHES = (
    range(11)
)
"""Purposes. Adding a worker or changing the algorithm leaves every other (purpose, rank) stream as
it was.
"""


def stream(seed: int, purpose: int, rank: int = 0) -> np.random.Generator:
    """The generator of one purpose of one worker, by `SeedSequence` spawn key (purpose, rank).

    Example:
        >>> stream(7, COMPUTE, 3).random() == stream(7, COMPUTE, 3).random()
        True
    """
    # servers have negative ranks, spawn keys none
    if rank >= 0:
        key = 2 * rank
    else:
        key = -2 * rank - 1
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, key)))


class StoredStream:
    """A random stream of which only the state is stored, while many share one generator: 0.3 kB
    instead of 1.6.

    Its numbers are those of `stream(seed, purpose, rank)`.
    """

    __slots__ = ("_shared", "_state")

    def __init__(self, shared: np.random.Generator, seed: int, purpose: int, rank: int) -> None:
        self._shared, self._state = shared, words(stream(seed, purpose, rank))

    def draw(self, draws: Callable[[np.random.Generator], Drawn]) -> Drawn:
        """What `draws` makes of the stream's generator, which is the stream's during this call
        only.
        """
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
    """The generators of one purpose of one worker under several seeds, each made when it is first
    used.
    """

    __slots__ = ("_found", "_purpose", "_rank", "_seeds")

    def __init__(self, seeds: Sequence[int], purpose: int, rank: int) -> None:
        self._seeds, self._purpose, self._rank = seeds, purpose, rank
        self._found: dict[int, np.random.Generator] | None = None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        self._found = found = self._found or {}
        if place not in found:
            found[place] = stream(self._seeds[place], self._purpose, self._rank)
        return found[place]

    def __len__(self) -> int:
        return len(self._seeds)


def start_seed(seed: int) -> int:
    """The seed of the initial weights for a learning seed."""
    return int(
        np.random.SeedSequence(seed, spawn_key=(WEIGHTS,)).generate_state(1, np.uint64)[0] >> 1
    )


class Seeds(NamedTuple):
    """The seed of the compute times, and the seed of what each member of the ensemble learns."""

    cluster: int
    learning: Sequence[int]

    def data(self) -> Sequence[int]:
        """The seeds of the mini-batches: one where all members share theirs, else one a member."""
        if len(set(self.learning)) == 1:
            return self.learning[:1]
        return self.learning
