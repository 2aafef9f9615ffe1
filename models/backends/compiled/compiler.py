"""The module that numba compiles for a network: its source, compilation and cache."""

import hashlib
import inspect
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

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
CACHE_SEAL = ".sha256"


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
            return _compile_once(source(convolutions, cached=True))
        # numba raises the latter where it cannot write beside the source
        except (OSError, RuntimeError):
            return _compile(_execute(source(convolutions, cached=False)))
    except Exception as error:  # no numba, or one that does not work here: it is not needed
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(
            f"gradients are not compiled, slower, and differ in last digits: "
            f"{type(error).__name__}: {reason}",
            stacklevel=2,
        )
        return None


def describe_compiler() -> str:
    """The compiler: the last bits of what it compiles may depend on each part."""
    import llvmlite
    import numba

    cpu = numba.config.CPU_NAME  # type: ignore[attr-defined]
    if cpu is None:
        from llvmlite import binding

        cpu = binding.get_host_cpu_name()
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}, {cpu}"


def _compile(module: ModuleType) -> Passes:
    module.differentiate.compile(DIFFERENTIATE)
    module.predict.compile(PREDICT)
    return Passes(module.differentiate, module.predict)


def _compile_once(text: str) -> Passes:
    """Compile a source, load what was compiled, or wait for another process that compiles it.

    numba executes whatever its files hold. So a file beside them, the seal, has their hash, and
    files without it are removed: they are damaged, or of a process that was killed.
    """
    from filelock import FileLock

    path = _source_path(text)
    if _is_sealed(path):
        return _compile(_execute(text, path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), timeout=MAX_WAIT):
        if not _is_sealed(path):  # else the process that held the lock has compiled it
            for file in _cached_files(path):
                file.unlink()
            _write_whole(path, text)
        passes = _compile(_execute(text, path))
        _write_whole(path.with_suffix(CACHE_SEAL), _hash_of_cache(path))
    return passes


def _is_sealed(path: Path) -> bool:
    seal = path.with_suffix(CACHE_SEAL)
    return seal.is_file() and seal.read_bytes() == _hash_of_cache(path).encode()


def _hash_of_cache(path: Path) -> str:
    """SHA-256 of a source file and of what numba stored for it."""
    digest = hashlib.sha256()
    for file in [path, *_cached_files(path)]:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _cached_files(path: Path) -> list[Path]:
    return sorted((path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ic]"))


def _execute(text: str, path: Path | None = None) -> ModuleType:
    """The module of a source; numba keeps what it compiles beside `path`."""
    name = "laggard_passes" if path is None else path.stem
    module = ModuleType(name)
    if path is not None:
        sys.modules[name] = module  # numba finds the module of what it loads by this name
    exec(compile(text, path or "<laggard>", "exec"), module.__dict__)
    return module


def _source_path(text: str) -> Path:
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
