"""Statistics of gradients during a run: their variation, and their outer product beside the
Hessian.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError
from laggard.simulator import simulate
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar

PARTS = 10  # parts of a run; each reports its means
INTERVAL = 125  # updates from one measurement to the next
LATER = 16  # updates between the two models of a measurement, like a delay of 16
BATCHES = 32
"""The mini-batches of a measurement, drawn in addition to those of the run."""
SINGLE = 8  # the mini-batches among them of which each sample's own gradient is taken


@dataclass(frozen=True)
class VariationProbe(Uncompensated):
    """No compensation; every `INTERVAL` updates it measures gradients of additional mini-batches.

    Attributes:
        task: evaluates gradients and products with the Hessian.
        batches: the mini-batches for the measurements.
        measured: per measurement, the numbers by name, each `(ensemble,)`.
        seen: a list with an entry for each update so far.
        begun: the weights at the beginning of the current measurement.
    """

    task: Any
    batches: Iterator[Tensor]
    measured: list[dict[str, Tensor]] = field(default_factory=list)
    seen: list[None] = field(default_factory=list)
    begun: list[Tensor] = field(default_factory=list)

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        place = len(self.seen) % INTERVAL
        if place == 0:
            self.begun[:] = [weights]
        if place == LATER:
            batches = [next(self.batches) for _ in range(BATCHES)]
            read = self.begun[0]
            statistics = measure_variation(self.task, read, weights, batches)
            curvature = measure_curvature(self.task, read, weights, batches[:SINGLE])
            self.measured.append(statistics | curvature)
        self.seen.append(None)
        return value, state


def measure_variation(
    task: Any, read: Tensor, now: Tensor, batches: list[Tensor]
) -> dict[str, Tensor]:
    """The variation of gradients between mini-batches b and between two models.

        variance = tr Cov(g_b(read))
        signal   = |E g_b(read)|^2
        change   = |E g_b(now) - E g_b(read)|^2

    Each is an unbiased estimate over the mini-batches, `(ensemble,)`.

    Args:
        read, now: the two models, `(ensemble, params)`.
    """
    before = _gradients_of(task, read, batches)
    after = _gradients_of(task, now, batches)
    variance = before.var(0).sum(-1)
    variance_of_change = (after - before).var(0).sum(-1)
    # the square of a mean over mini-batches is too large by its variance
    return {
        "variance": variance,
        "signal": before.mean(0).square().sum(-1) - variance / len(batches),
        "change": (after - before).mean(0).square().sum(-1) - variance_of_change / len(batches),
    }


def _gradients_of(task: Any, model: Tensor, batches: Sequence[Tensor]) -> Tensor:
    """The gradients `(batches, ensemble, params)` of one model, in double precision."""
    models = model.expand(len(batches), *model.shape).contiguous()
    gradients: Tensor = task.gradients(models, batches)[0]
    return gradients.double()


def measure_curvature(
    task: Any, read: Tensor, now: Tensor, batches: list[Tensor]
) -> dict[str, Tensor]:
    """The Hessian H of the loss and the mean F of g g^T over samples, in the direction of training.

        hessian = s^T H s
        fisher  = s^T F s
        cosine  = cosine of the angle between H s and F s
        outer   = s^T E[g_b g_b^T] s

    The direction is s = now - read. H and F are those of the samples of all `batches` at `read`.
    g_b is the gradient of a mini-batch, which DC-ASGD uses. Each result is `(ensemble,)`.
    """
    step = now - read
    curved, squared, outer = (torch.zeros_like(step, dtype=torch.float64) for _ in range(3))
    for batch in batches:
        curved += task.hessian_products(read[None], step[None], [batch])[0].double()
        singles = list(batch.unsqueeze(-1).movedim(-2, 0))
        of_samples = _gradients_of(task, read, singles)
        of_batch = of_samples.mean(0)
        squared += (of_samples * (of_samples * step).sum(-1, keepdim=True)).mean(0)
        outer += of_batch * (of_batch * step).sum(-1, keepdim=True)
    curved, squared, outer = (total / len(batches) for total in (curved, squared, outer))
    return {
        "hessian": (curved * step).sum(-1),
        "fisher": (squared * step).sum(-1),
        "cosine": torch.cosine_similarity(curved, squared, dim=-1),
        "outer": (outer * step).sum(-1),
    }


def variation(config: Config, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The means of `measure_variation` and `measure_curvature` over each tenth of a run.

    Returns a row per member, tenth and measurement.

    Sources: McCandlish et al. (2018), arXiv 1812.06162: variance over signal is the noise scale of
    a mini-batch. Zheng et al. (2017), arXiv 1609.08326, section 3: F becomes H as the model becomes
    that of the labels.

    Raises:
        ConfigError: the run is too short for a measurement in each tenth.
    """
    rngs = [np.random.default_rng([seed, LATER]) for seed in arguments["learning_seeds"]]
    along = VariationProbe(arguments["task"], arguments["task"].batches(0, rngs))
    rule = replace(arguments["algorithm"].rule, compensation=along)
    simulate(**{**arguments, "algorithm": replace(arguments["algorithm"], rule=rule)})
    if len(along.measured) < PARTS:
        least = (PARTS - 1) * INTERVAL + LATER + 1
        raise ConfigError(
            "stop",
            f"expected at least {least} updates for {PARTS} measurements, got {len(along.seen)}",
        )
    rows: list[dict[str, Any]] = []
    for name in along.measured[0]:
        parts = torch.stack([numbers[name] for numbers in along.measured]).tensor_split(PARTS)
        for part, values in enumerate(parts, start=1):
            for member, number in enumerate(values.mean(0)):
                rows.append({"member": member, "of": name, "part": part, "number": float(number)})
    return rows
