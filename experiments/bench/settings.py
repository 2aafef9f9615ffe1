"""How a bench is taken."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from experiments.bench.images import images
from experiments.config import Config
from experiments.errors import ConfigError
from models import Dataset
from models.backends import find_device

if TYPE_CHECKING:
    from experiments.bench.children import Children


@dataclass(frozen=True)
class Settings:
    """How a bench is taken.

    Attributes:
        children: processes of their own, for the measures that need them.
        quick: shorter turns and fewer rounds, a minute in all instead of a quarter of an hour.
        config: whose gradients are measured instead of the usual cases'.
    """

    children: "Children"
    quick: bool = False
    device: str = "cpu"
    config: Config | None = None

    @property
    def rounds(self) -> int:
        """How often each contestant has its turn."""
        return 3 if self.quick else 5

    @property
    def turn(self) -> float:
        """Seconds that a contestant's turn is to take, about."""
        return 0.2 if self.quick else 1.2

    @cached_property
    def data(self) -> Dataset:
        """The images to learn."""
        return images()

    @cached_property
    def place(self) -> torch.device:
        """The device.

        Raises:
            ConfigError: there is no such device here.
        """
        try:
            return find_device(self.device)
        except ValueError as error:
            raise ConfigError("--device", str(error)) from None
