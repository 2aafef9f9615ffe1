"""Partitions of a training set: a shard of indices for each worker."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Partition(Protocol):
    """A way to divide a training set."""

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """The indices of each worker's samples; no shard is empty.

        Raises:
            ValueError: fewer samples than shards, or fewer than one worker.
        """
        ...


@dataclass(frozen=True)
class Iid:
    """Every worker has the whole training set, in its own order."""

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        _check(labels, workers)
        return [np.arange(len(labels))] * workers


@dataclass(frozen=True)
class Disjoint:
    """Random disjoint shards, equal in size up to one sample."""

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        _check(labels, workers)
        return np.array_split(rng.permutation(len(labels)), workers)


@dataclass(frozen=True)
class ByLabel:
    """Sorted by label and cut into contiguous pieces, `pieces` of them drawn for each worker.

    One piece is the one-class case of Zhao et al.; two are the pathological case of McMahan et al.

    Source: McMahan et al. (2017), arXiv:1602.05629, section 3; Zhao et al. (2018),
    arXiv:1806.00582.

    Attributes:
        pieces: number of pieces of the sorted training set that each worker has.

    Raises:
        ValueError: `pieces` below 1, or samples with a label for each position.
    """

    pieces: int = 1

    def __post_init__(self) -> None:
        if self.pieces < 1:
            raise ValueError(f"pieces = {self.pieces}: expected at least 1")

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        _check(labels, workers, self.pieces)
        _check_one_label_each(labels)
        pieces = np.array_split(np.argsort(labels, kind="stable"), workers * self.pieces)
        shards = []
        for indices in rng.permutation(len(pieces)).reshape(workers, self.pieces):
            shards.append(np.concatenate([pieces[index] for index in indices]))
        return shards


@dataclass(frozen=True)
class Dirichlet:
    """Disjoint shards of equal size, each with its own label distribution q ~ Dir(alpha p).

    p is the label distribution of the whole set: a small `alpha` gives workers of one label, a
    large one gives `Disjoint`. Workers draw in turn without replacement; where a label has run out,
    q is renormalised over the others, so that shards cover the set, and the last worker takes the
    remaining samples.

    Source: Hsu, Qi, Brown (2019), arXiv:1909.06335, section 3.

    Attributes:
        alpha: concentration; the smaller, the fewer labels a worker has.

    Raises:
        ValueError: `alpha` is not a positive number, or samples with a label for each position.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha = {self.alpha}: expected a positive number")

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        _check(labels, workers)
        _check_one_label_each(labels)
        _, classes = np.unique(labels, return_inverse=True)
        left = np.bincount(classes)  # samples of each label that no worker has yet
        shares = rng.dirichlet(self.alpha * left / left.sum(), size=workers)
        order = rng.permutation(len(labels))
        by_label = [order[classes[order] == label] for label in range(len(left))]
        shards = []
        for shard, share in zip(np.array_split(order, workers), shares, strict=True):
            counts = _draw_counts(len(shard), share, left, rng)
            left = left - counts
            samples = []
            for label, count in enumerate(counts):  # the last of those not taken yet
                samples.append(by_label[label][left[label] : left[label] + count])
            shards.append(np.concatenate(samples))
        return shards


@dataclass(frozen=True)
class ByWriter:
    """Each worker has all samples of some writers, equally many writers drawn at random for each.

    `shards` takes the writer of each sample in place of its label. With as many workers as writers,
    each worker is one client of LEAF.

    Source: Caldas et al. (2018), arXiv:1812.01097.
    """

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        _check(labels, workers)
        writers = np.unique(labels)
        if len(writers) < workers:
            problem = f"{len(writers)} writers cannot be divided among {workers} workers"
            raise ValueError(f"{problem}: use fewer workers")
        parts = np.array_split(rng.permutation(writers), workers)
        return [np.flatnonzero(np.isin(labels, part)) for part in parts]


def _draw_counts(
    size: int, share: np.ndarray, left: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw the number of samples of each label: by `share`, then by `left` where these run out."""
    counts = np.zeros_like(left)
    while missing := size - counts.sum():
        available = left - counts
        weights = share * (available > 0)
        if weights.sum() == 0:
            weights = available.astype(float)
        drawn = rng.multinomial(missing, weights / weights.sum())
        counts = np.minimum(counts + drawn, left)
    return counts


def _check(labels: np.ndarray, workers: int, pieces: int = 1) -> None:
    if workers < 1:
        raise ValueError(f"workers = {workers}: expected at least 1")
    if len(labels) < workers * pieces:
        problem = f"{len(labels)} samples cannot be divided into {workers} x {pieces} shards"
        raise ValueError(f"{problem}: use fewer workers")


def _check_one_label_each(labels: np.ndarray) -> None:
    if labels.ndim > 1:
        expected = "expected samples with one label each"
        raise ValueError(f"partition: {expected}, got several: use iid or disjoint")
    if labels.dtype.kind == "f":
        raise ValueError("partition: expected classes, got labels that are numbers: use disjoint")


PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "disjoint": Disjoint,
    "by_label": ByLabel,
    "dirichlet": Dirichlet,
    "by_writer": ByWriter,
}
