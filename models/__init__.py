"""What is learnt: networks, datasets, partitions, and tasks made of them; torch only, no clock."""

from collections.abc import Mapping
from typing import Protocol

from torch import nn

from models.data import DATASETS, Dataset, characters, digits, fashion_mnist, mnist, synthetic
from models.idx import DataMissingError
from models.language import Language
from models.lenet5 import LeNet5
from models.logistic import Logistic
from models.mlp import MLP
from models.partition import PARTITIONS, ByLabel, Dirichlet, Disjoint, Iid, Partition
from models.quadratic import Quadratic
from models.task import Supervised
from models.transformer import Transformer


class Network(Protocol):
    """A recipe for a module: a frozen dataclass whose fields are its config keys."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh module from inputs `(batch, *shape)` to logits `(batch, classes)`, or `(batch, positions, classes)`.

        Raises:
            ValueError: it cannot take inputs of this shape.
        """
        ...


NETWORKS: Mapping[str, type[Network]] = {"lenet5": LeNet5, "mlp": MLP, "logistic": Logistic, "transformer": Transformer}

__all__ = [
    "DATASETS",
    "MLP",
    "NETWORKS",
    "PARTITIONS",
    "ByLabel",
    "DataMissingError",
    "Dataset",
    "Dirichlet",
    "Disjoint",
    "Iid",
    "Language",
    "LeNet5",
    "Logistic",
    "Network",
    "Partition",
    "Quadratic",
    "Supervised",
    "Transformer",
    "characters",
    "digits",
    "fashion_mnist",
    "mnist",
    "synthetic",
]
