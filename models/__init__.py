"""Learning problems: networks, datasets, partitions, and tasks made of them; no clock here.

Whatever a config names is imported without torch: modules import it where they compute.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from laggard.models.cifar import cifar10, cifar100
from laggard.models.data import DataMissingError, Dataset, digits, fashion_mnist, mnist
from laggard.models.files import (
    Samples,
    idx,
    libsvm,
    read_idx_files,
    read_libsvm,
    read_text,
    text_file,
)
from laggard.models.generated import Language, characters, synthetic, synthetic_images
from laggard.models.leaf import femnist, leaf, read_femnist, read_leaf
from laggard.models.losses import (
    OBJECTIVES,
    BinaryLoss,
    CrossEntropyLoss,
    LogisticLoss,
    MeanSquaredLoss,
    Objective,
    SquaredLoss,
)
from laggard.models.networks import MLP, LeNet5, Logistic, ResNet, TorchModule
from laggard.models.partition import (
    PARTITIONS,
    ByLabel,
    ByWriter,
    Dirichlet,
    Disjoint,
    Iid,
    Partition,
)
from laggard.models.quadratic import Quadratic, Tridiagonal
from laggard.models.sequence_networks import LSTM, Transformer
from laggard.models.variants import Augmentation
from laggard.models.vision import Vision

if TYPE_CHECKING:
    from torch import nn

    from laggard.models.task import Supervised


class Network(Protocol):
    """A recipe for a module: a frozen dataclass whose fields are its config keys."""

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh module from inputs `(batch, *shape)` to logits `(batch, classes)`, or `(batch,
        positions, classes)`.

        Raises:
            ValueError: it cannot take inputs of this shape.
        """
        ...


NETWORKS: Mapping[str, type[Network]] = {
    "lenet5": LeNet5,
    "mlp": MLP,
    "logistic": Logistic,
    "resnet": ResNet,
    "vision": Vision,
    "transformer": Transformer,
    "lstm": LSTM,
}
DATASETS: Mapping[str, Callable[..., Dataset]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "libsvm": libsvm,
    "text": text_file,
    "femnist": femnist,
    "leaf": leaf,
    "idx": idx,
    "synthetic": synthetic,
    "synthetic_images": synthetic_images,
    "characters": characters,
}
READERS: Mapping[Callable[..., Dataset], Callable[..., Samples]] = {
    libsvm: read_libsvm,
    text_file: read_text,
    femnist: read_femnist,
    leaf: read_leaf,
    idx: read_idx_files,
}
"""Data set in a file -> its reader, a function with the same arguments, without torch."""


def __getattr__(name: str) -> Any:
    if name == "Supervised":  # needs torch
        from laggard.models.task import Supervised

        return Supervised
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DATASETS",
    "LSTM",
    "MLP",
    "NETWORKS",
    "OBJECTIVES",
    "PARTITIONS",
    "READERS",
    "Augmentation",
    "BinaryLoss",
    "ByLabel",
    "ByWriter",
    "CrossEntropyLoss",
    "DataMissingError",
    "Dataset",
    "Dirichlet",
    "Disjoint",
    "Iid",
    "Language",
    "LeNet5",
    "Logistic",
    "LogisticLoss",
    "MeanSquaredLoss",
    "Network",
    "Objective",
    "Partition",
    "Quadratic",
    "ResNet",
    "SquaredLoss",
    "Supervised",
    "TorchModule",
    "Transformer",
    "Tridiagonal",
    "Vision",
    "characters",
    "cifar10",
    "cifar100",
    "digits",
    "fashion_mnist",
    "femnist",
    "idx",
    "leaf",
    "libsvm",
    "mnist",
    "synthetic",
    "synthetic_images",
    "text_file",
]
