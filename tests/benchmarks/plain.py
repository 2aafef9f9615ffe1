"""Plain training loops, as anyone would write them: the honest opponents of the engine.

All keep the training set in memory (a GPU's, if that is the device), draw mini-batches by index,
and step with `torch.optim.SGD`. The best of them counts: on a CPU, one and all intra-op threads,
with LeNet-5 as laggard builds it (ReLU after pooling) and as text books do; on a GPU eager,
captured as a CUDA graph, and compiled.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from laggard.models import MLP, Dataset, LeNet5, ResNet
from laggard.models.backends.threads import cores

LR = 0.05
Network = LeNet5 | MLP | ResNet
Loop = Callable[[int], float]
"""Makes so many training steps, and answers how many it made a second."""
Step = Callable[[Tensor, Tensor], object]
"""One training step on inputs and labels."""


def text_book_lenet5() -> nn.Module:
    """LeNet-5 with its units before its pools; the same function as `LeNet5().build` with the same
    weights.
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def loops(data: Dataset, batch: int, network: Network | None = None) -> dict[str, Loop]:
    """Every plain loop where `data` lies, by what is special about it.

    Args:
        network: LeNet-5 by default, also as text books have it.
    """
    found: dict[str, Loop] = {}
    forms = {"": (network or LeNet5()).build}
    if network is None:
        forms["text book, "] = lambda *_: text_book_lenet5()
    for form, build_for in forms.items():
        build = partial(build_for, data.shape, data.classes)
        if data.train_x.device.type == "cuda":
            for name, prepare in {
                "eager": eager,
                "CUDA graph": captured,
                "compiled": compiled,
            }.items():
                found[form + name] = loop(_module(build, data), data, batch, prepare=prepare)
        else:
            for threads in sorted({1, cores()}):
                found[f"{form}{threads} threads"] = loop(_module(build, data), data, batch, threads)
    return found


def best(
    candidates: dict[str, Loop], steps: int, near: float = 0.75
) -> tuple[dict[str, Loop], float]:
    """Those of `candidates` that reach `near` of the fastest one's speed in a trial, and that
    speed.

    One that cannot run here, as a compiled one without a compiler, is left out; if none can, its
    error is raised.
    """
    speeds: dict[str, float] = {}
    failures: list[RuntimeError] = []
    for name, candidate in candidates.items():
        try:
            candidate(3)
            speeds[name] = candidate(steps)
        except RuntimeError as error:  # torch's own are of this kind: no compiler, no capture
            failures.append(error)
    if not speeds:
        raise failures[0]
    most = max(speeds.values())
    return {name: candidates[name] for name, speed in speeds.items() if speed >= near * most}, most


def eager(module: nn.Module, sample: tuple[Tensor, Tensor]) -> Step:
    """The step as it is written."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        cross_entropy(module(x), y).backward()
        optimizer.step()

    return step


def compiled(module: nn.Module, sample: tuple[Tensor, Tensor]) -> Step:
    """The step with forward and backward compiled by `torch.compile`, as CUDA graphs where it
    can.
    """
    return eager(torch.compile(module, mode="reduce-overhead"), sample)  # type: ignore[arg-type]


def captured(module: nn.Module, sample: tuple[Tensor, Tensor]) -> Step:
    """The whole step as one CUDA graph on buffers of its own, into which each mini-batch is
    copied.
    """
    x, y = (tensor.clone() for tensor in sample)
    step = eager(module, sample)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # capture wants a few steps on another stream before it
        for _ in range(3):
            step(x, y)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(x, y)

    def replay(inputs: Tensor, labels: Tensor) -> None:
        x.copy_(inputs)
        y.copy_(labels)
        graph.replay()

    return replay


def loop(
    module: nn.Module,
    data: Dataset,
    batch: int,
    threads: int = 1,
    prepare: Callable[[nn.Module, tuple[Tensor, Tensor]], Step] = eager,
) -> Loop:
    """A plain training loop on `threads` intra-op threads, where `data` lies; its step is prepared
    at first use.
    """
    device = data.train_x.device
    order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(0)).to(device)
    prepared: list[Step] = []

    def run(steps: int) -> float:
        torch.set_num_threads(threads)
        if not prepared:
            first = order[:batch]
            prepared.append(prepare(module, (data.train_x[first], data.train_y[first])))
        step = prepared[0]
        wait_for(device)
        start = time.perf_counter()
        for number in range(steps):
            at = number * batch % max(1, len(order) - batch)
            samples = order[at : at + batch]
            step(data.train_x[samples], data.train_y[samples])
        wait_for(device)
        return steps / (time.perf_counter() - start)

    return run


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was told: kernels run on while Python goes ahead."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def _module(build: Callable[[], nn.Module], data: Dataset) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build()
    return module.to(data.train_x.device, data.train_x.dtype)
