"""Plugins: `package.module:Name`, wherever a config names an entry of a table.

A plugin is identified by the SHA-256 of its source: of the module that the config names, and of the
modules that it imports from its own folder, or from a folder of a config. Another source makes
another run, and a module whose source has changed since it was imported is imported again.
"""

import ast
import hashlib
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from importlib.util import cache_from_source
from inspect import isclass, isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_type_hints

from laggard.errors import members_of
from laggard.experiments.config.by_value import MAIN, hash_of_definition, received
from laggard.experiments.config.errors import ConfigError, error_line, format_value, suggest
from laggard.experiments.config.files import hash_of
from laggard.models import TorchModule

FOLDERS: dict[Path, None] = {}
"""Folders of plugins beside Python's own path: the current directory, and those of configs."""
STANDARD_LIBRARY = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
SITE_PACKAGES = {"site-packages", "dist-packages"}
NEVER_PLUGINS = {*sys.stdlib_module_names, "laggard", ""}
"""Packages that no plugin's hash covers, wherever they lie: the current directory may hold one."""
_hashes: dict[str, str] = {}  # hashes of modules by name, taken at their import
_refused: list[bool] = []  # not empty within `refuse`


class Plugin(NamedTuple):
    """A plugin's class or function, its kind, and the SHA-256 of its source."""

    recipe: Callable[..., Any]
    kind: type
    sha256: str


def look_in(*folders: Path) -> None:
    """Look for modules also in `folders` from now on.

    They stay at the end of Python's path, since a plugin may import while it runs.
    """
    for folder in folders:
        FOLDERS[folder] = None
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


@contextmanager
def refuse() -> Iterator[None]:
    """Import no plugins within this context: a config that names one is refused."""
    _refused.append(True)
    try:
        yield
    finally:
        _refused.pop()


def load_plugin(name: str, kinds: Iterable[type]) -> Plugin:
    """The plugin `module:Name`; a module whose source has changed is imported again.

    Args:
        kinds: the kinds that the plugin may have: a class to derive from, a protocol to fulfil, or
            a type that a function returns.

    Raises:
        ConfigError: the module or name is missing, the module cannot be imported, or the plugin
            serves as none of `kinds`.
    """
    module_name, _, attribute = name.partition(":")
    got = format_value(name)
    if not all(word.isidentifier() for word in (*module_name.split("."), attribute)):
        raise ConfigError("", f"expected a known name or package.module:Name, got {got}")
    if _refused:
        raise ConfigError("", f"expected a known name under `no_plugins`, got {got}")
    definition = received(name)
    if definition is not None:
        passed, sha256 = definition
        return Plugin(passed, _kind(name, passed, list(kinds)), sha256)
    module = _import_plugin(module_name)
    recipe = getattr(module, attribute, None)
    if recipe is None:
        file = getattr(module, "__file__", None) or "no file"
        problem = f"{module.__name__} ({file}) has no {attribute}"
        hint = suggest(attribute, vars(module))
        raise ConfigError("", "; ".join(filter(None, (problem, hint))))
    sha256 = _hashes.get(module_name) or hash_of_definition(recipe, hash_of_plugin)
    return Plugin(recipe, _kind(name, recipe, list(kinds)), sha256)


def _import_plugin(name: str) -> ModuleType:
    """The module `name`, imported again if its source has changed."""
    importlib.invalidate_caches()
    _forget_changed(name)
    sources = hash_of_sources(name)  # before the import, during which they may change
    if name not in sys.modules:
        _remove_bytecode(name)
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            places = "on Python's path, in the current directory or beside the config"
            raise ConfigError("", f"no module {error.name} {places}") from None
        problem = f"{name} cannot be imported: {_describe_failure(error, name)}"
        raise ConfigError("", problem) from None
    _check_unique(name.partition(".")[0])
    if sources:
        _hashes.setdefault(name, sources)
    return module


def _check_unique(package: str) -> None:
    """Refuse a module if a folder of a config holds another one of the same name."""
    loaded = getattr(sys.modules[package], "__file__", None)
    if not loaded:
        return
    for folder in FOLDERS:
        for file in (folder / f"{package}.py", folder / package / "__init__.py"):
            if file.is_file() and not file.samefile(loaded):
                problem = f"{package} is {loaded}, and {file} is another: rename one of them"
                raise ConfigError("", problem)


# --- sources


def hash_of_sources(name: str) -> str:
    """SHA-256 of a module's source and of the modules that it imports from its folder.

    Empty for a module without a file.

    Raises:
        OSError: a file cannot be read.
    """
    if name == MAIN:
        return ""
    files = source_files(name)
    hashes = [f"{file} {hash_of(path)}" for file, path in sorted(files.items())]
    if len(hashes) == 1:
        return hash_of(*files.values())
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if hashes else ""


def hash_of_plugin(name: str) -> str:
    """The hash of a module's sources; empty for laggard and for installed packages."""
    package = name.partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    if package in NEVER_PLUGINS or SITE_PACKAGES & set(Path(file).parts):
        return ""
    return hash_of_sources(name)


def source_files(name: str) -> dict[str, Path]:
    """The files of a module and of all that it imports from its folder or from those of configs.

    They are found by the names in import statements, without an import. Of an installed module only
    its own package counts.

    Returns:
        name relative to its folder on the path -> file; nothing for a module without a file.
    """
    path = [Path(entry).absolute() for entry in sys.path]
    root = next((folder for folder in path if _file_of(name, folder)), None)
    if root is None:  # imported in another way, or not yet there
        loaded = getattr(sys.modules.get(name), "__file__", None)
        return {name: Path(loaded)} if loaded and Path(loaded).is_file() else {}
    folders = [folder for folder in path if folder == root or folder in FOLDERS]
    package = ""
    if root in STANDARD_LIBRARY or root.name in SITE_PACKAGES:
        folders = [root]
        package = f"{name.partition('.')[0]}."
    files: dict[str, Path] = {}
    pending = [name]
    while pending:
        imported = pending.pop()
        if not f"{imported}.".startswith(package):
            continue
        for folder in folders:
            new = _files_on_import(imported, folder)
            for file in new:
                relative = file.relative_to(folder)
                if relative.as_posix() not in files:
                    files[relative.as_posix()] = file
                    pending += _imports(file, relative.parent.parts)
            if new:  # the first folder on the path counts, as for Python
                break
    return files


def _file_of(name: str, folder: Path) -> Path | None:
    """The file of a module with a dotted name below `folder`."""
    place = folder.joinpath(*name.split("."))
    for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if file.is_file():
            return file
    return None


def _files_on_import(name: str, folder: Path) -> list[Path]:
    """The files below `folder` that run when a dotted name is imported: also of its packages."""
    words = name.split(".")
    files = [_file_of(".".join(words[:depth]), folder) for depth in range(1, len(words) + 1)]
    return [file for file in files if file is not None]


def _imports(file: Path, package: tuple[str, ...]) -> list[str]:
    """The dotted names that a file of `package` imports, or that may be modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # importing it will fail
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            words = list(package[: len(package) - node.level + 1]) if node.level else []
            if node.module:
                words.append(node.module)
            base = ".".join(words)
            names += [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            names.append(base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = node.args[0].value
            if function in ("import_module", "__import__") and isinstance(name, str):
                names.append(name.lstrip("."))
    return [name for name in names if name.partition(".")[0] not in NEVER_PLUGINS]


def _forget_changed(name: str) -> None:
    """Remove modules whose source has changed from `sys.modules`, with all that they import.

    Remove `name` too if it was not imported as a plugin: its file may have changed before.
    """
    changed = {known for known, sources in _hashes.items() if hash_of_sources(known) != sources}
    loaded = str(getattr(sys.modules.get(name), "__file__", None))
    if name not in _hashes and loaded in map(str, source_files(name).values()):
        changed.add(name)
    changed.discard(MAIN)
    files = {str(file) for module in changed for file in source_files(module).values()}
    removed = set(changed)
    for module_name, module in sys.modules.items():
        if getattr(module, "__file__", None) in files:
            removed.add(module_name)
    for module_name in list(sys.modules):
        # with a package also its folders without a file, which Python finds by the package
        if any(f"{module_name}.".startswith(f"{package}.") for package in removed):
            del sys.modules[module_name]
    for module_name in changed:
        _hashes.pop(module_name, None)


def _remove_bytecode(name: str) -> None:
    """Remove the bytecode of a module and of what it imports from its folder.

    Otherwise Python would use it for a changed source of the same size and the same second.
    """
    for file in source_files(name).values():
        with suppress(OSError, NotImplementedError):
            Path(cache_from_source(file)).unlink()


# --- kinds


def _kind(name: str, recipe: Any, kinds: list[type]) -> type:
    """The first of `kinds` that `recipe` can serve as."""
    wanted = " or ".join(f"{kind.__module__}.{kind.__name__}" for kind in kinds)
    if isfunction(recipe):
        returned = get_type_hints(recipe).get("return")
        if returned in kinds:
            return returned  # type: ignore[no-any-return]
        got = getattr(returned, "__name__", None) or "no type"
        remedy = "or name a class that serves as one"
        expected = f"a function that returns {wanted}, by its annotation `-> ...`"
        raise ConfigError("", f"expected {expected}, got {name} with {got}: annotate it, {remedy}")
    expected = f"expected a class that serves as {wanted}, but {name}"
    if not isclass(recipe):
        raise ConfigError("", f"{expected} is {format_value(recipe)}")
    problems = {kind: _missing_members(recipe, kind) for kind in kinds}
    fitting = [kind for kind in kinds if not problems[kind]]
    if not fitting:
        nearest = min(problems.values(), key=len)
        raise ConfigError("", f"{expected} {nearest[0]}")
    if not is_dataclass(recipe) and fitting[0] is not TorchModule:
        remedy = "write @dataclass(frozen=True) above it; its fields are its keys"
        raise ConfigError("", f"expected a dataclass, got {name}: {remedy}")
    return fitting[0]


def _missing_members(recipe: type, kind: type) -> list[str]:
    """The members that the class `recipe` lacks to serve as `kind`, in words."""
    if not getattr(kind, "_is_protocol", False):
        return [] if issubclass(recipe, kind) else [f"does not derive from {kind.__name__}"]
    available = {name for base in recipe.__mro__ for name in _names_in(base)}
    return [f"has no {name}" for name in members_of(kind) if name not in available]


def _names_in(base: type) -> list[str]:
    return [*vars(base), *vars(base).get("__annotations__", {})]


def describe_failure_in_plugin(error: BaseException) -> str:
    """An error that arose in a plugin's code, in one line; empty for other errors."""
    files = {getattr(sys.modules.get(name), "__file__", None) for name in _hashes}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            places = [f"{frame.filename}, line {frame.lineno}"]
            # The engine notes the node and the virtual time of an error in a role.
            places += getattr(error, "__notes__", [])
            return f"{error_line(error)} ({'; '.join(places)})"
    return ""


def _describe_failure(error: BaseException, module: str) -> str:
    """An error in one line: its type, its first line, and the line of the module that led to it."""
    if isinstance(error, SyntaxError):
        file, line, text = error.filename, error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        stem = module.rpartition(".")[2]
        in_module = [frame for frame in frames if Path(frame.filename).stem == stem]
        last = (in_module or frames)[-1]
        file, line, text = last.filename, last.lineno, str(error)
    first_line = text.partition("\n")[0]
    return f"{type(error).__name__}: {first_line} ({file}, line {line})"
