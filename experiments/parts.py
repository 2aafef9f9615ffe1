"""The parts of a config: what each key means, and the simulator's or the model's object that it becomes."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from inspect import signature
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, ValidationInfo, model_validator
from torch import nn

import simulator
from experiments.errors import ConfigError, blamed
from experiments.schema import Choice, Count, Described, Finite, Part, Seed, built, kept, keys, part
from models import DATASETS, NETWORKS, PARTITIONS, Dataset, Network, Partition, Quadratic, Supervised
from models.backends import find_device, unfoldable
from models.language import ALPHABET
from models.layers import check_labels, layers
from simulator.laws import LAWS, Law, Scaled
from simulator.rules import COMPENSATIONS, OPTIMIZERS, SCHEDULES
from simulator.rules.optimizers import Optimizer
from simulator.rules.schedules import Schedule
from simulator.rules.uncompensated import Compensation
from simulator.slowdowns import SLOWDOWNS, Slowdown
from simulator.task import Layer, layers_of
from simulator.topology import TOPOLOGIES, Topology


class Sizes(NamedTuple):
    """What can be known of a data set without reading it: shape of an input, classes, training samples, shape of the
    labels of one.
    """

    shape: tuple[int, ...]
    classes: int
    samples: int
    labels: tuple[int, ...] = ()


class Known(NamedTuple):
    """What can be known of a network on a data set without reading it: sizes, layers, whether `unfold` can take it."""

    sizes: Sizes
    layers: list[Layer]
    unfolds: bool


IMAGES = (1, 28, 28)
SIZES = {name: Sizes(IMAGES, 10, n) for name, n in {"digits": 1500, "mnist": 60000, "fashion_mnist": 60000}.items()}
WIRES = {key: said for key, said in keys(simulator.Network).items() if key != "topology"}
BY_LABEL = ("by_label", "dirichlet")
DTYPE = (Literal["float32", "float64"], "float32")


class NetworkPart(Described):
    """`cluster.network`: a topology with its keys, and the links."""

    topology: str

    def build(self, workers: int = 1, **given: Any) -> simulator.Network:
        links = {key: built(getattr(self, key)) for key in WIRES}
        return simulator.Network(topology=super().build(workers, **given), **links)


class AlgorithmPart(Described):
    """`algorithm`: a method with its keys; its rule is what `learning` says."""

    name: str

    def build(self, workers: int = 1, rule: simulator.Rule | None = None, **given: Any) -> simulator.Algorithm:
        learns = "rule" in signature(type(self).recipe).parameters
        learning = {"rule": rule or simulator.Rule()} if learns else {}
        algorithm: simulator.Algorithm = super().build(workers, **learning, **given)
        return algorithm


def _slowdown(value: Mapping[str, Any]) -> str:
    own = {"window": {"start", "end"}, "markov": {"slow_for", "fast_for"}, "crash": {"at", "back"}}
    return next((kind for kind, keys in own.items() if keys & set(value)), "factor")


COMPUTE = Choice.of("law", LAWS, "constant", Law, per=(Literal["batch", "sample"], "batch"))
SLOWDOWN = Choice.of("kind", SLOWDOWNS, _slowdown, Slowdown)
NETWORK = Choice.of("topology", TOPOLOGIES, "auto", Topology, base=NetworkPart, **WIRES)
ALGORITHM = Choice.of(
    "name", simulator.ALGORITHMS, "async_ps", simulator.Algorithm, base=AlgorithmPart, without=["rule"]
)
SCHEDULE = Choice.of("name", SCHEDULES, "constant", Schedule)
COMPENSATION = Choice.of("name", COMPENSATIONS, "none", Compensation)
DATA = Choice.of("name", DATASETS, "mnist", Dataset)
PARTITION = Choice.of("name", PARTITIONS, "iid", Partition)


class ClusterPart(Part):
    """`cluster`: the machines."""

    workers: Count = 8
    compute: COMPUTE.type = Field({"law": "constant", "mean": 1.0}, validate_default=True)
    slowdowns: list[SLOWDOWN.type] = Field([])
    network: NETWORK.type = Field({}, validate_default=True)
    apply_seconds: Finite = 0.0
    seed: Seed | None = None

    def build(self, batch: int = 1) -> simulator.Cluster:
        """The cluster, on which a mini-batch has `batch` samples."""
        law = self.compute.build()
        return simulator.Cluster(
            workers=self.workers,
            compute=Scaled(law, batch) if self.compute.per == "sample" else law,
            slowdowns=[slowdown.build() for slowdown in self.slowdowns],
            network=self.network.build(),
            apply_seconds=self.apply_seconds,
            seed=self.seed,
        )

    @model_validator(mode="after")
    def _in_range(self, info: ValidationInfo) -> Self:
        if not kept(info):
            self.build()
        return self


class LearningPart(Described):
    """`learning`: an optimiser with its keys, and the rest of the rule."""

    optimizer: str
    lr: Finite = 0.05
    schedule: SCHEDULE.type = Field("constant", validate_default=True)
    compensation: COMPENSATION.type = Field("none", validate_default=True)
    seed: Seed | None = None

    def build(self, workers: int = 1, **given: Any) -> simulator.Rule:
        """The rule, with `given` at dotted keys below `learning` instead of the part's own values."""
        below = {name: _below(name, given) for name in ("schedule", "compensation")}
        return simulator.Rule(
            optimizer=super().build(workers, **{key: given[key] for key in given if key in self.settings}),
            lr=given.get("lr", self.lr),
            schedule=self.schedule.build(workers, **below["schedule"]),
            compensation=self.compensation.build(workers, **below["compensation"]),
        )

    def per_member(self, key: str) -> bool:
        """Whether the dotted `key` below `learning` may differ among the members of one ensemble."""
        owner, _, name = key.rpartition(".")
        of = {"": self, "schedule": self.schedule, "compensation": self.compensation}.get(owner)
        return key in ("lr", "seed") or (of is not None and name in of.scalars)


def _below(prefix: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(f"{prefix}."): given[key] for key in given if key.startswith(f"{prefix}.")}


class TaskPart(Described):
    """`task`: what is learnt; a network on a data set, or something of its own."""

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

    def task(self, *, workers: int, seed: int, device: str, backend: str, threads: int | None) -> simulator.Task:
        """The task, for a cluster of `workers`; `seed` deals the training set.

        Raises:
            ValueError: network, data set, partition and workers do not fit together.
            DataMissingError: the data set is not there.
        """
        given = {"dtype": getattr(torch, self.dtype)} if hasattr(self, "dtype") else {}
        return self.build(**given)  # type: ignore[no-any-return]


class SupervisedPart(TaskPart):
    """`task` where a network classifies."""

    dataset: DATA.type = Field("mnist", validate_default=True)
    batch: Count = 32
    partition: PARTITION.type = Field("iid", validate_default=True)
    dtype: DTYPE[0] = DTYPE[1]

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        try:
            find_device(device)
        except ValueError:
            raise ConfigError("device", "expected a GPU, but torch sees none here: use auto or cpu") from None
        try:
            known = self.known
        except ValueError as error:
            raise blamed("task", error) from None
        if known is None:
            return
        if backend.startswith("unfold") and not known.unfolds:
            problem = f"expected threads or vmap, since {self.model} is no plain sequence of layers, got {backend!r}"
            raise ConfigError("backend", problem)
        samples = known.sizes.samples
        if known.sizes.labels and self.partition.name in BY_LABEL:
            problem = f"expected iid or disjoint, since a text has no label of its own, got {self.partition.name!r}"
            raise ConfigError("task.partition", problem)
        most = samples // getattr(self.partition, "pieces", 1)
        if self.partition.name != "iid" and workers > most:
            problem = f"expected at most {most}, among whom {self.partition.name} can deal {samples} samples"
            raise ConfigError("cluster.workers", f"{problem}, got {workers}: use fewer workers or iid")

    def layers(self) -> Sequence[Layer]:
        return () if self.known is None else self.known.layers

    @cached_property
    def known(self) -> Known | None:
        """What is known without reading data; found out once, since all runs of a sweep ask.

        Raises:
            ValueError: the network cannot take the data set's inputs, or does not answer its labels.
        """
        if (sizes := sizes_of(self.dataset)) is None:
            return None
        with torch.device("meta"):  # without its numbers
            module: nn.Module = self.build().build(sizes.shape, sizes.classes)
        check_labels(module, sizes.shape, sizes.labels)
        return Known(sizes, layers(module, sizes.shape, self.batch), unfoldable(module))

    def task(self, *, workers: int, seed: int, device: str, backend: str, threads: int | None) -> simulator.Task:
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


def sizes_of(dataset: Any) -> Sizes | None:
    """What is known of a data set without reading it, where anything is."""
    if dataset.name == "synthetic":
        return Sizes((dataset.features,), dataset.classes, dataset.samples)
    if dataset.name == "characters":
        return Sizes((dataset.positions,), len(ALPHABET), dataset.samples, (dataset.positions,))
    return SIZES.get(dataset.name)


@lru_cache(maxsize=2)
def _dataset(described: Described) -> Dataset:
    """The data set; the runs of a sweep share it."""
    data: Dataset = described.build()
    return data


LEARNING = Choice.of("optimizer", OPTIMIZERS, "sgd", Optimizer, base=LearningPart)
TASK = Choice(
    "model",
    {
        **{name: part(network, "model", name, base=SupervisedPart) for name, network in NETWORKS.items()},
        "quadratic": part(Quadratic, "model", "quadratic", base=TaskPart, without=["dtype"], dtype=DTYPE),
        "timing": part(simulator.Timing, "model", "timing", base=TaskPart),
    },
    "lenet5",
    {simulator.Task: {"base": TaskPart}, Network: {"base": SupervisedPart}},
)
StopPart = part(simulator.Stop)
EvaluatePart = part(
    simulator.Evaluate, target_accuracy=(Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None, None)
)
RecordPart = part(simulator.Record)
