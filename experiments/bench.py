"""How fast the engine trains, beside the plain loop that anyone would write: ratios, measured in alternation."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from experiments.build import arguments
from experiments.config import Config
from experiments.errors import ConfigError
from experiments.grid import members, runs
from models import Dataset
from simulator import Evaluate, Mileage, Stop, simulate

ROUNDS = 5


class Ratio(NamedTuple):
    """A speed relative to the plain loop's: the median over rounds, and the range."""

    median: float
    least: float
    most: float


class Report(NamedTuple):
    """What was measured.

    Attributes:
        plain: gradients per second of the best plain loop, by its number of intra-op threads.
        laggard: gradients per second of the engine, evaluations left out.
        ratio: laggard over the best plain loop of the same round.
        machine: what it ran on.
    """

    plain: dict[str, float]
    laggard: float
    ratio: Ratio
    machine: dict[str, Any]

    def as_json(self) -> str:
        return json.dumps({**self._asdict(), "ratio": self.ratio._asdict()}, indent=2)


def real_gradients(config: Config, updates: int = 600, rounds: int = ROUNDS) -> Report:
    """Gradients per second of `config`'s run and of the plain in-memory loop of the same model, data and batch.

    Both are run in turn, `rounds` times, since machines are shared: only the ratio within a round counts. The
    plain loop is `torch.optim.SGD` on one model with index mini-batches, the better of one and all intra-op threads.

    Raises:
        ConfigError: several runs or members, or the task is no network on a data set.
    """
    planned = runs(config)
    if len(planned) > 1 or len(members(planned[0].config)) > 1:
        raise ConfigError("sweep", "bench measures one model: fix the swept keys, or sweep={}")
    config = planned[0].config
    if not hasattr(config.task, "dataset"):
        raise ConfigError("task.model", f"expected a network on a data set, got {config.task.model!r}")
    given = arguments(config)
    data = config.task.dataset.build().to(given["task"].device, given["task"].dtype)
    loops = {str(threads): plain_loop(config, data, threads) for threads in sorted({1, cores()})}
    plain: dict[str, list[float]] = {threads: [] for threads in loops}
    engine: list[float] = []
    for _ in range(rounds):
        for threads, loop in loops.items():
            plain[threads].append(loop(updates))
        torch.set_num_threads(1)
        engine.append(engine_speed(given, updates))
    best = [max(speeds) for speeds in zip(*plain.values(), strict=True)]
    ratios = [mine / theirs for mine, theirs in zip(engine, best, strict=True)]
    return Report(
        plain={threads: round(statistics.median(speeds), 1) for threads, speeds in plain.items()},
        laggard=round(statistics.median(engine), 1),
        ratio=Ratio(*(round(f(ratios), 3) for f in (statistics.median, min, max))),
        machine={
            "cores": cores(),
            "processor": platform.machine(),
            "torch": torch.__version__,
            "system": platform.system(),
        },
    )


def cores() -> int:
    """How many cores there are."""
    return os.cpu_count() or 1


def plain_loop(config: Config, data: Dataset, threads: int) -> Callable[[int], float]:
    """A plain training loop on `threads` intra-op threads, as a function of steps that answers steps per second.

    It runs where `data` lies.
    """
    device = data.train_x.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = config.task.build().build(data.shape, data.classes).to(device, data.train_x.dtype)
    optimiser = torch.optim.SGD(module.parameters(), lr=config.learning.lr)

    def run(steps: int) -> float:
        torch.set_num_threads(threads)
        order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(config.seed)).to(device)
        settle(device)
        start = time.perf_counter()
        for step in range(steps):
            at = step * config.task.batch % (len(order) - config.task.batch)
            batch = order[at : at + config.task.batch]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(data.train_x[batch]), data.train_y[batch]).backward()
            optimiser.step()
        settle(device)
        return steps / (time.perf_counter() - start)

    return run


def settle(device: torch.device) -> None:
    """Wait until a GPU has done what it was told: kernels run on while Python goes ahead."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def engine_speed(given: dict[str, Any], updates: int) -> float:
    """Gradients per second of the engine from its first update to its last: clock, rules and recording included."""
    moments = []

    def watch(mileage: Mileage) -> None:
        if not moments or mileage.gradients >= updates:  # the two moments that count
            settle(given["task"].device)
        moments.append((time.perf_counter(), mileage.gradients))

    quiet = {"stop": Stop(gradients=updates), "evaluate": Evaluate(every_updates=10 * updates)}
    simulate(**{**given, **quiet}, watch=watch)
    (start, before), (end, after) = moments[0], moments[-1]
    return (after - before) / (end - start)
