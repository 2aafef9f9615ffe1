"""Plugins of `__main__` (a script, a notebook): their hashes, and passing them to processes.

No other process can import them, so they are pickled by value.
"""

import json
import pickle
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from inspect import getsource, isclass, isfunction, unwrap
from io import BytesIO
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar

import cloudpickle

from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.config.schema import Part

MAIN = "__main__"
Recipe = Callable[..., Any]
Definition = tuple[Recipe, str]
"""A class or function, and the hash of its source."""
_received: dict[str, Definition] = {}


# --- hashes


def hash_of_definition(recipe: Recipe, hash_of_module: Callable[[str], str]) -> str:
    """SHA-256 of the source of a class or function, and of all it uses from the same module.

    For a function without a source, as under `python -c`, the bytecode is hashed.

    Args:
        hash_of_module: the hash of an imported module, by its name.
    """
    source = b""
    seen: set[int] = set()
    pending: list[Any] = [recipe]
    while pending:
        item = pending.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        module = getattr(item, "__module__", None)
        if isinstance(item, ModuleType):
            source += hash_of_module(item.__name__).encode()
        elif not isinstance(item, type | FunctionType):
            with suppress(TypeError, ValueError):  # other values have no text of their own
                source += json.dumps(item).encode()
        elif module != recipe.__module__:
            source += hash_of_module(str(module)).encode()
        else:
            for function in _functions_of(item):
                source += _source_of(function)
                pending += _globals_of(function)
            pending += _constants_of(item)
            pending += getattr(item, "__bases__", ())
    return sha256(source).hexdigest()


def _functions_of(item: Any) -> Iterator[FunctionType]:
    """The functions of a class, except those made by `dataclass`, or the function itself."""
    for value in [item, *vars(item).values()]:
        function = value
        if isinstance(value, property):
            function = value.fget
        elif isinstance(value, cached_property):
            function = value.func
        elif isinstance(value, staticmethod | classmethod):
            function = value.__func__
        if isfunction(function) and "__create_fn__" not in function.__code__.co_qualname:
            yield unwrap(function)


def _source_of(function: FunctionType) -> bytes:
    with suppress(OSError, TypeError):
        return getsource(function).encode()
    return repr(_content(function.__code__)).encode()


def _content(code: CodeType) -> tuple[Any, ...]:
    """The content of a function's code, without its file and line."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_content(constant))
        elif isinstance(constant, frozenset):
            constants.append(sorted(map(repr, constant)))  # in an order that no seed changes
        else:
            constants.append(constant)
    return code.co_code, code.co_names, code.co_varnames, constants


def _globals_of(function: FunctionType) -> list[Any]:
    """The global values that a function refers to."""
    namespace = function.__globals__
    return [namespace[name] for name in _global_names(function.__code__) if name in namespace]


def _global_names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _global_names(constant)
    return names


def _constants_of(item: Any) -> list[Any]:
    """The values in the body of a class that are neither fields nor functions."""
    if not isclass(item):
        return []
    names = set()
    if is_dataclass(item):
        names = {field.name for field in fields(item)}
    return [
        value
        for name, value in vars(item).items()
        if name not in names and not name.startswith("__") and not isfunction(value)
    ]


# --- other processes


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Preserves `dataclasses.MISSING`, which dataclasses compare by identity."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {type(MISSING): lambda _: "MISSING"}, cloudpickle.Pickler.dispatch_table
    )


def _dump(value: Any) -> bytes:
    file = BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def pack_plugins(parts: Iterable[Part]) -> bytes:
    """The pickled plugins of `__main__` in `parts` and their keys, for `receive_plugins`.

    Raises:
        ConfigError: one of them cannot be pickled.
    """
    packed: dict[str, tuple[Definition, Mapping[str, Any]]] = {}
    for part in parts:
        for key, plugin in _plugins_in(part):
            recipe: Any = type(plugin).recipe
            definition = recipe, plugin.sha256
            entry = definition, _names_in_annotations(recipe)
            try:
                # Each one alone, to tell which of them cannot be pickled.
                _dump(entry)
            except Exception as error:  # whatever the plugin's own values raise
                problem = f"{plugin.plugin} cannot be passed to other processes"
                cause = f"put it in a module ({error_line(error)})"
                raise ConfigError(key, f"{problem}: {cause}") from None
            packed[plugin.plugin] = entry
    return _dump(packed)


# Cached, since every job of a worker process brings the same plugins.
@lru_cache(maxsize=4)
def receive_plugins(packed: bytes) -> None:
    """Unpack the plugins of another process's `__main__` for this process."""
    for name, ((recipe, digest), names) in pickle.loads(packed).items():
        annotated: Any = recipe.__init__ if isclass(recipe) else recipe
        if isfunction(annotated):
            annotated.__globals__.update(names)
        _received[name] = recipe, digest


def received(name: str) -> Definition | None:
    """The plugin called `name`, if another process has passed it."""
    return _received.get(name)


def _plugins_in(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The plugins of `__main__` in a part, by the dotted keys of their names."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _plugins_in(item, f"{place}{index}.")
    if not isinstance(part, Part):
        return
    if part.plugin.partition(":")[0] == MAIN:
        tag = next(key for key in type(part).model_fields if getattr(part, key) == part.plugin)
        yield f"{place}{tag}", part
    for key in type(part).model_fields:
        yield from _plugins_in(getattr(part, key), f"{place}{key}.")


def _names_in_annotations(recipe: Any) -> dict[str, Any]:
    """The values of `__main__` that annotations name as text; a pickle does not contain them."""
    annotated = recipe.__init__ if isclass(recipe) else recipe
    namespace = vars(sys.modules[MAIN])
    if getattr(annotated, "__globals__", None) is not namespace:
        return {}
    texts = [item for item in annotated.__annotations__.values() if isinstance(item, str)]
    names = re.findall(r"\w+", " ".join(texts))
    return {name: namespace[name] for name in names if name in namespace}
