"""Delayed gradient descent that starts beside a minimum: at which learning rates does it return?"""

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
"""The weight decay. Without it the cross entropy of a network may have no minimum."""
EVALUATIONS = 600  # gradient evaluations of the search for a minimum, at most
POWER_ITERATIONS = 40
"""The iterations of the power method that finds the sharpness."""
START_DISTANCE = 0.001
"""The distance from the minimum at which descent starts, along the sharpest direction."""
MAX_DEVIATION = 10 * START_DISTANCE
"""Descent has left the minimum once its deviation exceeds this, even if it returns."""
SAMPLE_PARTS = 4
"""`leaving_by_parts` uses mini-batches of 1 / SAMPLE_PARTS of the samples."""
PERIODS = 6  # periods of the oscillation at theory's limit; the first is transient


@dataclass(frozen=True)
class Minimum:
    """A minimum of the loss f of one mini-batch with weight decay.

        f(w) = loss(w) + DECAY / 2 |w|^2

    Attributes:
        weights: `(params,)`.
        sharpness: the largest eigenvalue of the Hessian of f at the minimum.
        direction: its eigenvector, `(params,)`.
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
    """A task whose members start beside a minimum and use the mini-batch of this minimum only.

    Gradients are those of f, scaled so that theory's limit is a learning rate of 1.

    Attributes:
        task: evaluates the gradients of the loss.
        minima: the minimum of each member.
        limit: the largest stable learning rate for curvature 1, by theory.
        parts: if above 1, each gradient is that of a random 1 / `parts` of the samples, minus the
            gradient of the same samples at the minimum. So the minimum stays stationary.
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
        return torch.stack([each.weights + START_DISTANCE * each.direction for each in self.minima])

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
    """No compensation; it records the deviation from each minimum before every update.

    Attributes:
        deviations: per update, the component along the sharpest direction, `(ensemble,)`.
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


def leaving(config: Config, arguments: Mapping[str, Any], parts: int = 1) -> list[dict[str, Any]]:
    """The growth of the deviation from a minimum under delay.

        growth = swing in the last period / swing in the second period

    A minimum of the loss of one mini-batch is found without delay. Descent starts at
    `START_DISTANCE` from it along the sharpest direction, with the config's delay and momentum, and
    lasts six periods. The swing of a period is the largest minus the smallest deviation. `growth`
    is infinite if the deviation ever exceeded `MAX_DEVIATION`.

    `learning.lr` is in units of theory's limit `critical(delay, momentum) / sharpness`. By theory
    the deviation shrinks below 1 and grows above. Returns rows of `growth`, `sharpness` and `slope`
    for each member.

    Args:
        parts: the `parts` of `BesideMinima`.

    Source: Giladi et al. (2020), arXiv 1909.12340: a minimum is stable under delay as its quadratic
    expansion is.
    """
    task, algorithm = arguments["task"], arguments["algorithm"]
    limit, angle = critical(algorithm.delay, config.learning.momentum, nesterov=False)
    period = math.ceil(2 * math.pi / angle)
    minima = [_find_once(config, task, seed) for seed in arguments["learning_seeds"]]
    along = DeviationProbe(minima)
    rule = replace(algorithm.rule, compensation=along)
    updates = PERIODS * period
    changed_arguments = {
        **arguments,
        "task": BesideMinima(task, minima, limit, parts),
        "algorithm": replace(algorithm, rule=rule),
        "stop": Stop(updates=updates),
        "evaluate": Evaluate(every_updates=updates),
    }
    simulate(**changed_arguments)

    # (periods, updates in a period, ensemble)
    deviations = torch.stack(along.deviations).unflatten(0, (PERIODS, period))
    swings = deviations.amax(1) - deviations.amin(1)
    has_left = deviations.abs().amax((0, 1)) > MAX_DEVIATION
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


def leaving_by_parts(config: Config, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`leaving` with mini-batches: each gradient is that of a random quarter of the samples."""
    return leaving(config, arguments, SAMPLE_PARTS)


def _find_once(config: Config, task: Any, seed: int) -> Minimum:
    """The result of `find_minimum`, cached, since the runs of a sweep share their minima."""
    key = (repr(config.task), seed)
    if key not in _minima:
        _minima[key] = find_minimum(task, seed)
    return _minima[key]


_minima: dict[tuple[str, int], Minimum] = {}


def find_minimum(task: Any, seed: int) -> Minimum:
    """A minimum of f by L-BFGS, with its sharpness; `seed` draws mini-batch and initial weights."""
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
    """The largest eigenvalue of the Hessian of f and its eigenvector, by power iteration.

    Args:
        weights: `(params,)`.
    """
    direction = torch.ones_like(weights) / math.sqrt(weights.numel())
    for _ in range(POWER_ITERATIONS):
        product = (
            task.hessian_products(weights[None, None], direction[None, None], [batch])[0, 0]
            + DECAY * direction
        )
        sharpness = float(product @ direction)
        direction = product / product.norm()
    return sharpness, direction
