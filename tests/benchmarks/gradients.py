"""Real gradients per second, over those of the best plain training loop; and of E members over E
runs.

The engine's are counted from a run's first update to its last: clock, network, rules and recording
are in it, evaluations and start-up are not. The plain loop's are its steps. Gradients that no
update applied do not count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from laggard.models import DATASETS, MLP, Dataset, LeNet5, ResNet, Supervised
from laggard.models.data import IDX_FILES, data_root
from laggard.simulator import (
    ALGORITHMS,
    Cluster,
    Evaluate,
    Network,
    Rule,
    RunProgress,
    Stop,
    simulate,
)
from laggard.simulator.timing.distributions import Gamma
from tests.benchmarks.alternation import Row, Speed, alternate
from tests.benchmarks.plain import Loop, best, loops, wait_for

WORKERS = 16
BATCHES = (32, 64, 128)
OTHERS = {
    "MLP 784-128-64-10": (MLP(hidden=(128, 64)), BATCHES),
    "ResNet-8": (ResNet(8), (32,)),
    "ResNet-20": (ResNet(20), (32,)),
}
"""Networks other than LeNet-5, and their mini-batches."""
MEMBERS = (1, 4, 16, 64)
# updates until every worker has read anew, and memory is not asked of the system any more
WARM = 3 * WORKERS


def images(device: torch.device) -> Dataset:
    """MNIST where it lies on this machine, else images of its shape; few to test, since evaluations
    are not timed.
    """
    here = all((data_root() / "MNIST" / "raw" / file).is_file() for file in IDX_FILES)
    data = DATASETS["mnist"]() if here else mnist_shaped()
    data = replace(data, test_x=data.test_x[:250], test_y=data.test_y[:250])
    return data.to(device, torch.float32)


def mnist_shaped(samples: int = 60_000, tested: int = 10_000) -> Dataset:
    """Ten random images under noise, as many and as large as MNIST's: they take as long, and mean
    nothing.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=samples + tested)
    noise = rng.standard_normal((len(labels), 28, 28, 1), dtype=np.float32)
    prototypes = rng.standard_normal((10, 28, 28, 1), dtype=np.float32)
    x = torch.from_numpy(noise + prototypes[labels]).movedim(-1, 1)  # the strides of our MNIST
    y = torch.from_numpy(labels)
    return Dataset("synthetic", x[:samples], y[:samples], x[samples:], y[samples:], classes=10)


def methods(rule: Rule) -> dict[str, dict[str, Any]]:
    """Cluster and algorithm of each method, for `simulate`: sixteen uneven workers at 10 Gb/s."""
    cluster = Cluster(
        WORKERS, Gamma(mean=0.01, cv=0.1), network=Network(bandwidth=1.25e9, latency=1e-4)
    )
    served = {
        name: {"cluster": cluster, "algorithm": ALGORITHMS[name](rule)}
        for name in ("async_ps", "sync_ps", "sgp")
    }
    return {
        **served,
        "delayed": {
            "cluster": Cluster(1),
            "algorithm": ALGORITHMS["delayed"](rule, delay=WORKERS - 1),
        },
    }


def gradients(quick: bool, device: torch.device) -> Iterator[Row]:
    """A row a method and batch with LeNet-5, and one for each of the OTHERS and its batches."""
    data = images(device)
    length = (3, 0.2) if quick else (5, 1.2)
    for batch in BATCHES:
        task = Supervised(LeNet5().build, data, batch, device=device.type)
        contest = {name: {**given, "task": task} for name, given in methods(Rule(lr=0.01)).items()}
        yield from versus(contest, loops(data, batch), batch, *length)
    for name, (other, batches) in OTHERS.items():
        for batch in batches:
            task = Supervised(other.build, data, batch, device=device.type)
            contest = {f"async_ps, {name}": {**methods(Rule(lr=0.01))["async_ps"], "task": task}}
            yield from versus(contest, loops(data, batch, other), batch, *length)


def versus(
    contest: Mapping[str, dict[str, Any]],
    plain: dict[str, Loop],
    batch: int,
    rounds: int,
    seconds: float,
) -> Iterator[Row]:
    """A row for each of `contest`, all of whom take turns of about so many seconds with the best
    `plain` loops.
    """
    chosen, speed = best(plain, steps=20)
    steps = max(3 * WORKERS, round(seconds * speed))
    turns: dict[str, Speed] = {
        f"plain, {name}": partial(loop, steps) for name, loop in chosen.items()
    }
    turns |= {name: partial(engine_speed, given, steps) for name, given in contest.items()}
    speeds = alternate(turns, rounds)
    fastest = [
        max(of_round)
        for of_round in zip(*(speeds[name] for name in turns if name not in contest), strict=True)
    ]
    for name in contest:
        case = f"{name}, batch {batch}"
        yield Row.between("gradients / best plain loop", case, speeds[name], fastest, "gradients/s")


def ensemble(quick: bool, device: torch.device) -> Iterator[Row]:
    """A row a number of members, each with a learning rate of its own, over as many runs one after
    another.
    """
    task = Supervised(LeNet5().build, images(device), batch=32, device=device.type)
    single = {**methods(Rule(lr=0.01))["async_ps"], "task": task}
    engine_speed(single, 2 * WORKERS)
    steps = (0.2 if quick else 1.2) * engine_speed(single, 4 * WORKERS)
    # a GPU evaluates all sixteen in flight at once
    least = 24 if device.type == "cpu" else 4 * WORKERS
    turns: dict[str, Speed] = {"single": partial(engine_speed, single, max(32, round(steps)))}
    for members in MEMBERS:
        rates = torch.linspace(0.001, 0.02, members, dtype=torch.float64).unsqueeze(1)
        given = {**methods(Rule(lr=rates))["async_ps"], "task": task, "ensemble": members}
        turns[str(members)] = partial(
            engine_speed, given, 1 + WARM + max(least, round(steps / members)), WARM
        )
    speeds = alternate(turns, 3 if quick else 5)
    for number in map(str, MEMBERS):
        yield Row.between(
            "one run of E / E runs",
            f"E = {number}",
            speeds[number],
            speeds["single"],
            "gradients/s",
        )


def engine_speed(given: Mapping[str, Any], gradients: int, first: int = 0) -> float:
    """Applied gradients per second, of every member, from the engine's update number `first` to its
    last.

    The run is over once `gradients` were computed.
    """
    task, moments = given["task"], list[tuple[float, int]]()
    if task.device.type == "cpu":
        torch.set_num_threads(1)  # a plain loop may have had more

    def watch(progress: RunProgress) -> None:
        # where it begins, and may end
        if len(moments) == first or progress.gradients >= gradients - WORKERS:
            wait_for(task.device)
        moments.append((perf_counter(), progress.samples))

    quiet = {"stop": Stop(gradients=gradients), "evaluate": Evaluate(every_updates=10 * gradients)}
    simulate(**{**given, **quiet}, watch=watch)
    (start, before), (end, after) = moments[first], moments[-1]
    return float((given.get("ensemble") or 1) * (after - before) / task.batch / (end - start))
