"""Parts of a config, generated from the dataclasses that they describe: new laws and methods need
no schema.
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
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails

from laggard.experiments.config.errors import UNEXPECTED, ConfigError, describe_failure, unknown_key
from laggard.experiments.config.files import absolute_path, hash_of, is_from_result, names_file
from laggard.simulator.errors import InvalidSettingError

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # tables and manifests store 64 bits
FileHash = Annotated[
    str | None, Field(description="SHA-256 of the file; a file with another one is refused")
]
Key = tuple[Any, Any]
"""A key's type and its default; `...` where it has none."""


class PerMember:
    """Stands for torch's tensor in the type of a key that may differ among members: a config is
    read without torch.
    """


class Part(BaseModel):
    """A mapping in a config: typed strictly, frozen, without unknown keys.

    Attributes:
        describes: classes besides its recipe whose docstrings say what its keys mean.
    """

    describes: ClassVar[Sequence[type]] = ()
    # when first used
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _known(cls, document: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse unknown keys together with all that is wrong with the others."""
        own = cls.model_fields
        if (
            not isinstance(document, Mapping)
            or cls.model_config["extra"] != "forbid"
            or own.keys() >= document.keys()
        ):
            return handler(document)
        named = [known for known in own if not known.endswith("_sha256")]
        problems: list[InitErrorDetails] = []
        for key in (key for key in document if key not in own):
            error = unknown_key(str(key), named)
            # each at a place of its own, which names the key
            if place := (key,) if isinstance(key, int | str) else ():
                error = ConfigError("", error.problem)
            problems.append(
                {"type": "value_error", "loc": place, "input": document, "ctx": {"error": error}}
            )
        try:
            handler({key: value for key, value in document.items() if key in own})
        except ValidationError as others:
            problems += [cast(InitErrorDetails, item) for item in others.errors(include_url=False)]
        raise ValidationError.from_exception_data(cls.__name__, problems)


class Described(Part):
    """The part that fills one dataclass, or the arguments of one function.

    Attributes:
        recipe: the dataclass or function.
        settings: those of its keys that the part holds.
        scalars: those that may be one number per member of an ensemble.
        files: those that name a file; beside each of them, `<key>_sha256` is the hash of what it
            holds.
        replaceable: keys of a kind of parts in whose place an entry of one's own may have a key of
            its own.
    """

    recipe: ClassVar[Callable[..., Any]]
    settings: ClassVar[frozenset[str]]
    scalars: ClassVar[frozenset[str]]
    files: ClassVar[frozenset[str]] = frozenset()
    replaceable: ClassVar[frozenset[str]] = frozenset()

    def build(self, workers: int = 1, **given: Any) -> Any:
        """What the part describes, with `given` instead of its own values, for a cluster of so many
        workers.

        Raises:
            InvalidSettingError: a value out of its range, or a file that has changed since the
                config was read.
        """
        return type(self).recipe(**self.recipe_arguments(workers) | given)

    def recipe_arguments(self, workers: int = 1) -> dict[str, Any]:
        """What the recipe is called with, for a cluster of so many workers.

        Raises:
            InvalidSettingError: a file has changed since the config was read.
        """
        for key in self.files:
            self._hash(key)
        own = {name: build_value(getattr(self, name)) for name in self.settings}
        if own.get("workers", workers) is None:
            own["workers"] = workers
        return own

    def _hash(self, key: str) -> str | None:
        """SHA-256 of the file that `key` names, which is the one that its own key says, where it
        does.
        """
        path, said = getattr(self, key), getattr(self, f"{key}_sha256")
        if path is None:
            return None
        try:
            found = hash_of(Path(path))
        except (OSError, ValueError) as error:
            problem = f"{path}: {getattr(error, 'strerror', None) or error}"
            raise InvalidSettingError(
                type(self).__name__, key, "a file that can be read", problem
            ) from None
        if said not in (None, found):
            raise InvalidSettingError(
                type(self).__name__, key, f"a file whose SHA-256 is {said}", f"{path}: {found}"
            )
        return found

    @model_validator(mode="after")
    def _hash_files(self, info: ValidationInfo) -> Self:
        for key in () if is_from_result(info) else self.files:
            # not `set`: another file may take its place
            self.__dict__[f"{key}_sha256"] = self._hash(key)
        return self

    @model_validator(mode="after")
    def _in_range(self, info: ValidationInfo) -> Self:
        # a function may be costly: it is called when the run starts
        if isclass(type(self).recipe) and not is_from_result(info):
            self.build()
        return self


def build_value(value: Any) -> Any:
    """A key's value as the dataclass wants it: parts, and lists of them, become what they
    describe.
    """
    if isinstance(value, Described):
        return value.build()
    if isinstance(value, list):
        return [one.build() if isinstance(one, Described) else one for one in value]
    return value


def make_once(
    value: Any, make: Callable[[Any], Any], info: ValidationInfo, place: Any = None
) -> Any:
    """The result of `make` for a value at one place of a config; computed once per grid for equal
    values.
    """
    known = info.context.get("known") if info.context else None
    if isinstance(value, Part):
        return make(value)
    try:
        if known is None:
            return make(value)
        said = (place or info.field_name, repr(value))
        if said not in known:
            known[said] = make(value)
        return known[said]
    except UNEXPECTED as error:
        raise ConfigError("", describe_failure(error)) from None


def fill_defaults(model: type[Part]) -> BeforeValidator:
    """The validator of a key that holds a `model`, which may be made at run time; as in
    `make_once`.
    """

    def validate(value: Any, info: ValidationInfo) -> Any:
        return make_once(
            value, lambda given: model.model_validate(given, context=info.context), info
        )

    validate.model = model  # type: ignore[attr-defined]  # for the JSON schema
    return BeforeValidator(validate)


def keys(recipe: Callable[..., Any], without: Sequence[str] = ()) -> dict[str, Key]:
    """The config keys of a dataclass, class or function, `without` some: their types and defaults.

    An argument without an annotation has its default's type.

    Raises:
        TypeError: an argument has neither.
    """
    hints = type_hints(recipe)
    made = (
        {field.name: field.default_factory for field in fields(recipe)}
        if is_dataclass(recipe)
        else {}
    )
    found: dict[str, Key] = {}
    for name, parameter in signature(recipe).parameters.items():
        if name in without or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        factory = made.get(name, MISSING)
        default = factory() if factory is not MISSING else parameter.default
        default = list(default) if isinstance(default, tuple) else default
        hint = hints.get(name, type(default))
        if hint in (type, type(None)):
            raise TypeError(f"{name} has no type: annotate it")
        hint = Seed if name == "seed" and hint is int else hint
        found[name] = (field_type(hint, default), ... if default is parameter.empty else default)
    return found


def type_hints(recipe: Callable[..., Any]) -> dict[str, Any]:
    """The types of the arguments of a dataclass or function, and of what a function returns."""
    return get_type_hints(
        recipe.__init__ if isclass(recipe) else recipe, localns={"Tensor": PerMember}
    )


def is_tensor(hint: Any) -> bool:
    """Whether a type is a tensor: torch's, which none is unless torch is imported, or what stands
    for it.
    """
    return hint is PerMember or hint is getattr(sys.modules.get("torch"), "Tensor", PerMember)


def field_type(hint: Any, default: Any = None) -> Any:
    """A type hint as YAML can fill it: no tensors, sequences as lists, numbers finite unless the
    default is not.
    """
    if hint is float:
        return float if default == float("inf") else Finite
    if get_origin(hint) in (Union, UnionType):
        return reduce(
            or_, (field_type(branch, default) for branch in get_args(hint) if not is_tensor(branch))
        )
    if isclass(hint) and is_dataclass(hint):
        return part(hint)
    if get_origin(hint) is Sequence:
        (item,) = get_args(hint)
        return list[part(item) if isclass(item) and is_dataclass(item) else field_type(item)]  # type: ignore[misc]
    return hint


def part(
    recipe: Callable[..., Any],
    tag: str = "",
    name: str = "",
    base: type[Described] = Described,
    without: Sequence[str] = (),
    **more: Key,
) -> type[Described]:
    """A part for `recipe`, called `name` under the key `tag`; `without` some of its keys, with
    `more` beside them.

    A number of `workers` that has no default is the cluster's, unless it is given.
    """
    own = keys(recipe, without)
    if own.get("workers", (int, 0))[1] is ...:
        own["workers"] = (int | None, None)
    files = frozenset(filter(names_file, own))
    own |= {
        key: (Annotated[own[key][0], BeforeValidator(absolute_path)], own[key][1]) for key in files
    }
    hashes: dict[str, Key] = {f"{key}_sha256": (FileHash, None) for key in own if key in files}
    shape: dict[str, Any] = {
        **({tag: (Literal[name], name)} if tag else {}),
        **own,
        **hashes,
        **more,
    }
    model: type[Described] = create_model(
        f"{recipe.__name__}Part", __base__=base, __doc__=recipe.__doc__, **shape
    )
    model.recipe, model.settings, model.files = recipe, frozenset(own), base.files | files
    tensors = {
        key for key, hint in type_hints(recipe).items() if any(map(is_tensor, get_args(hint)))
    }
    model.scalars = model.settings & tensors
    return model
