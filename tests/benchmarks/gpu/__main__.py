"""The fused kernel's half hour on a GPU, in one call: `python -m tests.benchmarks.gpu --out FOLDER`.

Six steps, each a table in FOLDER: is the kernel autograd (`agreement.csv`); which groups and
threads suit which number of models (`sizes.csv`); what each phase of a block takes (`phases.csv`,
of which the two dearest are to be rewritten first); the engine's speed with the kernel and without,
under gamma and exponential times, and that of an ensemble (`engine.csv`); and a training of 64
members beside the present backend's, from the same seeds (`training.csv`). Before them, the tests
that only a GPU can run.

`--device cpu` tries all of it with the kernel as C++, in small: its times mean nothing.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from laggard.models import Dataset, LeNet5, Supervised
from laggard.models.backends.batched import describe, find_device
from laggard.models.backends.choice import choose
from laggard.simulator import Evaluate, Rule, Stop, SyncPS, simulate
from laggard.simulator.timing.distributions import Distribution, Exponential, Gamma
from tests.benchmarks.gpu.kernel import PARAMETERS, PHASES, FusedLeNet, Kernel, OnCpu, OnGpu
from tests.benchmarks.gradients import engine_speed, images, methods
from tests.benchmarks.plain import wait_for

Rows = Iterator[dict[str, Any]]
GROUPS = (4, 8)
BATCH = 32
LAWS: dict[str, Distribution] = {
    "gamma, cv 0.1": Gamma(mean=0.01, cv=0.1),
    "exponential": Exponential(mean=0.01),
}


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        sizes: models of a call.
        cut: models of a call that is cut off after a phase.
        threads: of a block.
        repeats: calls behind a median.
        updates: of the engine, for a speed.
        members: of the ensembles.
        epochs: of the training.
        samples: of the training set.
    """

    sizes: tuple[int, ...]
    cut: tuple[int, ...]
    threads: tuple[int, ...]
    repeats: int
    updates: int
    members: int
    epochs: float
    samples: int


FULL = Plan(
    sizes=tuple(2**n for n in range(11)),
    cut=(16, 64),
    threads=(128, 192, 256, 384),
    repeats=30,
    updates=4000,
    members=64,
    epochs=3.0,
    samples=60_000,
)
SMALL = Plan(
    sizes=(1, 2), cut=(2,), threads=(1,), repeats=2, updates=96, members=2, epochs=1.0, samples=256
)


class Bench:
    """The steps, on one device.

    Args:
        folder: where C++ is built.
    """

    def __init__(self, device: torch.device, plan: Plan, folder: Path) -> None:
        self._device, self._plan, self._folder = device, plan, folder
        self._kernels: dict[tuple[int, int], Kernel] = {}

    def agreement(self) -> Rows:
        """The largest error of an entry over the largest entry, beside autograd in float64."""
        for group, batch in product(GROUPS, (1, 31, 32, 33)):
            weights, x, y, index = self._problem(models=5, batch=batch)
            kernel = self._kernel(group, 256)
            found, again = kernel(weights, x, y, index), kernel(weights, x, y, index)
            exact = torch.stack(
                [exact_gradient(*row, x, y) for row in zip(weights, index, strict=True)]
            )
            errors = (found.values - exact).abs().amax(dim=1) / exact.abs().amax(dim=1)
            yield {
                "group": group,
                "batch": batch,
                "largest error": float(errors.max()),
                "same bits twice": torch.equal(found.values, again.values),
            }

    def sizes(self) -> Rows:
        """Seconds of a call by models, samples of a block and threads, beside the product's."""
        module = LeNet5().build((1, 28, 28), 10).to(self._device)
        present = choose("unfold-graphs", module, cross_entropy, self._device)
        for models in self._plan.sizes:
            problem = self._problem(models, BATCH)
            seconds = self._seconds(lambda problem=problem: present.gradients(*problem))
            yield {"models": models, "group": 0, "threads": 0, "seconds": seconds}
            for group, threads in product(GROUPS, self._plan.threads):
                kernel = self._kernel(group, threads)
                seconds = self._seconds(lambda kernel=kernel, problem=problem: kernel(*problem))
                yield {"models": models, "group": group, "threads": threads, "seconds": seconds}

    def phases(self) -> Rows:
        """Seconds of a call that is cut off after each phase, and what the phase added."""
        for models, group in product(self._plan.cut, GROUPS):
            problem, kernel, before = self._problem(models, BATCH), self._kernel(group, 256), 0.0
            for number, phase in enumerate(PHASES):
                until = self._seconds(
                    lambda kernel=kernel, problem=problem, number=number: kernel(*problem, number)
                )
                yield {"models": models, "group": group, "phase": phase, "seconds": until - before}
                before = until

    def engine(self) -> Rows:
        """Applied gradients per second of `async_ps` with 16 workers, and of an ensemble."""
        for law, members in product(LAWS, (None, self._plan.members)):
            for backend, task in self._tasks().items():
                given = methods(Rule(lr=0.01))["async_ps"]
                given["cluster"] = replace(given["cluster"], compute=LAWS[law])
                updates = self._plan.updates
                if members:
                    updates = max(96, updates // 4)
                speed = engine_speed({**given, "task": task, "ensemble": members}, updates, 48)
                yield {
                    "times": law,
                    "members": members or 1,
                    "backend": backend,
                    "gradients a second": speed,
                }

    def training(self) -> Rows:
        """A training of an ensemble by each backend: the seconds that it took, and its end."""
        members = self._plan.members
        rates = torch.logspace(-3, -1, members, dtype=torch.float64).unsqueeze(1)
        for backend, task in self._tasks().items():
            start = time.perf_counter()
            run = simulate(
                task=task,
                cluster=methods(Rule(lr=0.01))["async_ps"]["cluster"],
                algorithm=SyncPS(Rule(lr=rates)),
                ensemble=members,
                stop=Stop(epochs=self._plan.epochs),
                evaluate=Evaluate(every_epochs=1),
            )
            wait_for(self._device)
            seconds = time.perf_counter() - start
            last = pd.DataFrame(run.metrics).groupby("member").last()
            for member, row in last.iterrows():
                yield {
                    "backend": backend,
                    "member": member,
                    "lr": float(rates[int(member)]),
                    "seconds of all": seconds,
                    "test_loss": row["test_loss"],
                    "test_accuracy": row["test_accuracy"],
                }

    def _tasks(self) -> dict[str, Supervised]:
        data = shortened(images(self._device), self._plan.samples)
        present = Supervised(
            LeNet5().build, data, BATCH, device=self._device.type, backend="unfold-graphs"
        )
        kernel = self._kernel(GROUPS[0], 256)
        return {"unfold-graphs": present, "fused": FusedLeNet(kernel, data, BATCH, self._device)}

    def _kernel(self, group: int, threads: int) -> Kernel:
        """A compiled kernel; where there is one thread, as C++."""
        key = group, threads
        if self._device.type == "cpu":
            key = group, 1
        if key not in self._kernels:
            self._kernels[key] = self._compiled(*key)
        return self._kernels[key]

    def _compiled(self, group: int, threads: int) -> Kernel:
        if self._device.type == "cpu":
            return OnCpu(self._folder, group)
        return OnGpu(group, threads)

    def _problem(self, models: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights, images, labels and mini-batches, drawn on the CPU: the same on each device."""
        generator = torch.Generator().manual_seed(models + batch)
        start = parameters_to_vector(LeNet5().build((1, 28, 28), 10).parameters()).detach()
        weights = start + 0.02 * torch.randn(models, PARAMETERS, generator=generator)
        x = torch.randn(500, 1, 28, 28, generator=generator)
        y = torch.randint(10, (500,), generator=generator)
        index = torch.randint(500, (models, batch), generator=generator)
        weights, x, y, index = (tensor.to(self._device) for tensor in (weights, x, y, index))
        return weights, x, y, index

    def _seconds(self, call: Callable[[], object]) -> float:
        """The median seconds of a call, after three that are not timed."""
        taken = []
        for _ in range(3 + self._plan.repeats):
            wait_for(self._device)
            start = time.perf_counter()
            call()
            wait_for(self._device)
            taken.append(time.perf_counter() - start)
        return median(taken[3:])


def exact_gradient(weights: Tensor, index: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A model's gradient `(PARAMETERS,)` by autograd in float64."""
    module = LeNet5().build((1, 28, 28), 10).double().to(weights.device)
    vector_to_parameters(weights.double(), module.parameters())
    loss = cross_entropy(module(x[index].double()), y[index])
    return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))


def shortened(data: Dataset, samples: int) -> Dataset:
    """The first `samples` of a training set."""
    return replace(data, train_x=data.train_x[:samples], train_y=data.train_y[:samples])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    given = parser.parse_args()
    device = find_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    print(f"{describe(device)}; torch {torch.__version__.partition('+')[0]}", flush=True)
    failed = []
    plan = SMALL
    if device.type == "cuda":
        plan = FULL
        tests = [sys.executable, "-m", "pytest", "tests/models/backends/test_gpu.py"]
        if subprocess.run(tests, check=False).returncode:
            failed.append("tests of the GPU")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(device, plan, Path(folder))
        for step in (bench.agreement, bench.sizes, bench.phases, bench.engine, bench.training):
            if not save(step, given.out):
                failed.append(step.__name__)
    print(f"failed: {', '.join(failed) or 'nothing'}")
    return int(bool(failed))


def save(step: Callable[[], Rows], out: Path) -> bool:
    """Write and print the table of a step, as far as it came; False if it failed.

    A step's error must not cost the others: a GPU may be lent for minutes.
    """
    rows, start = [], time.perf_counter()
    try:
        rows.extend(step())
    except Exception as error:
        print(f"{step.__name__}: {type(error).__name__}: {error}", flush=True)
        return False
    finally:
        pd.DataFrame(rows).to_csv(out / f"{step.__name__}.csv", index=False)
    print(f"\n{step.__name__}, {time.perf_counter() - start:.0f} s", flush=True)
    print(pd.DataFrame(rows).to_string(index=False), flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
