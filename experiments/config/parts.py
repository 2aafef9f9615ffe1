"""The parts of a config but for cluster and task: what each key means, and which object of the
simulator it becomes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
)
from pydantic.errors import PydanticUserError

from laggard import simulator
from laggard.experiments.config.errors import ConfigError, format_value, unknown_name
from laggard.experiments.config.files import is_from_result
from laggard.experiments.config.plugins import Plugin, load_entry
from laggard.experiments.config.schema import Described, Finite, Seed, keys, make_once, part
from laggard.simulator.learning.rules import CLIPS, COMPENSATIONS, OPTIMIZERS, SCHEDULES, Chained
from laggard.simulator.learning.rules.clipping import Clip
from laggard.simulator.learning.rules.damping import Compensation
from laggard.simulator.learning.rules.optimizers import Optimizer
from laggard.simulator.learning.rules.schedules import Schedule

SOURCE = "sha256"
"""The key, in a resolved config, of the hash of the source of an entry of one's own."""


def own_part(
    plugin: Plugin, tag: str, name: str, base: type[Described] = Described, **shape: Any
) -> type[Described]:
    """A part for an entry of one's own, which holds the hash of its source: another source makes
    another run.

    Raises:
        ValueError: it has fields that can be no keys of a config.
    """
    try:
        said = keys(plugin.recipe, shape.get("without", ()))
        for key in said:
            if key in {tag, SOURCE, *base.model_fields, *shape} - base.replaceable:
                raise ValueError(
                    f"{key} is a key of the config's own: call the field something else"
                )
        shape[SOURCE] = (Literal[plugin.sha256], plugin.sha256)
        made = part(plugin.recipe, tag, name, base, **shape)
        made.model_rebuild()  # now, so that a type that no config can give is found here
        return made
    except (NameError, TypeError, PydanticUserError) as error:
        raise ValueError(
            f"its fields can be no keys of a config: {str(error).splitlines()[0]}"
        ) from None


def part_of_result(base: type[Described] = Described, **_: Any) -> type[Described]:
    """A part in the config of a result: of an entry of one's own, which is read without its source,
    or of one that an earlier version had. It has the keys that it was stored with.
    """

    class KeptPart(base):  # type: ignore[valid-type, misc]
        model_config = ConfigDict(extra="allow")
        recipe: ClassVar[Callable[..., Any]] = dict
        settings: ClassVar[frozenset[str]] = frozenset()
        scalars: ClassVar[frozenset[str]] = frozenset()

    return KeptPart


@dataclass(frozen=True, eq=False)
class NamedChoice:
    """One of several parts, named by a key of its own, as `law` names the law of compute times.

    Where that key is `name`, the name alone stands for the mapping {name: ...}. A name with a
    colon, `package.module:Name`, is an entry of one's own.

    Attributes:
        tag: the key.
        parts: name -> part.
        default: the name where none is given; a function tells it from the other keys.
        kinds: what an entry of one's own may serve as -> `part`'s further arguments.
    """

    tag: str
    parts: Mapping[str, type[Described]]
    default: str | Callable[[Mapping[str, Any]], str]
    kinds: Mapping[type, Mapping[str, Any]]
    _own: dict[tuple[str, Plugin], type[Described]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(
        cls,
        tag: str,
        table: Mapping[str, Callable[..., Any]],
        default: Any,
        kind: type,
        **shape: Any,
    ) -> "NamedChoice":
        """The choice among the entries of a table, each a `kind`, with `part`'s further
        arguments.
        """
        return cls(
            tag,
            {name: part(recipe, tag, name, **shape) for name, recipe in table.items()},
            default,
            {kind: shape},
        )

    def named(self, name: Any, info: ValidationInfo) -> type[Described]:
        """The part called `name`.

        Raises:
            ConfigError: there is none, and it can be imported from nowhere.
        """
        if isinstance(name, str) and name in self.parts:
            return self.parts[name]
        if not isinstance(name, str) or ":" not in name or is_from_result(info):
            raise unknown_name(self.tag, name, self.parts)
        try:
            found = load_entry(name, self.kinds)
            if (name, found) not in self._own:
                self._own[name, found] = own_part(found, self.tag, name, **self.kinds[found.kind])
        except ConfigError as error:
            raise error.relocate(key=self.tag) from None
        except ValueError as error:
            raise ConfigError(self.tag, f"{name}: {error}") from None
        return self._own[name, found]

    def __call__(self, value: Any, info: ValidationInfo) -> Described:
        """The part that `value` describes.

        Raises:
            ConfigError: it is no mapping, or names nothing in the table and nothing that can be
                imported.
            ValidationError: the part that it names refuses it.
        """
        if isinstance(value, Described):
            return value
        return make_once(value, lambda said: self._make_part(said, info), info, place=id(self))  # type: ignore[no-any-return]

    def _make_part(self, value: Any, info: ValidationInfo) -> Described:
        if isinstance(value, str) and self.tag == "name":
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise ConfigError(
                "",
                f"expected a mapping{' or a name' * (self.tag == 'name')}, got {format_value(value)}",
            )
        default = self.default if isinstance(self.default, str) else self.default(value)
        try:
            return self.named(value.get(self.tag, default), info).model_validate(
                value, context=info.context
            )
        except (ConfigError, ValidationError):
            if not is_from_result(info):
                raise
            return part_of_result(**next(iter(self.kinds.values()))).model_validate(
                value, context=info.context
            )


class AlgorithmPart(Described):
    """`algorithm`: a method with its keys; its rule is what `learning` says."""

    name: str

    def build(
        self, workers: int = 1, rule: simulator.Rule | None = None, **given: Any
    ) -> simulator.Algorithm:
        learns = "rule" in signature(type(self).recipe).parameters
        learning = {"rule": rule or simulator.Rule()} if learns else {}
        algorithm: simulator.Algorithm = super().build(workers, **learning, **given)
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


CLIP = NamedChoice.of("name", CLIPS, lambda given: "value" if "value" in given else "norm", Clip)
OneSchedule = Annotated[Any, BeforeValidator(SCHEDULE)]
Schedules = Annotated[
    Annotated[OneSchedule, Tag("one")]
    | Annotated[list[OneSchedule], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list) else "one"),
]
"""A schedule, or a list of them."""


class LearningPart(Described):
    """`learning`: an optimiser with its keys, and the rest of the rule.

    An optimiser with a `weight_decay` of its own, such as AdamW, has that instead of the rule's.

    Attributes:
        seed: of initial weights and mini-batches, where it differs from the run's.
    """

    replaceable: ClassVar[frozenset[str]] = frozenset({"weight_decay"})
    describes = (simulator.Rule,)
    optimizer: str
    lr: Finite = 0.05
    schedule: Schedules = Field("constant", validate_default=True)
    compensation: Annotated[Any, BeforeValidator(COMPENSATION)] = Field(
        "none", validate_default=True
    )
    clip: Annotated[Any, BeforeValidator(CLIP)] = Field("none", validate_default=True)
    weight_decay: Finite = 0.0
    seed: Seed | None = None

    @property
    def parts(self) -> dict[str, Described]:
        """The parts of the rule but for the optimiser, by their dotted keys below `learning`."""
        several = isinstance(self.schedule, list)
        each = (
            {f"schedule.{place}": one for place, one in enumerate(self.schedule)} if several else {}
        )
        return {
            **(each or {"schedule": self.schedule}),
            "compensation": self.compensation,
            "clip": self.clip,
        }

    def build(self, workers: int = 1, **given: Any) -> simulator.Rule:
        """The rule, with `given` at dotted keys below `learning` instead of the part's own
        values.
        """
        parts = self.parts
        own: dict[str, dict[str, Any]] = {owner: {} for owner in ("", *parts)}
        for key, value in given.items():
            owner, _, name = key.rpartition(".")
            own[owner][name] = value
        numbers = {key: own[""].pop(key, getattr(self, key)) for key in self._numbers()}
        built = {place: part.build(workers, **own[place]) for place, part in parts.items()}
        compensation, clip = built.pop("compensation"), built.pop("clip")
        schedule = (
            Chained(list(built.values())) if isinstance(self.schedule, list) else built["schedule"]
        )
        optimizer = super().build(workers, **own[""])
        return simulator.Rule(
            optimizer, schedule=schedule, compensation=compensation, clip=clip, **numbers
        )

    def per_member(self, key: str) -> bool:
        """Whether the dotted `key` below `learning` may differ among the members of one
        ensemble.
        """
        owner, _, name = key.rpartition(".")
        of = {"": self, **self.parts}.get(owner)
        return key in ("seed", *self._numbers()) or (of is not None and name in of.scalars)

    def _numbers(self) -> list[str]:
        """The keys of the rule's own numbers."""
        return [key for key in ("lr", "weight_decay") if key not in self.settings]


LEARNING = NamedChoice.of("optimizer", OPTIMIZERS, "sgd", Optimizer, base=LearningPart)
StopPart = part(simulator.Stop)
Accuracy = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
TARGET = "test accuracy (0 to 1) of which tables and figures say when it was reached"
EvaluatePart = part(
    simulator.Evaluate,
    target_accuracy=(Annotated[Accuracy | None, Field(description=TARGET)], None),
)
RecordPart = part(simulator.Record)
