"""The text of the module that numba compiles: `kernels`, `passes`, and what is written out for a network's shapes."""

import inspect
import re
from collections.abc import Iterator, Sequence

from laggard.models.backends.compiled import kernels, passes
from laggard.models.backends.compiled.convolution import Convolution, convolution_backward, convolution_forward
from laggard.models.backends.compiled.kernels import SAMPLES

HEADER = """
from numba import njit

compiled = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy")
inlined = njit(inline="always")
entry = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy", cache=CACHED)
"""
DECORATORS = {"differentiate": "@entry", "predict": "@entry", "forward": "@inlined", "backward": "@inlined"}


def source(convolutions: Sequence[Convolution], cached: bool) -> str:
    """The module for a network with these convolutions."""
    lines = [HEADER.replace("CACHED", str(cached)), *_python(kernels), *_python(passes), *products()]
    for number, convolution in enumerate(convolutions):
        lines += [*convolution_forward(number, convolution), *convolution_backward(number, convolution)]
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
    """y += A x, with so many `rows` of A and so many `terms` at a time, and one at a time at the end."""
    yield "@compiled"
    yield f"def {name}(a, x, y, rows, terms):"
    for many, ks in ((terms, f"range(0, terms - {terms - 1}, {terms})"), (1, f"range(terms - terms % {terms}, terms)")):
        yield f"    for k in {ks}:"
        yield f"        xs = x[k * {SAMPLES} :]"
        for high, ms in ((rows, f"range(0, rows - {rows - 1}, {rows})"), (1, f"range(rows - rows % {rows}, rows)")):
            yield f"        for m in {ms}:"
            yield f"            ys = y[m * {SAMPLES} :]"
            for i in range(high):
                for j in range(many):
                    yield f"            a{i}_{j} = {entry.format(row=f'(m + {i})', term=f'(k + {j})')}"
            yield f"            for b in range({SAMPLES}):"
            for j in range(many):
                yield f"                x{j} = xs[{j * SAMPLES} + b]"
            for i in range(high):
                place = f"ys[{i * SAMPLES} + b]"
                yield f"                {place} = {place} + ({' + '.join(f'a{i}_{j} * x{j}' for j in range(many))})"
