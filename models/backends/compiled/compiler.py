"""Compiling a network's passes once, and finding them again in the user's cache folder."""

import hashlib
import importlib.util
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from laggard.models.backends.compiled.convolution import Convolution
from laggard.models.backends.compiled.source import source

DIFFERENTIATE = "f4(i8[:, ::1], f4[:, ::1], i8, f4[::1], f4[:, ::1], i8[::1], i8[::1], f4[::1], f4[::1])"
PREDICT = "void(i8[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1], i8[::1], f4[:, ::1], f4[::1])"
MODIFIED = 1_000_000_000  # of every source file: numba compiles anew where this time is not what it was


class Passes(NamedTuple):
    """The compiled functions of `passes`."""

    differentiate: Callable[..., float]
    predict: Callable[..., None]


@cache
def compile_passes(convolutions: tuple[Convolution, ...]) -> Passes | None:
    """The passes of all networks with these convolutions; None, and one warning, where numba fails.

    The source is a file in the user's cache folder, beside which numba stores what it compiled; where the folder
    cannot be written, everything stays in memory.
    """
    try:
        _use_widest_vectors()
        try:
            return _compile(_import_source(source(convolutions, cached=True)))
        except (OSError, RuntimeError):  # numba raises the latter where it cannot write beside the source
            return _compile(_execute(source(convolutions, cached=False)))
    except Exception as error:  # no numba, or one that does not work here: it is not needed
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"gradients are not compiled, and slower: {type(error).__name__}: {reason}", stacklevel=2)
        return None


def _compile(module: ModuleType) -> Passes:
    module.differentiate.compile(DIFFERENTIATE)
    module.predict.compile(PREDICT)
    return Passes(module.differentiate, module.predict)


def _execute(text: str) -> ModuleType:
    module = ModuleType("laggard_passes")
    exec(compile(text, "<laggard>", "exec"), module.__dict__)
    return module


def _import_source(text: str) -> ModuleType:
    """The module of a source file whose name is a hash of it, of the versions and of the CPU."""
    import llvmlite
    import numba
    import platformdirs
    from llvmlite import binding

    parts = (text, platform.python_version(), numba.__version__, llvmlite.__version__, numba.config.CPU_FEATURES,  # type: ignore[attr-defined]
             binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())  # fmt: skip
    name = "laggard_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    path = Path(platformdirs.user_cache_dir("laggard")) / "compiled" / f"{name}.py"
    _write_source(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write_source(path: Path, text: str) -> None:
    """Write a file whole or not at all, unless it is there: other processes may be at the same."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    os.utime(file.name, (MODIFIED, MODIFIED))
    Path(file.name).replace(path)


def _use_widest_vectors() -> None:
    """Let LLVM use vectors of 512 bits, which it avoids where a CPU of the past ran slower with them.

    Only in a process that has not used numba before, and where the user has not chosen.
    """
    if "numba" in sys.modules or "NUMBA_CPU_FEATURES" in os.environ or "NUMBA_CPU_NAME" in os.environ:
        return
    import numba
    from llvmlite import binding

    numba.config.CPU_NAME = binding.get_host_cpu_name()  # type: ignore[attr-defined]
    numba.config.CPU_FEATURES = f"{binding.get_host_cpu_features().flatten()},-prefer-256-bit"  # type: ignore[attr-defined]
