"""Parts of a config, made from the dataclasses that they describe: a new law or method needs no line of schema."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from inspect import isclass, signature
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)
from torch import Tensor

from experiments.errors import unknown_key

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # tables and manifests hold 64 bits
Key = tuple[Any, Any]
"""A key's type and its default; `...` where it has none."""


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
