"""The text of the module that numba compiles: `kernels`, `passes`, and what is written out for a network's shapes."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from laggard.models.backends.compiled import kernels, passes
from laggard.models.backends.compiled.kernels import SAMPLES

HEADER = """
from numba import njit

compiled = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy")
inlined = njit(inline="always")
entry = njit(nogil=True, fastmath={"contract"}, boundscheck=False, error_model="numpy", cache=CACHED)
"""
DECORATORS = {"differentiate": "@entry", "predict": "@entry", "forward": "@inlined", "backward": "@inlined"}


class Convolution(NamedTuple):
    """A convolution of stride 1 on images that are padded already.

    Attributes:
        inputs, height, width: of the images; the outputs' channels are `outputs`.
        high, wide: sides of a kernel.
        pools: whether max-pooling by two follows.
        first: whether no gradient at the input is needed.
    """

    inputs: int
    height: int
    width: int
    outputs: int
    high: int
    wide: int
    bias: bool
    pools: bool
    first: bool

    @property
    def down(self) -> int:
        """Rows of the result that are used: pooling leaves out an odd one."""
        down = self.height - self.high + 1
        return down - down % 2 if self.pools else down

    @property
    def across(self) -> int:
        """Columns of the result that are used."""
        across = self.width - self.wide + 1
        return across - across % 2 if self.pools else across

    @property
    def together(self) -> int:
        """Channels of the result that are computed together."""
        return 2 if self.outputs % 2 == 0 else 1

    @property
    def image(self) -> int:
        """Features of memory that both passes use for the result before it is pooled."""
        return self.together * self.down * self.across if self.pools else 0

    @property
    def scratch(self) -> int:
        """Features of memory for the gradient of kernels, sample by sample."""
        return self.together * self.high * self.wide


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


def total(terms: Iterable[str]) -> str:
    return " + ".join(terms)


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
                yield f"                {place} = {place} + ({total(f'a{i}_{j} * x{j}' for j in range(many))})"


def convolution_forward(number: int, of: Convolution) -> Iterator[str]:
    """A convolution's forward pass: tiles of places, whose kernels' products are written out."""
    step = of.across * SAMPLES
    yield "@compiled"
    yield f"def convolve_{number}(w, bias, x, y, winners, image):"
    yield f"    for o in range(0, {of.outputs}, {of.together}):"
    yield f"        for i in range(0, {of.down}, {1 + of.pools}):"
    yield f"            for c in range({of.inputs}):"
    for t in range(of.together):
        for k in range(of.high * of.wide):
            yield f"                w{t}_{k} = w[((o + {t}) * {of.inputs} + c) * {of.high * of.wide} + {k}]"
        yield f"                b{t} = {f'bias[o + {t}]' if of.bias else 'ZERO'}"
    target = "image" if of.pools else "y"
    for wide, columns in blocks(of.across, 2 if of.pools else 4):
        yield f"                for j in {columns}:"
        yield f"                    xs = ((c * {of.height} + i) * {of.width} + j) * {SAMPLES}"
        if of.pools:
            yield f"                    ys = j * {SAMPLES}"
        else:
            yield f"                    ys = ((o * {of.down} + i) * {of.across} + j) * {SAMPLES}"
        yield f"                    for b in range({SAMPLES}):"
        tile = [(r, s) for r in range(1 + of.pools) for s in range(wide)]
        for r in range(of.pools + of.high):
            for s in range(wide - 1 + of.wide):
                yield f"                        x{r}_{s} = x[xs + {(r * of.width + s) * SAMPLES} + b]"
        for t in range(of.together):
            for r, s in tile:
                place = (t * 2 + r) * step + s * SAMPLES if of.pools else t * of.down * step + s * SAMPLES
                at = f"{target}[ys + {place} + b]"
                start = f"({at} if c > 0 else b{t})" if of.inputs > 1 else f"b{t}"
                terms = [f"w{t}_{p * of.wide + q} * x{p + r}_{q + s}" for p in range(of.high) for q in range(of.wide)]
                yield f"                        {at} = {total([start, *terms])}"
    if of.pools:
        for t in range(of.together):
            yield f"            ys = ((o + {t}) * {of.down // 2} + i // 2) * {step // 2}"
            yield f"            rows, across = image[{2 * t * step}:], np.int64({of.across})"
            yield "            pool_row(rows, across, across // 2, y[ys:], winners[ys:])"


def blocks(count: int, size: int) -> Iterator[tuple[int, str]]:
    """`count` places in blocks of `size` and a smaller one at the end: each size, and the range of first places."""
    whole = count - count % size
    if whole:
        yield size, f"range(0, {whole}, {size})"
    if count % size:
        yield count % size, f"range({whole}, {count}, {size})"


WIDEST = 14  # places of a row whose gradients are read together


def convolution_backward(number: int, of: Convolution) -> Iterator[str]:
    """A convolution's gradient: rows of places, with which both the kernels' gradient and the input's are summed."""
    area, image = of.high * of.wide, of.down * of.across * SAMPLES
    many, g, start = of.together, *(("image", "0") if of.pools else ("gy", f"o * {image}"))
    yield "@compiled"
    yield f"def convolve_back_{number}(w, x, gy, winners, gw, gx, sums, image):"
    if not of.first:
        yield "    set_all(gx, ZERO)"
    yield f"    for o in range(0, {of.outputs}, {many}):"
    if of.pools:
        yield f"        ys = o * {image // 4}"
        yield f"        sizes = np.int64({many}), np.int64({of.down}), np.int64({of.across})"
        yield "        unpool(gy[ys:], winners[ys:], sizes[0], sizes[1], sizes[2], image)"
    yield f"        for c in range({of.inputs}):"
    yield f"            set_all(sums[:{many * area * SAMPLES}], ZERO)"
    yield f"            for i in range({of.down}):"
    yield f"                for p in range({of.high}):"
    if not of.first:
        for t in range(many):
            for q in range(of.wide):
                yield f"                    w{t}_{q} = w[((o + {t}) * {of.inputs} + c) * {area} + p * {of.wide} + {q}]"
    chunk = -(-of.across // -(-of.across // WIDEST))
    for wide, columns in blocks(of.across, chunk):
        yield f"                    for j in {columns}:"
        yield f"                        xs = ((c * {of.height} + i + p) * {of.width} + j) * {SAMPLES}"
        yield f"                        gs = {start} + (i * {of.across} + j) * {SAMPLES}"
        yield f"                        at = p * {of.wide * SAMPLES}"
        yield f"                        for b in range({SAMPLES}):"
        for t in range(many):
            for s in range(wide):
                yield f"                            g{t}_{s} = {g}[gs + {t * image + s * SAMPLES} + b]"
        for s in range(wide + of.wide - 1):
            yield f"                            x{s} = x[xs + {s * SAMPLES} + b]"
        for t in range(many):
            for q in range(of.wide):
                place = f"sums[at + {(t * area + q) * SAMPLES} + b]"
                terms = total(f"g{t}_{s} * x{s + q}" for s in range(wide))
                yield f"                            {place} = {place} + ({terms})"
        if not of.first:
            for s in range(wide + of.wide - 1):
                place = f"gx[xs + {s * SAMPLES} + b]"
                pairs = [(t, q) for t in range(many) for q in range(of.wide) if 0 <= s - q < wide]
                terms = total(f"w{t}_{q} * g{t}_{s - q}" for t, q in pairs)
                yield f"                            {place} = {place} + ({terms})"
    for t in range(many):
        yield f"            for k in range({area}):"
        at = f"gw[((o + {t}) * {of.inputs} + c) * {area} + k]"
        yield f"                {at} = {at} + add_samples(sums, ({t * area} + k) * {SAMPLES})"
