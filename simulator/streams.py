"""Random streams: one child of the seed per purpose and rank, so that nothing else moves when one thing does."""

import numpy as np

COMPUTE, BATCHES, WEIGHTS, SLOWDOWNS, CHOICES = range(5)
"""Purposes. Adding a worker or changing the algorithm leaves every other (purpose, rank) stream as it was."""


def stream(seed: int, purpose: int, rank: int = 0) -> np.random.Generator:
    """The generator of one purpose of one worker, by `SeedSequence` spawn key (purpose, rank).

    Example:
        >>> stream(7, COMPUTE, 3).random() == stream(7, COMPUTE, 3).random()
        True
    """
    key = 2 * rank if rank >= 0 else -2 * rank - 1  # servers have negative ranks, spawn keys none
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, key)))


def start_seed(seed: int) -> int:
    """The seed of the initial weights that belongs to a learning seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(WEIGHTS,)).generate_state(1, np.uint64)[0] >> 1)
