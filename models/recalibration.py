"""Batch normalisation without running statistics: an evaluation computes the statistics at its
weights.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from laggard.models.backends.batched import Backend
from laggard.models.flat import flatten

CALIBRATED = 1024
"""The number of training samples over which statistics are averaged."""


def batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    """The layers of batch normalisation by name, except those fixed in evaluation mode."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and layer.training
    }


def remove_statistics(module: nn.Module) -> None:
    """Remove the running statistics of batch normalisation: training mode uses the mini-batch's.

    A model then consists of its parameters; `Recalibrated` computes statistics for evaluations.
    """
    for layer in batch_norms(module).values():
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None


class Recalibrated:
    """The outputs of a module with batch normalisation, as a function of its weights alone.

    A sample of the training set is divided into fixed mini-batches. At the given weights, each
    layer has a mean and an unbiased variance for each of them; it normalises by the averages of
    these, as after torch.optim.swa_utils.update_bn. So a model is its parameters, an average of
    models can be evaluated, and no output depends on how an evaluation is cut in pieces.

    Args:
        module: the module, in training mode and without running statistics.
        sample: the mini-batches `(batches, batch, ...)`.
        choose: the backend for a module.

    Source: Izmailov et al. (2018), arXiv:1803.05407, section 3.2; Wu, Johnson (2021),
    arXiv:2105.07576, section 3.
    """

    def __init__(
        self, module: nn.Module, sample: Tensor, choose: Callable[[nn.Module], Backend]
    ) -> None:
        self._sample = sample[None]
        self._statistics = choose(BatchStatistics(module))
        self._evaluated = choose(WithStatistics(module))

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(models, samples, ...)` of `weights` `(models, params)` on all of `x`."""
        statistics = self._statistics.outputs(weights, self._sample)[:, 0]
        return self._evaluated.outputs(torch.cat([weights, statistics], dim=-1), x)


class BatchStatistics(nn.Module):
    """A module that maps a sample `(1, batches, batch, ...)` to its statistics `(1, statistics)`.

    The whole sample is one input of a backend, since backends split between inputs. The order is
    that of `WithStatistics`.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        means = []
        for batches in x:
            statistics = [self._statistics(batch) for batch in batches]
            means.append(torch.stack(statistics).mean(0))
        return torch.stack(means)

    def _statistics(self, batch: Tensor) -> Tensor:
        """The statistics of one mini-batch; averages for a layer that is called several times."""
        layers = list(batch_norms(self.network).values())
        inputs: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers}

        def record(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            inputs[layer].append(arguments[0])

        hooks = [layer.register_forward_pre_hook(record) for layer in layers]
        try:
            self.network(batch)
        finally:
            for hook in hooks:
                hook.remove()
        statistics: list[Tensor] = []
        for layer in layers:
            statistics += _mean_and_variance(layer, inputs[layer], batch)
        return flatten(statistics)


class WithStatistics(nn.Module):
    """A network in evaluation mode, with its statistics as parameters after its own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        like = next(network.parameters())
        self._names: list[str] = []
        statistics: list[Tensor] = []
        for name, layer in batch_norms(self.network).items():
            layer.eval()
            layer.running_mean, layer.running_var = _no_statistics(layer, like)
            self._names += [f"{name}.running_mean", f"{name}.running_var"]
            statistics += _no_statistics(layer, like)
        self.statistics = nn.ParameterList(statistics)

    def forward(self, x: Tensor) -> Tensor:
        statistics = dict(zip(self._names, self.statistics, strict=True))
        outputs: Tensor = functional_call(self.network, statistics, (x,))
        return outputs


def _mean_and_variance(
    layer: _BatchNorm, inputs: list[Tensor], like: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean and variance of every channel, averaged over inputs `(batch, channels, ...)`."""
    if not inputs:  # the network did not call it
        return _no_statistics(layer, like)
    by_channel = [x.transpose(0, 1).flatten(1) for x in inputs]
    variances, means = zip(*(torch.var_mean(x, dim=1) for x in by_channel), strict=True)
    return torch.stack(means).mean(0), torch.stack(variances).mean(0)


def _no_statistics(layer: _BatchNorm, like: Tensor) -> tuple[Tensor, Tensor]:
    return like.new_zeros(layer.num_features), like.new_ones(layer.num_features)
