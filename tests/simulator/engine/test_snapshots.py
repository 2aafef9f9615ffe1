"""A run that goes on from a snapshot ends as one that was left alone, bit for bit; faults in a
snapshot are found.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laggard.models import MLP, Augmentation, Quadratic, Supervised, synthetic, synthetic_images
from laggard.simulator import (
    ALGORITHMS,
    DPSGD,
    SGP,
    AsyncPS,
    Cluster,
    Evaluate,
    Network,
    Outcome,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine import snapshots
from laggard.simulator.engine.node import Node
from laggard.simulator.engine.snapshots import Snapshot, SnapshotError, Snapshots
from laggard.simulator.learning.compression import Compress
from laggard.simulator.learning.promises import Promise
from laggard.simulator.learning.rules import SGD, Adam, DCASGDa, GapAware
from laggard.simulator.network.topology import SERVER
from laggard.simulator.recording.messages import Record
from laggard.simulator.testing.trial import Bowl, fitting, trial_of
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.members import Members
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.engine.books import differences
from tests.theory.trials import brief

CLUSTER = Cluster(
    workers=4,
    compute=Gamma(1.0, 0.6),
    network=Network(bandwidth=50.0, latency=0.01, message_bytes=2.0),
)
Run = Callable[..., Outcome]


class Interrupt(BaseException):
    """The process ends."""


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second of wall time passes from one update to the next."""
    ticks = count()
    monkeypatch.setattr(snapshots, "monotonic", lambda: next(ticks))


def interrupt(run: Run, after: int, start: Snapshot | None = None) -> Snapshot:
    """The snapshot after `after` updates, at which the run is interrupted."""
    taken: list[Snapshot] = []

    def save(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        raise Interrupt

    with pytest.raises(Interrupt):
        run(snapshots=Snapshots(save, after, start))
    return taken[0]


def resume(run: Run, start: Snapshot) -> Outcome:
    return run(snapshots=Snapshots(lambda snapshot: None, 1e9, start))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_resumes(name: str) -> None:
    """Runs have two members and Adam or momentum, and are interrupted after 70 % of their updates."""
    trial = trial_of(brief(name), updates=5)
    rates = torch.tensor([[0.02], [0.01]], dtype=torch.float64)
    rules = [Rule(optimizer, lr=rates) for optimizer in (Adam(), SGD(momentum=0.5), SGD())]
    if "pipe" in name:
        rules = rules[1:]
    rule = fitting(ALGORITHMS[name], rules)

    def run(**more: Any) -> Outcome:
        return trial.run(
            rule, ensemble=2, evaluate=Evaluate(every_updates=3, keep_models=True), **more
        )

    seen: list[Any] = []
    whole = run(observe=seen.append)
    start = interrupt(run, int(0.7 * seen[0].counters.applies))
    assert 0.7 * seen[0].counters.applies - 1 <= start.updates < seen[0].counters.applies
    assert differences(resume(run, start), whole) == []


class ErrorFeedback(AsyncPS):
    """Workers send half of each coordinate, and add the rest to the next gradient."""

    def worker(self, node: Node) -> Iterator[Any]:
        node.send(SERVER, None, size=0)
        rest: list[Promise] = []
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            whole = gradient.map(torch.add, *rest) if rest else gradient
            rest = [whole * 0.5]
            node.send(SERVER, whole.map(lambda value: value * 0.5))


class Noting(AsyncPS):
    """Workers note the norm of the weights that they read, and how often they have read."""

    def worker(self, node: Node) -> Iterator[Any]:
        node.send(SERVER, None, size=0)
        for read in count(1):
            _, weights = yield node.receive()
            node.note("read", read)
            node.note("norm", weights.norm(dim=1))
            gradient = yield node.compute(weights)
            node.send(SERVER, gradient)


class Catching(Supervised):
    """An error is raised and caught in every gradient."""

    def gradients(
        self, weights: torch.Tensor, batches: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        try:
            raise KeyError(len(batches))
        except KeyError:
            return super().gradients(weights, batches)


class Normalised(nn.Sequential):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Linear(*shape, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes))


def augmented() -> Supervised:
    """Crops, reflections and dropout, each with draws of its own."""

    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, classes)
        )

    data, augment = synthetic_images(samples=60, size=4), Augmentation(crop=1, flip=True)
    return Supervised(build, data, batch=8, augment=augment, threads=1, device="cpu")


def perceptron(kind: type[Supervised] = Supervised, threads: int = 1) -> Supervised:
    data = synthetic(samples=60, features=6)
    return kind(MLP(hidden=(5,)).build, data, 8, threads=threads, device="cpu")


def normalised() -> Supervised:
    data = synthetic(samples=60, features=6, classes=3)
    return Supervised(Normalised, data, batch=8, threads=1, device="cpu")


TASKS = {
    "augmented": augmented,
    "bowl": Bowl,
    "quadratic": lambda: Quadratic(dim=5, condition=10.0, noise=0.3, epoch=50),
    "batch norm": normalised,
    "mlp": perceptron,
    "catching": lambda: perceptron(Catching),
    "in the background": lambda: perceptron(threads=2),
}
RATES = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
CRASHES = [Crash(1, at=1.0, back=3.0), Crash(2, at=4.0)]
SERVER_CRASHES = replace(
    CLUSTER,
    server_crashes=[ServerCrash(uptime=Constant(2.0), restore_seconds=0.5)],
    checkpoint=Checkpoint(every_updates=4),
)
MEMBERS = replace(CLUSTER, members=Members(uptime=Exponential(4.0), downtime=Exponential(1.0)))
TIES = Cluster(workers=4, compute=Constant(1.0), ties="random")
CASES: dict[str, tuple[Algorithm, str, dict[str, Any]]] = {
    "augmentation and dropout": (AsyncPS(Rule()), "augmented", {"learning_seeds": [3, 4]}),
    "batch normalisation": (AsyncPS(Rule(SGD(momentum=0.9))), "batch norm", {}),
    "DC-ASGD": (AsyncPS(Rule(compensation=DCASGDa())), "mlp", {"learning_seeds": [3, 4]}),
    "gap-aware": (AsyncPS(Rule(Adam(), compensation=GapAware())), "mlp", {"ensemble": 2}),
    "gradients in the background": (AsyncPS(Rule()), "in the background", {"ensemble": 2}),
    "error feedback": (ErrorFeedback(Rule()), "bowl", {}),
    "notes": (Noting(Rule()), "mlp", {"ensemble": 2}),
    "compressed": (
        ALGORITHMS["k_batch_sync"](Rule(), gradients=2, compress=Compress("top_k", keep=0.4)),
        "quadratic",
        {},
    ),
    "rounded": (
        SyncPS(Rule(), compress=Compress("qsgd", levels=4, feedback="none")),
        "quadratic",
        {"ensemble": 2},
    ),
    "at once": (AsyncPS(Rule()), "mlp", {"defer": False}),
    "caught errors": (AsyncPS(Rule()), "catching", {"defer": False}),
    "little memory": (ALGORITHMS["soft_sync"](Rule(), gradients=3), "mlp", {"memory": 1.0}),
    "messages": (SyncPS(Rule()), "quadratic", {"record": Record(messages=True)}),
    "crashes": (AsyncPS(Rule()), "mlp", {"cluster": replace(CLUSTER, slowdowns=CRASHES)}),
    "servers that crash": (AsyncPS(Rule(Adam())), "quadratic", {"cluster": SERVER_CRASHES}),
    "members": (AsyncPS(Rule(Adam())), "quadratic", {"cluster": MEMBERS}),
    "members of a group": (
        DPSGD(Rule(Adam()), on_crash="shrink"),
        "quadratic",
        {"cluster": MEMBERS},
    ),
    "random ties": (AsyncPS(Rule()), "mlp", {"cluster": TIES}),
    "every node": (
        SGP(Rule(), overlap=1),
        "mlp",
        {"evaluate": Evaluate(every_seconds=2.0, nodes=True)},
    ),
    "diverging": (AsyncPS(Rule(lr=RATES.clone())), "quadratic", {"ensemble": 2}),
    "eps 0": (AsyncPS(Rule(Adam(eps=0.0))), "mlp", {}),
}


def run_of(case: str, **changed: Any) -> Run:
    algorithm, task, given = CASES[case]
    usual = {"cluster": CLUSTER, "stop": Stop(updates=24), "evaluate": Evaluate(every_updates=7)}
    arguments = {**usual, "algorithm": algorithm, **given, **changed}
    return lambda **more: simulate(task=TASKS[task](), **{**arguments, **more})


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_state_resumes(case: str) -> None:
    """The snapshot is of a run that was itself resumed."""
    run = run_of(case)
    whole = run()
    assert len(whole.updates["time"]) >= 20
    second = interrupt(run, 8, interrupt(run, 9))
    assert second.updates >= 17
    assert differences(resume(run, second), whole) == []
    assert any(whole.diverged) == (case == "diverging")


@pytest.mark.parametrize("case", ["every node", "gradients in the background"])
def test_snapshots_change_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking a snapshot after every update changes no result, nor does resuming from a middle one."""
    monkeypatch.setattr(snapshots, "MAX_TIME_SHARE", 1.0)
    run, taken = run_of(case, stop=Stop(gradients=30)), list[Snapshot]()
    whole = run()
    assert differences(run(snapshots=Snapshots(taken.append, every=0.0)), whole) == []
    assert len({snapshot.updates for snapshot in taken}) > 20
    assert differences(resume(run, taken[len(taken) // 2]), whole) == []


@pytest.mark.parametrize(
    "limit", [{"updates": 60}, {"time": 20.0}, {"epochs": 8.0}, {"gradients": 90}], ids=str
)
def test_run_resumes_to_longer_stop(limit: dict[str, Any]) -> None:
    """Evaluations are at the limit of the shorter run and after it."""
    half = {name: type(value)(value / 2) for name, value in limit.items()}
    for period in ({"every_seconds": 2.5}, {"every_updates": 10}):
        short, long = (
            run_of("DC-ASGD", stop=Stop(**each), evaluate=Evaluate(**period))
            for each in (half, limit)
        )
        start = interrupt(short, 15)
        whole = long()
        assert [whole.reached] == list(limit)
        assert differences(resume(long, start), whole) == []


def test_profiler_changes_nothing() -> None:
    """A profiler creates frame objects of generators."""
    run = run_of("DC-ASGD")
    sys.setprofile(lambda *_: None)
    try:
        start = interrupt(run, 14)
    finally:
        sys.setprofile(None)
    assert differences(resume(run, start), run()) == []


def test_run_of_clock_alone_has_no_snapshots() -> None:
    def fail(snapshot: Snapshot) -> None:
        raise AssertionError

    assert simulate(
        CLUSTER, AsyncPS(Rule()), stop=Stop(updates=9), snapshots=Snapshots(fail, every=0.0)
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"cluster": replace(CLUSTER, network=Network())},
        {"algorithm": SyncPS(Rule())},
        {"algorithm": AsyncPS(Rule(SGD(momentum=0.5)))},
        {"stop": Stop(updates=12)},
        {"stop": Stop(gradients=5)},
    ],
    ids=str,
)
def test_snapshot_of_another_run_is_refused(changed: dict[str, Any]) -> None:
    start = interrupt(run_of("DC-ASGD"), 15)
    with pytest.raises(SnapshotError):
        resume(run_of("DC-ASGD", **changed), start)


@dataclass(frozen=True)
class ByLoss(AsyncPS):
    """Its server keeps a Python number that depends on a gradient; with `waits`, its clock does."""

    waits: bool = False

    def server(self, node: Node) -> Iterator[Any]:
        state, largest = self.rule.init(node.weights), 0.0
        while True:
            sender, gradient = yield node.receive()
            if gradient is not None:
                largest = max(largest, float(gradient.value.abs().max()))
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                if self.waits:
                    yield node.work(min(largest, 1.0))
            node.send(sender, node.weights)


@pytest.mark.parametrize("waits", [False, True])
def test_method_that_reads_values_is_refused(waits: bool) -> None:
    """The comparison with the replay finds it, although the method declares nothing."""
    run = run_of("at once", algorithm=ByLoss(Rule(), waits=waits))
    with pytest.raises(
        SnapshotError, match=r"^after 1\d updates the run differs from that of the snapshot$"
    ):
        resume(run, interrupt(run, 14))


def test_error_during_replay_is_error_of_snapshot() -> None:
    class Positive(Rule):
        def update(self, weights, gradients, state, combine=None):
            if not all(gradient.value.any() for gradient in gradients):
                raise RuntimeError("a gradient of zeros")
            return super().update(weights, gradients, state, combine)

    run = run_of("DC-ASGD", algorithm=AsyncPS(Positive()))
    start = interrupt(run, 14)
    with pytest.raises(
        SnapshotError, match=r"^its events cannot be repeated: a gradient of zeros$"
    ):
        resume(run, start)


@dataclass(frozen=True)
class Memory(AsyncPS):
    """It keeps a mean of gradients in what a function refers to: in a dict, or in a set."""

    ordered: bool = True

    def server(self, node: Node) -> Iterator[Any]:
        state = self.rule.init(node.weights)
        held: Any = {} if self.ordered else set()

        def remember(value: Tensor | None = None) -> Tensor:
            if value is not None:
                held.update({"mean": value} if self.ordered else {value})
            return held["mean"] if held and self.ordered else torch.zeros(1)

        while True:
            sender, gradient = yield node.receive()
            if gradient is not None:
                remember(0.5 * remember() + gradient.value)
                remembered = gradient.map(lambda own: remember().expand_as(own))
                weights, state = self.rule.update(node.weights, [remembered], state)
                node.apply(weights, [gradient])
            node.send(sender, node.weights)


def test_closures_are_reached_and_sets_refused() -> None:
    run = run_of("DC-ASGD", algorithm=Memory(Rule()))
    assert differences(resume(run, interrupt(run, 14)), run()) == []
    taken: list[Snapshot] = []
    run = run_of("DC-ASGD", algorithm=Memory(Rule(), ordered=False))
    assert differences(run(snapshots=Snapshots(taken.append, every=0.0)), run()) == []
    assert taken == []


def test_unrestored_tensor_changes_the_resumed_run() -> None:
    """Setting one tensor of a snapshot to zero changes the resumed run, for at least five tensors."""
    run = run_of("diverging")
    start, whole = interrupt(run, 14), run()
    seen = 0
    for tensor in start.tensors:
        if tensor.is_floating_point() and tensor.count_nonzero():
            tensors = [value * 0 if value is tensor else value for value in start.tensors]
            seen += differences(resume(run, start._replace(tensors=tensors)), whole) != []
    assert seen >= 5
