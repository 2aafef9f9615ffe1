"""A network, a training set and its partition among workers, as a task of the simulator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from laggard.errors import InvalidSettingError, check_members
from laggard.models.backends.autograd import Loss
from laggard.models.backends.background import BackgroundGradients
from laggard.models.backends.batched import Batched, find_device, to_device
from laggard.models.backends.choice import choose
from laggard.models.backends.threads import Threads
from laggard.models.data import Dataset, LabelKind
from laggard.models.flat import flatten
from laggard.models.layers import Layer, check_labels, check_parameters, layers, output_shape
from laggard.models.losses import (
    LOSS_OF_LABELS,
    OBJECTIVES,
    FunctionLoss,
    Objective,
    check_scalar,
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
    """Classification or regression by an `nn.Module`, a function of its parameters and inputs.

    A mini-batch is a tensor of indices into the training set, `(batch,)`, or `(ensemble, batch)`
    where members have their own data seed. It is drawn without replacement and always full: the
    rest of a permutation is filled up from the next, and a batch larger than the shard holds a
    sample more than once. Where a sample is a text with a label for each position, losses and
    accuracies are means over all positions.

    With `augment`, a number of a mini-batch stands for a sample and one of its variants
    (`Variants`). Variants are drawn from a child of the generator of the mini-batches, so that the
    samples stay the same.

    Batch normalisation uses the statistics of a gradient's mini-batch; for an evaluation, averages
    over fixed mini-batches of about 1,024 samples of the training set (`Recalibrated`). Buffers
    that do not change are those of the network built with seed 0, for all members.

    `partition` is drawn once, from `partition_seed`, for `workers` workers. Under `Iid` every
    worker permutes the whole training set: `workers` may be omitted, and the batches of a worker do
    not depend on the number of workers.

    Example:
        >>> from laggard.models import Logistic, synthetic
        >>> task = Supervised(Logistic().build, synthetic(samples=64, features=5), batch=8)
        >>> task.start(seeds=[0, 0, 1]).shape
        torch.Size([3, 24])

    Args:
        network: builds the module from the shape of one input and the number of classes:
            `LeNet5().build`.
        loss: a function of outputs and targets, or an `Objective` such as `LogisticLoss()`; the
            same for evaluations. None: by the labels, cross entropy, mean squared error of numbers,
            or binary cross entropy of sets.
        augment: random crops and reflections of training images.
        device: "cpu", "cuda", or "auto": the GPU where there is one.
        threads: the number of CPU threads; None for one per core.
        dtype: the type of weights and data; float64 for exact identities.
        backend: the code that computes gradients: "threads", "vmap", "unfold", ...
            (`laggard.models.backends`), or "auto": threads on a CPU, and on a GPU the fastest
            batched one.
        chunk: largest number of models in one batched call; None for as many as fit into memory.

    Raises:
        ValueError: batch or workers below 1; no workers where the partition needs their number; a
            loss for other labels, or another number of classes, or that is no scalar; a module
            that draws random numbers or changes buffers, or whose logits do not match the labels;
            a mini-batch of one sample under batch normalisation; augmentation of inputs other than
            images; an unavailable device; an unknown backend, or one that does not support the
            module.
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
        loss: Loss | Objective | None = None,
        augment: Augmentation | None = None,
        device: str = "auto",
        threads: int | None = None,
        dtype: torch.dtype = torch.float32,
        backend: str = "auto",
        chunk: int | None = None,
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch = {batch}: expected at least 1")
        _check_parts(network, dataset, partition, loss)
        # a plugin's data set may lack the field
        label_kind: LabelKind = getattr(dataset, "label_kind", "classes")
        if loss is None:
            loss = OBJECTIVES[LOSS_OF_LABELS[label_kind]]()
        self.batch = batch
        self.epoch = len(dataset.train_y)
        self.device = find_device(device)
        self.dtype = dtype
        self._network = network
        self._objective = loss if isinstance(loss, Objective) else FunctionLoss(loss)
        self._objective.check_label_kind(label_kind)
        self._loss = self._objective.function()
        if dataset.labels:
            self._loss = over_positions(self._loss)
        self._data = dataset.to(self.device, dtype)
        self._partition = Iid() if partition is None else partition
        self._shards = _make_shards(self._partition, dataset, workers, partition_seed)
        module = self._module(seed=0)
        check_parameters(module)
        outputs = self._objective.outputs(dataset.classes)
        output = output_shape(module, dataset.shape, outputs)
        check_labels(output[:-1], dataset.labels)
        labels = self._data.train_y[:2]
        zeros = torch.zeros(len(labels), *output, device=self.device, dtype=dtype)
        loss_name = getattr(loss, "__name__", type(loss).__name__)
        check_scalar(loss_name, self._loss, zeros, labels)
        module = module.to(self.device, dtype)
        self.params = sum(parameter.numel() for parameter in module.parameters())
        backend_for = partial(
            choose, backend, loss=self._loss, device=self.device, threads=threads, chunk=chunk
        )
        trained = with_draws(module)
        has_dropout = trained is not module
        self._x, self._y, self._variants = make_variants(
            self._data.train_x, self._data.train_y, augment or Augmentation(), has_dropout
        )
        self._backend = backend_for(trained)
        self.lanes = self._backend.lanes
        self._outputs = self._backend.outputs
        if batch_norms(module):
            self._outputs = Recalibrated(module, self._calibration(), backend_for).outputs

    @property
    def backend(self) -> str:
        """The name of the backend that computes gradients."""
        return self._backend.name

    @property
    def arithmetic(self) -> str:
        """The code that computes gradients: the backend, and for `threads` whether it is compiled.

        Equal texts on equal machines mean equal bits.
        """
        if isinstance(self._backend, Threads):
            return self._backend.arithmetic(self._x)
        return self._backend.name

    def start(self, seeds: Sequence[int]) -> Tensor:
        """Initial weights `(ensemble, params)`, a seed per member; equal seeds give equal rows."""
        rows = [flatten(self._module(seed).parameters()).detach() for seed in seeds]
        return torch.stack(rows).to(self.device, self.dtype)

    def layers(self) -> list[Layer]:
        """The network's layers, for pipelines to cut."""
        return layers(self._module(seed=0), self._data.shape, self.batch)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the network's parameters by name, in their order in a model `(params,)`."""
        parameters = self._module(seed=0).named_parameters()
        return {name: tuple(parameter.shape) for name, parameter in parameters}

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        """The endless mini-batches of a worker: `(batch,)`; `(ensemble, batch)` of several `rngs`.

        Raises:
            ValueError: the training set was divided among fewer workers.
        """
        shard, streams = self._shard(rank), []
        for rng in rngs:
            stream = _draw_batches(shard, self.batch, rng)
            if self._variants > 1:
                (child,) = rng.spawn(1)
                stream = draw_variants(stream, self.epoch, self._variants, child)
            streams.append(stream)
        if len(streams) == 1:
            return streams[0]
        return (torch.stack(draws) for draws in zip(*streams, strict=True))

    def samples(self, rank: int) -> int:
        """The samples in the shard of worker `rank`."""
        return len(self._shard(rank))

    def gradients(self, weights: Tensor, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Gradients, shaped like `weights` `(k, ensemble, params)`, and losses `(k, ensemble)`."""
        models = weights.shape[:2]
        rows = weights.flatten(0, 1)
        index = self._indices(batches, *models)
        gradients, losses = self._backend.gradients(rows, self._x, self._y, index)
        strength = self._objective.regularizer
        if strength:
            gradients = gradients + strength * penalty_gradient(rows)
            losses = losses + strength * penalty(rows)
        return gradients.unflatten(0, models), losses.unflatten(0, models)

    def submit(
        self, weights: Sequence[Tensor], batches: Sequence[Tensor]
    ) -> BackgroundGradients | None:
        """Start `gradients` in the background at each of the `weights` `(ensemble, params)`; None
        where that gains nothing.
        """
        if not isinstance(self._backend, Threads) or self._objective.regularizer:
            return None
        index = self._indices(batches, len(weights), len(weights[0]))
        return self._backend.submit(weights, self._x, self._y, index)

    def hessian_products(
        self, weights: Tensor, directions: Tensor, batches: Sequence[Tensor]
    ) -> Tensor:
        """Products of losses' Hessians at `weights` `(k, ensemble, params)` with `directions`."""
        rows = weights.flatten(0, 1)
        index = self._indices(batches, *weights.shape[:2])
        module = with_draws(self._module(seed=0)).to(self.device, self.dtype)
        autograd = Batched(module, self._loss)
        products = autograd.hessian_products(
            rows, directions.flatten(0, 1), self._x, self._y, index
        )
        shaped: Tensor = products.unflatten(0, weights.shape[:2])
        strength = self._objective.regularizer
        if strength:
            return shaped + strength * penalty_curvature(weights) * directions
        return shaped

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        """Mean loss and accuracy (0 to 1) of models on the test set, each `(ensemble,)`.

        Numbers have no accuracy. The accuracy of sets is the share that is wholly right.
        """
        outputs = self._outputs(weights, self._data.test_x)
        targets = self._data.test_y
        losses = member_losses(self._loss, outputs, targets)
        strength = self._objective.regularizer
        if strength:
            losses = losses + strength * penalty(weights)
        evaluation = {"test_loss": losses}
        right = self._objective.find_right(outputs, targets)
        if right is not None:
            hits = right.flatten(1).sum(dim=-1)
            evaluation["test_accuracy"] = hits.to(self.dtype) / right[0].numel()
        return evaluation

    def _indices(self, batches: Sequence[Tensor], k: int, ensemble: int) -> Tensor:
        """The mini-batch of each model, `(k x ensemble, batch)`."""
        index = to_device(torch.stack(list(batches)), self.device)
        if index.dim() == 2:  # all members of the ensemble have one order of the data
            index = index[:, None]
        return index.expand(k, ensemble, -1).flatten(0, 1)

    def _module(self, seed: int) -> nn.Module:
        outputs = self._objective.outputs(self._data.classes)
        # Layers draw from the global generator, whose state is restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            module = self._network(self._data.shape, outputs)
        remove_statistics(module)
        replace_dropout(module)
        return module

    def _calibration(self) -> Tensor:
        """Mini-batches `(batches, batch, ...)` of the training set, the same in all evaluations."""
        if self.batch < 2:
            raise ValueError(f"batch = {self.batch}: expected at least 2 under batch normalisation")
        index = np.random.default_rng(0).permutation(self.epoch)
        count = max(1, min(CALIBRATED, self.epoch) // self.batch)
        batches = np.resize(index, (count, self.batch))
        return self._data.train_x[torch.from_numpy(batches)]

    def _shard(self, rank: int) -> np.ndarray:
        if isinstance(self._partition, Iid):
            return self._shards[0]
        if not 0 <= rank < len(self._shards):
            divided = f"the training set was divided among workers = {len(self._shards)}"
            raise ValueError(f"rank {rank} has no shard: {divided}")
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
    """The mean of `loss` over positions, for labels `(batch, positions)`."""

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs.flatten(0, -2), targets.flatten())

    return mean


def _check_parts(
    network: Network, dataset: Dataset, partition: Partition | None, loss: Loss | Objective | None
) -> None:
    """Refuse parts of a task that lack what it calls."""
    expected = "a function of the shape of an input and of the number of classes"
    if not callable(network):
        raise InvalidSettingError("Supervised", "network", expected, network)
    check_members("Supervised", "dataset", dataset, Dataset)
    if partition is not None:
        check_members("Supervised", "partition", partition, Partition)
    if loss is not None and not isinstance(loss, Objective) and not callable(loss):
        expected = "an Objective, or a function of outputs and targets"
        raise InvalidSettingError("Supervised", "loss", expected, loss)


def _make_shards(
    partition: Partition, dataset: Dataset, workers: int | None, seed: int
) -> list[np.ndarray]:
    """Shards as 32-bit indices, to save memory: a thousand workers may hold a permutation each."""
    if isinstance(partition, Iid):
        workers = 1
    if workers is None:
        divides = f"partition {partition} divides the training set among workers"
        raise ValueError(f"workers = None, but {divides}: give the number of workers")
    keys = dataset.train_y.cpu().numpy()
    if isinstance(partition, ByWriter):
        if dataset.writers is None:
            expected = "expected a data set whose samples have writers"
            raise ValueError(f"partition: {expected}, got {dataset.name}")
        keys = dataset.writers
    shards = partition.shards(keys, workers, np.random.default_rng(seed))
    return [shard.astype(np.int32) for shard in shards]


def _draw_batches(shard: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Mini-batches of `size` from one permutation of `shard` after another."""
    rest = shard[:0]
    while True:
        while len(rest) < size:
            rest = np.concatenate([rest, rng.permutation(shard)])
        yield torch.from_numpy(rest[:size])
        rest = rest[size:]
