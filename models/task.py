"""A network, a training set and its partition among workers, as a task of the simulator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from laggard.models.backends.autograd import Loss
from laggard.models.backends.background import BackgroundGradients
from laggard.models.backends.batched import Batched, find_device, to_device
from laggard.models.backends.choice import choose
from laggard.models.backends.threads import Threads
from laggard.models.data import Dataset
from laggard.models.flat import flatten
from laggard.models.layers import Layer, check_labels, labels_of, layers
from laggard.models.losses import (
    FunctionLoss,
    Objective,
    penalty,
    penalty_curvature,
    penalty_gradient,
)
from laggard.models.modules import replace_dropout, with_draws
from laggard.models.partition import ByWriter, Iid, Partition
from laggard.models.recalibration import CALIBRATED, Recalibrated, batch_norms, remove_statistics
from laggard.models.variants import Augmentation, draw_variants, make_variants

# shape of one input, number of classes -> a fresh module
Network = Callable[[tuple[int, ...], int], nn.Module]


class Supervised:
    """Classification by any `nn.Module` whose output follows from parameters and inputs:
    mini-batches, mean loss.

    A mini-batch is a tensor of indices into the training set, `(batch,)`, or `(ensemble, batch)`
    where members have their own data seed. It is drawn without replacement and always full: the
    rest of a permutation is filled up from the next, and a batch larger than the shard holds a
    sample more than once. Where a sample is a text with a label for each position, losses and
    accuracies are means over all positions.

    With `augment`, a number of a mini-batch says which sample, and which variant of it
    (`Variants`). Variants are drawn from a child of the generator of the mini-batches, whose
    samples stay the same.

    Batch normalisation has the statistics of a gradient's own mini-batch; for an evaluation, they
    are averaged over fixed mini-batches of some 1,024 samples of the training set (`Recalibrated`).
    Buffers that do not change are those of the network that is built with seed 0, for all members.

    `partition` is drawn once, from `partition_seed`, for `workers` workers. Under `Iid` every
    worker permutes the whole training set, so that `workers` may be omitted, and another worker
    changes no other's batches.

    Example:
        >>> from laggard.models import Logistic, synthetic
        >>> task = Supervised(Logistic().build, synthetic(samples=64, features=5), batch=8)
        >>> task.start(seeds=[0, 0, 1]).shape
        torch.Size([3, 24])

    Args:
        network: builds the module from the shape of one input and the number of classes:
            `LeNet5().build`.
        loss: a function of outputs and targets, or an `Objective` such as `LogisticLoss()`; the
            same for evaluations.
        augment: random crops and reflections of training images.
        device: "cpu", "cuda", or "auto": the GPU where there is one.
        threads: of the CPU; None for one per core.
        dtype: of weights and data; float64 for exact identities.
        backend: how gradients are taken: "threads", "vmap", "unfold", ...
            (`laggard.models.backends`), or "auto": threads on a CPU, and on a GPU the fastest
            batched one.
        chunk: models in one batched call at most; None for as many as fit into memory.

    Raises:
        ValueError: batch or workers below 1; no workers where the partition needs their number; a
            loss that is not for so many classes; a module that draws random numbers or changes
            buffers, or whose logits do not match the labels; a mini-batch of one sample under batch
            normalisation; augmentation of inputs that are no images; a device that is not there; a
            backend that is not there or cannot take the module.
    """

    def __init__(
        self,
        network: Network,
        dataset: Dataset,
        batch: int,
        *,
        partition: Partition | None = None,
        workers: int | None = None,
        partition_seed: int = 0,
        loss: Loss | Objective = cross_entropy,
        augment: Augmentation | None = None,
        device: str = "auto",
        threads: int | None = None,
        dtype: torch.dtype = torch.float32,
        backend: str = "auto",
        chunk: int | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch = {batch}: expected at least 1")
        self.batch, self.epoch = batch, len(dataset.train_y)
        self.device, self.dtype = find_device(device), dtype
        if isinstance(loss, Objective):
            self._objective = loss
        else:
            self._objective = FunctionLoss(loss)
        loss = self._objective.function()
        self._network, self._loss = network, over_positions(loss) if dataset.labels else loss
        self._data = dataset.to(self.device, dtype)
        self._partition = Iid() if partition is None else partition
        self._shards = _make_shards(self._partition, dataset, workers, partition_seed)
        module = self._module(seed=0)
        check_labels(
            labels_of(module, dataset.shape, self._objective.outputs(dataset.classes)),
            dataset.labels,
        )
        module = module.to(self.device, dtype)
        self.params = sum(parameter.numel() for parameter in module.parameters())
        chosen = partial(
            choose, backend, loss=self._loss, device=self.device, threads=threads, chunk=chunk
        )
        trained, data = with_draws(module), (self._data.train_x, self._data.train_y)
        self._x, self._y, self._variants = make_variants(
            *data, augment or Augmentation(), trained is not module
        )
        self._backend = chosen(trained)
        self.lanes = self._backend.lanes
        self._outputs = self._backend.outputs
        if batch_norms(module):
            self._outputs = Recalibrated(module, self._calibration(), chosen).outputs

    @property
    def backend(self) -> str:
        """The backend that computes gradients; those chosen so far, where they are chosen by
        trial.
        """
        return self._backend.name

    def start(self, seeds: Sequence[int]) -> Tensor:
        """The network's own initial weights `(ensemble, params)`, a seed per member; equal seeds
        give equal rows.
        """
        rows = [flatten(self._module(seed).parameters()).detach() for seed in seeds]
        return torch.stack(rows).to(self.device, self.dtype)

    def layers(self) -> list[Layer]:
        """The network's layers, for pipelines to cut."""
        return layers(self._module(seed=0), self._data.shape, self.batch)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the network's parameters by name, in their order in a model `(params,)`."""
        return {
            name: tuple(parameter.shape)
            for name, parameter in self._module(seed=0).named_parameters()
        }

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """The endless mini-batches of worker `rank`: `(batch,)`, or `(ensemble, batch)` from
        several generators.

        Raises:
            ValueError: the training set was divided among fewer workers.
        """
        shard = self._shard(rank)
        streams = [_draw_batches(shard, self.batch, rng) for rng in rngs]
        if (count := self._variants) > 1:
            drawn = zip(streams, rngs, strict=True)
            streams = [
                draw_variants(stream, self.epoch, count, rng.spawn(1)[0]) for stream, rng in drawn
            ]
        if len(streams) == 1:
            return streams[0]
        return (torch.stack(draws) for draws in zip(*streams, strict=True))

    def gradients(self, weights: Tensor, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Gradients, shaped as `weights` `(k, ensemble, params)`, and mini-batch losses `(k,
        ensemble)`.
        """
        models, index = weights.shape[:2], self._indices(weights, batches)
        rows, strength = weights.flatten(0, 1), self._objective.regularizer
        gradients, losses = self._backend.gradients(rows, self._x, self._y, index)
        if strength:
            gradients, losses = (
                gradients + strength * penalty_gradient(rows),
                losses + strength * penalty(rows),
            )
        return gradients.unflatten(0, models), losses.unflatten(0, models)

    def submit(self, weights: Tensor, batches: Sequence[Tensor]) -> BackgroundGradients | None:
        """Begin to compute what `gradients` does, in the background; None where that gains
        nothing.
        """
        if not isinstance(self._backend, Threads) or self._objective.regularizer:
            return None
        index = self._indices(weights, batches)
        return self._backend.submit(
            weights.flatten(0, 1), self._x, self._y, index, members=weights.shape[1]
        )

    def hessian_products(
        self, weights: Tensor, directions: Tensor, batches: Sequence[Tensor]
    ) -> Tensor:
        """Products of the losses' Hessians at `weights` `(k, ensemble, params)` with `directions`,
        shaped alike.
        """
        index = self._indices(weights, batches)
        autograd = Batched(with_draws(self._module(seed=0)).to(self.device, self.dtype), self._loss)
        products = autograd.hessian_products(
            weights.flatten(0, 1), directions.flatten(0, 1), self._x, self._y, index
        )
        shaped: Tensor = products.unflatten(0, weights.shape[:2])
        strength = self._objective.regularizer
        if strength:
            return shaped + strength * penalty_curvature(weights) * directions
        return shaped

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        """Mean loss and accuracy (0 to 1) on the test set, each `(ensemble,)`, of models
        `(ensemble, params)`.
        """
        outputs, targets = self._outputs(weights, self._data.test_x), self._data.test_y
        hits = (self._objective.predict(outputs) == targets).flatten(1).sum(dim=-1)
        losses = member_losses(self._loss, outputs, targets)
        if strength := self._objective.regularizer:
            losses = losses + strength * penalty(weights)
        return {"test_loss": losses, "test_accuracy": hits.to(self.dtype) / targets.numel()}

    def _indices(self, weights: Tensor, batches: Sequence[Tensor]) -> Tensor:
        """The mini-batch of each model, `(k x ensemble, batch)`."""
        index = to_device(torch.stack(list(batches)), self.device)
        if index.dim() == 2:  # all members of the ensemble have one order of the data
            index = index[:, None]
        return index.expand(*weights.shape[:2], -1).flatten(0, 1)

    def _module(self, seed: int) -> nn.Module:
        # layers draw from the global generator, whose state is restored
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            module = self._network(self._data.shape, self._objective.outputs(self._data.classes))
        remove_statistics(module)
        replace_dropout(module)
        return module

    def _calibration(self) -> Tensor:
        """Mini-batches `(batches, batch, ...)` of the training set, the same for every evaluation
        of every run.
        """
        if self.batch < 2:
            raise ValueError(f"batch = {self.batch}: expected at least 2 under batch normalisation")
        index = np.random.default_rng(0).permutation(self.epoch)
        count = max(1, min(CALIBRATED, self.epoch) // self.batch)
        return self._data.train_x[torch.from_numpy(np.resize(index, (count, self.batch)))]

    def _shard(self, rank: int) -> np.ndarray:
        if isinstance(self._partition, Iid):
            return self._shards[0]
        if not 0 <= rank < len(self._shards):
            raise ValueError(
                f"rank {rank} has no shard: the training set was divided among workers = "
                f"{len(self._shards)}"
            )
        return self._shards[rank]


def member_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each member `(ensemble,)`, of outputs `(ensemble, samples, ...)`.

    On a CPU a member at a time, so that the order of a sum over samples does not depend on the
    other members; elsewhere in one call, since a thousand small ones would wait for their launches.
    """
    if outputs.device.type == "cpu":
        return torch.stack([loss(output, targets) for output in outputs])
    losses: Tensor = torch.vmap(loss, in_dims=(0, None))(outputs, targets)
    return losses


def over_positions(loss: Loss) -> Loss:
    """`loss` as the mean over positions: of logits `(batch, positions, classes)` and labels
    `(batch, positions)`.
    """

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs.flatten(0, -2), targets.flatten())

    return mean


def _make_shards(
    partition: Partition, dataset: Dataset, workers: int | None, seed: int
) -> list[np.ndarray]:
    """Shards as 32-bit indices, since a thousand workers may hold a permutation each."""
    if workers is None and not isinstance(partition, Iid):
        raise ValueError(
            f"workers = None, but partition {partition} divides the training set among "
            "them: say how many"
        )
    if workers is None or isinstance(partition, Iid):
        workers = 1
    if isinstance(partition, ByWriter):
        by = dataset.writers
    else:
        by = dataset.train_y.cpu().numpy()
    if by is None:
        raise ValueError(
            f"partition: expected a data set whose samples have writers, got {dataset.name}"
        )
    shards = partition.shards(by, workers, np.random.default_rng(seed))
    return [shard.astype(np.int32) for shard in shards]


def _draw_batches(shard: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Permutations of `shard`, one after the other, cut into pieces of `size`."""
    rest = shard[:0]
    while True:
        while len(rest) < size:
            rest = np.concatenate([rest, rng.permutation(shard)])
        yield torch.from_numpy(rest[:size])
        rest = rest[size:]
