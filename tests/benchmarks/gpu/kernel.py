"""The fused kernel of LeNet-5's gradient: compiled for a GPU, or as C++ for tests on a CPU."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from laggard.models import Dataset, LeNet5, Supervised
from laggard.models.backends.batched import EVERYTHING
from laggard.models.backends.chunked import Chunked, CudaMemory
from laggard.models.backends.unfolded import Unfolded
from laggard.models.variants import Indexable

SOURCE = Path(__file__).with_name("lenet.cu")
PARAMETERS = 61_706
PHASES = (
    "load weights and images",
    "first convolution",
    "second convolution",
    "linear layers and loss",
    "gradients of the linear layers",
    "gradient behind the second pool",
    "gradient of the second convolution",
    "gradient behind the first pool",
    "gradient of the first convolution",
)
"""What a block does, in this order; a launch may be cut off after any of them."""
WHOLE = len(PHASES) - 1


class Gradients(NamedTuple):
    """What a launch makes: gradients `(models, PARAMETERS)` and losses `(models,)`."""

    values: Tensor
    losses: Tensor


class OnCpu:
    """The kernel as C++, a block after another.

    Args:
        folder: where the library is built.
        group: samples of a block.
    """

    def __init__(self, folder: Path, group: int) -> None:
        library = folder / f"lenet_{group}.so"
        command = ["g++", "-x", "c++", "-O2", "-DON_CPU", f"-DG={group}", "-Wno-unknown-pragmas"]
        subprocess.run([*command, "-fPIC", "-shared", str(SOURCE), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        self._group = group

    @property
    def block_bytes(self) -> int:
        """The shared memory of a block (bytes)."""
        return int(self._library.block_bytes())

    def __call__(
        self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor, until: int = WHOLE
    ) -> Gradients:
        """Gradients at weights `(models, PARAMETERS)`, of the samples `index` `(models, batch)`.

        Args:
            until: the number of the last phase that is done.
        """
        models, batch = index.shape
        groups = -(-batch // self._group)
        parts = torch.empty(models, groups, PARAMETERS)
        losses, values = torch.empty(models, batch), torch.empty(models, PARAMETERS)
        tensors = (weights, x, y, index, parts, losses, values)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        numbers = [ctypes.c_int(number) for number in (batch, models, until)]
        self._library.gradients(*pointers, *numbers)
        return Gradients(values, losses.sum(dim=1))


class OnGpu:
    """The kernel on the current GPU, by NVRTC; no GPU has run it yet.

    `torch.cuda._compile_kernel` is private: a torch without it raises `AttributeError`.

    Args:
        group: samples of a block.
        threads: of a block.
    """

    def __init__(self, group: int = 4, threads: int = 256) -> None:
        source = f"#define G {group}\n{SOURCE.read_text(encoding='utf-8')}"
        compiled: Callable[..., Any] = torch.cuda._compile_kernel  # type: ignore[attr-defined]
        self._gradient = compiled(source, "gradient")
        self._add = compiled(source, "add_groups")
        self._group, self._threads = group, threads
        self._bytes = block_bytes(group)
        self._gradient.set_shared_memory_config(self._bytes)
        self._parts: dict[tuple[int, int], Tensor] = {}

    def __call__(
        self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor, until: int = WHOLE
    ) -> Gradients:
        """As of `OnCpu`, with all tensors on the GPU."""
        models, batch = index.shape
        groups = -(-batch // self._group)
        shape = (models * groups, PARAMETERS)
        if shape not in self._parts:
            self._parts[shape] = torch.empty(shape, device=weights.device)
        parts = self._parts[shape]
        losses = torch.empty(models, batch, device=weights.device)
        values = torch.empty(models, PARAMETERS, device=weights.device)
        block = (self._threads, 1, 1)
        arguments = (weights, x, y, index, parts, losses, batch, until)
        self._gradient((groups, models, 1), block, arguments, shared_mem=self._bytes)
        blocks = -(-PARAMETERS // self._threads)
        self._add((blocks, models, 1), block, (parts, values, groups))
        return Gradients(values, losses.sum(dim=1))


Kernel = OnCpu | OnGpu


class Fused:
    """The kernel as a backend of the engine; evaluations go to torch, as those of `Unfolded`."""

    lanes = EVERYTHING
    name = "fused"

    def __init__(self, kernel: Kernel, module: nn.Module) -> None:
        self._kernel = kernel
        self._torch = Unfolded(module, cross_entropy)

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            raise TypeError("the fused kernel reads plain tensors: expected no augmentation")
        return self._kernel(weights.contiguous(), x, y, index.long().contiguous())

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._torch.outputs(weights, x)


class FusedLeNet(Supervised):
    """LeNet-5 on a data set of its images, whose gradients come from the fused kernel."""

    def __init__(self, kernel: Kernel, data: Dataset, batch: int, device: torch.device) -> None:
        super().__init__(LeNet5().build, data, batch, device=device.type, backend="unfold")
        module = LeNet5().build(data.shape, data.classes).to(device)
        self._backend = Chunked(Fused(kernel, module), memory=memory_of(device))


def memory_of(device: torch.device) -> CudaMemory | None:
    """The memory of a GPU; None of a CPU, where none is measured."""
    if device.type == "cuda":
        return CudaMemory(device)
    return None


def block_bytes(group: int) -> int:
    """The size of the kernel's `Block` (bytes) with `group` samples."""
    features = 32 * 32 + 2 * 6 * 196 + 2 * 400 + 2 * (120 + 84 + 10)
    slices = max(480 * group, 6 * 16 * 26)
    winners = (6 * 196 + 400) * group
    return 4 * (2572 + features * group + slices) + -(-winners // 4) * 4
