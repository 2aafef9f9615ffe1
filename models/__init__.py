"""What is learnt: networks, datasets, partitions, and tasks made of them; torch only, no clock.

Whatever a config names is imported without torch: modules import it where they compute.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from laggard.models.data import DATASETS, Dataset, characters, digits, fashion_mnist, mnist, synthetic
from laggard.models.language import Language
from laggard.models.mnist import DataMissingError
from laggard.models.networks import MLP, LeNet5, Logistic, Transformer
from laggard.models.partition import PARTITIONS, ByLabel, Dirichlet, Disjoint, Iid, Partition
from laggard.models.quadratic import Quadratic

if TYPE_CHECKING:
    from torch import nn

    from laggard.models.task import Supervised


class Network(Protocol):
    """A recipe for a module: a frozen dataclass whose fields are its config keys."""

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh module from inputs `(batch, *shape)` to logits `(batch, classes)`, or `(batch, positions, classes)`.

        Raises:
            ValueError: it cannot take inputs of this shape.
        """
        ...


NETWORKS: Mapping[str, type[Network]] = {"lenet5": LeNet5, "mlp": MLP, "logistic": Logistic, "transformer": Transformer}


def __getattr__(name: str) -> Any:
    if name == "Supervised":  # needs torch
        from laggard.models.task import Supervised

        return Supervised
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
