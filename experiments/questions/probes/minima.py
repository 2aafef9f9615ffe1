"""Delayed descent from beside a minimum: the learning rates at which it returns, and at which it
leaves.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from laggard.experiments.config.config import Config
from laggard.experiments.theory.stability import critical
from laggard.simulator import Evaluate, Stop, simulate
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar

DECAY = 0.001
"""The factor on |w|^2 / 2 in the loss, without which the cross entropy of a network has no
minimum.
"""
EVALUATIONS = 600  # gradients of the search for a minimum
POWER = 40  # iterations for the sharpness
APART = 0.001
"""The distance from the minimum at which descent begins, along its sharpest direction."""
LEFT = 10 * APART
"""A deviation beyond which the minimum has been left, whatever comes then."""
SAMPLE_PARTS = 4
"""The number of parts of the samples, each a mini-batch of `leaving_by_parts`."""
PERIODS = 6  # periods of the oscillation at the limit; the first is transient


@dataclass(frozen=True)
class Minimum:
    """A minimum of the loss of one mini-batch with weight decay, f(w) = loss(w) + DECAY / 2 |w|^2.

    Attributes:
        weights: `(params,)`.
        sharpness: the largest eigenvalue of f's Hessian there, and its eigenvector `direction`
            `(params,)`.
        slope: |f'(w)|, the residual of the search.
        batch: the mini-batch.
    """

    weights: Tensor
    sharpness: float
    direction: Tensor
    slope: float
    batch: Any


@dataclass(frozen=True)
class BesideMinima:
    """A task whose members each start beside a minimum, and use that minimum's mini-batch only.

    Gradients are those of f, scaled so that theory's limit is a learning rate of 1.

    Attributes:
        task: takes the gradients of the loss.
        minima: the minimum of each member.
        limit: the learning rate at which, by theory, descent on curvature 1 oscillates for ever.
        parts: if above 1, each gradient is that of a random part of the samples, minus the gradient
            of the same part at the minimum; so the minimum stays a minimum.
    """

    task: Any
    minima: Sequence[Minimum]
    limit: float
    parts: int = 1
    batch: int = 1
    epoch: int = 1

    @property
    def lanes(self) -> int:
        return int(self.task.lanes)

    def start(self, seeds: Sequence[int]) -> Tensor:
        return torch.stack([each.weights + APART * each.direction for each in self.minima])

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        if self.parts == 1:
            return repeat(torch.stack([each.batch for each in self.minima]))
        return self._draw_parts(rngs)

    def _draw_parts(self, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        while True:
            drawn = []
            for each, rng in zip(self.minima, rngs, strict=True):
                samples = each.batch.shape[-1]
                picked = rng.choice(samples, samples // self.parts, replace=False)
                drawn.append(each.batch[..., torch.from_numpy(picked)])
            yield torch.stack(drawn)

    def gradients(self, weights: Tensor, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        gradients, losses = self.task.gradients(weights, batches)
        scales = weights.new_tensor([[self.limit / each.sharpness] for each in self.minima])
        deviations = weights
        if self.parts > 1:
            still = torch.stack([each.weights for each in self.minima]).expand_as(weights)
            gradients = gradients - self.task.gradients(still.contiguous(), batches)[0]
            deviations = weights - still
        return (gradients + DECAY * deviations) * scales, losses

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        return {}


@dataclass(frozen=True)
class DeviationProbe(Uncompensated):
    """No compensation; before each update it records the deviation from the minima along their
    sharpest directions.

    Attributes:
        deviations: per update, `(ensemble,)`.
    """

    shared: ClassVar[bool] = True

    minima: Sequence[Minimum]
    deviations: list[Tensor] = field(default_factory=list)

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        pairs = zip(weights, self.minima, strict=True)
        self.deviations.append(
            torch.stack([(own - each.weights) @ each.direction for own, each in pairs])
        )
        return value, state


def leaving(config: Config, given: Mapping[str, Any], parts: int = 1) -> list[dict[str, Any]]:
    """The growth of the deviation from a minimum under delay, at learning rates in units of
    theory's limit.

    A minimum of one mini-batch's loss is found without delay, moved by `APART` along its sharpest
    direction, and descent goes on from there with the config's delay and momentum. With its
    sharpness h, `learning.lr` counts in units of `critical(delay, momentum) / h`, so that by theory
    the deviation shrinks below 1 and grows above. A row per member with the swing of the deviation
    (largest minus smallest) in the last of six periods over that in the second (`growth`; infinite,
    where the deviation was ever above `LEFT`), and with the minimum's `sharpness` and `slope`.

    Args:
        parts: the `parts` of `BesideMinima`.

    Source: Giladi et al. (2020), arXiv 1909.12340: a minimum is stable under delay as its quadratic
    expansion is.
    """
    task, algorithm = given["task"], given["algorithm"]
    limit, angle = critical(algorithm.delay, config.learning.momentum, nesterov=False)
    period = math.ceil(2 * math.pi / angle)
    minima = [_find_once(config, task, seed) for seed in given["learning_seeds"]]
    along = DeviationProbe(minima)
    rule = replace(algorithm.rule, compensation=along)
    updates = PERIODS * period
    arguments = {
        **given,
        "task": BesideMinima(task, minima, limit, parts),
        "algorithm": replace(algorithm, rule=rule),
        "stop": Stop(updates=updates),
        "evaluate": Evaluate(every_updates=updates),
    }
    simulate(**arguments)

    # (periods, updates in a period, ensemble)
    deviations = torch.stack(along.deviations).unflatten(0, (PERIODS, period))
    swings = deviations.amax(1) - deviations.amin(1)
    has_left = deviations.abs().amax((0, 1)) > LEFT
    growth = (swings[-1] / swings[1]).masked_fill(has_left, math.inf)
    numbers = {
        "growth": growth.tolist(),
        "sharpness": [minimum.sharpness for minimum in minima],
        "slope": [minimum.slope for minimum in minima],
    }
    return [
        {"member": member, "of": of, "number": number}
        for of, values in numbers.items()
        for member, number in enumerate(values)
    ]


def leaving_by_parts(config: Config, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`leaving` with gradients of a random quarter of the samples each."""
    return leaving(config, given, SAMPLE_PARTS)


def _find_once(config: Config, task: Any, seed: int) -> Minimum:
    """The minimum of `find_minimum`, which runs of one sweep share."""
    key = (repr(config.task), seed)
    if key not in _found:
        _found[key] = find_minimum(task, seed)
    return _found[key]


_found: dict[tuple[str, int], Minimum] = {}


def find_minimum(task: Any, seed: int) -> Minimum:
    """A minimum of f for a mini-batch and initial weights that `seed` draws, by L-BFGS, and its
    sharpness.
    """
    start = task.start([seed])[0]
    batch = next(task.batches(0, [np.random.default_rng(seed)]))
    weights = start.double().clone()
    settings: dict[str, Any] = {
        "lr": 1.0,
        "max_iter": EVALUATIONS,
        "max_eval": EVALUATIONS,
        "history_size": 20,
    }
    search = torch.optim.LBFGS(
        [weights], **settings, line_search_fn="strong_wolfe", tolerance_change=0.0
    )

    def f() -> float:
        gradients, losses = task.gradients(weights.to(start)[None, None], [batch])
        weights.grad = gradients[0, 0].double() + DECAY * weights
        return float(losses) + DECAY / 2 * float(weights.square().sum())

    search.step(f)
    f()
    slope = float(weights.grad.norm()) if weights.grad is not None else math.nan
    sharpness, direction = _find_sharpest(task, weights.to(start), batch)
    return Minimum(weights.to(start), sharpness, direction, slope, batch)


def _find_sharpest(task: Any, weights: Tensor, batch: Any) -> tuple[float, Tensor]:
    """The largest eigenvalue of f's Hessian at `weights` `(params,)`, and its eigenvector, by power
    iteration.
    """
    direction = torch.ones_like(weights) / math.sqrt(weights.numel())
    for _ in range(POWER):
        product = (
            task.hessian_products(weights[None, None], direction[None, None], [batch])[0, 0]
            + DECAY * direction
        )
        sharpness = float(product @ direction)
        direction = product / product.norm()
    return sharpness, direction
