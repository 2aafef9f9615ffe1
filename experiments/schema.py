"""Parts of a config, made from the dataclasses that they describe: a new law or method needs no line of schema."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import reduce
from inspect import isclass, signature
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticUserError
from torch import Tensor

from experiments.errors import Refused, shown, unknown_key, unknown_name
from experiments.plugins import Entry, entry

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # tables and manifests hold 64 bits
Key = tuple[Any, Any]
"""A key's type and its default; `...` where it has none."""
SOURCE = "sha256"
"""The key, in a resolved config, of the hash of the source of an entry of one's own."""


class Part(BaseModel):
    """A mapping in a config: typed strictly, frozen, without unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, document: Any) -> Any:
        if isinstance(document, Mapping) and cls.model_config["extra"] == "forbid":
            for key in document:
                if key not in cls.model_fields:
                    raise unknown_key(str(key), cls.model_fields)
        return document


class Described(Part):
    """The part that fills one dataclass, or the arguments of one function.

    Attributes:
        recipe: the dataclass or function.
        settings: those of its keys that the part holds.
        scalars: those that may be one number per member of an ensemble.
    """

    recipe: ClassVar[Callable[..., Any]]
    settings: ClassVar[frozenset[str]]
    scalars: ClassVar[frozenset[str]]

    def build(self, workers: int = 1, **given: Any) -> Any:
        """What the part describes, with `given` instead of its own values, for a cluster of so many workers.

        Raises:
            Invalid: a value out of its range.
        """
        own = {name: built(getattr(self, name)) for name in self.settings}
        if own.get("workers", workers) is None:
            own["workers"] = workers
        return type(self).recipe(**own | given)

    @model_validator(mode="after")
    def _in_range(self, info: ValidationInfo) -> Self:
        if isclass(type(self).recipe) and not kept(info):  # a function may be costly: it is called when the run starts
            self.build()
        return self


def built(value: Any) -> Any:
    """A key's value as the dataclass wants it: lists of parts become lists of what they describe."""
    if isinstance(value, list):
        return [one.build() if isinstance(one, Described) else one for one in value]
    return value


def kept(info: ValidationInfo) -> bool:
    """Whether a config is read back from a result: its values were checked when it was run."""
    return bool(info.context and info.context.get("kept"))


def once(value: Any, make: Callable[[Any], Any], info: ValidationInfo, place: Any = None) -> Any:
    """What `make` makes of a value at one place of a config: made once, where a grid says the same again and again."""
    known = info.context.get("known") if info.context else None
    if known is None or isinstance(value, Part):
        return make(value)
    said = (place or info.field_name, repr(value))
    if said not in known:
        known[said] = make(value)
    return known[said]


def keys(recipe: Callable[..., Any]) -> dict[str, Key]:
    """The config keys of a dataclass or function: the type that a config may give, and the default."""
    hints = get_type_hints(recipe.__init__ if isclass(recipe) else recipe)
    made = {field.name: field.default_factory for field in fields(recipe)} if is_dataclass(recipe) else {}
    found: dict[str, Key] = {}
    for name, parameter in signature(recipe).parameters.items():
        factory = made.get(name, MISSING)
        default = factory() if factory is not MISSING else parameter.default
        default = list(default) if isinstance(default, tuple) else default
        hint = Seed if name == "seed" and hints[name] is int else hints[name]
        found[name] = (accepted(hint, default), ... if default is parameter.empty else default)
    return found


def accepted(hint: Any, default: Any = None) -> Any:
    """A type hint as YAML can fill it: no tensors, sequences as lists, numbers finite unless the default is not."""
    if hint is float:
        return float if default == float("inf") else Finite
    if get_origin(hint) in (Union, UnionType):
        branches = [accepted(branch, default) for branch in get_args(hint) if branch is not Tensor]
        return reduce(or_, branches)
    if get_origin(hint) is Sequence:
        (item,) = get_args(hint)
        return list[part(item) if is_dataclass(item) else accepted(item)]  # type: ignore[misc]
    return hint


def part(
    recipe: Callable[..., Any],
    tag: str = "",
    name: str = "",
    base: type[Described] = Described,
    without: Sequence[str] = (),
    **more: Key,
) -> type[Described]:
    """A part for `recipe`, called `name` under the key `tag`; `without` some of its keys, with `more` beside them.

    A number of `workers` that has no default is the cluster's, unless it is given.
    """
    own = {key: said for key, said in keys(recipe).items() if key not in without}
    if own.get("workers", (int, 0))[1] is ...:
        own["workers"] = (int | None, None)
    label = {tag: (Literal[name], name)} if tag else {}
    model = create_model(f"{recipe.__name__}Part", __base__=base, __doc__=recipe.__doc__, **label, **own, **more)
    hints = get_type_hints(recipe.__init__ if isclass(recipe) else recipe)
    model.recipe, model.settings = recipe, frozenset(own)
    model.scalars = frozenset(key for key in own if Tensor in get_args(hints[key]))
    return model


def own_part(entry: Entry, tag: str, name: str, base: type[Described] = Described, **shape: Any) -> type[Described]:
    """A part for an entry of one's own, which holds the hash of its source: another source makes another run.

    Raises:
        ValueError: it has fields that can be no keys of a config.
    """
    try:
        said = keys(entry.recipe)
        for key in said:
            if key in {tag, SOURCE, *base.model_fields, *shape} - set(shape.get("without", ())):
                raise ValueError(f"{key} is a key of the config's own: call the field something else")
        source = (Literal[entry.sha256], entry.sha256)
        return part(entry.recipe, tag, name, base, **shape, **{SOURCE: source})
    except (NameError, TypeError, PydanticUserError) as error:
        raise ValueError(f"its fields can be no keys of a config: {str(error).splitlines()[0]}") from None


def kept_part(base: type[Described] = Described, **_: Any) -> type[Described]:
    """A part for an entry of one's own in the config of a result, which is read without its source."""

    class KeptPart(base):  # type: ignore[valid-type, misc]
        model_config = ConfigDict(extra="allow")
        recipe, settings, scalars = dict, frozenset(), frozenset()

    return KeptPart


@dataclass(frozen=True)
class Choice:
    """One of several parts, named by a key of its own, as `law` names the law of compute times.

    Where that key is `name`, the name alone stands for the mapping {name: ...}. A name with a colon,
    `package.module:Name`, is an entry of one's own.

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
    _own: dict[tuple[str, Entry], type[Described]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, tag: str, table: Mapping[str, Callable[..., Any]], default: Any, kind: type, **shape: Any) -> "Choice":
        """The choice among the entries of a table, each a `kind`, with `part`'s further arguments."""
        return cls(
            tag, {name: part(recipe, tag, name, **shape) for name, recipe in table.items()}, default, {kind: shape}
        )

    def named(self, name: Any, info: ValidationInfo) -> type[Described]:
        """The part called `name`.

        Raises:
            Refused: there is none, and it can be imported from nowhere.
        """
        if isinstance(name, str) and name in self.parts:
            return self.parts[name]
        if not isinstance(name, str) or ":" not in name:
            raise unknown_name(self.tag, name, self.parts)
        if kept(info):
            return kept_part(**next(iter(self.kinds.values())))
        found = entry(self.tag, name, self.kinds)
        if (name, found) not in self._own:
            try:
                self._own[name, found] = own_part(found, self.tag, name, **self.kinds[found.kind])
            except ValueError as error:
                raise Refused(self.tag, f"{name}: {error}") from None
        return self._own[name, found]

    @property
    def type(self) -> Any:
        """The annotation of a field that holds the choice."""
        return Annotated[SerializeAsAny[Described], BeforeValidator(self)]

    def __call__(self, value: Any, info: ValidationInfo) -> Described:
        """The part that `value` describes.

        Raises:
            Refused: it is no mapping, or names nothing in the table and nothing that can be imported.
            ValidationError: the part that it names refuses it.
        """
        if isinstance(value, Described):
            return value
        return once(value, lambda said: self._made(said, info), info, place=id(self))  # type: ignore[no-any-return]

    def _made(self, value: Any, info: ValidationInfo) -> Described:
        if isinstance(value, str) and self.tag == "name":
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise Refused("", f"expected a mapping{' or a name' * (self.tag == 'name')}, got {shown(value)}")
        default = self.default if isinstance(self.default, str) else self.default(value)
        chosen = self.named(value.get(self.tag, default), info)
        return chosen.model_validate(value, context=info.context)
