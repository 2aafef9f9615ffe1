"""Optimisers and compensations."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from laggard.simulator import Cluster, Rule
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
    updates = 20  # each schedule has changed the rate, and those of two parts are in the second
    mine = weights_after(ONE, method("delayed", Rule(optimizer, LR, schedule)), updates=updates)
    close(
        f"{name} = {kind} of torch.optim",
        mine,
        torch_loop(quadratic(), torchs, scheduler=scheduler, updates=updates),
        source=TORCHS,
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


def test_rescaling_changes_nothing_for_equal_workers():
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
