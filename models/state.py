"""What of a module is neither parameter nor input: statistics of batch normalisation, other buffers, random numbers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    """The layers of batch normalisation, by name; those in evaluation mode have constants for statistics."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm) and layer.training}


def remove_statistics(module: nn.Module) -> None:
    """Let batch normalisation keep no running statistics: it normalises by those of its mini-batch, in training mode.

    A model then is its parameters and nothing else; `recalibration` finds the statistics for an evaluation.
    """
    for layer in batch_norms(module).values():
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None


@contextmanager
def check_pass(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Check a forward pass of a module with new `tensors` for its parameters and buffers, by name.

    Raises:
        ValueError: it draws from torch's random state, or changes a buffer: its output is not a function of its
            parameters and its input alone.
    """
    given, name = dict(tensors), type(module).__name__
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        yield
        drew = not torch.equal(before, torch.get_rng_state())
    if drew:
        dropouts = [part for part, layer in module.named_modules() if isinstance(layer, _DropoutNd) and layer.p > 0]
        found = f" ({', '.join(dropouts)})" if dropouts else ""
        raise ValueError(
            f"{name} draws random numbers in its forward pass{found}, but the same weights and mini-batch must give "
            "the same gradient, whenever it is asked for: leave them out, or draw them by nn.Dropout or nn.Dropout1d "
            "to 3d alone"
        )
    if changed := [key for key, _ in module.named_buffers() if tensors[key] is not given[key] or given[key]._version]:
        raise ValueError(
            f"{name} changes buffers in its forward pass ({', '.join(changed)}), but a model here is its parameters "
            "and nothing else: use BatchNorm, or a layer without state, such as GroupNorm"
        )
