"""Arithmetic on mini-batches of SAMPLES samples, innermost in memory, as Python for numba.

A feature of all samples lies in SAMPLES consecutive numbers, so that every inner loop fills the
CPU's vectors whatever the shape of a layer. Arrays are flat; images are `(channels, height, width,
SAMPLES)`. Sums have one order, which the width of the vectors does not change. NaN is passed on as
torch does: a comparison with it is false.

Functions that depend on the shapes of a network are generated into the same module, see `source`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Single = float | np.floating[Any]

SAMPLES = 32  # in one pass; more are added up in passes of so many
TILE_ROWS = 8  # rows of a product at a time; where compiled, as many as suit the CPU
TILE = 16  # rows and columns that are transposed at a time
ZERO, ONE = np.float32(0), np.float32(1)

IDENTITY, RELU, LEAKY_RELU, SIGMOID, TANH, ELU, HARDTANH = range(7)  # units
"""Units whose derivative is a function of their output, so that they can overwrite their input."""


def add_row(
    a: Floats, across: Any, down: Any, x: Floats, y: Floats, apart: Any, terms: Any
) -> None:
    """y[b] += sum_k a[k * down] x[k, b], for all samples b. Of `vectors`, where compiled.

    `across` and `apart` are those of `add_rows`, and do nothing for one row.
    """
    for k in range(terms):
        for b in range(SAMPLES):
            y[b] += a[k * down] * x[k * SAMPLES + b]


def add_rows(
    a: Floats, across: Any, down: Any, x: Floats, y: Floats, apart: Any, terms: Any
) -> None:
    """`add_row` for TILE_ROWS rows of a and y. Of `vectors`, where compiled.

    Args:
        across, apart: the numbers from one row to the next, of a and of y.
    """
    for m in range(TILE_ROWS):
        add_row(a[m * across :], across, down, x, y[m * apart :], apart, terms)


def transpose_block(x: Floats, x_apart: Any, y: Floats, y_apart: Any) -> None:
    """y' = x for TILE rows and columns. Of `vectors`, where compiled."""
    for m in range(TILE):
        for n in range(TILE):
            y[n * y_apart + m] = x[m * x_apart + n]


def gather(x: Floats, index: Integers, rows: Floats, y: Floats) -> None:
    """The samples `index` of `x` `(samples, features)`; beyond them the last again."""
    features = x.shape[1]
    for b in range(SAMPLES):
        sample = x[index[min(b, len(index) - 1)]]
        for k in range(features):
            rows[b * features + k] = sample[k]
    transpose(rows, SAMPLES, features, features, y, SAMPLES)


def set_all(x: Floats, value: Single) -> None:
    """Set all of `x`."""
    for k in range(len(x)):
        x[k] = value


def copy(x: Floats, y: Floats) -> None:
    """Set all of `y` to `x`."""
    for k in range(len(y)):
        y[k] = x[k]


def add_samples(x: Floats, start: int) -> Any:
    """The sum of one feature's samples from `start` on, by halves; overwrites `x`."""
    half = x[start : start + SAMPLES]
    for b in range(16):
        half[b] += half[b + 16]
    for b in range(8):
        half[b] += half[b + 8]
    for b in range(4):
        half[b] += half[b + 4]
    return (half[0] + half[2]) + (half[1] + half[3])


def add_places(x: Floats, places: int, scratch: Floats) -> Any:
    """The sum of `x` `(places, SAMPLES)`."""
    set_all(scratch[:SAMPLES], ZERO)
    for k in range(places):
        for b in range(SAMPLES):
            scratch[b] += x[k * SAMPLES + b]
    return add_samples(scratch, 0)


def transpose(x: Floats, rows: Any, columns: Any, x_apart: Any, y: Floats, y_apart: Any) -> None:
    """y' = x for a matrix x `(rows, columns)`; `apart` are the numbers from a row to the next."""
    whole_rows, whole_columns = rows - rows % TILE, columns - columns % TILE
    for m in range(0, whole_rows, TILE):
        for n in range(0, whole_columns, TILE):
            transpose_block(x[m * x_apart + n :], x_apart, y[n * y_apart + m :], y_apart)
    for m in range(rows):
        rest = whole_columns
        if m >= whole_rows:
            rest = 0
        for n in range(rest, columns):
            y[n * y_apart + m] = x[m * x_apart + n]


def add_columns(x: Floats, rows: int, start: int, columns: int, y: Floats) -> None:
    """Add `x` `(rows, SAMPLES)` to the columns of `y` `(rows, columns)` from `start` on."""
    for m in range(rows):
        row = y[m * columns + start : (m + 1) * columns]
        product = x[m * SAMPLES : (m + 1) * SAMPLES]
        for n in range(min(len(row), len(product))):
            row[n] += product[n]


def pad(x: Floats, channels: int, height: int, width: int, top: int, left: int, y: Floats) -> None:
    """Copy images to the middle of larger ones, whose border is zero already."""
    for c in range(channels):
        for i in range(height):
            start = ((c * (height + 2 * top) + i + top) * (width + 2 * left) + left) * SAMPLES
            for k in range(width * SAMPLES):
                y[start + k] = x[(c * height + i) * width * SAMPLES + k]


def crop(y: Floats, channels: int, height: int, width: int, top: int, left: int, x: Floats) -> None:
    """The middle of images: the transpose of `pad`."""
    for c in range(channels):
        for i in range(height):
            start = ((c * (height + 2 * top) + i + top) * (width + 2 * left) + left) * SAMPLES
            for k in range(width * SAMPLES):
                x[(c * height + i) * width * SAMPLES + k] = y[start + k]


def pool_row(x: Floats, width: int, count: int, y: Floats, winners: Floats) -> None:
    """The maximum of each of `count` squares in two rows `(width, SAMPLES)`, and its place, 0 to 3.

    As in torch, the first of equals, or the last NaN.
    """
    for j in range(count):
        for b in range(SAMPLES):
            k = 2 * j * SAMPLES + b
            # Conditional expressions, since numba makes vector instructions of them.
            largest, winner = x[k], ZERO
            value = x[k + SAMPLES]
            greater = (value > largest) | (value != value)  # true for NaN
            largest = value if greater else largest
            winner = np.float32(1) if greater else winner
            value = x[k + width * SAMPLES]
            greater = (value > largest) | (value != value)
            largest = value if greater else largest
            winner = np.float32(2) if greater else winner
            value = x[k + (width + 1) * SAMPLES]
            greater = (value > largest) | (value != value)
            largest = value if greater else largest
            winner = np.float32(3) if greater else winner
            y[j * SAMPLES + b] = largest
            winners[j * SAMPLES + b] = winner


def pool(x: Floats, channels: int, height: int, width: int, y: Floats, winners: Floats) -> None:
    """Max-pooling by two, without an odd row or column at the end."""
    down, across = height // 2, width // 2
    for c in range(channels):
        for i in range(down):
            start = (c * height + 2 * i) * width * SAMPLES
            to = (c * down + i) * across * SAMPLES
            pool_row(x[start:], width, across, y[to:], winners[to:])


def unpool_row(y: Floats, winners: Floats, count: int, first: Single, x: Floats) -> None:
    """Pass the gradients of `count` squares to winners in one row, of which the left is `first`."""
    for j in range(count):
        for b in range(SAMPLES):
            value, winner = y[j * SAMPLES + b], winners[j * SAMPLES + b]
            x[2 * j * SAMPLES + b] = value if winner == first else ZERO
            x[2 * j * SAMPLES + SAMPLES + b] = value if winner == first + ONE else ZERO


def unpool(y: Floats, winners: Floats, channels: int, height: int, width: int, x: Floats) -> None:
    """Pass each gradient to the winner of its square, and zero to the others."""
    down, across = height // 2, width // 2
    if height % 2 or width % 2:
        set_all(x[: channels * height * width * SAMPLES], ZERO)
    for c in range(channels):
        for i in range(down):
            start = (c * down + i) * across * SAMPLES
            upper = (c * height + 2 * i) * width * SAMPLES
            lower = upper + width * SAMPLES
            unpool_row(y[start:], winners[start:], across, ZERO, x[upper:])
            unpool_row(y[start:], winners[start:], across, ONE + ONE, x[lower:])


def activate(y: Floats, unit: int, low: float, high: float) -> None:
    """Apply a unit to `y`, in place; `low` and `high` are its parameters."""
    if unit == RELU:
        for k in range(len(y)):
            y[k] = ZERO if y[k] < ZERO else y[k]
    elif unit == LEAKY_RELU:
        for k in range(len(y)):
            y[k] = low * y[k] if y[k] < ZERO else y[k]
    elif unit == SIGMOID:
        for k in range(len(y)):
            y[k] = ONE / (ONE + np.exp(-y[k]))
    elif unit == TANH:
        for k in range(len(y)):
            y[k] = np.tanh(y[k])
    elif unit == ELU:
        for k in range(len(y)):
            y[k] = low * np.expm1(y[k]) if y[k] < ZERO else y[k]
    elif unit == HARDTANH:
        for k in range(len(y)):
            value = low if y[k] < low else y[k]
            y[k] = high if value > high else value


def deactivate(gradient: Floats, y: Floats, unit: int, low: float, high: float) -> None:
    """Multiply `gradient` in place by the derivative of activation `unit` at output `y`."""
    if unit == RELU:
        for k in range(len(y)):
            gradient[k] = ZERO if y[k] <= ZERO else gradient[k]
    elif unit == LEAKY_RELU:
        for k in range(len(y)):
            gradient[k] = low * gradient[k] if y[k] <= ZERO else gradient[k]
    elif unit == SIGMOID:
        for k in range(len(y)):
            gradient[k] *= y[k] * (ONE - y[k])
    elif unit == TANH:
        for k in range(len(y)):
            gradient[k] *= ONE - y[k] * y[k]
    elif unit == ELU:
        for k in range(len(y)):
            gradient[k] = (y[k] + low) * gradient[k] if y[k] <= ZERO else gradient[k]
    elif unit == HARDTANH:
        for k in range(len(y)):
            gradient[k] = ZERO if (y[k] <= low) | (y[k] >= high) else gradient[k]


def cross_entropy(
    y: Floats, classes: int, labels: Integers, index: Integers, share: Single, gradient: Floats
) -> Single:
    """The sum of the samples' cross entropies times `share`, and its gradient, 0 beyond the last.

    With p = softmax(y) of a sample with label c: loss -log p_c, gradient p - (1 at c, 0 elsewhere).
    """
    loss = ZERO
    for b in range(len(index)):
        label = labels[index[b]]
        largest = y[b]  # subtracted from all logits, so that no exponential overflows
        for k in range(1, classes):
            largest = max(largest, y[k * SAMPLES + b])
        chosen = y[label * SAMPLES + b] - largest
        total = ZERO
        for k in range(classes):
            power = np.exp(y[k * SAMPLES + b] - largest)
            gradient[k * SAMPLES + b] = power
            total += power
        loss += np.log(total) - chosen
        for k in range(classes):
            gradient[k * SAMPLES + b] *= share / total
        gradient[label * SAMPLES + b] -= share
    for b in range(len(index), SAMPLES):
        for k in range(classes):
            gradient[k * SAMPLES + b] = ZERO
    return loss * share
