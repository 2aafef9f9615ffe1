"""Weight decay, clipping and whole training loops."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, vector_to_parameters

from laggard.models import (
    MLP,
    CrossEntropyLoss,
    LeNet5,
    Quadratic,
    SquaredLoss,
    Supervised,
    digits,
    synthetic,
)
from laggard.simulator import Rule, Stop, simulate
from laggard.simulator.learning.rules import (
    CLIPS,
    SGD,
    AdamW,
    Chained,
    ClipNorm,
    ClipValue,
    Cosine,
    Step,
    WarmUp,
)
from tests.theory.statements import close, differ, equal, mean_is, same
from tests.theory.trials import (
    LR,
    ONE,
    TORCH,
    UNEVEN,
    UPDATES,
    batches_of,
    first_weights,
    method,
    perceptron,
    quadratic,
    torch_loop,
    weights_after,
)

TORCHS, PASCANU, KROGH = "torch", "Pascanu et al. (2013)", "Krogh & Hertz (1992)"
DECAY = 0.2
SHAPES = torch.optim.lr_scheduler
COUPLED = {name: given for name, given in TORCH.items() if not isinstance(given[0], AdamW)}
"""Every optimiser that adds weight decay to the gradient, and torch's."""
RUNS = (("P = 1", ONE, "delayed"), ("P = 4, late gradients", UNEVEN, "async_ps"))
CLIPPED = {
    "clip_grad_norm_": (ClipNorm(0.5), lambda weights: clip_grad_norm_([weights], 0.5)),
    "clip_grad_value_": (ClipValue(0.2), lambda weights: clip_grad_value_([weights], 0.2)),
}
"""Torch's own function, and what stands for it."""


@pytest.mark.parametrize("name", COUPLED)
def test_weight_decay_matches_torch(name):
    """Weight decay is coupled with the gradient as in torch, on a quadratic and in a network."""
    optimizer, torchs = COUPLED[name]
    tasks = [quadratic(), perceptron()]
    rule = Rule(optimizer, LR, weight_decay=DECAY)
    mine = [weights_after(ONE, method("delayed", rule), task) for task in tasks]
    torchs_own = [torch_loop(task, torchs, decay=DECAY) for task in tasks]
    close(
        f"{name} with weight decay = torch.optim's with the same", mine, torchs_own, source=TORCHS
    )


@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_matches_torch(name):
    """A gradient is clipped before weight decay is added, as in torch; most gradients here exceed
    the bound.
    """
    clip, torchs_clip = CLIPPED[name]
    tasks = [quadratic(), perceptron()]
    for optimizer, torchs in (TORCH["momentum"], TORCH["adam"]):
        rule = Rule(optimizer, LR, clip=clip, weight_decay=DECAY)
        mine = [weights_after(ONE, method("delayed", rule), task) for task in tasks]
        its = [torch_loop(task, torchs, clip=torchs_clip, decay=DECAY) for task in tasks]
        kind = type(optimizer).__name__
        close(
            f"{kind}, clipped and with weight decay = {name}, torch.optim", mine, its, source=TORCHS
        )
        free = [
            weights_after(ONE, method("delayed", replace(rule, clip=CLIPS["none"]())), task)
            for task in tasks
        ]
        differ(f"{kind} by {name} is not {kind} alone", mine[0], free[0], source=TORCHS)


def test_clipped_steps_have_fixed_length():
    """Far from the optimum a clipped step has length lr c, and the distance falls by that."""
    task = Quadratic(curvature=[5.0] * 4, initial=50.0, dtype=torch.float64)
    rule = Rule(lr=0.1, clip=ClipNorm(3.0))
    for name, cluster, algorithm in RUNS:
        after = weights_after(cluster, method(algorithm, rule), task, updates=100)
        left = 100 - 100 * 0.1 * 3.0
        equal(
            f"length of w after 100 steps, {name}",
            left,
            float(after.norm()),
            source=PASCANU,
            rtol=1e-6,
        )


def test_decay_uses_fresh_weights():
    """Weight decay uses the weights that are updated, so that it is not stale when gradients are."""
    task, updates = Quadratic(curvature=1e-300, optimum=0.0, initial=3.0, dtype=torch.float64), 50
    rule = Rule(lr=0.1, weight_decay=DECAY)
    shrunk = 3.0 * (1 - 0.1 * DECAY) ** updates
    for name, cluster, algorithm in RUNS:
        after = float(weights_after(cluster, method(algorithm, rule), task, updates=updates))
        equal(f"w without a slope, {name}: w0 (1 - lr decay)^t", shrunk, after, source=KROGH)


def test_decay_moves_minimum():
    """Weight decay moves the minimum of h (w - a)^2 / 2 to h a / (h + decay), for any staleness."""
    task = Quadratic(curvature=0.5, optimum=2.0, initial=0.0, dtype=torch.float64)
    expected = 0.5 * 2.0 / (0.5 + DECAY)
    for name, cluster, algorithm in RUNS:
        rule = Rule(SGD(), 0.1, weight_decay=DECAY)
        after = float(weights_after(cluster, method(algorithm, rule), task, updates=600))
        equal(f"h a / (h + decay), {name}", expected, after, source=KROGH, wrong=2.0)


MEMBERS = [(0.01, 0.0, 0.3, 0.5, 0.2), (0.05, 0.1, 1.0, 0.1, 0.1), (0.03, 0.01, 100.0, 0.9, 0.0)]
"""Of each member: learning rate, weight decay, bound of the clip, factor of steps, start of the
cosine.
"""


def recipe(optimizer, clip, lr, decay, bound, factor, after):
    schedule = Chained(
        [WarmUp(length=0.1), Step(at=[0.2, 0.4], factor=factor), Cosine(length=0.6, after=after)]
    )
    return Rule(optimizer, lr, schedule, clip=clip(bound), weight_decay=decay)


def test_members_with_recipes_equal_single_runs():
    """Members of an ensemble may differ in weight decay, bounds and schedules; each equals a
    single run.
    """
    columns = [
        torch.tensor(column, dtype=torch.float64)[:, None] for column in zip(*MEMBERS, strict=True)
    ]
    single = perceptron(dtype=torch.float32)
    for name in ("momentum", "adam", "adamw"):
        optimizer, _ = TORCH[name]
        for clip in (ClipNorm, ClipValue):
            algorithm = method("async_ps", recipe(optimizer, clip, *columns))
            more = {"stop": Stop(updates=UPDATES), "learning_seeds": [0] * len(MEMBERS)}
            together = simulate(UNEVEN, algorithm, single, **more).weights
            alone = [
                weights_after(UNEVEN, method("async_ps", recipe(optimizer, clip, *member)), single)
                for member in MEMBERS
            ]
            text = f"{name} with {clip.__name__}: an ensemble = single runs"
            same(text, together, torch.cat(alone), source="identity")


def module_loop(task, module, rule, steps):
    """A training loop of a module as PyTorch's users write it, on the mini-batches of a run with
    seed 0.
    """
    data, batches = digits().to("cpu", task.dtype), batches_of(task)
    module.to(task.dtype)
    vector_to_parameters(first_weights(task)[0], module.parameters())
    optimizer = torch.optim.SGD(
        module.parameters(), lr=rule.lr, momentum=0.9, weight_decay=rule.weight_decay
    )
    warm_up, stepwise = (
        SHAPES.LinearLR(optimizer, 0.1, 1.0, steps // 4),
        [steps // 2, steps * 3 // 4],
    )
    schedule = SHAPES.ChainedScheduler([warm_up, SHAPES.MultiStepLR(optimizer, stepwise, 0.1)])
    for _ in range(steps):
        samples = next(batches)
        optimizer.zero_grad()
        loss = cross_entropy(
            module(data.train_x[samples]), data.train_y[samples], label_smoothing=0.1
        )
        loss.backward()
        clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])[None]


@pytest.mark.parametrize(
    ("network", "dtype", "steps", "rtol"),
    [
        (LeNet5(), torch.float32, 10, 1e-5),
        (MLP(hidden=[16]), torch.float64, 200, 1e-11),
        pytest.param(LeNet5(), torch.float64, 200, 1e-11, marks=pytest.mark.slow),
    ],
    ids=["LeNet-5 in single precision", "a perceptron", "LeNet-5"],
)
def test_recipe_matches_training_loop_of_torch(network, dtype, steps, rtol):
    """The recipe has momentum, weight decay, a warm-up, step decay, clipping and label smoothing."""
    task = Supervised(
        network.build, digits(), 30, loss=CrossEntropyLoss(smoothing=0.1), dtype=dtype, threads=1
    )
    units = {"unit": "updates"} if steps < 50 else {"unit": "epochs"}
    updates = steps if steps < 50 else steps / 50  # 1,500 samples in mini-batches of 30
    schedule = Chained([
        WarmUp(length=updates // 4 if steps < 50 else updates / 4, start=0.1, **units),
        Step(at=[updates // 2, updates * 3 // 4], **units),
    ])  # fmt: skip
    rule = Rule(SGD(momentum=0.9), 0.1, schedule, clip=ClipNorm(1.0), weight_decay=5e-4)
    mine = weights_after(ONE, method("delayed", rule), task, updates=steps)
    its = module_loop(task, network.build((1, 28, 28), 10), rule, steps)
    name, precision = type(network).__name__, str(dtype).removeprefix("torch.")
    text = f"{name}, {steps} steps, {precision} = a loop in PyTorch"
    same(text, mine, its, source=TORCHS, rtol=rtol)


def test_dropout_of_inputs_acts_as_ridge():
    """Input dropout in least squares, W x, is on average a ridge with the second moments of the
    inputs as strengths.
    """
    p, data = 0.3, synthetic(samples=6, features=4, classes=3)

    def build(shape, classes):
        return nn.Sequential(nn.Dropout(p), nn.Linear(4, 3, bias=False))

    settings = {"dtype": torch.float64, "backend": "vmap", "device": "cpu"}
    task = Supervised(build, data, 6, loss=SquaredLoss(), **settings)
    weights, batches = first_weights(task), list(islice(batches_of(task), 4000))
    gradients, _ = task.gradients(weights.expand(4000, 1, -1), batches)
    x, w = data.train_x.double(), weights.view(3, 4)
    units = torch.eye(3, dtype=torch.float64)[data.train_y]
    without = float(((x @ w.T - units) * (x @ w.T)).sum(1).mean())
    ridge = p / (1 - p) * float((w.square() @ x.T.square()).sum(0).mean())
    text = "mean of W . gradient: (W x - t) . W x + p / (1 - p) sum_j x_j^2 W_j . W_j"
    found = gradients[:, 0] @ weights[0]
    mean_is(text, without + ridge, found, source="Srivastava et al. (2014)", wrong=without)


def test_every_clip_has_statements():
    """Each kind of clipping has a statement."""
    assert {type(clip) for clip, _ in CLIPPED.values()} == {*CLIPS.values()} - {CLIPS["none"]}
