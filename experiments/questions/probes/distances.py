"""The distance of compensated gradients from the fresh gradient."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from laggard.experiments.config.config import Config
from laggard.simulator import Task, simulate
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import DCASGDa, DCASGDc
from laggard.simulator.learning.rules.damping import Compensation, Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar

QUARTERS = 4


@dataclass(frozen=True)
class DistanceProbe:
    """A compensation that also records the distances of two gradients from the fresh one.

    The fresh gradient is that of the same mini-batch at the present weights.

    Attributes:
        inner: the compensation whose gradient is compared.
        task: evaluates the fresh gradient.
        distances: per update, |g_compensated - g_fresh| and |g_stale - g_fresh|, each
            `(ensemble,)`.
    """

    shared: ClassVar[bool] = False

    inner: Compensation
    task: Task
    distances: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def init(self, weights: Tensor) -> Any:
        return self.inner.init(weights)

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        fresh = self.task.gradients(weights.unsqueeze(0), [gradient.whole.batch])[0][0]
        corrected, state = self.inner.correct(value, gradient, weights, state, lr)
        self.distances.append(((corrected - fresh).norm(dim=1), (value - fresh).norm(dim=1)))
        return corrected, state

    def scale(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return self.inner.scale(gradient, lr)


def closeness(config: Config, arguments: Mapping[str, Any]) -> list[dict[str, float]]:
    """The distance of the compensated gradient to the fresh one, relative to the stale gradient's.

        E |g_compensated - g_fresh| / E |g_stale - g_fresh|

    The fresh gradient is that of the same mini-batch at the weights that are updated. E is the mean
    over the updates of a quarter of the run. Returns a row per member and quarter.

    Source: Zheng et al. (2017), arXiv 1609.08326: the compensation is a Taylor expansion of the
    fresh gradient.
    """
    along = DistanceProbe(arguments["algorithm"].rule.compensation, arguments["task"])
    _simulate_with(along, arguments)
    compensated, stale = (torch.stack(norms) for norms in zip(*along.distances, strict=True))
    rows: list[dict[str, float]] = []
    for member, quarter, share in _shares_by_quarter(compensated, stale):
        rows.append({"member": member, "quarter": quarter, "number": share})
    return rows


def _simulate_with(probe: Any, arguments: Mapping[str, Any]) -> None:
    """Simulate a run whose rule has a probe in place of its compensation."""
    algorithm = arguments["algorithm"]
    rule = replace(algorithm.rule, compensation=probe)
    simulate(**{**arguments, "algorithm": replace(algorithm, rule=rule)})


def _shares_by_quarter(above: Tensor, below: Tensor) -> Iterator[tuple[int, int, float]]:
    """Yield member, quarter of the run, and mean(above) / mean(below) over its updates.

    Args:
        above, below: distances `(updates, ensemble)`.
    """
    quarters = zip(above.tensor_split(QUARTERS), below.tensor_split(QUARTERS), strict=True)
    for quarter, (upper, lower) in enumerate(quarters, start=1):
        for member, share in enumerate(upper.mean(0) / lower.mean(0)):
            yield member, quarter, float(share)


EVERY = 10  # updates: products with the Hessian take several gradients each
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class ExpansionProbe(Uncompensated):
    """No compensation; it compares the corrections of several compensations with the exact one.

    The exact correction is r = g_fresh - g_stale. The comparison is made at every tenth update.

    Attributes:
        task: evaluates the fresh gradient and products with the Hessian.
        forms: compensations of strength 1, whose correction is proportional to the strength.
        products: by form, for each compared update, the products <r, r>, <r, c> and <c, c> with the
            form's correction c, each `(ensemble,)`.
        seen: a list with an entry for each gradient so far.
    """

    task: Any
    forms: Mapping[str, Compensation]
    products: dict[str, list[tuple[Tensor, ...]]] = field(default_factory=dict)
    seen: list[None] = field(default_factory=list)

    def init(self, weights: Tensor) -> Any:
        return {name: form.init(weights) for name, form in self.forms.items()}

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        stale = value.double()
        corrections, states = {}, {}
        for name, form in self.forms.items():
            corrected, states[name] = form.correct(stale, gradient, weights, state[name], lr)
            corrections[name] = corrected - stale
        if len(self.seen) % EVERY == 0:
            self._compare(stale, gradient, weights, corrections)
        self.seen.append(None)
        return value, states

    def _compare(
        self,
        stale: Tensor,
        gradient: GradientPromise,
        weights: Tensor,
        corrections: Mapping[str, Tensor],
    ) -> None:
        """Compare corrections of a stale gradient `(ensemble, params)` with the right one."""
        read, batch = gradient.weights, gradient.whole.batch
        step = weights - read
        fresh = self.task.gradients(weights.unsqueeze(0), [batch])[0][0]
        curved = self.task.hessian_products(read.unsqueeze(0), step.unsqueeze(0), [batch])[0]
        right = fresh.double() - stale
        compared = {
            **corrections,
            "outer": stale * (stale * step).sum(1, keepdim=True),
            "exact": curved.double(),
        }
        for name, own in compared.items():
            products = tuple((a * b).sum(1) for a, b in ((right, right), (right, own), (own, own)))
            self.products.setdefault(name, []).append(products)


def expansions(config: Config, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The relative distances to the fresh gradient that compensations would have in a run of ASGD.

        E |g_stale + strength c - g_fresh| / E |g_stale - g_fresh|

    The run itself has no compensation. E is the mean over every tenth update of a quarter of it.
    The correction c has one of four forms:

        constant: c = g * g * (w - w_read), of DC-ASGD-c
        adaptive: the same over the root of a running mean of g * g, of DC-ASGD-a
        outer:    c = g g^T (w - w_read)
        exact:    c = H (w - w_read); strength 1 is the Taylor expansion

    g and H are the gradient and the Hessian of the mini-batch at w_read. Returns a row per member,
    form, strength and quarter.

    Source: Zheng et al. (2017), arXiv 1609.08326, section 3: H is replaced by g g^T, and that by
    its diagonal.
    """
    forms = {"constant": DCASGDc(strength=1.0), "adaptive": DCASGDa(strength=1.0)}
    along = ExpansionProbe(arguments["task"], forms)
    _simulate_with(along, arguments)
    rows: list[dict[str, Any]] = []
    for form, products in along.products.items():
        right, across, own = (torch.stack(product) for product in zip(*products, strict=True))
        for strength in STRENGTHS:
            # |strength c - r|^2, of which rounding may make a negative number
            squared = right - 2 * strength * across + strength**2 * own
            distance = squared.clamp(min=0).sqrt()
            for member, quarter, share in _shares_by_quarter(distance, right.sqrt()):
                row = {"member": member, "form": form, "strength": strength, "quarter": quarter}
                rows.append({**row, "number": share})
    return rows
