"""`task.dataset` and `task.partition` in a config: what can be known of them, and checked, without
torch.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from laggard.experiments.config.errors import ConfigError, error_at
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Described
from laggard.experiments.config.tables import PartitionTable
from laggard.models import DATASETS, PARTITIONS, READERS, Dataset, Partition
from laggard.models.generated import ALPHABET, check_sizes


class Sizes(NamedTuple):
    """What can be known of a data set without torch: shape of an input, classes, training samples,
    shape of the labels of one, writers where they are known.
    """

    shape: tuple[int, ...]
    classes: int
    samples: int
    labels: tuple[int, ...] = ()
    writers: int = 0


SIZES = {
    name: Sizes((1, 28, 28), 10, n)
    for name, n in {"digits": 1500, "mnist": 60000, "fashion_mnist": 60000}.items()
} | {
    name: Sizes((3, 32, 32), classes, 50_000)
    for name, classes in {"cifar10": 10, "cifar100": 100}.items()
}
DATASET = NamedChoice.of("name", DATASETS, "mnist", Dataset)
PARTITION = NamedChoice.of(
    "name",
    {**PARTITIONS, "from_file": PartitionTable},
    lambda given: "from_file" if "file" in given else "iid",
    Partition,
)


def sizes_of(dataset: Any) -> Sizes | None:
    """What is known of a data set, where anything is: a file that a config names is read, what is
    downloaded is not.

    Raises:
        ValueError: a file is not what it should be.
    """
    if dataset.name == "synthetic":
        return Sizes((dataset.features,), dataset.classes, dataset.samples)
    if dataset.name == "synthetic_images":
        shape = (dataset.channels, dataset.size, dataset.size)
        return Sizes(
            shape, dataset.classes, dataset.samples, writers=min(dataset.writers, dataset.samples)
        )
    if dataset.name == "characters":
        return Sizes((dataset.positions,), len(ALPHABET), dataset.samples, (dataset.positions,))
    return _read_sizes(dataset) if type(dataset).recipe in READERS else SIZES.get(dataset.name)


@lru_cache(maxsize=32)
def _read_sizes(dataset: Described) -> Sizes:
    """What files hold; two parts are equal only where the hashes of their files are."""
    found = READERS[type(dataset).recipe](**dataset.recipe_arguments())
    writers = 0 if found.writers is None else len(np.unique(found.writers))
    labels = found.y[found.train]
    return Sizes(found.x.shape[1:], found.classes, len(labels), labels.shape[1:], writers)


def check_dataset(dataset: Any) -> None:
    """Check the sizes of a data set that is made, and the files of one that is read.

    Raises:
        ConfigError: a size is out of its range, or a file is not what it should be.
    """
    try:
        check_sizes(
            type(dataset).recipe, **{key: getattr(dataset, key) for key in dataset.settings}
        )
        sizes_of(dataset)
    except ValueError as error:
        raise error_at("task.dataset", error) from None


def check_partition(partition: Any, dataset: Any, sizes: Sizes, workers: int) -> None:
    """Check that a data set can be divided among so many workers.

    Raises:
        ConfigError: it cannot; says what would have to change.
    """
    name, most = partition.name, sizes.samples // getattr(partition, "pieces", 1)
    if sizes.labels and name in ("by_label", "dirichlet"):
        problem = f"expected iid or disjoint, since a text has no label of its own, got {name!r}"
        raise ConfigError("task.partition", problem)
    if name == "by_writer":
        most = sizes.writers
        if not sizes.writers:
            problem = (
                f"expected one that needs no writers, since {dataset.name} names none, got {name!r}"
            )
            raise ConfigError("task.partition", problem)
    if name == "from_file":
        try:
            partition.build(workers).shards(
                np.empty(sizes.samples), workers, np.random.default_rng()
            )
        except ValueError as error:
            raise error_at("task", error) from None
    elif name != "iid" and workers > most:
        problem = f"expected at most {most}, among whom {name} can deal {sizes.samples} samples"
        raise ConfigError("cluster.workers", f"{problem}, got {workers}: use fewer workers or iid")
