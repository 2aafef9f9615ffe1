"""Distances of compensated gradients from fresh ones."""

from collections.abc import Mapping
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
    """A compensation that also takes the gradient of the same mini-batch at the weights now, and
    notes the distances.

    Attributes:
        inner: the compensation whose gradient is compared.
        task: takes the fresh gradient, at the price of another evaluation.
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


def closeness(config: Config, given: Mapping[str, Any]) -> list[dict[str, float]]:
    """The distance of a compensated gradient to the fresh one over that of the stale one, in each
    quarter of a run.

    E |g_compensated - g_fresh| / E |g_stale - g_fresh|, the fresh gradient being that of the same
    mini-batch at the weights that are updated; a row a member and quarter of the run's updates.

    Source: Zheng et al. (2017), arXiv 1609.08326: the compensation is a Taylor expansion of the
    fresh gradient.
    """
    rule = given["algorithm"].rule
    beside = DistanceProbe(rule.compensation, given["task"])
    simulate(
        **{
            **given,
            "algorithm": replace(given["algorithm"], rule=replace(rule, compensation=beside)),
        }
    )
    compensated, stale = (torch.stack(each) for each in zip(*beside.distances, strict=True))
    rows: list[dict[str, float]] = []
    quarters = zip(compensated.tensor_split(QUARTERS), stale.tensor_split(QUARTERS), strict=True)
    for quarter, (ours, theirs) in enumerate(quarters, start=1):
        for member, share in enumerate(ours.mean(0) / theirs.mean(0)):
            rows.append({"member": member, "quarter": quarter, "number": float(share)})
    return rows


EVERY = 10  # updates: products with the Hessian take several gradients each
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class ExpansionProbe(Uncompensated):
    """No compensation, but at some updates the corrections that several would make are held against
    the right one.

    Attributes:
        task: takes the fresh gradient, and products with the Hessian.
        forms: compensations of strength 1, whose correction is proportional to the strength.
        products: by form and update, <r, r>, <r, c> and <c, c> of the right correction r = g_fresh
            - g_stale and the form's c, each `(ensemble,)`.
        seen: the number of gradients so far, as the length of a list.
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
        stale, corrections, states = value.double(), {}, {}
        for name, form in self.forms.items():
            corrected, states[name] = form.correct(stale, gradient, weights, state[name], lr)
            corrections[name] = corrected - stale
        if len(self.seen) % EVERY == 0:
            step, batch = weights - gradient.weights, gradient.whole.batch
            fresh = self.task.gradients(weights.unsqueeze(0), [batch])[0][0]
            exact = self.task.hessian_products(
                gradient.weights.unsqueeze(0), step.unsqueeze(0), [batch]
            )[0]
            corrections["outer"] = stale * (stale * step).sum(1, keepdim=True)
            corrections["exact"] = exact.double()
            right = fresh.double() - stale
            for name, own in corrections.items():
                pairs = ((right, right), (right, own), (own, own))
                self.products.setdefault(name, []).append(tuple((a * b).sum(1) for a, b in pairs))
        self.seen.append(None)
        return value, states


def expansions(config: Config, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Distances to the fresh gradient that several compensations would have, along a run without
    compensation.

    As in `closeness`, E |g_stale + strength c - g_fresh| / E |g_stale - g_fresh|, of every tenth
    update, with the correction c of

        constant  g*g*(w - w_read), DC-ASGD-c;     adaptive  the same over the root of its mean
        square, DC-ASGD-a outer     g g^T (w - w_read);              exact     H (w - w_read), of
        which strength 1 is the Taylor expansion

    g and H those of the mini-batch at w_read; a row a member, form, strength and quarter of the
    run's updates.

    Source: Zheng et al. (2017), arXiv 1609.08326, section 3: H is replaced by g g^T, and that by
    its diagonal.
    """
    rule = given["algorithm"].rule
    along = ExpansionProbe(
        given["task"], {"constant": DCASGDc(strength=1.0), "adaptive": DCASGDa(strength=1.0)}
    )
    simulate(
        **{
            **given,
            "algorithm": replace(given["algorithm"], rule=replace(rule, compensation=along)),
        }
    )
    rows: list[dict[str, Any]] = []
    for form, products in along.products.items():
        right, across, own = (torch.stack(each) for each in zip(*products, strict=True))
        for strength in STRENGTHS:
            distance = (right - 2 * strength * across + strength**2 * own).clamp(min=0).sqrt()
            quarters = zip(
                distance.tensor_split(QUARTERS), right.sqrt().tensor_split(QUARTERS), strict=True
            )
            for quarter, (ours, stale) in enumerate(quarters, start=1):
                for member, share in enumerate(ours.mean(0) / stale.mean(0)):
                    where = {
                        "member": member,
                        "form": form,
                        "strength": strength,
                        "quarter": quarter,
                    }
                    rows.append({**where, "number": float(share)})
    return rows
