"""`task` in a config: the learning problem, with its sizes and layers before any data are read.

A config is checked without torch where possible: laggard's networks and data sets know their sizes
(`describe`, `SIZES`). A plugin's network is built on torch's device `meta`, which has shapes only.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from laggard import simulator
from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure, error_at
from laggard.experiments.config.files import absolute_path
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Count, FileHash, Part, part
from laggard.experiments.config.tables import PartitionTable
from laggard.models import (
    DATASETS,
    NETWORKS,
    OBJECTIVES,
    PARTITIONS,
    READERS,
    Augmentation,
    Dataset,
    Network,
    Objective,
    Partition,
    Quadratic,
    TorchModule,
    Tridiagonal,
    libsvm,
)
from laggard.models.data import LabelKind, check_samples, count_held_out
from laggard.models.generated import ALPHABET, check_sizes
from laggard.models.initial import Shapes, WarmStart, count_initial, read_initial
from laggard.models.layers import Description, check_labels
from laggard.models.losses import LOSS_OF_LABELS
from laggard.models.networks import ModuleNetwork
from laggard.models.published import hash_of_files
from laggard.models.vision import vision_layers
from laggard.simulator.learning.task import Layer, layers_of

DType = Literal["float32", "float64"]
OPERATIONS = 6
"""Operations of a gradient for each multiplication of a forward pass: a multiplication and an
addition, and twice as many for the backward pass.
"""
MAX_PARAMS = 10**9


class TaskPart(Part):
    """`task`: the learning problem: a network on a data set, or a plugin.

    Attributes:
        learns: whether anything is learnt.
    """

    learns: ClassVar[bool] = True
    model: str

    @property
    def measures_accuracy(self) -> bool:
        """Whether evaluations may measure a test accuracy."""
        return True

    @property
    def workers_differ(self) -> bool:
        """Whether workers learn from different data: the model then depends on who contributes."""
        return False

    def shards_differ(self, workers: int) -> bool:
        """Whether some of `workers` may learn from more samples than others."""
        return False

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        """Check that the parts of the task fit each other and the cluster.

        Raises:
            ConfigError: a part does not fit.
        """
        if device == "cuda":
            problem = f"expected auto or cpu, since {self.model} uses no GPU, got 'cuda'"
            raise ConfigError("device", problem)
        if backend != "auto":
            problem = f"expected auto, since {self.model} computes its own gradients"
            raise ConfigError("backend", f"{problem}, got {backend!r}")

    def layers(self) -> Sequence[Layer]:
        """The layers between which a pipeline can cut, if they are known without reading data."""
        return layers_of(self.build())

    def check_start(self, members: int) -> None:
        """Check that an ensemble of `members` can start from the initial weights.

        Raises:
            ConfigError: the file has models for another number of members.
        """

    def warm_start(self, task: Any, members: int) -> simulator.Task:
        """`task` with the initial weights of a file, if the config names one.

        Raises:
            InvalidSettingError: the file has changed since the config was read.
            ConfigError: the file is of another model.
        """
        return task  # type: ignore[no-any-return]

    def operations(self) -> float | None:
        """Operations of a gradient of one sample; None where they are not counted."""
        return None

    def task(
        self, *, workers: int, seed: int, device: str, backend: str, threads: int | None
    ) -> simulator.Task:
        """The task for a cluster of `workers`; `seed` partitions the training set.

        Raises:
            ValueError: network, data set, partition and workers do not fit together.
            DataMissingError: the data set is not available.
        """
        import torch

        if hasattr(self, "dtype"):
            return self.build(dtype=getattr(torch, self.dtype))  # type: ignore[no-any-return]
        return self.build()  # type: ignore[no-any-return]


class LearntPart(TaskPart):
    """`task` where weights are learnt: from the task's own start, or from a file's.

    Attributes:
        initial_file: initial weights of the same network, `weights.safetensors` of a result or a
            state_dict of torch in that format; of one model, or of one for each member of the
            ensemble.
    """

    files: ClassVar[frozenset[str]] = frozenset({"initial_file"})
    initial_file: Annotated[str | None, BeforeValidator(absolute_path)] = None
    initial_file_sha256: FileHash = None

    def check_start(self, members: int) -> None:
        if self.initial_file is None:
            return
        params = sum(layer.params for layer in self.layers())
        if params:
            self._check_initial(self.initial_file, members, params, self.parameter_shapes)

    def parameter_shapes(self) -> Shapes:
        """The shapes of the parameters by their names in a state_dict, where they have names."""
        return {}

    def warm_start(self, task: Any, members: int) -> simulator.Task:
        if self.initial_file is None:
            return task  # type: ignore[no-any-return]
        self._hash("initial_file")
        shapes = getattr(task, "shapes", dict)
        self._check_initial(self.initial_file, members, task.params, shapes)
        return WarmStart(task, read_initial(self.initial_file, task.params, shapes()))

    def _check_initial(
        self, file: str, members: int, params: int, shapes: Callable[[], Shapes]
    ) -> None:
        try:
            models = count_initial(file, params, shapes)
        except ValueError as error:
            raise error_at("task", error) from None
        if models not in (1, members):
            problem = f"expected one model, or one for each of the {members} members"
            raise ConfigError("task.initial_file", f"{problem}, got {file} with {models}")


def network_timing(
    network: str = "resnet50", image: int = 224, batch: int = 32, epoch: int = 1_281_167
) -> simulator.Timing:
    """A network of torchvision on images: nothing is learnt, but its layers decide the times.

    A message has 4 bytes a parameter; gradients are sent in buckets of its layers, and pipelines
    cut between them; `cluster.compute.speed` turns its operations into seconds.

    Args:
        network: a classifier's name in torchvision, such as `resnet50` or `vgg16`.
        image: height and width of an image, in pixels.
        batch: samples in a mini-batch.
        epoch: samples in an epoch; ImageNet's by default.

    Raises:
        ValueError: torchvision has no such classifier, or it takes no image of this size.
        InvalidSettingError: `batch` or `epoch` is below 1.
    """
    return simulator.Timing(batch, epoch, network=vision_layers(network, image, batch))


class TimingPart(TaskPart):
    """`task` where nothing is learnt; perhaps a network of torchvision takes the time."""

    learns = False

    @property
    def measures_accuracy(self) -> bool:
        return False

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        super().fits(workers, device, backend)
        try:
            self.layers()
        except ValueError as error:
            raise error_at("task", error) from None

    def operations(self) -> float | None:
        if self.model == "timing":
            return None
        return float(OPERATIONS * sum(layer.work for layer in self.layers()))


class QuadraticPart(LearntPart):
    """`task` with closed forms: a quadratic, one for all workers or one for each."""

    @property
    def measures_accuracy(self) -> bool:
        return False

    @property
    def workers_differ(self) -> bool:
        return bool(self.build().workers)

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        super().fits(workers, device, backend)
        for key in ("shift", "scale"):
            values = getattr(self, key)
            if values and len(values) != workers:
                problem = f"expected one for each of the {workers} workers, got {len(values)}"
                raise ConfigError(f"task.{key}", problem)


# --- networks on data sets


class Sizes(NamedTuple):
    """The sizes of a data set that are known without torch.

    Attributes:
        shape: the shape of an input.
        classes: number of classes.
        samples: number of training samples.
        labels: the shape of a sample's labels.
        writers: number of writers, where samples name them.
        label_kind: the kind of labels, as in `Dataset`.
    """

    shape: tuple[int, ...]
    classes: int
    samples: int
    labels: tuple[int, ...] = ()
    writers: int = 0
    label_kind: LabelKind = "classes"


SIZES = {
    "digits": Sizes((1, 28, 28), 10, 1500),
    "mnist": Sizes((1, 28, 28), 10, 60_000),
    "fashion_mnist": Sizes((1, 28, 28), 10, 60_000),
    "cifar10": Sizes((3, 32, 32), 10, 50_000),
    "cifar100": Sizes((3, 32, 32), 100, 50_000),
}


def _partition_name(keys: Any) -> str:
    return "from_file" if "file" in keys else "iid"


DATASET = NamedChoice.of("name", DATASETS, "mnist", Dataset)
PARTITION = NamedChoice.of(
    "name", {**PARTITIONS, "from_file": PartitionTable}, _partition_name, Partition
)
LOSS = NamedChoice.of("name", OBJECTIVES, "cross_entropy", Objective)


EVEN_PARTITIONS = ("disjoint", "by_label", "dirichlet")
"""Partitions into shards of equal size, but for a remainder."""

AugmentPart: Any = part(Augmentation)


def sizes_of(dataset: Any) -> Sizes | None:
    """The sizes of a data set, if known. Files that the config names are read; no data is
    downloaded.

    Raises:
        ValueError: a file is invalid.
    """
    if dataset.name == "synthetic":
        return Sizes((dataset.features,), dataset.classes, dataset.samples)
    if dataset.name == "synthetic_images":
        shape = (dataset.channels, dataset.size, dataset.size)
        writers = min(dataset.writers, dataset.samples)
        return Sizes(shape, dataset.classes, dataset.samples, writers=writers)
    if dataset.name == "characters":
        positions = (dataset.positions,)
        return Sizes(positions, len(ALPHABET), dataset.samples, positions)
    if type(dataset).recipe in READERS:
        return _read_sizes(dataset)
    return SIZES.get(dataset.name)


def epoch_samples(task: TaskPart) -> int | None:
    """The samples of an epoch, if they are known before a run."""
    return getattr(task, "training_samples", None) or getattr(task, "epoch", None)


@lru_cache(maxsize=32)
def _read_sizes(dataset: Part) -> Sizes:
    """The sizes of a data set in files; cached by part, which has the hashes of its files."""
    read = READERS[type(dataset).recipe]  # type: ignore[index]
    data = read(**dataset.recipe_arguments())
    writers = 0
    if data.writers is not None:
        writers = len(np.unique(data.writers))
    labels = data.y[data.train]
    label_shape = labels.shape[1:]
    if data.label_kind == "sets":
        label_shape = ()
    shape = data.x.shape[1:]
    return Sizes(shape, data.classes, len(labels), label_shape, writers, data.label_kind)


def label_kind_of(dataset: Any) -> LabelKind:
    """The kind of a data set's labels that its keys name; classes if none does."""
    if type(dataset).recipe is libsvm:
        return dataset.labels or "classes"
    return "classes"


def check_dataset(dataset: Any) -> None:
    """Check the sizes of a generated data set, or the files of one that is read.

    Raises:
        ConfigError: a size is out of range, or a file is invalid.
    """
    values = {key: getattr(dataset, key) for key in dataset.settings}
    try:
        check_sizes(type(dataset).recipe, **values)
        sizes_of(dataset)
    except ValueError as error:
        raise error_at("task.dataset", error) from None


def check_partition(partition: Any, dataset: Any, sizes: Sizes, workers: int) -> None:
    """Check that a data set can be divided among `workers`.

    Raises:
        ConfigError: the partition needs more samples, or other labels or writers.
    """
    name = partition.name
    if name == "iid":
        return
    if sizes.labels and name in ("by_label", "dirichlet"):
        problem = f"expected iid or disjoint, since a text has no single label, got {name!r}"
        raise ConfigError("task.partition", problem)
    if sizes.label_kind != "classes" and name in ("by_label", "dirichlet"):
        problem = f"expected iid or disjoint, since labels are {sizes.label_kind}, got {name!r}"
        raise ConfigError("task.partition", problem)
    if name == "by_writer" and not sizes.writers:
        problem = f"expected another partition, since {dataset.name} names no writers, got {name!r}"
        raise ConfigError("task.partition", problem)
    if name == "from_file":
        try:
            table = partition.build(workers)
            table.shards(np.empty(sizes.samples), workers, np.random.default_rng())
        except ValueError as error:
            raise error_at("task", error) from None
        return
    max_workers = sizes.samples // getattr(partition, "pieces", 1)
    if name == "by_writer":
        max_workers = sizes.writers
    if workers > max_workers:
        problem = f"expected at most {max_workers} to divide {sizes.samples} samples {name}"
        raise ConfigError("cluster.workers", f"{problem}, got {workers}: use fewer workers or iid")


class SupervisedPart(LearntPart):
    """`task` where a network classifies, or predicts numbers.

    Attributes:
        dataset: the data set.
        batch: samples in a mini-batch.
        partition: the division of the training set among the workers.
        validation: the share (0 to 1) of the training samples that is held out, the same samples in
            every run. No worker learns from them, and evaluations measure them instead of the test
            set, which then plays no part in a choice of settings. The columns of tables keep their
            names, such as `test_accuracy`.
        loss: the loss that training minimises and evaluations measure; by default `mean_squared`
            where labels are numbers, and `binary` where they are sets.
        augment: random crops and reflections of training images.
        dtype: torch's type of weights and inputs.
    """

    dataset: Annotated[Any, DATASET] = Field("mnist", validate_default=True)
    batch: Count = 32
    partition: Annotated[Any, PARTITION] = Field("iid", validate_default=True)
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    loss: Annotated[Any, LOSS] = Field("cross_entropy", validate_default=True)
    augment: AugmentPart = Field({}, validate_default=True)
    dtype: DType = "float32"

    @model_validator(mode="after")
    def _choose_loss(self, info: ValidationInfo) -> Self:
        kind = label_kind_of(self.dataset)
        if kind != "classes" and "loss" not in self.model_fields_set:
            # Written past pydantic, which would count the key as set: a sweep may set other labels.
            self.__dict__["loss"] = LOSS.parse(LOSS_OF_LABELS[kind], info)
        return self

    @property
    def measures_accuracy(self) -> bool:
        return bool(self.loss.build().label_kind != "numbers")

    @property
    def workers_differ(self) -> bool:
        return bool(self.partition.name != "iid")

    def shards_differ(self, workers: int) -> bool:
        name = self.partition.name
        if name == "iid":
            return False
        if name == "from_file":
            owners, _ = self.partition.build(workers).rows
            return len(set(np.bincount(owners))) > 1
        samples = self.training_samples
        if samples is None or name not in EVEN_PARTITIONS:
            return True
        return samples % (workers * getattr(self.partition, "pieces", 1)) != 0

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        if device == "cuda":
            _check_gpu()
        check_dataset(self.dataset)
        try:
            sizes = self.sizes
        except (ValueError, RuntimeError) as error:  # torch cannot describe too large a network
            raise error_at("task", error) from None
        if sizes is None:
            return
        if self.validation and self.partition.name == "from_file":
            problem = "expected another partition, since a table has all training samples"
            raise ConfigError("task.validation", f"{problem}, got {self.validation:g}")
        data, network = sizes
        if backend.startswith("unfold") and not network.unfolds:
            chain = "a plain sequence of layers"
            problem = f"expected threads or vmap, since {self.model} is not {chain}"
            raise ConfigError("backend", f"{problem}, got {backend!r}")
        if self.batch > data.samples:
            problem = f"expected at most {data.samples} (training set), got {self.batch}"
            raise ConfigError("task.batch", problem)
        if self.batch < network.least:
            problem = f"expected at least {network.least} under batch normalisation"
            raise ConfigError("task.batch", f"{problem}, got {self.batch}")
        check_partition(self.partition, self.dataset, data, workers)

    def layers(self) -> Sequence[Layer]:
        if self.sizes is None:
            return ()
        _, network = self.sizes
        return [
            layer._replace(activations=self.batch * layer.activations) for layer in network.layers
        ]

    def operations(self) -> float | None:
        if self.sizes is None:
            return None
        return float(OPERATIONS * sum(layer.work for layer in self.layers()))

    def parameter_shapes(self) -> Shapes:
        import torch

        if self.sizes is None:
            return {}
        data, _ = self.sizes
        outputs = self.loss.build().outputs(data.classes)
        with torch.device("meta"):  # shapes only
            module = self.build().build(data.shape, outputs)
        return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}

    @property
    def training_samples(self) -> int | None:
        """The number of samples that workers learn from, if it is known before a run."""
        data = self._data_sizes
        return None if data is None else data.samples

    @property
    def _data_sizes(self) -> Sizes | None:
        """The sizes of the data set without held-out samples, if they are known before a run."""
        data = sizes_of(self.dataset)
        if data is None or not self.validation:
            return data
        held = count_held_out(data.samples, self.validation)
        return data._replace(samples=data.samples - held)

    @cached_property
    def sizes(self) -> tuple[Sizes, Description] | None:
        """The sizes of the data set and the network, if they are known before a run.

        Raises:
            ValueError: the network cannot take the data set's inputs, or its outputs do not fit
                the labels.
        """
        data = self._data_sizes
        if data is None:
            return None
        network = self.build()
        loss = self.loss.build()
        loss.check_label_kind(data.label_kind)
        outputs = loss.outputs(data.classes)
        # a class derived from one of laggard's may build another network than that one describes
        if type(network) in NETWORKS.values():
            described: Description = network.describe(data.shape, outputs)
        else:
            described = _describe_plugin(network, data.shape, outputs)
        _check_params(described.params)
        check_labels(described.labels, data.labels)
        self.augment.build().check(data.shape)
        return data, described

    def task(
        self, *, workers: int, seed: int, device: str, backend: str, threads: int | None
    ) -> simulator.Task:
        import torch

        from laggard.models import Supervised

        return Supervised(
            self.build().build,
            _dataset(self.dataset, hash_of_files(self.dataset.name), self.validation),
            self.batch,
            partition=self.partition.build(workers),
            workers=workers,
            partition_seed=seed,
            loss=self.loss.build(),
            augment=self.augment.build(),
            device=device,
            backend=backend,
            threads=threads,
            dtype=getattr(torch, self.dtype),
        )


class ModulePart(SupervisedPart):
    """`task` where a class that derives from `nn.Module` classifies."""

    def build(self, workers: int = 1, **overrides: Any) -> ModuleNetwork:
        module: Any = type(self).recipe
        arguments = {key: getattr(self, key) for key in self.settings}
        return ModuleNetwork(partial(module, **arguments))


def _check_gpu() -> None:
    from laggard.models.backends.batched import find_device

    try:
        find_device("cuda")
    except ValueError:
        problem = "expected a GPU, but torch sees none here: use auto or cpu"
        raise ConfigError("device", problem) from None


def _check_params(params: int) -> None:
    if params > MAX_PARAMS:
        raise ValueError(f"model = {params}: expected at most {MAX_PARAMS} parameters")


def _describe_plugin(network: Network, shape: tuple[int, ...], classes: int) -> Description:
    """The description of a plugin's network, which is built on the meta device.

    Raises:
        ValueError: the network cannot take such inputs, or its output depends on more than its
            parameters and its input.
    """
    import torch

    from laggard.models.layers import describe_module

    try:
        with torch.device("meta"):  # shapes only
            module = network.build(shape, classes)
        _check_params(sum(parameter.numel() for parameter in module.parameters()))
        try:
            return describe_module(module, shape, classes)
        except RuntimeError:  # a module with tensors outside parameters and buffers
            return describe_module(network.build(shape, classes), shape, classes)
    except UNEXPECTED as error:
        raise ValueError(describe_failure(error)) from None


@lru_cache(maxsize=2)
def _dataset(dataset: Part, files: str | None, validation: float) -> Dataset:
    """The data set; the runs of a sweep share it, until its files change.

    Args:
        dataset: its part of the config.
        files: the hash of its files, if the config does not name them.
        validation: the share of the training samples that is held out.

    Raises:
        ConfigError: a setting is invalid.
    """
    try:
        data: Dataset = dataset.build()
        if dataset.plugin:
            check_samples(data)
    except simulator.InvalidSettingError:
        raise
    except ValueError as error:
        raise error_at("task.dataset", error) from None
    if validation:
        return data.hold_out(validation)
    return data


def _parts() -> dict[str, type[Part]]:
    dtype = (DType, "float32")
    parts = {
        name: part(network, "model", name, base=SupervisedPart)
        for name, network in NETWORKS.items()
    }
    for name, form in {"quadratic": Quadratic, "tridiagonal": Tridiagonal}.items():
        parts[name] = part(form, "model", name, base=QuadraticPart, without=["dtype"], dtype=dtype)
    parts["timing"] = part(
        simulator.Timing, "model", "timing", base=TimingPart, without=["network"]
    )
    parts["network_timing"] = part(network_timing, "model", "network_timing", base=TimingPart)
    return parts


TASK = NamedChoice(
    "model",
    _parts(),
    "lenet5",
    {
        simulator.Task: {"base": TaskPart},
        Network: {"base": SupervisedPart},
        TorchModule: {"base": ModulePart, "without": ("shape", "classes")},
    },
)
