"""`task` in a config: what is learnt, and what can be known of it before anything is read."""

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from laggard import simulator
from laggard.experiments.config.datasets import DATASET, PARTITION, Sizes, check_dataset, check_partition, sizes_of
from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure, error_at
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Count, Described, part
from laggard.models import NETWORKS, Dataset, Network, Quadratic, TorchModule
from laggard.models.layers import Description, check_labels
from laggard.models.torch_module import ModuleNetwork
from laggard.models.vision import vision_layers
from laggard.simulator.learning.task import Layer, layers_of


class Known(NamedTuple):
    """What can be known of a network on a data set before a run: sizes, layers, whether `unfold` can take it, and the
    samples that a mini-batch has at least.
    """

    sizes: Sizes
    layers: list[Layer]
    unfolds: bool
    least: int


MOST_PARAMS = 10**9
DType = Literal["float32", "float64"]


class TaskPart(Described):
    """`task`: what is learnt; a network on a data set, or something of its own.

    Attributes:
        learns: whether anything is.
    """

    learns: ClassVar[bool] = True
    model: str

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        """Check that the pieces fit together, before anything is read or run.

        Raises:
            ConfigError: they do not; says what would have to change.
        """
        if device == "cuda":
            raise ConfigError("device", f"expected auto or cpu, since {self.model} uses no GPU, got 'cuda'")
        if backend != "auto":
            raise ConfigError("backend", f"expected auto, since {self.model} has a way of its own, got {backend!r}")

    def layers(self) -> Sequence[Layer]:
        """The layers that a pipeline could cut, as far as they can be known without reading data."""
        return layers_of(self.build())

    def operations(self) -> float | None:
        """Operations of a gradient of one sample, where they are counted: of networks.

        A multiplication and an addition for each entry of the forward pass, and twice as many for the backward pass.
        """
        return None

    def task(self, *, workers: int, seed: int, device: str, backend: str, threads: int | None) -> simulator.Task:
        """The task, for a cluster of `workers`; `seed` deals the training set.

        Raises:
            ValueError: network, data set, partition and workers do not fit together.
            DataMissingError: the data set is not there.
        """
        import torch

        given = {"dtype": getattr(torch, self.dtype)} if hasattr(self, "dtype") else {}
        return self.build(**given)  # type: ignore[no-any-return]


OPERATIONS = 6
"""Operations of a gradient for each multiplication of a forward pass."""


class TimingPart(TaskPart):
    """`task` where nothing is learnt."""

    learns = False


def network_timing(
    network: str = "resnet50", image: int = 224, batch: int = 32, epoch: int = 1_281_167
) -> simulator.Timing:
    """A network of torchvision on images: nothing is learnt, but its layers say what takes how long.

    A message has 4 bytes a parameter; gradients are sent in buckets of its layers, and pipelines cut there;
    `cluster.compute.speed` makes seconds of its operations.

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


class NetworkTimingPart(TimingPart):
    """`task` where a network of torchvision takes time, and nothing is learnt."""

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        super().fits(workers, device, backend)
        try:
            self.layers()
        except ValueError as error:
            raise error_at("task", error) from None

    def operations(self) -> float | None:
        return float(OPERATIONS * sum(layer.work for layer in self.layers()))


class SupervisedPart(TaskPart):
    """`task` where a network classifies.

    Attributes:
        dataset: what it learns from.
        batch: samples in a mini-batch.
        partition: how the training set is divided among the workers.
        dtype: torch's type of weights and inputs.
    """

    dataset: Annotated[Any, BeforeValidator(DATASET)] = Field("mnist", validate_default=True)
    batch: Count = 32
    partition: Annotated[Any, BeforeValidator(PARTITION)] = Field("iid", validate_default=True)
    dtype: DType = "float32"

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        if device == "cuda":
            _check_gpu()
        check_dataset(self.dataset)
        try:
            known = self.known
        except (ValueError, RuntimeError) as error:  # torch cannot even describe what is too large
            raise error_at("task", error) from None
        if known is None:
            return
        if backend.startswith("unfold") and not known.unfolds:
            problem = f"expected threads or vmap, since {self.model} is no plain sequence of layers, got {backend!r}"
            raise ConfigError("backend", problem)
        samples = known.sizes.samples
        if self.batch > samples:
            raise ConfigError("task.batch", f"expected at most the {samples} samples that there are, got {self.batch}")
        if self.batch < known.least:
            problem = f"expected at least {known.least} under batch normalisation, got {self.batch}"
            raise ConfigError("task.batch", problem)
        check_partition(self.partition, self.dataset, known.sizes, workers)

    def layers(self) -> Sequence[Layer]:
        return () if self.known is None else self.known.layers

    def operations(self) -> float | None:
        return None if self.known is None else float(OPERATIONS * sum(layer.work for layer in self.known.layers))

    @cached_property
    def known(self) -> Known | None:
        """What is known before a run; cached, since all runs of a sweep need it.

        Raises:
            ValueError: the network cannot take the data set's inputs, or does not answer its labels.
        """
        if (sizes := sizes_of(self.dataset)) is None:
            return None
        network = self.build()
        # a class derived from one of laggard's may build something else than what that describes
        own = type(network) not in NETWORKS.values()
        describe = partial(_describe_own, network) if own else network.describe
        described: Description = describe(sizes.shape, sizes.classes)
        _check_params(described.params)
        check_labels(described.labels, sizes.labels)
        layers = [layer._replace(activations=self.batch * layer.activations) for layer in described.layers]
        return Known(sizes, list[Layer](layers), described.unfolds, described.least)

    def task(self, *, workers: int, seed: int, device: str, backend: str, threads: int | None) -> simulator.Task:
        import torch

        from laggard.models import Supervised

        return Supervised(
            self.build().build,
            _dataset(self.dataset),
            self.batch,
            partition=self.partition.build(workers),
            workers=workers,
            partition_seed=seed,
            device=device,
            backend=backend,
            threads=threads,
            dtype=getattr(torch, self.dtype),
        )


class ModulePart(SupervisedPart):
    """`task` where a class that derives from `nn.Module` classifies."""

    def build(self, workers: int = 1, **given: Any) -> ModuleNetwork:
        return ModuleNetwork(partial(type(self).recipe, **{key: getattr(self, key) for key in self.settings}))


def _check_gpu() -> None:
    from laggard.models.backends.batched import find_device

    try:
        find_device("cuda")
    except ValueError:
        raise ConfigError("device", "expected a GPU, but torch sees none here: use auto or cpu") from None


def _check_params(params: int) -> None:
    if params > MOST_PARAMS:
        raise ValueError(f"model = {params}: expected at most {MOST_PARAMS} parameters")


def _describe_own(network: Network, shape: tuple[int, ...], classes: int) -> Description:
    """What is known of a network of one's own, which is built for that, without memory.

    Raises:
        ValueError: it cannot take such inputs, or is no function of its parameters and its input alone.
    """
    import torch

    from laggard.models.layers import describe_module

    try:
        with torch.device("meta"):  # shapes only
            module = network.build(shape, classes)
        _check_params(sum(parameter.numel() for parameter in module.parameters()))
        try:
            return describe_module(module, shape, classes)
        except RuntimeError:  # it may hold tensors that are neither parameters nor buffers
            return describe_module(network.build(shape, classes), shape, classes)
    except UNEXPECTED as error:
        raise ValueError(describe_failure(error)) from None


@lru_cache(maxsize=2)
def _dataset(described: Described) -> Dataset:
    """The data set; the runs of a sweep share it.

    Raises:
        ConfigError: it cannot be made of these settings.
    """
    try:
        data: Dataset = described.build()
    except simulator.InvalidSettingError:
        raise
    except ValueError as error:
        raise error_at("task.dataset", error) from None
    return data


TASK = NamedChoice(
    "model",
    {
        **{name: part(network, "model", name, base=SupervisedPart) for name, network in NETWORKS.items()},
        "quadratic": part(Quadratic, "model", "quadratic", base=TaskPart, without=["dtype"], dtype=(DType, "float32")),
        "timing": part(simulator.Timing, "model", "timing", base=TimingPart, without=["network"]),
        "network_timing": part(network_timing, "model", "network_timing", base=NetworkTimingPart),
    },
    "lenet5",
    {
        simulator.Task: {"base": TaskPart},
        Network: {"base": SupervisedPart},
        TorchModule: {"base": ModulePart, "without": ("shape", "classes")},
    },
)
