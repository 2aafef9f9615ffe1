"""Parts of a config, made from dataclasses and functions.

`part(recipe, tag, name)` makes a pydantic model with one key for each argument of `recipe`:

1. The argument's type says what the key may hold (`field_type`): a sequence is a list, a dataclass
   a part, numbers are finite, and a tensor is left out, since YAML cannot spell it.
2. The argument's default is the key's. Without one the key is required.
3. Beside a key that names a file, `file` or `..._file`, a key `..._sha256` holds the file's hash.
4. A number whose docstring names its unit may be text with a unit, as `10 ms` (`quantity_type`).
5. The key `tag` holds the constant `name`, as `law: gamma` does.

`Part.build()` calls the recipe with the values of the keys. Parsing a config builds each part once,
so that the recipe's own checks refuse values out of range. `NamedChoice` (`parts.py`) chooses among
parts by their tag. The configs of a grid share most parts: those are parsed once (`parse_once`).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from inspect import Parameter, isclass, signature
from operator import or_
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails

from laggard.experiments.config.errors import (
    UNEXPECTED,
    ConfigError,
    describe_failure,
    format_value,
    unknown_key,
)
from laggard.experiments.config.files import absolute_path, hash_of, is_from_result, names_file
from laggard.simulator.errors import InvalidSettingError
from laggard.units import EXPECTED_FORMS, OWN_UNITS, quantities_of, read_quantity

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # tables and manifests store 64 bits
FileHash = Annotated[
    str | None, Field(description="SHA-256 of the file; a file with another hash is refused")
]
Key = tuple[Any, Any]
"""A key's type and its default; `...` where it has none."""


class PerMember:
    """Stands for torch's tensor in the type of a key that may differ among members.

    So a config is read without torch.
    """


class Part(BaseModel):
    """A mapping in a config: typed strictly, frozen, without unknown keys.

    Attributes:
        recipe: the dataclass or function that the part describes, if any.
        describes: other classes whose docstrings explain keys.
        settings: the keys that are arguments of the recipe.
        scalars: the settings that may be one number per member of an ensemble.
        files: the keys that name a file.
        replaceable: keys that a plugin in this place may define itself.
        plugin: the name of the plugin that the part describes; empty for an entry of a table.
        shared: whether the configs of a grid share equal parts.
    """

    recipe: ClassVar[Callable[..., Any] | None] = None
    describes: ClassVar[Sequence[type]] = ()
    settings: ClassVar[frozenset[str]] = frozenset()
    scalars: ClassVar[frozenset[str]] = frozenset()
    files: ClassVar[frozenset[str]] = frozenset()
    replaceable: ClassVar[frozenset[str]] = frozenset()
    plugin: ClassVar[str] = ""
    shared: ClassVar[bool] = True
    # `defer_build`: most of the parts are never used by a config
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    def build(self, workers: int = 1, **overrides: Any) -> Any:
        """The object that the part describes, with `overrides` instead of the part's own values.

        Raises:
            InvalidSettingError: a value is out of range, or a file has changed since the config
                was read.
        """
        recipe: Any = type(self).recipe
        return recipe(**{**self.recipe_arguments(workers), **overrides})

    def recipe_arguments(self, workers: int = 1) -> dict[str, Any]:
        """The arguments of the recipe; a number of `workers` without a value is the cluster's.

        Raises:
            InvalidSettingError: a file has changed since the config was read.
        """
        for key in self.files:
            self._hash(key)
        arguments = {name: build_value(getattr(self, name)) for name in self.settings}
        arguments |= self.model_extra or {}
        if arguments.get("workers", workers) is None:
            arguments["workers"] = workers
        return arguments

    def _hash(self, key: str) -> str | None:
        """SHA-256 of the file that `key` names, compared with the stored hash, if any."""
        path = getattr(self, key)
        expected = getattr(self, f"{key}_sha256")
        if path is None:
            return None
        owner = type(self).__name__
        try:
            digest = hash_of(Path(path))
        except (OSError, ValueError) as error:
            problem = f"{path}: {getattr(error, 'strerror', None) or error}"
            raise InvalidSettingError(owner, key, "a file that can be read", problem) from None
        if expected not in (None, digest):
            problem = f"{path}: {digest}"
            raise InvalidSettingError(owner, key, f"a file whose SHA-256 is {expected}", problem)
        return digest

    # Stands above `_parse`, which is the outer validator by that: a part from the cache has passed.
    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Note the hashes of files, and check ranges."""
        if is_from_result(info):
            return self
        for key in self.files:
            # Written past pydantic, which would count the key as set: another file may take the
            # place of this one.
            self.__dict__[f"{key}_sha256"] = self._hash(key)
        self.check_ranges()
        return self

    def check_ranges(self) -> None:
        """Build the part, so that its own checks refuse values out of range.

        Raises:
            InvalidSettingError: a value is out of range.
        """
        if isclass(type(self).recipe):  # a function may be costly: it is called when a run starts
            self.build()

    @model_validator(mode="wrap")
    @classmethod
    def _parse(
        cls, document: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if not isinstance(document, Mapping):
            return handler(document)
        if not cls.shared:
            return cls._parse_keys(document, handler)
        parsed: Self = parse_once(cls, document, info, lambda: cls._parse_keys(document, handler))
        return parsed

    @classmethod
    def _parse_keys(
        cls, document: Mapping[Any, Any], handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        """Refuse unknown keys together with all problems of the other keys."""
        known = cls.model_fields
        unknown = [key for key in document if key not in known]
        if not unknown or cls.model_config["extra"] != "forbid":
            return handler(document)
        names = [key for key in known if not key.endswith("_sha256")]
        problems: list[InitErrorDetails] = []
        for key in unknown:
            error = unknown_key(str(key), names)
            location: tuple[int | str, ...] = ()
            if isinstance(key, int | str):  # the location then names the key
                location = (key,)
                error = ConfigError("", error.problem)
            problems.append(
                {"type": "value_error", "loc": location, "input": document, "ctx": {"error": error}}
            )
        try:
            handler({key: value for key, value in document.items() if key in known})
        except ValidationError as others:
            for item in others.errors(include_url=False):
                # A problem of the part as a whole, such as a missing limit, may follow from the
                # unknown key.
                if item["loc"]:
                    problems.append(cast(InitErrorDetails, item))
        raise ValidationError.from_exception_data(cls.__name__, problems)


def parse_once(key: Any, value: Any, info: ValidationInfo, parse: Callable[[], Any]) -> Any:
    """The result of `parse` for a value, which the configs of a grid share where it is equal.

    Args:
        key: distinguishes the parts that a value may be parsed as.

    Raises:
        ConfigError: the value cannot be built.
    """
    cache = None
    if info.context is not None:
        cache = info.context.get("cache")
    try:
        if cache is None:
            return parse()
        # As text, since mappings cannot be hashed. The text of a `FileName` is its absolute path.
        text = (key, repr(value))
        if text not in cache:
            cache[text] = parse()
        return cache[text]
    except UNEXPECTED as error:
        raise ConfigError("", describe_failure(error)) from None


def build_value(value: Any) -> Any:
    """A key's value as the recipe wants it: parts, also in a list, become what they describe."""
    if isinstance(value, Part):
        return value.build()
    if isinstance(value, list):
        return [build_value(item) for item in value]
    return value


def keys(recipe: Callable[..., Any], without: Sequence[str] = ()) -> dict[str, Key]:
    """The types and defaults of the arguments of a dataclass, class or function.

    An argument without an annotation has the type of its default.

    Raises:
        TypeError: an argument has neither.
    """
    hints = type_hints(recipe)
    quantities = quantities_of(recipe)
    factories = {}
    if is_dataclass(recipe):
        factories = {field.name: field.default_factory for field in fields(recipe)}
    result: dict[str, Key] = {}
    for name, parameter in signature(recipe).parameters.items():
        if name in without or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        factory = factories.get(name, MISSING)
        if factory is not MISSING:
            default = factory()
        if isinstance(default, tuple):
            default = list(default)
        hint = hints.get(name, type(default))
        if hint in (type, type(None)):
            raise TypeError(f"{name} has no type: annotate it")
        if name == "seed" and hint is int:
            hint = Seed
        key_default = ... if default is Parameter.empty else default
        key_type = field_type(hint, default)
        if name in quantities and is_number(hint):
            key_type = quantity_type(key_type, quantities[name])
        result[name] = (key_type, key_default)
    return result


def type_hints(recipe: Callable[..., Any]) -> dict[str, Any]:
    """The types of the arguments of a dataclass or function, and of a function's result."""
    function = recipe.__init__ if isclass(recipe) else recipe
    return get_type_hints(function, localns={"Tensor": PerMember})


def is_tensor(hint: Any) -> bool:
    """Whether a type is torch's tensor, if torch is imported, or its stand-in."""
    torch = sys.modules.get("torch")
    return hint is PerMember or hint is getattr(torch, "Tensor", PerMember)


def field_type(hint: Any, default: Any = None) -> Any:
    """A type that YAML can fill: no tensors, sequences as lists, numbers finite unless the default
    is not.
    """
    if hint is float:
        return float if default == float("inf") else Finite
    if get_origin(hint) in (Union, UnionType):
        branches = [branch for branch in get_args(hint) if not is_tensor(branch)]
        return reduce(or_, [field_type(branch, default) for branch in branches])
    if isclass(hint) and is_dataclass(hint):
        return part(hint)
    if get_origin(hint) is Sequence:
        (item,) = get_args(hint)
        return list[field_type(item)]  # type: ignore[misc]
    return hint


def is_number(hint: Any) -> bool:
    """Whether a type is a number, a list of numbers, or either of them or None."""
    if get_origin(hint) in (Annotated, Sequence):
        return is_number(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        branches = [branch for branch in get_args(hint) if not is_tensor(branch)]
        return all(branch is type(None) or is_number(branch) for branch in branches)
    return hint in (float, int)


def quantity_type(hint: Any, quantity: str) -> Any:
    """A type of numbers, or lists of them, that takes a number as text with its unit, and whose
    errors name the unit.

    Args:
        quantity: the quantity of the numbers, as in `laggard.units`.
    """

    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]
    lists = [one for one in types if get_origin(one) is list]

    def number_of(value: Any, place: str) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return read_quantity(value, quantity)
        except ValueError as error:
            raise ConfigError(place, str(error)) from None

    def read(value: Any, handler: Callable[[Any], Any]) -> Any:
        if lists and isinstance(value, list):
            value = [number_of(item, str(index)) for index, item in enumerate(value)]
        else:
            value = number_of(value, "")
        try:
            return handler(value)
        except ValidationError:
            expected = EXPECTED_FORMS[quantity]
            if set(types) <= {*lists, type(None)}:
                expected = f"a list of numbers ({OWN_UNITS[quantity]})"
            raise ConfigError("", f"expected {expected}, got {format_value(value)}") from None

    return Annotated[hint, WrapValidator(read)]


def part(
    recipe: Callable[..., Any],
    tag: str = "",
    name: str = "",
    base: type[Part] = Part,
    without: Sequence[str] = (),
    **more: Key,
) -> type[Part]:
    """A part for `recipe`, called `name` under the key `tag`.

    Args:
        without: arguments that are not keys.
        more: further keys, or other types of arguments.
    """
    arguments = keys(recipe, without)
    if arguments.get("workers", (int, 0))[1] is ...:
        arguments["workers"] = (int | None, None)  # by default the cluster's
    files = frozenset(filter(names_file, arguments))
    for key in files:
        hint, default = arguments[key]
        arguments[key] = (Annotated[hint, BeforeValidator(absolute_path)], default)
    shape: dict[str, Any] = {}
    if tag:
        shape[tag] = (Literal[name], name)
    shape |= arguments
    shape |= {f"{key}_sha256": (FileHash, None) for key in arguments if key in files}
    shape |= more
    if any(item.kind is Parameter.VAR_KEYWORD for item in signature(recipe).parameters.values()):

        class OpenPart(base):  # type: ignore[valid-type, misc]
            """A part with further keys, which its recipe checks."""

            model_config = ConfigDict(extra="allow")

        base = OpenPart
    model: type[Part] = create_model(
        f"{recipe.__name__}Part", __base__=base, __doc__=recipe.__doc__, **shape
    )
    hints = type_hints(recipe)
    tensors = {key for key, hint in hints.items() if any(map(is_tensor, get_args(hint)))}
    model.recipe = recipe
    model.settings = frozenset(arguments)
    model.scalars = model.settings & tensors
    model.files = base.files | files
    return model
