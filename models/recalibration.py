"""Batch normalisation without running statistics: those of an evaluation are found anew for the
evaluated weights.
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
"""Training samples that statistics are averaged over."""


def batch_norms(module: nn.Module) -> dict[str, _BatchNorm]:
    """The layers of batch normalisation, by name; those in evaluation mode have constants for
    statistics.
    """
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and layer.training
    }


def remove_statistics(module: nn.Module) -> None:
    """Let batch normalisation keep no running statistics: it normalises by those of its mini-batch,
    in training mode.

    A model then is its parameters and nothing else; `Recalibrated` finds the statistics for an
    evaluation.
    """
    for layer in batch_norms(module).values():
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None


class Recalibrated:
    """The outputs of a module with batch normalisation, as a function of its weights alone.

    Each layer normalises by the averages, over the fixed mini-batches of a sample of the training
    set, of the means and the unbiased variances that these have at these weights: what
    torch.optim.swa_utils.update_bn finds. So a model is its parameters, an average of models can be
    evaluated, and no output depends on how an evaluation is cut in pieces.

    Args:
        module: in training mode, without running statistics.
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
        """Outputs `(models, samples, ...)` of `weights` `(models, params)` on all of `x` `(samples,
        ...)`.
        """
        statistics = self._statistics.outputs(weights, self._sample)[:, 0]
        return self._evaluated.outputs(torch.cat([weights, statistics], dim=-1), x)


class BatchStatistics(nn.Module):
    """From a sample `(1, batches, batch, ...)` to its statistics `(1, statistics)`, in the order of
    `WithStatistics`.

    The whole sample is one input of a backend, which cuts between inputs only.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(
            [torch.stack([self._of(batch) for batch in sample]).mean(0) for sample in x]
        )

    def _of(self, batch: Tensor) -> Tensor:
        """The statistics of one mini-batch; of a layer that is called several times their
        average.
        """
        layers = batch_norms(self.network)
        inputs: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers.values()}
        hooks = [
            layer.register_forward_pre_hook(lambda layer, x: inputs[layer].append(x[0]))
            for layer in inputs
        ]
        try:
            self.network(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return flatten(
            part
            for layer in layers.values()
            for part in _mean_and_variance(layer, inputs[layer], batch)
        )


class WithStatistics(nn.Module):
    """A network in evaluation mode; its statistics are parameters that follow its own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        layers, like = batch_norms(self.network), next(network.parameters())
        for layer in layers.values():
            layer.eval()
            layer.running_mean, layer.running_var = _no_statistics(layer, like)
        self._names = [
            f"{name}.{kind}" for name in layers for kind in ("running_mean", "running_var")
        ]
        self.statistics = nn.ParameterList(
            part for layer in layers.values() for part in _no_statistics(layer, like)
        )

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(
            self.network, dict(zip(self._names, self.statistics, strict=True)), (x,)
        )
        return outputs


def _mean_and_variance(
    layer: _BatchNorm, inputs: list[Tensor], like: Tensor
) -> tuple[Tensor, Tensor]:
    """Of every channel of inputs `(batch, channels, ...)`: the averages over them; 0 and 1 where
    there are none.
    """
    if not inputs:
        return _no_statistics(layer, like)
    variances, means = zip(
        *(torch.var_mean(x.transpose(0, 1).flatten(1), dim=1) for x in inputs), strict=True
    )
    return torch.stack(means).mean(0), torch.stack(variances).mean(0)


def _no_statistics(layer: _BatchNorm, like: Tensor) -> tuple[Tensor, Tensor]:
    return like.new_zeros(layer.num_features), like.new_ones(layer.num_features)
