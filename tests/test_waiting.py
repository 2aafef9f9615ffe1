"""Between evaluations the program never waits for the device: it asks for no value, and copies
nothing that blocks.

No GPU is needed to see it. On torch's meta device a tensor has a shape and no numbers, so that
whatever asks for one raises; copies there are watched.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from laggard.models import MLP, LeNet5, Supervised, synthetic
from laggard.models import task as supervised
from laggard.models.data import Dataset
from laggard.simulator import Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.learning.compression import Compress
from laggard.simulator.learning.rules import COMPENSATIONS, OPTIMIZERS, SCHEDULES
from laggard.simulator.learning.rules.contrib.cgad import CGAD
from laggard.simulator.learning.rules.contrib.heloco import HeLoCo
from laggard.simulator.learning.rules.rule import Rule as AnyRule
from laggard.simulator.recording.metrics import FOLD, FOLD_ON_GPU, Learning
from laggard.simulator.testing.trial import Bowl, fitting, trial_of

META = torch.device("meta")
MEMBERS = 3
NETWORK = MLP(hidden=(6, 5, 4))
RATES = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64)


class Blocking(TorchDispatchMode):
    """Raises where something is copied to the device that the program would wait for."""

    armed = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = kwargs or {}
        to = given.get("device")
        if (
            function._schema.name == "aten::_to_copy"
            and to == META
            and args[0].device != META
            and self.armed
        ):
            assert given.get("non_blocking"), f"{tuple(args[0].shape)} was copied, and waited for"
        if function._schema.name == "aten::copy_" and self.armed:
            assert args[0].device == args[1].device, (
                f"{tuple(args[1].shape)} was copied between devices"
            )
        return function(*args, **given)


@pytest.fixture
def afar(monkeypatch):
    """Tasks on the meta device, and runs that are never evaluated."""
    monkeypatch.setattr(supervised, "find_device", lambda name: META)
    monkeypatch.setattr(Learning, "evaluate", lambda *args: None)

    def task(network=NETWORK, data=None, **given):
        data = synthetic(samples=40, features=4, classes=3) if data is None else data
        return Supervised(network.build, data, **{"batch": 8, "backend": "unfold", **given})

    return task


class DistantBowl(Bowl):
    """The quadratic on the meta device: what a method adds to its few operations is the method's."""

    curvature = torch.empty(6, device=META)

    def start(self, seeds):
        return torch.empty(len(seeds), self.dim, device=META)

    def batches(self, rank, rngs):
        while True:
            yield torch.empty(self.dim, device=META)


def watched(algorithm, task, cluster=None, updates=5, **given):
    """A run in which, from the first mini-batch on, nothing may wait."""
    trial, watch, batches = trial_of(algorithm, task=task), Blocking(), task.batches

    def watching(rank, rngs):
        for batch in batches(rank, rngs):
            watch.armed = True
            yield batch

    task.batches = watching
    with watch:
        return simulate(
            cluster or trial.cluster,
            trial.make(trial.rule),
            task,
            stop=Stop(updates=updates, gradients=200),
            **given,
        )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_method_waits(afar, name):
    rules = [Rule(OPTIMIZERS["sgd"](momentum=0.9), lr=RATES), Rule(lr=RATES)]
    rule = fitting(ALGORITHMS[name], rules)
    few = {"local_steps": 4} if hasattr(ALGORITHMS[name], "local_steps") else {}
    outcome = watched(
        lambda _: ALGORITHMS[name](rule, **few), DistantBowl(), updates=3, learning_seeds=[0, 1, 2]
    )
    assert outcome.progress.updates >= 2
    assert outcome.evaluated > 0
    assert outcome.weights.device == META


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [*((name, "constant") for name in OPTIMIZERS), *(("sgd", name) for name in SCHEDULES)],
)
def test_no_optimizer_and_no_schedule_waits(afar, optimizer, schedule):
    given = {"step": {"every": 1.0}, "warmup": {"length": 2.0}, "cosine": {"length": 2.0}}.get(
        schedule, {}
    )
    for lr in (0.1, RATES):
        rule = Rule(OPTIMIZERS[optimizer](), lr=lr, schedule=SCHEDULES[schedule](**given))
        watched(lambda _, rule=rule: ALGORITHMS["delayed"](rule, delay=2), afar(), ensemble=MEMBERS)


@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_no_compensation_waits(afar, compensation):
    given = {"workers": 4} if compensation == "one_over_n" else {}
    rule = Rule(lr=RATES, compensation=COMPENSATIONS[compensation](**given))
    watched(lambda _: ALGORITHMS["async_ps"](rule), afar(), ensemble=MEMBERS)


@pytest.mark.parametrize(
    "compress",
    [
        Compress("top_k", keep=0.3),
        Compress("random_k", keep=0.3, feedback="ef21"),
        Compress("sign"),
        Compress("qsgd", levels=3, feedback="none"),
    ],
)
def test_no_compressor_waits(afar, compress):
    rule = Rule(lr=RATES)
    down = None
    if compress.feedback == "ef":
        down = compress
    algorithm = ALGORITHMS["k_sync"](rule, compress=compress, compress_down=down)
    watched(lambda _: algorithm, afar(), ensemble=MEMBERS)


@pytest.mark.parametrize("outer", [{"heloco": HeLoCo(0.7, 0.4, 0.3)}, {"cgad": CGAD(0.1, 3.0)}])
def test_no_outer_rule_waits(afar, outer):
    rule = Rule(lr=RATES)
    algorithm = ALGORITHMS["async_diloco"](rule, local_steps=2, **outer)
    watched(lambda _: algorithm, afar(), ensemble=MEMBERS)


def test_ensemble_of_every_number_never_waits(afar):
    one = torch.tensor([[0.5], [0.6], [0.7]], dtype=torch.float64)
    for optimizer in (OPTIMIZERS["adamw"](one, one, one, one), OPTIMIZERS["rmsprop"](one, one)):
        rule = Rule(optimizer, lr=RATES, compensation=COMPENSATIONS["dc_asgd_a"](one, one))
        watched(lambda _, rule=rule: ALGORITHMS["async_ps"](rule), afar(), ensemble=MEMBERS)


@pytest.mark.parametrize("backend", ["vmap", "unfold", "unfold-graphs", "vmap-graphs"])
def test_no_batched_backend_waits(afar, backend):
    images = torch.zeros(20, 1, 28, 28)
    data = Dataset(
        "blank",
        images,
        torch.zeros(20, dtype=torch.long),
        images,
        torch.zeros(20, dtype=torch.long),
        10,
    )
    outcome = watched(
        lambda rule: ALGORITHMS["delayed"](rule, delay=3),
        afar(LeNet5(), data, backend=backend),
        ensemble=MEMBERS,
    )
    assert outcome.evaluated >= 5


def test_losses_are_fetched_rarely(afar):
    learning = Learning(afar(), torch.zeros(MEMBERS, 2, device=META))
    loss = torch.zeros(MEMBERS, device=META)
    learning._losses, learning._moments = [loss] * (FOLD + 1), [(1, 1.0)] * (FOLD + 1)
    learning.applied([], 1, 1.0)
    learning._losses, learning._moments = [loss] * FOLD_ON_GPU, [(1, 1.0)] * FOLD_ON_GPU
    with pytest.raises(NotImplementedError):
        learning.applied([], 1, 1.0)  # more than that is fetched, as memory is bounded


def test_planted_wait_is_detected(afar):
    class Impatient(AnyRule):
        def update(self, weights, gradients, state, combine=None):
            float(gradients[0].value.sum())
            return super().update(weights, gradients, state, combine)

    class Hasty(AnyRule):
        def update(self, weights, gradients, state, combine=None):
            return super().update(weights + torch.zeros(1).to(weights), gradients, state, combine)

    for rule, error in [(Impatient(), RuntimeError), (Hasty(), AssertionError)]:
        with pytest.raises(error):
            watched(lambda _, rule=rule: ALGORITHMS["delayed"](rule), afar())


class Counting(TorchDispatchMode):
    """Counts the operations on tensors as large as the weights."""

    def __init__(self, least):
        super().__init__()
        self.least, self.count = least, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        new = function._schema.returns and function._schema.returns[0].alias_info is None
        self.count += (
            bool(new) and isinstance(result, torch.Tensor) and result.numel() >= self.least
        )
        return result


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ensemble_size_changes_no_number_of_operations(optimizer):
    counts = set()
    made = OPTIMIZERS[optimizer]()
    if getattr(made, "needs_shapes", False):
        made = made.with_shapes({"hidden": (10, 9), "last": (10, 10), "bias": (10,)})
    for members in (1, 2, 50):
        weights = torch.rand(members, 200)
        rule = Rule(made, lr=torch.full((members, 1), 0.1, dtype=torch.float64))
        with Counting(least=weights.numel()) as counting:
            rule.step(weights, weights, rule.init(weights), epochs=0.1)
        counts.add(counting.count)
    assert len(counts) == 1
    assert 2 <= counts.pop() <= 30
