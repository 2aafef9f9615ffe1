"""Entries of one's own: `package.module:Name`, wherever a config names an entry of a table."""

import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from inspect import getsource, isclass, isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, get_type_hints

from laggard.experiments.config.errors import ConfigError, format_value, suggest
from laggard.experiments.config.files import hash_of
from laggard.experiments.config.sources import FOLDERS, forget, hash_of_sources, source_files
from laggard.models import TorchModule

_hashes: dict[str, str] = {}  # of the sources of modules, as they were when they were loaded
_refused: list[bool] = []  # not empty within `refuse`


class Plugin(NamedTuple):
    """An entry of one's own: the class or function, what it serves as, and the SHA-256 of its
    module's sources.
    """

    recipe: Callable[..., Any]
    kind: type
    sha256: str


def look_in(*folders: Path) -> None:
    """From now on, modules are also looked for in `folders`.

    They go to the end of Python's path, for good: what a module imports while it runs is found
    there too.
    """
    for folder in folders:
        FOLDERS[folder] = None
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


@contextmanager
def refuse() -> Iterator[None]:
    """Within this context no module is imported for a config: one that names an entry of one's own
    is refused.
    """
    _refused.append(True)
    try:
        yield
    finally:
        _refused.pop()


def load_entry(name: str, kinds: Iterable[type]) -> Plugin:
    """What `module:Name` names in a config; a module is loaded anew if its source, or one that it
    imports, has changed.

    Args:
        kinds: what the entry may serve as: classes to derive from, protocols to fulfil, or what a
            function returns.

    Raises:
        ConfigError: there is no such module or name, the module cannot be imported, or the entry is
            of another kind.
    """
    place, _, attribute = name.partition(":")
    if not all(word.isidentifier() for word in (*place.split("."), attribute)):
        raise ConfigError(
            "", f"expected a name of the table or package.module:Name, got {format_value(name)}"
        )
    if _refused:
        raise ConfigError(
            "", f"expected a name of the table under --no-plugins, got {format_value(name)}"
        )
    module = _module(place)
    recipe = getattr(module, attribute, None)
    if recipe is None:
        hint = suggest(attribute, vars(module))
        file = getattr(module, "__file__", None) or "no file"
        raise ConfigError(
            "", f"{module.__name__} ({file}) has no {attribute}" + (f"; {hint}" if hint else "")
        )
    return Plugin(
        recipe, _kind(name, recipe, list(kinds)), _hashes.get(place) or _hash_functions(recipe)
    )


def _module(name: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        _forget_outdated(name)
        sources = _hash_module(name)
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            problem = f"no module {error.name} on Python's path, in the current directory or beside the config"
            raise ConfigError("", problem) from None
        raise ConfigError(
            "", f"{name} cannot be imported: {_describe_failure(error, name)}"
        ) from None
    _check_unique(name.partition(".")[0])
    if sources := sources or _hash_module(name):
        _hashes.setdefault(name, sources)
    return module


def _hash_module(name: str) -> str:
    """SHA-256 of the sources of a module, or of its file where Python's path leads to none; empty
    without a file.
    """
    file = getattr(sys.modules.get(name), "__file__", None)
    sources = "" if name == "__main__" else hash_of_sources(name)
    return sources or (hash_of(Path(file)) if file and Path(file).is_file() else "")


def _forget_outdated(name: str) -> None:
    """Forget modules whose sources have changed, and `name` if it was imported elsewhere, perhaps
    before a change.
    """
    outdated = {
        known
        for known, was in _hashes.items()
        if known in sys.modules and _hash_module(known) != was
    }
    loaded = str(getattr(sys.modules.get(name), "__file__", None))
    if name not in _hashes and loaded in {str(file) for file in source_files(name).values()}:
        outdated.add(name)
    forget(outdated - {"__main__"})
    for gone in outdated:
        _hashes.pop(gone, None)


def _check_unique(top: str) -> None:
    """Refuse a module that is not the one that lies in the current directory or beside a config."""
    loaded = getattr(sys.modules[top], "__file__", None)
    for folder in FOLDERS:
        for other in (folder / f"{top}.py", folder / top / "__init__.py"):
            if other.is_file() and loaded and not other.samefile(loaded):
                raise ConfigError(
                    "", f"{top} is {loaded}, and {other} is another: rename one of them"
                )


def _hash_functions(recipe: Any) -> str:
    """SHA-256 of the source of an entry's functions, where its module has no file, as in a
    notebook.
    """
    source = b""
    for function in [recipe, *vars(recipe).values()]:
        with suppress(OSError, TypeError):  # what a dataclass writes itself has no source
            source += getsource(function).encode() if isfunction(function) else b""
    return hashlib.sha256(source).hexdigest()


def _kind(name: str, recipe: Any, kinds: list[type]) -> type:
    """The first of `kinds` that `recipe` can serve as."""
    if isfunction(recipe):
        returned = get_type_hints(recipe).get("return")
        if returned in kinds:
            return returned  # type: ignore[no-any-return]
    wanted = " or ".join(f"{kind.__module__}.{kind.__name__}" for kind in kinds)
    if not isclass(recipe):
        raise ConfigError(
            "", f"expected a class that serves as {wanted}, but {name} is {format_value(recipe)}"
        )
    lacks = {kind: _find_missing(recipe, kind) for kind in kinds}
    fitting = [kind for kind, lacking in lacks.items() if not lacking]
    if not fitting:
        nearest = min(kinds, key=lambda kind: len(lacks[kind]))
        raise ConfigError(
            "", f"expected a class that serves as {wanted}, but {name} {lacks[nearest][0]}"
        )
    if not is_dataclass(recipe) and fitting[0] is not TorchModule:
        problem = f"{name} is no dataclass: write @dataclass(frozen=True) above it; its fields are its keys"
        raise ConfigError("", problem)
    return fitting[0]


def _find_missing(recipe: type, kind: type) -> list[str]:
    """The members that the class `recipe` lacks to serve as `kind`."""
    if not getattr(kind, "_is_protocol", False):
        return [] if issubclass(recipe, kind) else [f"does not derive from {kind.__name__}"]
    there = {
        name
        for base in recipe.__mro__
        for name in (*vars(base), *vars(base).get("__annotations__", {}))
    }
    asked = [
        name
        for base in kind.__mro__
        if base not in (object, Protocol) and getattr(base, "_is_protocol", False)
        for name in (*vars(base), *vars(base).get("__annotations__", {}))
        if name == "__call__" or not name.startswith("_")
    ]
    return [f"has no {name}" for name in dict.fromkeys(asked) if name not in there]


def _describe_failure(error: BaseException, module: str) -> str:
    """An error in one line: its type, its first line, and the last line of the module itself that
    led to it.
    """
    if isinstance(error, SyntaxError):
        where, line, text = error.filename, error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).stem == module.rpartition(".")[2]]
        last = (own or frames)[-1]
        where, line, text = last.filename, last.lineno, str(error)
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first} ({where}, line {line})"
