"""What the statements are tried on: small tasks in double precision, and short runs on them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laggard.models import MLP, Quadratic, Supervised, synthetic
from laggard.simulator import (
    ALGORITHMS,
    Algorithm,
    Cluster,
    Evaluate,
    Node,
    Outcome,
    Rule,
    Stop,
    Task,
    simulate,
)
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.learning.rules import SGD, Adagrad, Adam, AdamW, Nesterov, RMSProp
from laggard.simulator.timing.distributions import (
    Constant,
    Distribution,
    Exponential,
    Gamma,
    Uniform,
)
from laggard.simulator.timing.events import Message, Receive
from laggard.simulator.timing.streams import BATCHES, start_seed, stream

LR = 0.03
UPDATES = 8
FEW_LOCAL_STEPS = 4
"""As many as streaming DiLoCo has fragments; with 32 a round is longer, and nothing else."""
ONE = Cluster(workers=1)
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
LAWS: dict[str, Distribution] = {
    "constant": Constant(1.0),
    "uniform": Uniform(0.5, 1.5),
    "gamma cv 0.3": Gamma(1.0, 0.3),
    "exponential": Exponential(1.0),
}
"""Laws of mean 1."""

TorchOptimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
TorchScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
TORCH: dict[str, tuple[Any, TorchOptimizer]] = {
    "sgd": (SGD(), lambda p: torch.optim.SGD(p, LR)),
    "momentum": (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "nesterov": (
        Nesterov(momentum=0.8),
        lambda p: torch.optim.SGD(p, LR, momentum=0.8, nesterov=True),
    ),
    "adagrad": (Adagrad(), lambda p: torch.optim.Adagrad(p, LR)),
    "rmsprop": (RMSProp(decay=0.95), lambda p: torch.optim.RMSprop(p, LR, alpha=0.95)),
    "adam": (Adam(), lambda p: torch.optim.Adam(p, LR)),
    "adamw": (AdamW(weight_decay=0.1), lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1)),
}
"""Each optimiser that torch has too, beside torch's own."""

RULES = [Rule(optimizer, lr=LR) for optimizer, _ in TORCH.values()]
"""A rule with each optimiser of `TORCH`."""
LINEAR = [Rule(TORCH[name][0], lr=LR) for name in ("sgd", "momentum", "nesterov")]
"""Rules whose change is linear in the gradients."""
ADAM = [Rule(TORCH["adam"][0], lr=LR)]


class Dealt:
    """A task whose one stream of mini-batches is dealt to `workers` in turn: batch t is worker t
    mod P's t div P-th.
    """

    def __init__(self, task: Task, workers: int) -> None:
        self._task, self._workers = task, workers
        self.batch, self.epoch, self.lanes = task.batch, task.epoch, task.lanes

    def start(self, seeds: Sequence[int]) -> Tensor:
        """As the task's."""
        return self._task.start(seeds)

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Any]:
        """Every P-th mini-batch of the one stream, from the rank-th on."""
        return islice(
            self._task.batches(0, [np.random.default_rng(11) for _ in rngs]),
            rank,
            None,
            self._workers,
        )

    def gradients(self, weights: Tensor, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """As the task's."""
        return self._task.gradients(weights, batches)

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        """As the task's."""
        return self._task.evaluate(weights)


@cache
def quadratic() -> Quadratic:
    """Five curvatures over two orders of magnitude, noisy."""
    return Quadratic(
        curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=50, dtype=torch.float64
    )


@cache
def slope() -> Quadratic:
    """Gradients that are mini-batches of noise, whatever the weights: what they add up to is
    known.
    """
    return Quadratic(curvature=1e-300, dim=5, noise=1.0, epoch=50, dtype=torch.float64)


@cache
def perceptron(
    *hidden: int, dtype: torch.dtype = torch.float64, backend: str = "threads"
) -> Supervised:
    """A small network with real back-propagation, on one thread."""
    data, network = synthetic(samples=120, features=6, classes=3), MLP(hidden=hidden or (5,)).build
    return Supervised(network, data, batch=8, dtype=dtype, device="cpu", threads=1, backend=backend)


def method(name: str, rule: Rule | None = None, **settings: Any) -> Algorithm:
    """The method that a config calls `name`."""
    algorithm: Algorithm = ALGORITHMS[name](rule or Rule(), **settings)
    return algorithm


def brief(name: str) -> Callable[..., Algorithm]:
    """Makes the method called `name` of a rule, with few local steps where its default is more."""
    kind = ALGORITHMS[name]
    local_steps = getattr(kind, "local_steps", 1)
    if local_steps > FEW_LOCAL_STEPS:
        return partial(kind, local_steps=FEW_LOCAL_STEPS)
    return kind


def weights_after(
    cluster: Cluster, algorithm: Algorithm, task: Task | None = None, updates: int = UPDATES
) -> Tensor:
    """The weights `(ensemble, params)` after so many updates of a task, by default the
    quadratic.
    """
    stop, evaluate = Stop(updates=updates), Evaluate(every_updates=updates)
    return simulate(cluster, algorithm, task or quadratic(), stop=stop, evaluate=evaluate).weights


def every(
    cluster: Cluster,
    name: str,
    task: Task | None = None,
    *,
    rules: Sequence[Rule] = RULES,
    updates: int = UPDATES,
    **settings: Any,
) -> list[Tensor]:
    """The weights that the method called `name` has after so many updates, by each of `rules`:
    every optimiser.
    """
    return [weights_after(cluster, method(name, rule, **settings), task, updates) for rule in rules]


def first_weights(task: Task) -> Tensor:
    """The weights `(1, params)` at which a run with seed 0 starts."""
    return task.start([start_seed(0)])


def batches_of(task: Task, rank: int = 0) -> Iterator[Any]:
    """The mini-batches that worker `rank` draws in a run with seed 0."""
    return task.batches(rank, [stream(0, BATCHES, rank)])


def gradient_of(task: Task, weights: Tensor, batch: Any) -> Tensor:
    """The gradient `(1, params)` of one mini-batch at weights `(1, params)`."""
    return task.gradients(weights[None], [batch])[0][0]


def torch_loop(
    task: Task,
    optimizer: TorchOptimizer,
    *,
    scheduler: TorchScheduler | None = None,
    clip: Callable[[Tensor], object] = id,
    decay: float = 0.0,
    updates: int = UPDATES,
) -> Tensor:
    """The training loop that anyone would write, with torch's own optimiser, which has the weight
    decay, schedule and clipping.
    """
    weights = torch.nn.Parameter(first_weights(task))
    descent, batches = optimizer([weights]), batches_of(task)
    if decay:
        descent.param_groups[0]["weight_decay"] = decay
    schedule = scheduler(descent) if scheduler else None
    for _ in range(updates):
        weights.grad = gradient_of(task, weights.detach(), next(batches))
        clip(weights)
        descent.step()
        if schedule is not None:
            schedule.step()
    return weights.detach()


class Remains(NamedTuple):
    """What a run leaves.

    Attributes:
        nodes: by rank, as they were.
        untaken: messages that no role had taken: under way, or in a mailbox.
    """

    nodes: dict[int, Node]
    untaken: list[Message]


def remains_of(
    cluster: Cluster,
    algorithm: Algorithm,
    task: Task,
    stop: Stop,
    begin: Callable[[Node], None] = lambda node: None,
) -> Remains:
    """What a run leaves; `begin` is shown each node before its roles start."""
    nodes: dict[int, Node] = {}
    sent: list[Message] = []
    received: list[Receive] = []

    def noting(verb: Callable[..., Any], notes: list[Any]) -> Callable[..., Any]:
        def note(*given: Any, **named: Any) -> Any:
            notes.append(verb(*given, **named))
            return notes[-1]

        return note

    def see(run: Simulation) -> None:
        for node in run.nodes.values():
            nodes[node.rank] = node
            node.send, node.receive = noting(node.send, sent), noting(node.receive, received)  # type: ignore[method-assign]
            begin(node)

    simulate(cluster, algorithm, task, stop=stop, observe=see)
    taken = {id(receive.message) for receive in received if receive.fired}
    return Remains(nodes, [message for message in sent if id(message) not in taken])


def note_reads(reads: list[tuple[int, Tensor]]) -> Callable[[Simulation], None]:
    """What observes a run and notes who computes at which weights, in the order of beginning."""

    def watch(node: Node) -> None:
        right = node.compute

        def compute(weights: Tensor, *given: Any) -> Any:
            reads.append((node.rank, weights))
            return right(weights, *given)

        node.compute = compute  # type: ignore[method-assign]

    def observe(run: Simulation) -> None:
        for node in run.nodes.values():
            watch(node)

    return observe


def timed(
    cluster: Cluster, algorithm: Algorithm, updates: int, task: Task | None = None
) -> Outcome:
    """A run of so many updates, of which time is asked: without a task it learns nothing."""
    return simulate(cluster, algorithm, task, stop=Stop(updates=updates))


def update_times(
    cluster: Cluster, algorithm: Algorithm, updates: int, task: Task | None = None
) -> np.ndarray:
    """Virtual seconds of each update."""
    rows = timed(cluster, algorithm, updates, task).updates
    applied = rows["status"] == "applied"
    # a row per gradient, several to an update
    _, first = np.unique(rows["version"][applied], return_index=True)
    return np.diff(rows["time"][applied][first], prepend=0.0)


def settled(cluster: Cluster, algorithm: Algorithm, updates: int) -> np.ndarray:
    """The staleness of applied gradients, without those of the start, when not all were stale that
    would be.
    """
    rows = timed(cluster, algorithm, updates).updates
    applied: np.ndarray = rows["staleness"][rows["status"] == "applied"]
    return applied[cluster.workers * (cluster.workers - 1) // 2 :]


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + ... + 1/n."""
    return sum(1 / k for k in range(1, n + 1))
