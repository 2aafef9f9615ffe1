"""The module that numba compiles for all networks: its source and its compilation."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from laggard.compiled_cache import compile_cached, decorate_functions
from laggard.models.backends.compiled import kernels, passes

HEADER = """
from numba import njit

compiled = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy")
inlined = njit(inline="always")
entry = njit(
    nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy", cache=CACHED
)
"""
VECTORS = Path(__file__).with_name("vectors.py")
DECORATORS = {
    "differentiate": "@entry",
    "predict": "@entry",
    "forward": "@inlined",
    "backward": "@inlined",
}


def source() -> str:
    """The module: `kernels`, `passes`, and the `vectors` that replace some of the kernels."""
    lines = [
        HEADER,
        *decorate_functions(kernels, DECORATORS),
        *decorate_functions(passes, DECORATORS),
        VECTORS.read_text(encoding="utf-8"),
    ]
    return "\n".join(lines) + "\n"


NETWORK_ARGUMENTS = "i8[:, ::1], f4[:, ::1], i8[::1], f4[::1]"  # steps, numbers, tables, weights
DIFFERENTIATE = f"f4({NETWORK_ARGUMENTS}, f4[:, ::1], i8[::1], i8[::1], f4, f4[::1], f4[::1])"
PREDICT = f"void({NETWORK_ARGUMENTS}, f4[:, ::1], i8[::1], f4[:, ::1], f4[::1])"


class Passes(NamedTuple):
    """The compiled functions of `passes`."""

    differentiate: Callable[..., float]
    predict: Callable[..., None]


@cache
def compile_passes() -> Passes | None:
    """The passes of all networks; None, and one warning, where numba fails.

    What was compiled is kept in files (`compile_cached`).
    """
    try:
        with _widest_vectors():
            return compile_cached(source(), _compile)
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


CONTEXTS = ("_toplevel_typing_context", "_toplevel_target_context")
"""The attributes in which numba keeps the contexts that it compiles in, once they are made."""


@contextmanager
def _widest_vectors() -> Iterator[None]:
    """Within it, LLVM uses vectors of 512 bits, which it avoids because they slowed down older
    CPUs.

    Numba reads its settings once, when it makes the contexts in which it compiles. So this uses
    separate contexts: earlier uses of numba do not matter, and other compiled code stays unchanged.
    If the user has chosen a CPU for numba, that one counts.
    """
    if "NUMBA_CPU_FEATURES" in os.environ or "NUMBA_CPU_NAME" in os.environ:
        yield
        return
    from llvmlite import binding
    from numba import config
    from numba.core.registry import cpu_target

    settings = vars(config)
    kept = vars(cpu_target)
    before = {name: settings[name] for name in ("CPU_NAME", "CPU_FEATURES")}
    others = {name: kept[name] for name in CONTEXTS if name in kept}
    features = f"{binding.get_host_cpu_features().flatten()},-prefer-256-bit"
    settings.update(CPU_NAME=binding.get_host_cpu_name(), CPU_FEATURES=features)
    try:
        kept.update(_own_contexts())
        yield
    finally:
        settings.update(before)
        for name in CONTEXTS:
            kept.pop(name, None)
        kept.update(others)


@cache
def _own_contexts() -> Mapping[str, Any]:
    """Numba's contexts by attribute, with the settings at the first call.

    They are made once: a typing context remembers which of numba's functions are compiled, and a
    new target context would lack them.
    """
    from numba.core.cpu import CPUContext
    from numba.core.typing.context import Context

    types = Context()  # type: ignore[no-untyped-call]
    target = CPUContext(types, "cpu")  # type: ignore[no-untyped-call]
    return dict(zip(CONTEXTS, (types, target), strict=True))
