"""What a backend is: arithmetic on many models of one architecture at once."""

from typing import Protocol

from torch import Tensor

from models.backprop import Loss

__all__ = ["EVALUATED", "Backend", "Loss"]

EVALUATED = 250  # samples in one forward pass of an evaluation; 1,000 outgrow a CPU's cache and take twice the time


class Backend(Protocol):
    """Arithmetic on many models at once: one module, and a row of weights per model.

    Attributes:
        lanes: how many gradients keep the hardware busy at once.
        name: what it is called in a config; of one that chooses among others, what it has chosen.
    """

    @property
    def lanes(self) -> int: ...
    @property
    def name(self) -> str: ...

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients `(models, params)` and losses `(models,)` at `weights` `(models, params)`.

        A model's mini-batch is its row of `index` `(models, batch)` into `x` `(samples, ...)` and `y` `(samples,)`.
        """
        ...

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(models, samples, classes)` of `weights` `(models, params)` on all of `x` `(samples, ...)`."""
        ...
