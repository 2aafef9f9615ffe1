"""The module that numba compiles for a network: its source, compilation and cache."""

import hashlib
import importlib.util
import inspect
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from laggard.models.backends.compiled import kernels, passes
from laggard.models.backends.compiled.convolution import (
    Convolution,
    convolution_backward,
    convolution_forward,
)
from laggard.models.backends.compiled.kernels import SAMPLES

HEADER = """
from numba import njit

compiled = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy")
inlined = njit(inline="always")
entry = njit(
    nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy", cache=CACHED
)
"""
DECORATORS = {
    "differentiate": "@entry",
    "predict": "@entry",
    "forward": "@inlined",
    "backward": "@inlined",
}


def source(convolutions: Sequence[Convolution], cached: bool) -> str:
    """The module for a network with these convolutions."""
    lines = [
        HEADER.replace("CACHED", str(cached)),
        *_python(kernels),
        *_python(passes),
        *products(),
    ]
    for number, convolution in enumerate(convolutions):
        lines += [
            *convolution_forward(number, convolution),
            *convolution_backward(number, convolution),
        ]
    lines += dispatch("convolve", "w, bias, x, y, winners, image", len(convolutions))
    lines += dispatch("convolve_back", "w, x, gy, winners, gw, gx, sums, image", len(convolutions))
    return "\n".join(lines) + "\n"


def _python(module: object) -> Iterator[str]:
    """The functions and constants of a module, decorated; not its imports of its own package."""
    text = re.sub(r"from laggard[^(]*\([^)]*\)", "", inspect.getsource(module))  # type: ignore[arg-type]
    for line in text.splitlines():
        if found := re.match(r"def (\w+)", line):
            yield DECORATORS.get(found[1], "@compiled")
        yield line


def dispatch(name: str, arguments: str, count: int) -> Iterator[str]:
    """The function that calls the `name` of a convolution's number."""
    yield "@inlined"
    yield f"def {name}(number, {arguments}):"
    for number in range(count):
        yield f"    if number == {number}:"
        yield f"        {name}_{number}({arguments})"
    yield "    return"


def products() -> Iterator[str]:
    """The products of a matrix with all samples, in blocks of rows and terms."""
    yield from product("multiply", 2, 8, "a[{row} * terms + {term}]")
    yield from product("multiply_transposed", 4, 4, "a[{term} * rows + {row}]")


def product(name: str, rows: int, terms: int, entry: str) -> Iterator[str]:
    """y += A x in blocks of `rows` rows of A and `terms` terms, with single ones at the end."""
    yield "@compiled"
    yield f"def {name}(a, x, y, rows, terms):"
    for many, ks in (
        (terms, f"range(0, terms - {terms - 1}, {terms})"),
        (1, f"range(terms - terms % {terms}, terms)"),
    ):
        yield f"    for k in {ks}:"
        yield f"        xs = x[k * {SAMPLES} :]"
        for high, ms in (
            (rows, f"range(0, rows - {rows - 1}, {rows})"),
            (1, f"range(rows - rows % {rows}, rows)"),
        ):
            yield f"        for m in {ms}:"
            yield f"            ys = y[m * {SAMPLES} :]"
            for i in range(high):
                for j in range(many):
                    yield (
                        f"            a{i}_{j} = "
                        f"{entry.format(row=f'(m + {i})', term=f'(k + {j})')}"
                    )
            yield f"            for b in range({SAMPLES}):"
            for j in range(many):
                yield f"                x{j} = xs[{j * SAMPLES} + b]"
            for i in range(high):
                place = f"ys[{i * SAMPLES} + b]"
                yield (
                    f"                {place} = {place} + "
                    f"({' + '.join(f'a{i}_{j} * x{j}' for j in range(many))})"
                )


DIFFERENTIATE = (
    "f4(i8[:, ::1], f4[:, ::1], i8, f4[::1], f4[:, ::1], i8[::1], i8[::1], f4[::1], f4[::1])"
)
PREDICT = "void(i8[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1], i8[::1], f4[:, ::1], f4[::1])"
# modification time of every source file: numba compiles again where it has changed
MODIFIED = 1_000_000_000
# seconds that a process waits for another that compiles the same source, which takes 10 to 30
MAX_WAIT = 120


class Passes(NamedTuple):
    """The compiled functions of `passes`."""

    differentiate: Callable[..., float]
    predict: Callable[..., None]


@cache
def compile_passes(convolutions: tuple[Convolution, ...]) -> Passes | None:
    """The passes of all networks with these convolutions; None, and one warning, where numba fails.

    The source is a file in the user's cache folder, beside which numba stores what it compiled;
    where the folder cannot be written, or a file there cannot be locked, everything stays in
    memory.
    """
    try:
        _use_widest_vectors()
        try:
            return _compile_once(_write_source(source(convolutions, cached=True)))
        # numba raises the latter where it cannot write beside the source
        except (OSError, RuntimeError):
            return _compile(_execute(source(convolutions, cached=False)))
    except Exception as error:  # no numba, or one that does not work here: it is not needed
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(
            f"gradients are not compiled, and slower: {type(error).__name__}: {reason}",
            stacklevel=2,
        )
        return None


def _compile(module: ModuleType) -> Passes:
    module.differentiate.compile(DIFFERENTIATE)
    module.predict.compile(PREDICT)
    return Passes(module.differentiate, module.predict)


def _compile_once(path: Path) -> Passes:
    """Compile a source file, or wait for another process that does."""
    from filelock import FileLock

    # predict is compiled last
    stored = any((path.parent / "__pycache__").glob(f"{path.stem}.predict-*.nbi"))
    lock: AbstractContextManager[Any] = nullcontext()
    if not stored:
        lock = FileLock(path.with_suffix(".lock"), timeout=MAX_WAIT)
    with lock:
        return _compile(_import_source(path))


def _execute(text: str) -> ModuleType:
    module = ModuleType("laggard_passes")
    exec(compile(text, "<laggard>", "exec"), module.__dict__)
    return module


def _write_source(text: str) -> Path:
    """Write the source to the cache folder, named by a hash of it, of versions and of the CPU.

    The file is written under another name and then moved: other processes may do the same.
    """
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
    path = Path(platformdirs.user_cache_dir("laggard")) / "compiled" / f"{name}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(text)
        os.utime(file.name, (MODIFIED, MODIFIED))
        Path(file.name).replace(path)
    return path


def _import_source(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _use_widest_vectors() -> None:
    """Let LLVM use vectors of 512 bits, which it avoids because they slowed down older CPUs.

    Only in a process that has not used numba before, and where the user has not chosen.
    """
    if (
        "numba" in sys.modules
        or "NUMBA_CPU_FEATURES" in os.environ
        or "NUMBA_CPU_NAME" in os.environ
    ):
        return
    import numba
    from llvmlite import binding

    numba.config.CPU_NAME = binding.get_host_cpu_name()  # type: ignore[attr-defined]
    numba.config.CPU_FEATURES = f"{binding.get_host_cpu_features().flatten()},-prefer-256-bit"  # type: ignore[attr-defined]
