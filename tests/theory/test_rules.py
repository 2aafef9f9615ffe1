"""Optimisers and compensations."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Algorithm, Cluster, Rule
from laggard.simulator.learning.rules import (
    COMPENSATIONS,
    OPTIMIZERS,
    SCHEDULES,
    Chained,
    Cosine,
    DCASGDa,
    DCASGDc,
    DelayAdaptive,
    GapAware,
    Lion,
    OneOverN,
    Rescaled,
    Staleness,
    Step,
    WarmUp,
)
from tests.theory import trials
from tests.theory.statements import close, differ, equal, same
from tests.theory.trials import (
    LR,
    ONE,
    RULES,
    TORCH,
    UNEVEN,
    UPDATES,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    perceptron,
    quadratic,
    torch_loop,
    update_times,
    weights_after,
)

TORCHS, ZHENG, ZHANG = "torch.optim", "Zheng et al. (2017)", "Zhang et al. (2016)"
MISHCHENKO, BARKAI = "Mishchenko et al. (2022)", "Barkai et al. (2020)"
EVEN = Cluster(workers=4)
SHAPES = torch.optim.lr_scheduler
SCHEDULED = {
    "step in updates": (
        "StepLR",
        Step(every=10, factor=0.3, unit="updates"),
        lambda o: SHAPES.StepLR(o, 10, 0.3),
    ),
    "step in epochs": (
        "StepLR",
        Step(every=0.2, factor=0.3, unit="epochs"),
        lambda o: SHAPES.StepLR(o, 10, 0.3),
    ),
    "warm-up": (
        "LinearLR",
        WarmUp(length=20, start=0.25, unit="updates"),
        lambda o: SHAPES.LinearLR(o, 0.25, 1.0, 20),
    ),
    "cosine": (
        "CosineAnnealingLR",
        Cosine(length=50, floor=0.1, unit="updates"),
        lambda o: SHAPES.CosineAnnealingLR(o, 50, 0.1 * LR),
    ),
    "steps at given updates": (
        "MultiStepLR",
        Step(at=[7, 11, 30], factor=0.3, unit="updates"),
        lambda o: SHAPES.MultiStepLR(o, [7, 11, 30], 0.3),
    ),
    "a warm-up and steps at given epochs": (
        "ChainedScheduler",
        Chained([WarmUp(length=0.2, start=0.25), Step(at=[0.3, 0.6], factor=0.3)]),
        lambda o: SHAPES.ChainedScheduler(
            [SHAPES.LinearLR(o, 0.25, 1.0, 10), SHAPES.MultiStepLR(o, [15, 30], 0.3)]
        ),
    ),
    "a warm-up and a cosine after it": (
        "SequentialLR",
        Chained(
            [
                WarmUp(length=10, start=0.25, unit="updates"),
                Cosine(length=0.6, floor=0.1, after=0.2),
            ]
        ),
        lambda o: SHAPES.SequentialLR(
            o, [SHAPES.LinearLR(o, 0.25, 1.0, 10), SHAPES.CosineAnnealingLR(o, 30, 0.1 * LR)], [10]
        ),
    ),
}
LATE = {
    "DC-ASGD-c": (ZHENG, DCASGDc(strength=1.0)),
    "DC-ASGD-a": (ZHENG, DCASGDa()),
    "lr / staleness": (ZHANG, Staleness()),
    "step / staleness": (ZHANG, Staleness(on="step")),
    "delay-adaptive lr": (MISHCHENKO, DelayAdaptive(ceiling=0.05)),
    "delay-adaptive step": (MISHCHENKO, DelayAdaptive(ceiling=0.05, on="step")),
    "gap-aware": (BARKAI, GapAware()),
}


@pytest.mark.parametrize("name", TORCH)
def test_optimizers_match_torch(name):
    """Every optimiser equals torch's on a quadratic and in a network."""
    optimizer, torchs = TORCH[name]
    tasks = [quadratic(), perceptron()]
    mine = [weights_after(ONE, method("delayed", Rule(optimizer, lr=LR)), task) for task in tasks]
    kind = type(torchs([torch.nn.Parameter(torch.zeros(1))])).__name__
    close(
        f"{name} = {kind} of torch.optim",
        mine,
        [torch_loop(task, torchs) for task in tasks],
        source=TORCHS,
    )


@pytest.mark.parametrize("name", SCHEDULED)
def test_schedules_match_torch(name):
    """Every schedule equals torch's, counted in updates; an epoch of the quadratic is 50 of them."""
    optimizer, torchs = TORCH["momentum"]
    kind, schedule, scheduler = SCHEDULED[name]
    mine = weights_after(ONE, method("delayed", Rule(optimizer, LR, schedule)))
    close(
        f"{name} = {kind} of torch.optim",
        mine,
        torch_loop(quadratic(), torchs, scheduler=scheduler),
        source=TORCHS,
    )


def test_zero_strength_compensates_nothing():
    """Delay compensation of strength 0 equals none."""
    asgd = every(UNEVEN, "async_ps")
    for name, compensation in [("c", DCASGDc(strength=0.0)), ("a", DCASGDa(strength=0.0))]:
        compensated = every(
            UNEVEN, "async_ps", rules=[replace(rule, compensation=compensation) for rule in RULES]
        )
        same(
            f"DC-ASGD-{name}, strength 0 = ASGD, P = 4, every optimiser",
            compensated,
            asgd,
            source=ZHENG,
        )


@pytest.mark.parametrize("name", LATE)
def test_fresh_gradients_are_not_compensated(name):
    """Gradients of one worker are fresh and not compensated; those of four workers are."""
    source, compensation = LATE[name]
    late = [replace(rule, compensation=compensation) for rule in RULES]
    mine = every(ONE, "async_ps", rules=late)
    same(f"{name}, P = 1 = SGD, every optimiser", mine, every(ONE, "async_ps"), source=source)
    one, other = (weights_after(UNEVEN, method("async_ps", rule)) for rule in (late[0], RULES[0]))
    differ(f"{name}, P = 4, is not ASGD", one, other, source=source)


@pytest.mark.parametrize("name", LATE)
def test_compensations_take_no_time(name):
    """Updates come when they come without: what a server takes is `apply_seconds`, for any rule."""
    source, compensation = LATE[name]
    cluster = replace(UNEVEN, apply_seconds=0.05)
    with_it, plain = (
        update_times(cluster, method("async_ps", rule), UPDATES, quadratic())
        for rule in (Rule(lr=LR, compensation=compensation), Rule(lr=LR))
    )
    text = f"{name}, P = 4: seconds of each update less those of ASGD"
    equal(text, 0.0, with_it - plain, source=source, rtol=0.0)


@dataclass(frozen=True)
class Compensated(Algorithm):
    """Descent by gradients `delay` updates old on f = h w^2 / 2, with the strength that makes them
    fresh chosen anew.

    g + strength g^2 (w - w_read) is h w, the fresh gradient, if strength = h / g^2; the adaptive
    form with decay 0 divides its strength by sqrt(g^2 + 1e-7), by which it must be larger.
    """

    curvature: float
    delay: int
    adaptive: bool

    def worker(self, node):
        read = [node.weights] * (self.delay + 1)
        while True:
            gradient = yield node.compute(read.pop(0))
            squared = gradient.value.square()
            exact = self.curvature / squared
            form = (
                DCASGDa(strength=exact * (squared + 1e-7).sqrt(), decay=0.0)
                if self.adaptive
                else DCASGDc(exact)
            )
            rule = Rule(lr=0.3, compensation=form)
            weights, _ = rule.update(node.weights, [gradient], rule.init(node.weights))
            node.apply(weights, [gradient])
            read.append(node.weights)


def test_exact_hessian_gives_fresh_gradient():
    """On a quadratic the right strength gives the fresh gradient for any delay."""
    task = Quadratic(curvature=2.0, dtype=torch.float64)
    fresh = weights_after(ONE, method("delayed", Rule(lr=0.3)), task, updates=8)
    for name, adaptive in [
        ("c, strength h / g^2", False),
        ("a, strength h sqrt(g^2 + 1e-7) / g^2", True),
    ]:
        late = weights_after(ONE, Compensated(2.0, 3, adaptive), task, updates=8)
        close(
            f"DC-ASGD-{name}, on h w^2 / 2: the fresh gradient",
            late,
            fresh,
            source=ZHENG,
            rtol=1e-9,
        )


def test_damping_scales_learning_rate():
    """A constant factor on every gradient scales the learning rate of SGD; a factor on the step
    scales it for every optimiser.
    """
    slower = every(UNEVEN, "async_ps", rules=[replace(rule, lr=LR / 4) for rule in RULES])
    on_step = [replace(rule, compensation=OneOverN(workers=4, on="step")) for rule in RULES]
    after = every(UNEVEN, "async_ps", rules=on_step)
    close("1/N on the step = lr / N, P = 4, every optimiser", after, slower, source="1/N rule")
    on_gradient = every(
        UNEVEN, "async_ps", rules=[replace(RULES[0], compensation=OneOverN(workers=4))]
    )
    close("1/N on the gradient = lr / N for SGD, P = 4", on_gradient, slower[:1], source="1/N rule")


def test_rescaling_leaves_equal_workers():
    """With equal times every gradient counts in full, bit for bit, in every optimiser."""
    rescaled = [replace(rule, compensation=Rescaled()) for rule in RULES]
    text = "rescaled = no compensation, P = 4 of equal times"
    after = every(EVEN, "async_ps", rules=rescaled)
    same(text, after, every(EVEN, "async_ps", rules=RULES), source="arXiv 2605.13434")


def test_lion_steps_by_signs():
    """Lion as a loop: torch has no such optimiser."""
    task = quadratic()
    weights, batches = first_weights(task), batches_of(task)
    momentum = torch.zeros_like(weights)
    for _ in range(UPDATES):
        gradient = gradient_of(task, weights, next(batches))
        direction = torch.sign(0.9 * momentum + 0.1 * gradient)
        momentum = 0.99 * momentum + 0.01 * gradient
        weights = weights - LR * (direction + 0.1 * weights)
    after = weights_after(ONE, method("delayed", Rule(Lion(weight_decay=0.1), lr=LR)), task)
    close("lion = its loop", after, weights, source="Chen et al. (2023)")


def test_every_rule_has_statements():
    """Each optimiser, schedule and compensation is made by a statement, here or in another
    module.
    """
    modules = [Path(trials.__file__), *Path(__file__).parent.glob("test_*.py")]
    text = "".join(module.read_text() for module in modules)
    rules = {*OPTIMIZERS.values(), *SCHEDULES.values(), *COMPENSATIONS.values()}
    plain = {SCHEDULES["constant"], COMPENSATIONS["none"]}
    assert [kind.__name__ for kind in rules - plain if f"{kind.__name__}(" not in text] == []
