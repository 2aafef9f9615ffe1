"""One of several parts, named by a key: an entry of a table, or of one's own, `package.module:Name`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, SerializeAsAny, ValidationInfo
from pydantic.errors import PydanticUserError

from experiments.errors import Refused, shown, unknown_name
from experiments.plugins import Entry, entry
from experiments.schema import Described, kept, keys, once, part

SOURCE = "sha256"
"""The key, in a resolved config, of the hash of the source of an entry of one's own."""


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
