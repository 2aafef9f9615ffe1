"""The parts of a config but for the task: what each key means, and the simulator's object that it becomes."""

from collections.abc import Mapping
from inspect import signature
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

import simulator
from experiments.choice import Choice
from experiments.schema import Count, Described, Finite, Part, Seed, built, kept, keys, part
from simulator.laws import LAWS, Law, Scaled
from simulator.rules import COMPENSATIONS, OPTIMIZERS, SCHEDULES
from simulator.rules.optimizers import Optimizer
from simulator.rules.schedules import Schedule
from simulator.rules.uncompensated import Compensation
from simulator.slowdowns import SLOWDOWNS, Slowdown
from simulator.topology import TOPOLOGIES, Topology

WIRES = {key: said for key, said in keys(simulator.Network).items() if key != "topology"}


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


LEARNING = Choice.of("optimizer", OPTIMIZERS, "sgd", Optimizer, base=LearningPart)
StopPart = part(simulator.Stop)
EvaluatePart = part(
    simulator.Evaluate, target_accuracy=(Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None, None)
)
RecordPart = part(simulator.Record)
