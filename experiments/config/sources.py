"""The sources of modules of one's own: which files they are, their hash, and their import without
stale bytecode.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

FOLDERS: dict[Path, None] = {}
"""Where modules are looked for beside Python's own path: the current directory, the folders of
configs.
"""
STANDARD = {Path(sysconfig.get_path(which)) for which in ("stdlib", "platstdlib")}
_own: set[str] = set()  # files that are imported without bytecode


def source_files(name: str) -> dict[str, Path]:
    """The files that make a module: its own, and of its folder and beside configs all that it
    imports, also later.

    They are found without an import, in the order of Python's path, by the names that they import.
    Of a module that was installed, its own file alone counts.

    Returns:
        Name relative to its folder on the path -> file; nothing where the module has no source
        there.
    """
    path = [Path(entry).absolute() for entry in sys.path]
    root = next((folder for folder in path if _module_file(name, folder)), None)
    if root is None:
        return {}
    if root in STANDARD or root.name in ("site-packages", "dist-packages"):
        return {name: file} if (file := _module_file(name, root)) else {}
    own = [folder for folder in path if folder == root or folder in FOLDERS]
    left, found = [name], dict[str, Path]()
    while left:
        imported = left.pop()
        folder = next((folder for folder in own if _files_of(imported, folder)), root)
        for file in _files_of(imported, folder):
            relative = file.relative_to(folder)
            if relative.as_posix() not in found:
                found[relative.as_posix()] = file
                left += _imports(file.read_bytes(), relative.parent.parts)
    _own.update(map(str, found.values()))
    return found


def hash_of_sources(name: str) -> str:
    """SHA-256 of a module's source, or where it imports others of its folder, of them all; empty
    where there is none.

    Raises:
        OSError: one of them cannot be read.
    """
    each = {
        file: hashlib.sha256(path.read_bytes()).hexdigest()
        for file, path in sorted(source_files(name).items())
    }
    if len(each) < 2:
        return next(iter(each.values()), "")
    return hashlib.sha256("\n".join(map(" ".join, each.items())).encode()).hexdigest()


def _module_file(name: str, root: Path) -> Path | None:
    """The file below `root` of the module with a dotted name, if it is there."""
    place = root.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in files if file.is_file()), None)


def _files_of(name: str, root: Path) -> list[Path]:
    """The files below `root` that run when a dotted name is imported: those of its packages, and
    its own, if any.
    """
    words = name.split(".")
    each = (_module_file(".".join(words[:depth]), root) for depth in range(1, len(words) + 1))
    return [file for file in each if file is not None]


@lru_cache(maxsize=1024)
def _imports(source: bytes, package: Sequence[str]) -> list[str]:
    """The dotted names that a source imports, or that may be attributes of what it imports, but for
    Python's own.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # its import will say so
        return []
    names = [name for node in ast.walk(tree) for name in _imported_by(node, package)]
    return [
        name
        for name in names
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "laggard", ""}
    ]


def _imported_by(node: ast.AST, package: Sequence[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
        yield from [base] * bool(base)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value.lstrip(".")


def forget(names: set[str]) -> None:
    """Let the next import of these modules, and of all that they import of their folders, read the
    sources anew.
    """
    files = {str(file) for name in names for file in source_files(name).values()}
    gone = {
        name for name, module in sys.modules.items() if getattr(module, "__file__", None) in files
    } | names
    for name in list(sys.modules):
        # a package's folder without a file too
        if any(f"{name}.".startswith(f"{one}.") for one in gone):
            del sys.modules[name]


class _SourceLoader(SourceFileLoader):
    """A loader that reads no bytecode: where two sources are of one second and one size, that may
    be the older's.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _OwnSources:
    """Finds modules of one's own as Python does, and has them loaded by `_SourceLoader`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin not in _own:
            return None
        more: dict[str, Any] = {"submodule_search_locations": spec.submodule_search_locations}
        return spec_from_file_location(
            name, spec.origin, loader=_SourceLoader(name, spec.origin), **more
        )


sys.meta_path.insert(sys.meta_path.index(PathFinder), _OwnSources)
