"""The protocol of backends, devices, and one batched call over all models (vmap)."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from laggard.models.backends.autograd import Loss
from laggard.models.flat import shapes, unflatten
from laggard.models.variants import Indexable

# samples in one forward pass of an evaluation; 1,000 outgrow a CPU's cache and take twice the time
EVALUATED = 250
EVERYTHING = 1 << 20  # lanes of a device that takes all gradients in one call
# of torch: reads it, writes it, its exact value
TorchSetting = tuple[Callable[[], Any], Callable[[Any], None], Any]


class Backend(Protocol):
    """Arithmetic on many models at once: one module, and a row of weights per model.

    Attributes:
        lanes: the number of gradients that keep the hardware busy at once.
        name: its name in a config.
    """

    @property
    def lanes(self) -> int: ...
    @property
    def name(self) -> str: ...

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients `(models, params)` and losses `(models,)` at `weights` `(models, params)`.

        A model's mini-batch is its row of `index` `(models, batch)` into `x` `(samples, ...)` and
        `y` `(samples,)`.
        """
        ...

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(models, samples, classes)` of `weights` `(models, params)` on all of `x`
        `(samples, ...)`.
        """
        ...


class Batched:
    """One call for all models: `vmap` over the gradient of a functional module.

    Meant for a GPU, where convolutions with different weights for every model become one grouped
    convolution. On a CPU, convolutions are up to three times slower than in a loop, and small
    linear layers up to seven times faster. Kernels are deterministic and keep full float32 (no
    TF32), but grouping may change the last digits.
    """

    lanes = EVERYTHING
    name = "vmap"

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        # torch stores tensors in the module that it calls
        self._module = copy.deepcopy(module)
        self._loss = loss
        self._names = [name for name, _ in module.named_parameters()]
        self._shapes = shapes(module)
        self._recurrent = any(isinstance(layer, nn.RNNBase) for layer in module.modules())

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        def loss(flat: Tensor, samples: Tensor) -> Tensor:
            return self._loss(self._forward(flat, x[samples]), y[samples])

        index = index.long()  # once, not at each use
        with exact_arithmetic(weights.is_cuda):
            return torch.vmap(torch.func.grad_and_value(loss))(weights, index)

    def hessian_products(
        self, weights: Tensor, directions: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> Tensor:
        """Products of each loss's Hessian with its row of `directions`, all `(models, params)`.

        A model at a time. Hessians are symmetric, so the gradient is differentiated backward.
        """

        def product(flat: Tensor, direction: Tensor, samples: Tensor) -> Tensor:
            inputs, targets = x[samples], y[samples]
            gradient = torch.func.grad(lambda at: self._loss(self._forward(at, inputs), targets))
            products: tuple[Tensor] = torch.func.vjp(gradient, flat)[1](direction)
            return products[0]

        with exact_arithmetic(weights.is_cuda):
            rows = zip(weights, directions, index.long(), strict=True)
            return torch.stack([product(*row) for row in rows])

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        with exact_arithmetic(weights.is_cuda), torch.no_grad():
            if self._recurrent:  # vmap takes them within a gradient alone
                return torch.stack([self._forward(row, x) for row in weights])
            return torch.vmap(self._forward, in_dims=(0, None))(weights, x)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parameters = dict(zip(self._names, unflatten(flat, self._shapes), strict=True))
        outputs: Tensor = torch.func.functional_call(self._module, parameters, (x,))
        return outputs


@contextmanager
def exact_arithmetic(on_gpu: bool) -> Iterator[None]:
    """Compute with full float32 precision and deterministic kernels on a GPU.

    Only settings that differ are changed, and restored.
    """
    if not on_gpu:
        yield
        return
    with ExitStack() as back:
        for read, write, exact in _exact_settings():
            before = read()
            if before != exact:
                write(exact)
                back.callback(write, before)
        yield


def _exact_settings() -> list[TorchSetting]:
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    kernels = [_setting(cudnn, "deterministic", True), _setting(cudnn, "benchmark", False)]
    products = torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    precisions: list[TorchSetting] = [_setting(cudnn, "allow_tf32", False), products]
    try:
        for read, _, _ in precisions:
            read()
    # the program has set precisions by the names of torch 2.9, and then torch reads no older ones
    except RuntimeError:
        parts = matmul, *(getattr(cudnn, name) for name in ("conv", "rnn"))
        precisions = [_setting(part, "fp32_precision", "ieee") for part in parts]
    return kernels + precisions


def _setting(owner: Any, name: str, exact: Any) -> TorchSetting:
    return partial(getattr, owner, name), partial(setattr, owner, name), exact


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes the GPU where there is one.

    Raises:
        ValueError: an unknown name, or "cuda" where torch sees no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r}: expected 'auto', 'cpu' or 'cuda'")
    if name == "cuda" and not torch.cuda.is_available():
        remedy = "install a CUDA build of torch"
        raise ValueError(f"device = 'cuda': expected auto or cpu (torch finds no GPU): {remedy}")
    if name == "auto":
        name = "cpu"
        if torch.cuda.is_available():
            name = "cuda"
    return torch.device(name)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; to a GPU through pinned memory, from which the copy does not block."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def describe(device: torch.device) -> str:
    """The device, and of a GPU its name: `cpu`, or `cuda (NVIDIA ...)`."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)
