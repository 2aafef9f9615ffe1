"""The source of a convolution's passes: products of a kernel with a few places are unrolled."""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

from laggard.models.backends.compiled.kernels import SAMPLES

PLACES = 4  # places of a row that are computed together, where no pooling follows
GRADIENTS = 14  # places of a row whose gradients are read together, at most


class Convolution(NamedTuple):
    """A convolution of stride 1 on images that are padded already.

    Attributes:
        inputs, height, width: channels and size of the images; `outputs` is the outputs' channels.
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
        if self.pools:
            return down - down % 2
        return down

    @property
    def across(self) -> int:
        """Columns of the result that are used."""
        across = self.width - self.wide + 1
        if self.pools:
            return across - across % 2
        return across

    @property
    def together(self) -> int:
        """Channels of the result that are computed together."""
        if self.outputs % 2 == 0:
            return 2
        return 1

    @property
    def area(self) -> int:
        """Entries of a kernel."""
        return self.high * self.wide

    @property
    def image(self) -> int:
        """Numbers a sample that both passes keep of the result before it is pooled."""
        if self.pools:
            return self.together * self.down * self.across
        return 0

    @property
    def scratch(self) -> int:
        """Numbers a sample of the gradient of kernels, before samples are added up."""
        return self.together * self.area


def convolution_forward(number: int, conv: Convolution) -> Iterator[str]:
    """Row by row, or two rows at a time before pooling, so that rows stay in the fastest cache."""
    step, rows = conv.across * SAMPLES, 1 + conv.pools
    target, channel = ("image", 2 * step) if conv.pools else ("y", conv.down * step)
    yield "@compiled"
    yield f"def convolve_{number}(w, bias, x, y, winners, image):"
    yield f"    for o in range(0, {conv.outputs}, {conv.together}):"
    yield f"        for i in range(0, {conv.down}, {rows}):"
    yield f"            row = {'0' if conv.pools else f'(o * {conv.down} + i) * {step}'}"
    for t in range(conv.together):
        value = f"bias[o + {t}]" if conv.bias else "ZERO"
        yield (
            f"            set_all({target}[row + {t * channel} : row + "
            f"{t * channel + rows * step}], {value})"
        )
    yield f"            for c in range({conv.inputs}):"
    for t in range(conv.together):
        for k in range(conv.area):
            place = f"((o + {t}) * {conv.inputs} + c) * {conv.area} + {k}"
            yield f"                w{t}_{k} = w[{place}]"
    for wide, columns in _blocks(conv.across, 2 if conv.pools else PLACES):
        yield f"                for j in {columns}:"
        yield f"                    xs = ((c * {conv.height} + i) * {conv.width} + j) * {SAMPLES}"
        yield f"                    ys = row + j * {SAMPLES}"
        yield f"                    for b in range({SAMPLES}):"
        yield from (
            "                        " + line for line in _tile(conv, rows, wide, target, channel)
        )
    if conv.pools:
        for t in range(conv.together):
            yield f"            ys = ((o + {t}) * {conv.down // 2} + i // 2) * {step // 2}"
            yield f"            pair, across = image[{t * channel}:], np.int64({conv.across})"
            yield "            pool_row(pair, across, across // 2, y[ys:], winners[ys:])"


def _tile(conv: Convolution, rows: int, columns: int, target: str, channel: int) -> Iterator[str]:
    """Add one input channel's products to some rows and columns of some output channels."""
    for r in range(rows - 1 + conv.high):
        for s in range(columns - 1 + conv.wide):
            yield f"x{r}_{s} = x[xs + {(r * conv.width + s) * SAMPLES} + b]"
    places = [(t, r, s) for t in range(conv.together) for r in range(rows) for s in range(columns)]
    for t, r, s in places:
        products = (
            f"w{t}_{p * conv.wide + q} * x{p + r}_{q + s}"
            for p in range(conv.high)
            for q in range(conv.wide)
        )
        yield f"v{t}_{r}_{s} = {_sum_of(products)}"
    for t, r, s in places:
        place = f"{target}[ys + {t * channel + (r * conv.across + s) * SAMPLES} + b]"
        yield f"{place} = {place} + v{t}_{r}_{s}"


def convolution_backward(number: int, conv: Convolution) -> Iterator[str]:
    """The source of the backward pass, which is, for gradients gy of the result,

        gw[o, c, p, q] = sum_{b, i, j} gy[o, i, j, b] x[c, i + p, j + q, b]
        gx[c, i + p, j + q, b] += w[o, c, p, q] gy[o, i, j, b]

    with output channel o, input channel c, place (i, j) in the result, (p, q) in the kernel, and
    sample b. The loops over o, c, i, p and blocks of j are written as loops, those over q and the
    columns s of a block as terms, since a compiler keeps terms in registers. Both sums read a row
    of gradients once. `t` counts the output channels of a block that are computed together: one in
    the first layer, which has no gx and so nothing to share.
    """
    many = 1 if conv.first else conv.together
    size = conv.down * conv.across * SAMPLES
    gradient, channel = ("image", "0") if conv.pools else ("gy", f"o * {size}")
    yield "@compiled"
    yield f"def convolve_back_{number}(w, x, gy, winners, gw, gx, sums, image):"
    if not conv.first:
        yield "    set_all(gx, ZERO)"
    yield f"    for o in range(0, {conv.outputs}, {many}):"
    if conv.pools:
        yield f"        ys = o * {size // 4}"
        yield (
            f"        channels, down, across = np.int64({many}), np.int64({conv.down}), "
            f"np.int64({conv.across})"
        )
        yield "        unpool(gy[ys:], winners[ys:], channels, down, across, image)"
    yield f"        for c in range({conv.inputs}):"
    yield f"            set_all(sums[: {many * conv.area * SAMPLES}], ZERO)"
    yield f"            for i in range({conv.down}):"
    yield f"                for p in range({conv.high}):"
    for t in range(0 if conv.first else many):
        for q in range(conv.wide):
            yield (
                f"                    w{t}_{q} = w[((o + {t}) * {conv.inputs} + c) * {conv.area} + "
                f"p * {conv.wide} + {q}]"
            )
    blocks = ceil(conv.across / GRADIENTS)
    for wide, columns in _blocks(conv.across, ceil(conv.across / blocks)):
        yield f"                    for j in {columns}:"
        row = f"(c * {conv.height} + i + p)"
        yield f"                        xs = ({row} * {conv.width} + j) * {SAMPLES}"
        yield f"                        gs = {channel} + (i * {conv.across} + j) * {SAMPLES}"
        yield f"                        to = p * {conv.wide * SAMPLES}"
        yield f"                        for b in range({SAMPLES}):"
        yield from (
            "                            " + line
            for line in _gradient_row(conv, many, wide, gradient, size)
        )
    for t in range(many):
        yield f"            for k in range({conv.area}):"
        place = f"gw[((o + {t}) * {conv.inputs} + c) * {conv.area} + k]"
        yield (
            f"                {place} = {place} + add_samples(sums, ({t * conv.area} + k) * "
            f"{SAMPLES})"
        )


def _gradient_row(
    conv: Convolution, many: int, columns: int, gradient: str, size: int
) -> Iterator[str]:
    """Add the terms of `columns` columns to a row of the kernels' gradient, and to the input's."""
    reached = range(columns - 1 + conv.wide)
    for t in range(many):
        for s in range(columns):
            yield f"g{t}_{s} = {gradient}[gs + {t * size + s * SAMPLES} + b]"
    for s in reached:
        yield f"x{s} = x[xs + {s * SAMPLES} + b]"
    for t in range(many):
        for q in range(conv.wide):
            place = f"sums[to + {(t * conv.area + q) * SAMPLES} + b]"
            yield f"{place} = {place} + ({_sum_of(f'g{t}_{s} * x{s + q}' for s in range(columns))})"
    for s in () if conv.first else reached:
        place = f"gx[xs + {s * SAMPLES} + b]"
        pairs = [(t, q) for t in range(many) for q in range(conv.wide) if 0 <= s - q < columns]
        yield f"{place} = {place} + ({_sum_of(f'w{t}_{q} * g{t}_{s - q}' for t, q in pairs)})"


def _blocks(count: int, size: int) -> Iterator[tuple[int, str]]:
    """The size of each block of at most `size` places, and the range of first places."""
    whole = count - count % size
    if whole:
        yield size, f"range(0, {whole}, {size})"
    if count % size:
        yield count % size, f"range({whole}, {count}, {size})"


def _sum_of(terms: Iterable[str]) -> str:
    return " + ".join(terms)
