"""The parts of a config except cluster and task, and the choice among parts by name."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
    ValidationInfo,
)
from pydantic.errors import PydanticUserError
from pydantic_core import CoreSchema, core_schema

from laggard import simulator
from laggard.experiments.config.errors import ConfigError, format_value, unknown_name
from laggard.experiments.config.files import is_from_result
from laggard.experiments.config.installed import find_installed, installed_plugins
from laggard.experiments.config.plugins import Plugin, load_plugin
from laggard.experiments.config.schema import Finite, Part, Seed, keys, parse_once, part
from laggard.simulator.learning.rules import CLIPS, COMPENSATIONS, OPTIMIZERS, SCHEDULES, Chained
from laggard.simulator.learning.rules.clipping import Clip
from laggard.simulator.learning.rules.contrib.cgad import CGAD
from laggard.simulator.learning.rules.contrib.heloco import HeLoCo
from laggard.simulator.learning.rules.damping import Compensation
from laggard.simulator.learning.rules.optimizers import Optimizer
from laggard.simulator.learning.rules.schedules import Schedule
from laggard.units import EXPECTED_FORMS, read_quantity

SOURCE = "sha256"
"""The key, in a resolved config, of the hash of a plugin's source."""


@dataclass(frozen=True, eq=False)
class NamedChoice:
    """One of several parts, named by the key `tag`, as `law` names the law of compute times.

    Where `tag` is `name`, the name alone stands for the mapping {name: ...}. A name with a colon,
    `package.module:Name`, is a plugin, and so is a name that an installed package gives it.

    Attributes:
        tag: the key.
        parts: name -> part.
        default: the name where the key is missing, or a function that derives it from the other
            keys.
        kinds: kind of plugin -> further arguments of `part`.
        also: the types of values that may stand in place of a part: seconds, null.
    """

    tag: str
    parts: Mapping[str, type[Part]]
    default: str | Callable[[Mapping[str, Any]], str]
    kinds: Mapping[type, Mapping[str, Any]]
    also: tuple[type, ...] = ()
    _plugins: dict[tuple[str, Plugin], type[Part]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        tag: str,
        table: Mapping[str, Callable[..., Any]],
        default: Any,
        kind: type,
        **shape: Any,
    ) -> "NamedChoice":
        """The choice among the entries of a table, each a `kind`.

        Args:
            shape: the arguments of `part`, such as further keys that every entry has.
        """
        parts = {name: part(recipe, tag, name, **shape) for name, recipe in table.items()}
        return cls(tag, parts, default, {kind: shape})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.parse)

    def parse(self, value: Any, info: ValidationInfo) -> Any:
        """The part that `value` describes, or the number or null that may stand in its place.

        Raises:
            ConfigError: it is not a mapping, or the name is unknown.
            ValidationError: the named part refuses it.
        """
        if isinstance(value, Part):
            return value
        if self.also and not isinstance(value, Mapping):
            return self._parse_simple(value)
        return parse_once(id(self), value, info, lambda: self._parse_named(value, info))

    def _parse_named(self, value: Any, info: ValidationInfo) -> Part:
        if isinstance(value, str) and self.tag == "name":
            value = {"name": value}
        if not isinstance(value, Mapping):
            expected = "a mapping or a name" if self.tag == "name" else "a mapping"
            raise ConfigError("", f"expected {expected}, got {format_value(value)}")
        default = self.default
        if not isinstance(default, str):
            default = default(value)
        try:
            named = self._find(value.get(self.tag, default), info)
            if self.tag not in value:
                self._refuse_other_tag(value, named)
            return named.model_validate(value, context=info.context)
        except (ConfigError, ValidationError):
            if not is_from_result(info):
                raise
        # a plugin without its source, or a part with keys of another version
        shape = next(iter(self.kinds.values()))
        return stored_part(shape.get("base", Part)).model_validate(value, context=info.context)

    def _refuse_other_tag(self, value: Mapping[str, Any], named: type[Part]) -> None:
        """Refuse the name of a part under another key, as `name: gamma` in place of `law: gamma`.

        Raises:
            ConfigError: there is such a key, which `named`, the default, does not have.
        """
        for key, word in value.items():
            is_name = isinstance(word, str) and word in self.parts
            if is_name and key not in named.model_fields:
                raise ConfigError(str(key), f"expected {self.tag}: {word}, got {key}: {word}")

    def _parse_simple(self, value: Any) -> Any:
        if value is None and type(None) in self.also:
            return None
        expected = f"expected {EXPECTED_FORMS['time']}, or a mapping"
        if isinstance(value, str):
            try:
                return read_quantity(value, "time")
            except ValueError:
                raise ConfigError("", f"{expected}, got {format_value(value)}") from None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < float("inf"):
            raise ConfigError("", f"{expected}, got {format_value(value)}")
        return float(value)

    def _find(self, name: Any, info: ValidationInfo) -> type[Part]:
        """The part called `name`.

        Raises:
            ConfigError: it is neither an entry nor a plugin.
        """
        if not isinstance(name, str):
            raise unknown_name(self.tag, name, self.parts)
        value: str | None = name
        if ":" not in name and not is_from_result(info):
            # For names of the table, too: it warns where a package has the same name.
            value = self._find_installed(name)
        if name in self.parts:
            return self.parts[name]
        if value is None or is_from_result(info):
            names = [*self.parts, *(entry.name for entry in installed_plugins(self.kinds))]
            raise unknown_name(self.tag, name, names)
        return self._plugin_part(name, value)

    def _find_installed(self, name: str) -> str | None:
        """The plugin that an installed package calls `name`; an entry of the table comes first."""
        try:
            value = find_installed(name, self.kinds)
        except ConfigError as error:
            raise error.relocate(key=self.tag) from None
        if value is not None and name in self.parts:
            warnings.warn(f"{name} is laggard's own; write {value} for the plugin", stacklevel=2)
        return value

    def _plugin_part(self, name: str, value: str) -> type[Part]:
        """The part of the plugin `value`, which a config calls `name`."""
        try:
            plugin = load_plugin(value, self.kinds)
            if (name, plugin) not in self._plugins:
                shape = self.kinds[plugin.kind]
                self._plugins[name, plugin] = plugin_part(plugin, self.tag, name, **shape)
        except ConfigError as error:
            raise error.relocate(key=self.tag) from None
        except ValueError as error:
            raise ConfigError(self.tag, f"{name}: {error}") from None
        return self._plugins[name, plugin]


def plugin_part(
    plugin: Plugin, tag: str, name: str, base: type[Part] = Part, **shape: Any
) -> type[Part]:
    """The config part of a plugin. The hash of its source is part of the run id.

    Raises:
        ValueError: it has fields that cannot be keys of a config.
    """
    try:
        reserved = {tag, SOURCE, *base.model_fields, *shape} - base.replaceable
        for key in keys(plugin.recipe, shape.get("without", ())):
            if key in reserved:
                raise ValueError(f"{key} is a key of the config already: rename the field")
        shape[SOURCE] = (Literal[plugin.sha256], plugin.sha256)
        model = part(plugin.recipe, tag, name, base, **shape)
        model.plugin = name
        model.model_rebuild()  # now, so that a type that no config can hold is refused here
        return model
    except (NameError, TypeError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise ValueError(f"its fields cannot be keys of a config: {problem}") from None


def stored_part(base: type[Part]) -> type[Part]:
    """A part of a stored config, with the keys that it was stored with.

    It replaces a plugin, which is not imported, and a part whose keys have changed since.
    """

    class StoredPart(base):  # type: ignore[valid-type, misc]
        model_config = ConfigDict(extra="allow")
        recipe: ClassVar[Callable[..., Any]] = dict
        settings: ClassVar[frozenset[str]] = frozenset()
        scalars: ClassVar[frozenset[str]] = frozenset()

    return StoredPart


class AlgorithmPart(Part):
    """`algorithm`: a method with its keys; `learning` gives its rule."""

    name: str

    def build(
        self, workers: int = 1, rule: simulator.Rule | None = None, **overrides: Any
    ) -> simulator.Algorithm:
        recipe: Any = type(self).recipe
        if "rule" in signature(recipe).parameters:
            overrides["rule"] = rule or simulator.Rule()
        algorithm: simulator.Algorithm = super().build(workers, **overrides)
        return algorithm


ALGORITHM = NamedChoice.of(
    "name",
    simulator.ALGORITHMS,
    "async_ps",
    simulator.Algorithm,
    base=AlgorithmPart,
    without=["rule"],
)
SCHEDULE = NamedChoice.of("name", SCHEDULES, "constant", Schedule)
COMPENSATION = NamedChoice.of("name", COMPENSATIONS, "none", Compensation)


def _clip_name(keys: Mapping[str, Any]) -> str:
    return "value" if "value" in keys else "norm"


CLIP = NamedChoice.of("name", CLIPS, _clip_name, Clip)
OneSchedule = Annotated[Any, SCHEDULE]
Schedules = Annotated[
    Annotated[OneSchedule, Tag("one")]
    | Annotated[list[OneSchedule], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list) else "one"),
]
"""A schedule, or a list of schedules, whose factors are multiplied."""


class LearningPart(Part):
    """`learning`: an optimiser with its keys, and the rest of the rule.

    An optimiser with its own `weight_decay`, such as AdamW, replaces that of the rule.

    Attributes:
        seed: the seed of initial weights and mini-batches; by default the run's.
    """

    replaceable: ClassVar[frozenset[str]] = frozenset({"weight_decay"})
    describes = (simulator.Rule,)
    optimizer: str
    lr: Finite = 0.05
    schedule: Schedules = Field("constant", validate_default=True)
    compensation: Annotated[Any, COMPENSATION] = Field("none", validate_default=True)
    clip: Annotated[Any, CLIP] = Field("none", validate_default=True)
    weight_decay: Finite = 0.0
    seed: Seed | None = None

    @property
    def parts(self) -> dict[str, Part]:
        """The parts of the rule except the optimiser, by their dotted keys below `learning`."""
        others = {"compensation": self.compensation, "clip": self.clip}
        if not isinstance(self.schedule, list):
            return {"schedule": self.schedule, **others}
        schedules = {f"schedule.{index}": item for index, item in enumerate(self.schedule)}
        return {**schedules, **others}

    def build(self, workers: int = 1, **overrides: Any) -> simulator.Rule:
        """The rule; `overrides` are dotted keys below `learning`."""
        values: dict[str, dict[str, Any]] = {owner: {} for owner in ("", *self.parts)}
        for key, value in overrides.items():
            owner, _, name = key.rpartition(".")
            values[owner][name] = value
        numbers = {key: values[""].pop(key, getattr(self, key)) for key in self._numbers()}
        built = {key: item.build(workers, **values[key]) for key, item in self.parts.items()}
        compensation = built.pop("compensation")
        clip = built.pop("clip")
        schedule = built.get("schedule")
        if schedule is None:
            schedule = Chained(list(built.values()))
        optimizer = super().build(workers, **values[""])
        return simulator.Rule(
            optimizer, schedule=schedule, compensation=compensation, clip=clip, **numbers
        )

    def per_member(self, key: str) -> bool:
        """Whether the dotted `key` below `learning` may differ among the members of an ensemble."""
        if key == "seed" or key in self._numbers():
            return True
        owner, _, name = key.rpartition(".")
        group = {"": self, **self.parts}.get(owner)
        return group is not None and name in group.scalars

    def _numbers(self) -> list[str]:
        """The keys of the rule's own numbers, except keys that the optimiser replaces."""
        return [key for key in ("lr", "weight_decay") if key not in self.settings]


LEARNING = NamedChoice.of("optimizer", OPTIMIZERS, "sgd", Optimizer, base=LearningPart)


class TunePart(Part):
    """The choice of settings by runs with their own seeds, for the runs of the sweep.

    Attributes:
        over: the swept key, or keys, of which the best setting is chosen, for each setting of the
            other keys.
        seeds: the seeds of the runs that choose; none may be a seed of the sweep.
        by: `accuracy` or `loss` at the end, where a diverged run has accuracy 0 and infinite loss;
            `time` or `updates` until the target: the most seeds that reach it, then the least mean;
            where no setting reaches it, accuracy or loss at the end. Of equal settings the first is
            chosen. Default: accuracy if measured, else loss.
        targets: test accuracies (0 to 1), or where none is measured test losses, each of which
            chooses a setting of its own. Default: `evaluate.target_accuracy`.
        validation: the share (0 to 1) of the training samples that is held out in the runs that
            choose, which are measured on it: the test set then takes no part in the choice.
            Default: they are measured like the runs that report.
    """

    over: str | Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)]
    by: Literal["accuracy", "loss", "time", "updates"] | None = None
    targets: Annotated[list[Finite], Field(min_length=1)] | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def keys(self) -> list[str]:
        """The keys of which the best setting is chosen."""
        return [self.over] if isinstance(self.over, str) else list(self.over)


Accuracy = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
TARGET = "test accuracy (0 to 1); tables and figures say when it was reached"
StopPart: Any = part(simulator.Stop)
EvaluatePart: Any = part(
    simulator.Evaluate,
    target_accuracy=(Annotated[Accuracy | None, Field(description=TARGET)], None),
)
RecordPart: Any = part(simulator.Record)
CompressPart: Any = part(simulator.Compress)
HeLoCoPart: Any = part(HeLoCo)
CGADPart: Any = part(CGAD)
