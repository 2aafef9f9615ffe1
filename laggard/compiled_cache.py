"""Modules that numba compiles from a source: their cache in files, sealed by a hash.

`simulator` and `models` share this module; it imports neither.
"""

import hashlib
import inspect
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Result = TypeVar("Result")
# modification time of every source file: numba compiles again where it has changed
MODIFIED = 1_000_000_000
# seconds that a process waits for another that compiles the same source, which takes 10 to 30
MAX_WAIT = 120
CACHE_SEAL = ".sha256"


def decorate_functions(module: ModuleType, decorators: Mapping[str, str]) -> Iterator[str]:
    """The lines of a module's source, each function decorated; without imports of laggard.

    Args:
        decorators: the name of a function -> its decorator; `@compiled` for others.
    """
    text = re.sub(r"from laggard[^(]*\([^)]*\)", "", inspect.getsource(module))
    for line in text.splitlines():
        if match := re.match(r"def (\w+)", line):
            yield decorators.get(match[1], "@compiled")
        yield line


def compile_cached(text: str, compile_entries: Callable[[ModuleType], Result]) -> Result:
    """Compile `text` as a module, load its cache, or wait for a process that compiles it.

    The source is a file in the user's cache folder, beside which numba stores the compiled code;
    where the folder cannot be written, or a file there cannot be locked, everything stays in
    memory.

    Args:
        text: the source; `CACHED` in it says whether numba may store the compiled code.
        compile_entries: compiles the functions of the module that are to be called.

    Raises:
        ImportError: numba is not installed.
    """
    try:
        return _compile_once(text, compile_entries)
    # numba raises the latter where it cannot write beside the source
    except (OSError, RuntimeError):
        return compile_entries(execute_source(text))


def compile_functions(module: ModuleType, signatures: Mapping[str, str]) -> ModuleType:
    """Compile functions of a module, each for the types of its signature only.

    Args:
        signatures: the name of a function -> the types of its arguments, as numba writes them.
    """
    for name, arguments in signatures.items():
        function = getattr(module, name)
        function.compile(arguments)
        # Compiled for other types, as for an integer where a float is meant, the function would be
        # added to the files, and the next process would find their seal broken.
        function.disable_compile()
    return module


def _compile_once(text: str, compile_entries: Callable[[ModuleType], Result]) -> Result:
    """Do the work of `compile_cached` in files.

    numba executes whatever its files hold. So a file beside them, the seal, has their hash. Files
    without a valid seal are removed: they are damaged, or left by a killed process.
    """
    from filelock import FileLock

    path = source_path(text)
    if _is_sealed(path):
        return compile_entries(execute_source(text, path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), timeout=MAX_WAIT):
        if not _is_sealed(path):  # else the process that held the lock has compiled it
            for file in _cached_files(path):
                file.unlink()
            _write_whole(path, text)
        result = compile_entries(execute_source(text, path))
        _write_whole(path.with_suffix(CACHE_SEAL), _hash_of_cache(path))
    return result


def _is_sealed(path: Path) -> bool:
    seal = path.with_suffix(CACHE_SEAL)
    return seal.is_file() and seal.read_bytes() == _hash_of_cache(path).encode()


def _hash_of_cache(path: Path) -> str:
    """SHA-256 of a source file and of numba's files for it."""
    digest = hashlib.sha256()
    for file in [path, *_cached_files(path)]:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _cached_files(path: Path) -> list[Path]:
    return sorted((path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ic]"))


def execute_source(text: str, path: Path | None = None) -> ModuleType:
    """Execute a source as a module; numba stores what it compiles beside `path`, if any."""
    name = "laggard_compiled" if path is None else path.stem
    module = ModuleType(name)
    module.__dict__["CACHED"] = path is not None
    if path is not None:
        sys.modules[name] = module  # numba finds the module of what it loads by this name
    exec(compile(text, path or "<laggard>", "exec"), module.__dict__)
    return module


def source_path(text: str) -> Path:
    """The source file in the cache folder, named by a hash of it, of versions and of the CPU."""
    import llvmlite
    import numba
    import platformdirs
    from llvmlite import binding

    parts = (
        text,
        platform.python_version(),
        numba.__version__,
        llvmlite.__version__,
        numba.config.CPU_FEATURES,  # type: ignore[attr-defined]
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )
    name = "laggard_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("laggard")) / "compiled" / f"{name}.py"


def _write_whole(path: Path, text: str) -> None:
    """Write a file under another name and then move it: other processes may read it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    os.utime(file.name, (MODIFIED, MODIFIED))
    Path(file.name).replace(path)
