"""`cluster` in a config: compute times, slowdowns, the network, and presets.

A preset is a file `configs/presets/NAME.yaml` with keys of `cluster`. Its first two comments give
its description and the source of its numbers. Keys beside `preset` replace those of the file.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    create_model,
    model_validator,
)

from laggard import simulator
from laggard.experiments.config.document import parse_yaml
from laggard.experiments.config.errors import ConfigError, format_value, unknown_name
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import (
    Count,
    Part,
    Seed,
    build_value,
    keys,
    part,
    quantity_type,
)
from laggard.experiments.config.tables import NetworkTable, SlowdownTable
from laggard.simulator.network.topology import TOPOLOGIES, Topology
from laggard.simulator.timing.distributions import DISTRIBUTIONS, Distribution, Scaled
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.members import Members
from laggard.simulator.timing.slowdowns import SLOWDOWNS, Slowdown

DISTRIBUTION = NamedChoice.of("law", DISTRIBUTIONS, "constant", Distribution)
SecondsOrLaw = Annotated[Any, replace(DISTRIBUTION, also=(float,))]
SecondsOrNull = Annotated[Any, replace(DISTRIBUTION, also=(float, type(None)))]
LINKS = {key: value for key, value in keys(simulator.Network).items() if key != "topology"}
LINKS["latency"] = (SecondsOrLaw, 0.0)
LINKS["server_latency"] = (SecondsOrNull, None)
LINKS["changes"] = (part(NetworkTable) | None, None)


class NetworkPart(Part):
    """`cluster.network`: a topology with its keys, and the links."""

    topology: str
    describes = (simulator.Network,)

    def build(self, workers: int = 1, **overrides: Any) -> simulator.Network:
        links = {key: build_value(getattr(self, key)) for key in LINKS}
        return simulator.Network(topology=super().build(workers, **overrides), **links)


Speed = quantity_type(Annotated[float, Field(gt=0, allow_inf_nan=False)], "speed")
SPEED = "of a worker (operations/s): the law, usually of mean 1, multiplies the operations' time"


ServerCrashPart: Any = part(ServerCrash, uptime=(SecondsOrNull, None))
CheckpointPart: Any = part(Checkpoint)
MembersPart: Any = part(
    Members,
    start=(SecondsOrLaw, 0.0),
    uptime=(SecondsOrNull, None),
    downtime=(SecondsOrNull, None),
)


def _slowdown_kind(slowdown: Mapping[str, Any]) -> str:
    """The kind of a slowdown, derived from its keys."""
    kinds = {
        "window": {"start", "end"},
        "markov": {"slow_for", "fast_for"},
        "crash": {"at", "back"},
        "recorded": {"file", "file_sha256"},
    }
    for kind, keys_of_kind in kinds.items():
        if keys_of_kind & set(slowdown):
            return kind
    return "factor"


PER = "the unit of work that takes these seconds"
COMPUTE = NamedChoice.of(
    "law",
    DISTRIBUTIONS,
    "constant",
    Distribution,
    per=(Annotated[Literal["batch", "sample"], Field(description=PER)], "batch"),
    speed=(Annotated[Speed | None, Field(description=SPEED)], None),
)
SLOWDOWN = NamedChoice.of(
    "kind", {**SLOWDOWNS, "recorded": SlowdownTable}, _slowdown_kind, Slowdown
)
NETWORK = NamedChoice.of("topology", TOPOLOGIES, "auto", Topology, base=NetworkPart, **LINKS)
FAILURES = NamedChoice(
    "kind",
    {"server_crash": ServerCrashPart, "checkpoint": CheckpointPart, "members": MembersPart},
    "server_crash",
    {},
)


def _describe_preset(path: Path) -> type[Part]:
    """A part without keys that describes a preset: its docstring is the text of the file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    summary, source = (line.removeprefix("# ") for line in lines[:2])
    values = ", ".join(line.partition("#")[0].strip() for line in lines[2:])
    text = f"{summary.rstrip('.')}: `{values}`.\n\n{source}"
    return create_model("PresetPart", __base__=Part, __doc__=text)


PRESETS: Mapping[str, Path] = {
    path.stem: path for path in sorted(Path(str(files("laggard") / "examples/presets")).iterdir())
}
PRESET = NamedChoice(
    "preset", {name: _describe_preset(path) for name, path in PRESETS.items()}, "10gbe", {}
)


class ClusterPart(Part):
    """`cluster`: the machines; `laggard list presets` shows the presets."""

    describes = (simulator.Cluster,)
    workers: Count = 8
    compute: Annotated[Any, COMPUTE] = Field(
        {"law": "constant", "mean": 1.0}, validate_default=True
    )
    slowdowns: list[Annotated[Any, SLOWDOWN]] = Field([])
    network: Annotated[Any, NETWORK] = Field({}, validate_default=True)
    apply_seconds: SecondsOrLaw = 0.0
    receive_seconds: SecondsOrLaw = 0.0
    reply_seconds: SecondsOrLaw = 0.0
    server_crashes: list[ServerCrashPart] = Field([])
    checkpoint: CheckpointPart = Field({}, validate_default=True)
    members: MembersPart = Field({}, validate_default=True)
    ties: Literal["rank", "random"] = "rank"
    seed: Seed | None = None

    def build_cluster(self, batch: int = 1, operations: float | None = None) -> simulator.Cluster:
        """The cluster, on which a mini-batch has `batch` samples of `operations` each.

        Raises:
            ConfigError: `compute.speed` is set, but `operations` are unknown or `per` is `sample`.
        """
        compute = self.compute.build()
        factor = self._seconds_factor(batch, operations)
        if factor != 1.0:
            compute = Scaled(compute, factor)
        return simulator.Cluster(
            workers=self.workers,
            compute=compute,
            slowdowns=build_value(self.slowdowns),
            network=self.network.build(),
            apply_seconds=build_value(self.apply_seconds),
            receive_seconds=build_value(self.receive_seconds),
            reply_seconds=build_value(self.reply_seconds),
            server_crashes=build_value(self.server_crashes),
            checkpoint=build_value(self.checkpoint),
            members=build_value(self.members),
            ties=self.ties,
            seed=self.seed,
        )

    def _seconds_factor(self, batch: int, operations: float | None) -> float:
        """The factor from a duration that the distribution draws to that of a mini-batch."""
        per, speed = self.compute.per, self.compute.speed
        if speed is None:
            return float(batch) if per == "sample" else 1.0
        if operations is None:
            problem = f"expected null, since only operations of networks are counted, got {speed:g}"
            raise ConfigError("compute.speed", f"{problem}: use mean, in seconds")
        if per == "sample":
            problem = "expected batch, since speed counts the operations of all samples"
            raise ConfigError("compute.per", f"{problem}, got 'sample'")
        return batch * operations / float(speed)

    @model_validator(mode="wrap")  # outside of `Part._parse`, which knows no key `preset`
    @classmethod
    def _expand_preset(cls, document: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(document, Mapping):
            document = expand_preset(document)
        return handler(document)

    def check_ranges(self) -> None:
        self.build_cluster(operations=1.0)


def expand_preset(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """`cluster` with the keys of the preset that it names; its other keys override them.

    Raises:
        ConfigError: the preset is unknown.
    """
    overrides = dict(cluster)
    name = overrides.pop("preset", None)
    if name is None:
        return overrides
    if not isinstance(name, str):
        raise ConfigError("preset", f"expected a name, got {format_value(name)}")
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    text = PRESETS[name].read_text(encoding="utf-8")
    return _merge(parse_yaml(text, str(PRESETS[name])), overrides)


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**base, **overrides}
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            merged[key] = _merge(base[key], value)
    return merged
