"""`task` in a config: what is learnt, and what can be known of it before anything is read."""

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from laggard import simulator
from laggard.experiments.config.datasets import (
    DATASET,
    PARTITION,
    Sizes,
    check_dataset,
    check_partition,
    sizes_of,
)
from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure, error_at
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Count, Described, fill_defaults, part
from laggard.experiments.config.task_parts import (
    OPERATIONS,
    DType,
    LearntPart,
    NetworkTimingPart,
    QuadraticPart,
    TaskPart,
    TimingPart,
    network_timing,
)
from laggard.models import (
    NETWORKS,
    OBJECTIVES,
    Augmentation,
    Dataset,
    Network,
    Objective,
    Quadratic,
    TorchModule,
    Tridiagonal,
)
from laggard.models.initial import Shapes
from laggard.models.layers import Description, check_labels
from laggard.models.networks import ModuleNetwork
from laggard.simulator.learning.task import Layer


class Known(NamedTuple):
    """What can be known of a network on a data set before a run: sizes, layers, whether `unfold`
    can take it, and the samples that a mini-batch has at least.
    """

    sizes: Sizes
    layers: list[Layer]
    unfolds: bool
    least: int


MOST_PARAMS = 10**9
LOSS = NamedChoice.of("name", OBJECTIVES, "cross_entropy", Objective)
AugmentPart = part(Augmentation)


class SupervisedPart(LearntPart):
    """`task` where a network classifies.

    Attributes:
        dataset: what it learns from.
        batch: samples in a mini-batch.
        partition: how the training set is divided among the workers.
        loss: what is minimised, and what evaluations measure.
        augment: random crops and reflections of training images.
        dtype: torch's type of weights and inputs.
    """

    dataset: Annotated[Any, BeforeValidator(DATASET)] = Field("mnist", validate_default=True)
    batch: Count = 32
    partition: Annotated[Any, BeforeValidator(PARTITION)] = Field("iid", validate_default=True)
    loss: Annotated[Any, BeforeValidator(LOSS)] = Field("cross_entropy", validate_default=True)
    augment: Annotated[Any, fill_defaults(AugmentPart)] = Field({}, validate_default=True)
    dtype: DType = "float32"

    @property
    def workers_differ(self) -> bool:
        return bool(self.partition.name != "iid")

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        if device == "cuda":
            from laggard.models.backends.batched import find_device

            try:
                find_device("cuda")
            except ValueError:
                problem = "expected a GPU, but torch sees none here: use auto or cpu"
                raise ConfigError("device", problem) from None
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
            raise ConfigError(
                "task.batch",
                f"expected at most the {samples} samples that there are, got {self.batch}",
            )
        if self.batch < known.least:
            problem = f"expected at least {known.least} under batch normalisation, got {self.batch}"
            raise ConfigError("task.batch", problem)
        check_partition(self.partition, self.dataset, known.sizes, workers)

    def layers(self) -> Sequence[Layer]:
        return () if self.known is None else self.known.layers

    def operations(self) -> float | None:
        return (
            None
            if self.known is None
            else float(OPERATIONS * sum(layer.work for layer in self.known.layers))
        )

    def parameter_shapes(self) -> Shapes:
        import torch

        if self.known is None:
            return {}
        with torch.device("meta"):  # shapes only
            module = self.build().build(
                self.known.sizes.shape, self.loss.build().outputs(self.known.sizes.classes)
            )
        return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}

    @cached_property
    def known(self) -> Known | None:
        """What is known before a run; cached, since all runs of a sweep need it.

        Raises:
            ValueError: the network cannot take the data set's inputs, or does not answer its
                labels.
        """
        if (sizes := sizes_of(self.dataset)) is None:
            return None
        network = self.build()
        # a class derived from one of laggard's may build something else than what that describes
        own = type(network) not in NETWORKS.values()
        describe = partial(_describe_own, network) if own else network.describe
        described: Description = describe(sizes.shape, self.loss.build().outputs(sizes.classes))
        _check_params(described.params)
        check_labels(described.labels, sizes.labels)
        self.augment.build().check(sizes.shape)
        layers = [
            layer._replace(activations=self.batch * layer.activations) for layer in described.layers
        ]
        return Known(sizes, list[Layer](layers), described.unfolds, described.least)

    def task(
        self, *, workers: int, seed: int, device: str, backend: str, threads: int | None
    ) -> simulator.Task:
        import torch

        from laggard.models import Supervised

        return Supervised(
            self.build().build,
            _dataset(self.dataset),
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

    def build(self, workers: int = 1, **given: Any) -> ModuleNetwork:
        return ModuleNetwork(
            partial(type(self).recipe, **{key: getattr(self, key) for key in self.settings})
        )


def _check_params(params: int) -> None:
    if params > MOST_PARAMS:
        raise ValueError(f"model = {params}: expected at most {MOST_PARAMS} parameters")


def _describe_own(network: Network, shape: tuple[int, ...], classes: int) -> Description:
    """What is known of a network of one's own, which is built for that, without memory.

    Raises:
        ValueError: it cannot take such inputs, or is no function of its parameters and its input
            alone.
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
        **{
            name: part(network, "model", name, base=SupervisedPart)
            for name, network in NETWORKS.items()
        },
        **{
            name: part(
                form, "model", name, base=QuadraticPart, without=["dtype"], dtype=(DType, "float32")
            )
            for name, form in {"quadratic": Quadratic, "tridiagonal": Tridiagonal}.items()
        },
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
