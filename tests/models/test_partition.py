"""Partitions split the whole set, leave no worker empty, and are as uneven as asked."""

import numpy as np
import pytest

from laggard.models import (
    PARTITIONS,
    ByLabel,
    ByWriter,
    Dirichlet,
    Disjoint,
    Iid,
    Logistic,
    Supervised,
    synthetic,
)

LABELS = np.random.default_rng(0).integers(10, size=1003)
DEALT = [
    Disjoint(),
    ByLabel(),
    ByLabel(pieces=2),
    Dirichlet(alpha=100.0),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=1e-6),
]


def deal(partition, workers=8, seed=0, labels=LABELS):
    return partition.shards(labels, workers, np.random.default_rng(seed))


def unevenness(shards):
    """Total variation distance of a shard's labels from the whole set's: the mean over shards, 0 to
    1.
    """
    whole = np.bincount(LABELS, minlength=10) / len(LABELS)
    own = [np.bincount(LABELS[shard], minlength=10) / len(shard) for shard in shards]
    return np.abs(np.array(own) - whole).sum(axis=1).mean() / 2


@pytest.mark.parametrize("partition", DEALT, ids=str)
@pytest.mark.parametrize("workers", [1, 7, 64])
def test_shards_are_disjoint_and_cover_set(partition, workers):
    shards = deal(partition, workers)
    assert len(shards) == workers
    assert (np.sort(np.concatenate(shards)) == np.arange(len(LABELS))).all()
    assert min(map(len, shards)) > 0


@pytest.mark.parametrize("partition", DEALT, ids=str)
def test_split_depends_only_on_seed(partition):
    one, same, other = (np.concatenate(deal(partition, seed=seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert len(one) == len(other)
    assert (one != other).any()


@pytest.mark.parametrize("partition", [Disjoint(), Dirichlet()], ids=str)
def test_shards_are_equal_up_to_one_sample(partition):
    assert {len(shard) for shard in deal(partition)} == {125, 126}


def test_iid_gives_every_worker_whole_set():
    assert all((shard == np.arange(len(LABELS))).all() for shard in deal(Iid()))


def test_by_label_gives_few_labels():
    labels = np.repeat(np.arange(10), 30)
    assert all(len(np.unique(labels[shard])) == 1 for shard in deal(ByLabel(), 10, labels=labels))
    assert all(
        len(np.unique(labels[shard])) <= 2 for shard in deal(ByLabel(pieces=2), 10, labels=labels)
    )


@pytest.mark.parametrize("workers", [1, 2, 9, 100])
def test_writers_are_spread_evenly_over_workers(workers):
    writers = np.random.default_rng(1).integers(100, size=1003) * 7
    shards = deal(ByWriter(), workers, labels=writers)
    assert (np.sort(np.concatenate(shards)) == np.arange(1003)).all()
    own = [set(writers[shard]) for shard in shards]
    assert sum(map(len, own)) == len(set().union(*own)) == len(set(writers)) == 100
    assert {len(each) for each in own} <= {100 // workers, -(-100 // workers)}
    assert [
        set(writers[shard]) for shard in deal(ByWriter(), workers, seed=1, labels=writers)
    ] != own or workers == 1


def test_more_workers_than_writers_are_refused():
    with pytest.raises(ValueError, match="10 writers cannot be divided"):
        deal(ByWriter(), 11)


def test_data_without_writers_are_refused():
    data = synthetic(samples=40)
    with pytest.raises(ValueError, match="whose samples have writers"):
        Supervised(Logistic().build, data, 4, partition=ByWriter(), workers=2, device="cpu")


def test_smaller_alpha_is_more_uneven():
    uneven = [
        np.mean([unevenness(deal(Dirichlet(alpha), seed=seed)) for seed in range(10)])
        for alpha in (0.1, 1, 10, 1000)
    ]
    disjoint = np.mean([unevenness(deal(Disjoint(), seed=seed)) for seed in range(10)])
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[0] > 0.6
    assert uneven[-1] == pytest.approx(disjoint, abs=0.05)


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize(("workers", "text"), [(0, "workers = 0"), (4, "3 samples .* 4")])
def test_set_that_cannot_be_split_is_refused(name, workers, text):
    with pytest.raises(ValueError, match=text):
        deal(PARTITIONS[name](), workers, labels=LABELS[:3])


def test_every_piece_needs_sample():
    shards = deal(ByLabel(pieces=2), 4, labels=LABELS[:8])
    assert [len(shard) for shard in shards] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="7 samples cannot be divided"):
        deal(ByLabel(pieces=2), 4, labels=LABELS[:7])
