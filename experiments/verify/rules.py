"""Rules alone: optimisers are torch's, and a compensation is its paper's formula."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, identical
from experiments.verify.trials import (
    LR,
    ONE,
    RULES,
    TORCH,
    UPDATES,
    TorchOptimizer,
    every,
    learnt,
    method,
    perceptron,
    quadratic,
)
from models import Quadratic
from simulator import Algorithm, Cluster, Node, Role, Rule, Task
from simulator.laws import Gamma
from simulator.rules import Cosine, DCASGDa, DCASGDc, DelayAdaptive, GapAware, OneOverN, Staleness, Step, WarmUp
from simulator.streams import BATCHES, start_seed, stream

ZHENG = "Zheng et al. (2017)"
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
TorchScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
rules = Family("rules", "Optimisers and compensations")


def plain_loop(task: Task, optimizer: TorchOptimizer, scheduler: TorchScheduler | None = None) -> Tensor:
    """The training loop that anyone would write, with torch's own optimiser and schedule."""
    weights = torch.nn.Parameter(task.start([start_seed(0)]))
    descent, batches = optimizer([weights]), task.batches(0, [stream(0, BATCHES, 0)])
    schedule = scheduler(descent) if scheduler else None
    for _ in range(UPDATES):
        weights.grad = task.gradients(weights.detach()[None], [next(batches)])[0][0]
        descent.step()
        if schedule is not None:
            schedule.step()
    return weights.detach()


@rules.check
def optimizers() -> Iterator[Finding]:
    """Every optimiser is torch's, on a quadratic and through a network."""
    tasks: list[Task] = [quadratic(), perceptron()]
    for name, (optimizer, torchs) in TORCH.items():
        mine = [learnt(ONE, method("delayed", Rule(optimizer, lr=LR)), task) for task in tasks]
        its = [plain_loop(task, torchs) for task in tasks]
        yield close(f"{name} = {type(torchs([torch.nn.Parameter(torch.zeros(1))])).__name__} of torch.optim",
                    "torch.optim", mine, its)  # fmt: skip


@rules.check
def schedules() -> Iterator[Finding]:
    """Every schedule is torch's, counted in updates; an epoch of the quadratic is 50 of them."""
    optimizer, torchs = TORCH["momentum"]
    shapes = torch.optim.lr_scheduler
    for name, schedule, scheduler in [
        ("step", Step(every=10, factor=0.3, unit="updates"), lambda of: shapes.StepLR(of, 10, 0.3)),
        ("step", Step(every=0.2, factor=0.3, unit="epochs"), lambda of: shapes.StepLR(of, 10, 0.3)),
        ("warm-up", WarmUp(length=20, start=0.25, unit="updates"), lambda of: shapes.LinearLR(of, 0.25, 1.0, 20)),
        ("cosine", Cosine(length=50, floor=0.1, unit="updates"), lambda of: shapes.CosineAnnealingLR(of, 50, 0.1 * LR)),
    ]:
        mine = learnt(ONE, method("delayed", Rule(optimizer, LR, schedule)))
        statement = (
            f"{name} in {schedule.unit} = {type(scheduler(torchs([torch.nn.Parameter(torch.zeros(1))]))).__name__}"
        )
        yield close(statement, "torch.optim", mine, plain_loop(quadratic(), torchs, scheduler))


@rules.check
def strength_zero() -> Iterator[Finding]:
    """Delay compensation of strength 0 is none."""
    asgd = every(UNEVEN, "async_ps")
    for name, compensation in [("c", DCASGDc(strength=0.0)), ("a", DCASGDa(strength=0.0))]:
        compensated = every(UNEVEN, "async_ps", rules=[replace(rule, compensation=compensation) for rule in RULES])
        yield identical(f"DC-ASGD-{name}, strength 0 = ASGD, P = 4, every optimiser", ZHENG, compensated, asgd)


@rules.check
def one_worker() -> Iterator[Finding]:
    """One worker's gradients are fresh, and fresh gradients are not compensated; those of four are."""
    sgd = every(ONE, "async_ps")
    for name, source, compensation in [
        ("DC-ASGD-c", ZHENG, DCASGDc(strength=1.0)),
        ("DC-ASGD-a", ZHENG, DCASGDa()),
        ("lr / staleness", "Zhang et al. (2016)", Staleness()),
        ("step / staleness", "Zhang et al. (2016)", Staleness(on="step")),
        ("delay-adaptive lr", "Mishchenko et al. (2022)", DelayAdaptive(ceiling=0.05)),
        ("delay-adaptive step", "Mishchenko et al. (2022)", DelayAdaptive(ceiling=0.05, on="step")),
        ("gap-aware", "Barkai et al. (2020)", GapAware()),
    ]:
        late = [replace(rule, compensation=compensation) for rule in RULES]
        yield identical(f"{name}, P = 1 = SGD, every optimiser", source, every(ONE, "async_ps", rules=late), sgd)
        one, other = learnt(UNEVEN, method("async_ps", late[0])), learnt(UNEVEN, method("async_ps", RULES[0]))
        yield differ(f"{name}, P = 4, is not ASGD", source, one, other)


@dataclass(frozen=True)
class Compensated(Algorithm):
    """Descent by gradients `delay` updates old on f = h w^2 / 2, with the strength that makes them fresh chosen anew.

    g + strength g^2 (w - w_read) is h w, the fresh gradient, if strength = h / g^2; the adaptive form with decay 0
    divides its strength by sqrt(g^2 + 1e-7), by which it must be larger.
    """

    curvature: float
    delay: int
    adaptive: bool

    def worker(self, node: Node) -> Role:
        read = [node.weights] * (self.delay + 1)
        while True:
            gradient = yield node.compute(read.pop(0))
            squared = gradient.value.square()
            exact = self.curvature / squared
            form = DCASGDa(strength=exact * (squared + 1e-7).sqrt(), decay=0.0) if self.adaptive else DCASGDc(exact)
            rule = Rule(lr=0.3, compensation=form)
            weights, _ = rule.update(node.weights, [gradient], rule.init(node.weights))
            node.apply(weights, [gradient])
            read.append(node.weights)


@rules.check
def exact_hessian() -> Iterator[Finding]:
    """On a quadratic the right strength gives the fresh gradient, however late it is."""
    task = Quadratic(curvature=2.0, dtype=torch.float64)
    fresh = learnt(ONE, method("delayed", Rule(lr=0.3)), task, updates=8)
    for name, adaptive in [("c, strength h / g^2", False), ("a, strength h sqrt(g^2 + 1e-7) / g^2", True)]:
        late = learnt(ONE, Compensated(2.0, 3, adaptive), task, updates=8)
        yield close(f"DC-ASGD-{name}, on h w^2 / 2: the fresh gradient", ZHENG, late, fresh, rtol=1e-9)


@rules.check
def damping() -> Iterator[Finding]:
    """A constant factor on every gradient is one on the learning rate; on the step, for every optimiser."""
    slower = every(UNEVEN, "async_ps", rules=[replace(rule, lr=LR / 4) for rule in RULES])
    damped = [replace(rule, compensation=OneOverN(workers=4, on="step")) for rule in RULES]
    after = every(UNEVEN, "async_ps", rules=damped)
    yield close("1/N on the step = lr / N, P = 4, every optimiser", "1/N rule", after, slower)
    before = replace(RULES[0], compensation=OneOverN(workers=4))
    yield close(
        "1/N on the gradient = lr / N for SGD, P = 4", "1/N rule", learnt(UNEVEN, method("async_ps", before)), slower[0]
    )
