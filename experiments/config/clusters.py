"""`cluster` in a config: compute times, slowdowns, the network, and machines that others have
measured.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)

from laggard import simulator
from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.config.files import is_from_result
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.presets import PRESETS, describe_preset, expand_preset
from laggard.experiments.config.schema import (
    Count,
    Described,
    Part,
    Seed,
    build_value,
    fill_defaults,
    keys,
    part,
)
from laggard.experiments.config.tables import NetworkTable, SlowdownTable
from laggard.simulator.network.topology import TOPOLOGIES, Topology
from laggard.simulator.timing.distributions import DISTRIBUTIONS, Distribution, Scaled
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import SLOWDOWNS, Slowdown


@dataclass(frozen=True)
class NumberOr:
    """A number, or what a mapping describes; null where that is allowed."""

    choice: NamedChoice
    null: bool = False

    def __call__(self, value: Any, info: ValidationInfo) -> Any:
        if value is None and self.null:
            return None
        if isinstance(value, Mapping | Described):
            return self.choice(value, info)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError("", f"expected a number or a mapping, got {format_value(value)}")
        if not math.isfinite(value):
            raise ConfigError("", f"expected a finite number, got {format_value(value)}")
        return float(value)


SECONDS = NumberOr(NamedChoice.of("law", DISTRIBUTIONS, "constant", Distribution))
SecondsOrLaw = Annotated[Any, BeforeValidator(SECONDS)]
SecondsLawOrNull = Annotated[Any, BeforeValidator(replace(SECONDS, null=True))]
WIRES = {key: said for key, said in keys(simulator.Network).items() if key != "topology"}
WIRES |= {"latency": (SecondsOrLaw, 0.0), "server_latency": (SecondsLawOrNull, None)}
WIRES |= {"changes": (part(NetworkTable) | None, None)}


class NetworkPart(Described):
    """`cluster.network`: a topology with its keys, and the links."""

    topology: str
    describes = (simulator.Network,)

    def build(self, workers: int = 1, **given: Any) -> simulator.Network:
        links = {key: build_value(getattr(self, key)) for key in WIRES}
        return simulator.Network(topology=super().build(workers, **given), **links)


Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SPEED = "of a worker (operations/s): the law, of mean 1 say, multiplies the time that the network's operations take"
SERVER_CRASH = part(ServerCrash, without=["uptime"], uptime=(SecondsLawOrNull, None))
SERVER_CRASH.settings |= {"uptime"}
CHECKPOINT = part(Checkpoint)


def _slowdown(value: Mapping[str, Any]) -> str:
    own = {
        "window": {"start", "end"},
        "markov": {"slow_for", "fast_for"},
        "crash": {"at", "back"},
        "recorded": {"file", "file_sha256"},
    }
    return next((kind for kind, keys in own.items() if keys & set(value)), "factor")


COMPUTE = NamedChoice.of(
    "law",
    DISTRIBUTIONS,
    "constant",
    Distribution,
    per=(Annotated[Literal["batch", "sample"], Field(description="what takes so long")], "batch"),
    speed=(Annotated[Speed | None, Field(description=SPEED)], None),
)
SLOWDOWN = NamedChoice.of("kind", {**SLOWDOWNS, "recorded": SlowdownTable}, _slowdown, Slowdown)
NETWORK = NamedChoice.of("topology", TOPOLOGIES, "auto", Topology, base=NetworkPart, **WIRES)
FAILURES = NamedChoice(
    "kind", {"server_crash": SERVER_CRASH, "checkpoint": CHECKPOINT}, "server_crash", {}
)
PRESET = NamedChoice(
    "preset", {name: describe_preset(path) for name, path in PRESETS.items()}, "10gbe", {}
)


class ClusterPart(Part):
    """`cluster`: the machines; `preset` names some of `laggard list presets`."""

    describes = (simulator.Cluster,)
    workers: Count = 8
    compute: Annotated[Any, BeforeValidator(COMPUTE)] = Field(
        {"law": "constant", "mean": 1.0}, validate_default=True
    )
    slowdowns: list[Annotated[Any, BeforeValidator(SLOWDOWN)]] = Field([])
    network: Annotated[Any, BeforeValidator(NETWORK)] = Field({}, validate_default=True)
    apply_seconds: SecondsOrLaw = 0.0
    receive_seconds: SecondsOrLaw = 0.0
    reply_seconds: SecondsOrLaw = 0.0
    server_crashes: list[Annotated[Any, fill_defaults(SERVER_CRASH)]] = Field([])
    checkpoint: Annotated[Any, fill_defaults(CHECKPOINT)] = Field({}, validate_default=True)
    ties: Literal["rank", "random"] = "rank"
    seed: Seed | None = None

    def build(self, batch: int = 1, operations: float | None = None) -> simulator.Cluster:
        """The cluster, on which a mini-batch has `batch` samples of so many `operations` each.

        Raises:
            ConfigError: `compute.speed` is said where operations are not known, or along with `per:
                sample`.
        """
        law, factor = self.compute.build(), float(batch) if self.compute.per == "sample" else 1.0
        if self.compute.speed is not None:
            if operations is None:
                problem = f"expected null, since only a network's operations are counted, got {self.compute.speed:g}"
                raise ConfigError("compute.speed", f"{problem}: use mean, in seconds")
            if self.compute.per == "sample":
                problem = (
                    "expected batch, since speed counts the operations of all samples, got 'sample'"
                )
                raise ConfigError("compute.per", problem)
            factor = batch * operations / self.compute.speed
        return simulator.Cluster(
            workers=self.workers,
            compute=law if factor == 1.0 else Scaled(law, factor),
            slowdowns=[slowdown.build() for slowdown in self.slowdowns],
            network=self.network.build(),
            apply_seconds=build_value(self.apply_seconds),
            receive_seconds=build_value(self.receive_seconds),
            reply_seconds=build_value(self.reply_seconds),
            server_crashes=build_value(self.server_crashes),
            checkpoint=build_value(self.checkpoint),
            ties=self.ties,
            seed=self.seed,
        )

    @model_validator(mode="wrap")  # around that of unknown keys, for which `preset` is none
    @classmethod
    def _expand_preset(cls, document: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        return handler(expand_preset(document) if isinstance(document, Mapping) else document)

    @model_validator(mode="after")
    def _in_range(self, info: ValidationInfo) -> Self:
        if not is_from_result(info):
            self.build(operations=1.0)
        return self
