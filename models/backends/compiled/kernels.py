"""Arithmetic on mini-batches of SAMPLES samples, innermost in memory, as Python for numba.

A feature of all samples lies in SAMPLES consecutive numbers, so that every inner loop fills the
CPU's vectors whatever the shape of a layer. Arrays are flat; images are `(channels, height, width,
SAMPLES)`. Sums have one order, which the width of the vectors does not change. NaN is passed on as
torch does: a comparison with it is false.

Where a sum goes over irregular places in an array, a table holds them: `terms`, `rows`, `places`
and `window` are places of numbers, in units of one number.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Single = float | np.floating[Any]

SAMPLES = 32  # in one pass; more are added up in passes of so many
TILE_SUMS = 4  # rows of each factor of a correlation at a time; where compiled, as suits the CPU
TILE = 16  # rows and columns that are transposed at a time
LANES = 16  # samples that are not added up yet in a correlation
ZERO, ONE = np.float32(0), np.float32(1)

IDENTITY, RELU, LEAKY_RELU, SIGMOID, TANH, ELU, HARDTANH = range(7)  # units
"""Units whose derivative is a function of their output, so that they can overwrite their input."""


def add_rows(
    a: Floats,
    across: Any,
    down: Any,
    x: Floats,
    x_places: Integers,
    terms: Integers,
    y: Floats,
    y_places: Integers,
    rows: Integers,
) -> None:
    """Products of a matrix with columns of x at several places: for each place p,

        y[y_places[p] + rows[m] + b] +=
            sum_k a[m * across + k * down] x[x_places[p] + terms[k] + b]

    for all rows m and samples b. Where compiled, `vectors` replaces it.
    """
    for m in range(len(rows)):
        own = a[m * across :]
        for p in range(len(x_places)):
            for k in range(len(terms)):
                for b in range(SAMPLES):
                    product = own[k * down] * x[x_places[p] + terms[k] + b]
                    y[y_places[p] + rows[m] + b] += product


def correlate_row(
    x: Floats, places: Integers, terms: Integers, y: Floats, apart: Any, sums: Floats
) -> None:
    """The sums of the first row of `correlate`. Where compiled, `vectors` replaces it."""
    for n in range(TILE_SUMS):
        for k in range(len(places)):
            for b in range(SAMPLES):
                product = y[k * SAMPLES + b] * x[terms[n] + places[k] + b]
                sums[n * LANES + b % LANES] += product


def correlate(
    x: Floats, places: Integers, terms: Integers, y: Floats, apart: Any, sums: Floats
) -> None:
    """The sum over places k and samples b of y[m * apart + k * SAMPLES + b] times
    x[terms[n] + places[k] + b], for TILE_SUMS rows m and terms n. Where compiled, `vectors`
    replaces it.

    The samples are added up but for their places b % LANES, so that `sums` has LANES numbers for
    each (m, n).
    """
    for m in range(TILE_SUMS):
        own = sums[m * TILE_SUMS * LANES :]
        correlate_row(x, places, terms, y[m * apart :], apart, own)


def transpose_block(x: Floats, x_apart: Any, y: Floats, y_apart: Any) -> None:
    """y' = x for TILE rows and columns. Where compiled, `vectors` replaces it."""
    for m in range(TILE):
        for n in range(TILE):
            y[n * y_apart + m] = x[m * x_apart + n]


def gather(x: Floats, index: Integers, rows: Floats, y: Floats) -> None:
    """Copy the samples `index` of `x` `(samples, features)`; the last one fills up the rest."""
    features = x.shape[1]
    for b in range(SAMPLES):
        sample = x[index[min(b, len(index) - 1)]]
        for k in range(features):
            rows[b * features + k] = sample[k]
    transpose(rows, SAMPLES, features, features, y, SAMPLES)


def row_of(x: Floats, start: int) -> Floats:
    """A feature of all samples, as a view: loops over it become vector instructions."""
    return x[start : start + SAMPLES]


def set_all(x: Floats, value: Single) -> None:
    """Set all of `x`."""
    for k in range(len(x)):
        x[k] = value


def add_samples(x: Floats, start: int) -> Any:
    """The pairwise sum of one feature's samples from `start` on; overwrites `x`."""
    half = x[start : start + SAMPLES]
    for b in range(LANES):
        half[b] += half[b + LANES]
    return add_lanes(half)


def add_lanes(x: Floats) -> Any:
    """The pairwise sum of the first LANES numbers; overwrites `x`."""
    for b in range(8):
        x[b] += x[b + 8]
    for b in range(4):
        x[b] += x[b + 4]
    return (x[0] + x[2]) + (x[1] + x[3])


def add_places(x: Floats, places: int, scratch: Floats) -> Any:
    """The sum of `x` `(places, SAMPLES)`."""
    set_all(scratch[:SAMPLES], ZERO)
    for k in range(places):
        for b in range(SAMPLES):
            scratch[b] += x[k * SAMPLES + b]
    return add_samples(scratch, 0)


def transpose(x: Floats, rows: Any, columns: Any, x_apart: Any, y: Floats, y_apart: Any) -> None:
    """y' = x for a matrix x `(rows, columns)`; `apart` are the numbers from a row to the next."""
    whole_rows = rows - rows % TILE
    whole_columns = columns - columns % TILE
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


def add_segments(x: Floats, xs: Integers, y: Floats, ys: Integers, length: int) -> None:
    """For each k: y[ys[k] + n] += x[xs[k] + n] for n below `length`."""
    for k in range(len(xs)):
        source = x[xs[k] : xs[k] + length]
        target = y[ys[k] : ys[k] + length]
        for n in range(min(len(source), len(target))):
            target[n] += source[n]


def copy_segments(x: Floats, xs: Integers, y: Floats, ys: Integers, length: int) -> None:
    """For each k: y[ys[k] + n] = x[xs[k] + n] for n below `length`."""
    for k in range(len(xs)):
        source = x[xs[k] : xs[k] + length]
        target = y[ys[k] : ys[k] + length]
        for n in range(min(len(source), len(target))):
            target[n] = source[n]


def add(x: Floats, other: Floats, y: Floats) -> None:
    """y = x + other."""
    for k in range(len(y)):
        y[k] = x[k] + other[k]


def add_to(x: Floats, y: Floats) -> None:
    """y += x."""
    for k in range(len(y)):
        y[k] += x[k]


def pool(x: Floats, places: Integers, window: Integers, y: Floats, winners: Floats) -> None:
    """The maximum of the `window` at each place of a channel, and its number there.

    As in torch, the first of equals, or the last NaN. Two entries of the window are compared at a
    time, for speed: it has an even number of them, of which the last may be there twice.
    """
    for k in range(len(places)):
        largest = row_of(y, k * SAMPLES)
        winner = row_of(winners, k * SAMPLES)
        one = row_of(x, places[k] + window[0])
        other = row_of(x, places[k] + window[1])
        for b in range(SAMPLES):
            # Conditional expressions, since numba makes vector instructions of them.
            is_greater = (other[b] > one[b]) | (other[b] != other[b])  # true for NaN
            largest[b] = other[b] if is_greater else one[b]
            winner[b] = ONE if is_greater else ZERO
        for t in range(2, len(window), 2):
            one = row_of(x, places[k] + window[t])
            other = row_of(x, places[k] + window[t + 1])
            number = np.float32(t)
            next_number = np.float32(t + 1)
            for b in range(SAMPLES):
                is_greater = (one[b] > largest[b]) | (one[b] != one[b])
                value = one[b] if is_greater else largest[b]
                chosen = number if is_greater else winner[b]
                is_greater = (other[b] > value) | (other[b] != other[b])
                largest[b] = other[b] if is_greater else value
                winner[b] = next_number if is_greater else chosen


def unpool(gy: Floats, winners: Floats, places: Integers, window: Integers, gx: Floats) -> None:
    """Add the gradient at each place of a channel to that of its winner."""
    for k in range(len(places)):
        gradient = row_of(gy, k * SAMPLES)
        winner = row_of(winners, k * SAMPLES)
        for t in range(len(window)):
            target = row_of(gx, places[k] + window[t])
            number = np.float32(t)
            for b in range(SAMPLES):
                target[b] += gradient[b] if winner[b] == number else ZERO


def average(x: Floats, places: Integers, window: Integers, y: Floats) -> None:
    """The mean of the `window` at each place of a channel."""
    share = ONE / np.float32(len(window))
    for k in range(len(places)):
        mean = row_of(y, k * SAMPLES)
        set_all(mean, ZERO)
        for t in range(len(window)):
            values = row_of(x, places[k] + window[t])
            for b in range(SAMPLES):
                mean[b] += values[b]
        for b in range(SAMPLES):
            mean[b] *= share


def spread(gy: Floats, places: Integers, window: Integers, gx: Floats) -> None:
    """The transpose of `average`: add to `gx`."""
    share = ONE / np.float32(len(window))
    for k in range(len(places)):
        gradient = row_of(gy, k * SAMPLES)
        for t in range(len(window)):
            target = row_of(gx, places[k] + window[t])
            for b in range(SAMPLES):
                target[b] += share * gradient[b]


def add_up(x: Floats, sums: Floats) -> None:
    """Add x[k, b] over rows k to sums[b]. Four rows at a time, as below, for speed."""
    whole = len(x) // SAMPLES // 4
    for k in range(whole):
        one = row_of(x, 4 * k * SAMPLES)
        two = row_of(x, (4 * k + 1) * SAMPLES)
        three = row_of(x, (4 * k + 2) * SAMPLES)
        four = row_of(x, (4 * k + 3) * SAMPLES)
        for b in range(SAMPLES):
            sums[b] += (one[b] + two[b]) + (three[b] + four[b])
    for start in range(4 * whole * SAMPLES, len(x), SAMPLES):
        row = row_of(x, start)
        for b in range(SAMPLES):
            sums[b] += row[b]


def add_spread(x: Floats, mean: Floats, sums: Floats, squares: Floats) -> None:
    """Add x[k, b] - mean[b] over rows k to sums[b], and its square to squares[b]."""
    whole = len(x) // SAMPLES // 4
    for k in range(whole):
        one = row_of(x, 4 * k * SAMPLES)
        two = row_of(x, (4 * k + 1) * SAMPLES)
        three = row_of(x, (4 * k + 2) * SAMPLES)
        four = row_of(x, (4 * k + 3) * SAMPLES)
        for b in range(SAMPLES):
            first = one[b] - mean[b]
            second = two[b] - mean[b]
            third = three[b] - mean[b]
            fourth = four[b] - mean[b]
            sums[b] += (first + second) + (third + fourth)
            squares[b] += (first * first + second * second) + (third * third + fourth * fourth)
    for start in range(4 * whole * SAMPLES, len(x), SAMPLES):
        row = row_of(x, start)
        for b in range(SAMPLES):
            deviation = row[b] - mean[b]
            sums[b] += deviation
            squares[b] += deviation * deviation


def add_deviations(x: Floats, mean: Floats, factor: Floats, sums: Floats) -> None:
    """Add factor[k, b] (x[k, b] - mean[b]) over rows k to sums[b]."""
    whole = len(x) // SAMPLES // 2
    for k in range(whole):
        one = row_of(x, 2 * k * SAMPLES)
        two = row_of(x, (2 * k + 1) * SAMPLES)
        first = row_of(factor, 2 * k * SAMPLES)
        second = row_of(factor, (2 * k + 1) * SAMPLES)
        for b in range(SAMPLES):
            sums[b] += first[b] * (one[b] - mean[b]) + second[b] * (two[b] - mean[b])
    for start in range(2 * whole * SAMPLES, len(x), SAMPLES):
        row = row_of(x, start)
        own = row_of(factor, start)
        for b in range(SAMPLES):
            sums[b] += own[b] * (row[b] - mean[b])


def add_batch(sums: Floats, batch: int) -> None:
    """Replace the sums of samples by that over the first `batch` samples, where it is not 0."""
    if batch:
        set_all(sums[batch:SAMPLES], ZERO)
        set_all(sums[:SAMPLES], add_samples(sums, 0))


def normalise_group(
    x: Floats, gains: Floats, biases: Floats, batch: int, eps: Single, y: Floats, kept: Floats
) -> None:
    """y = gain (x - mean) / sqrt(variance + eps) + bias for a group of channels.

    Mean and variance are those of each sample, or, with a `batch` other than 0, of its samples
    together. Each channel has a gain and a bias.

    Args:
        kept: the means of the samples, and their 1 / sqrt(variance + eps), for `denormalise_group`.
    """
    size = len(x) // len(gains)
    count = np.float32(len(x) // SAMPLES * max(batch, 1))
    mean = row_of(kept, 0)
    scale = row_of(kept, SAMPLES)
    rest = row_of(y, 0)  # y is free until the last loop
    set_all(kept[: 2 * SAMPLES], ZERO)
    set_all(rest, ZERO)
    add_up(x, mean)
    add_batch(mean, batch)
    for b in range(SAMPLES):
        mean[b] /= count
    add_spread(x, mean, rest, scale)
    add_batch(rest, batch)
    add_batch(scale, batch)
    for b in range(SAMPLES):
        # The sum of many numbers was rounded at each step. The deviations from that mean are small
        # numbers, whose sum corrects it.
        mean[b] += rest[b] / count
        scale[b] = ONE / np.sqrt(scale[b] / count + eps)
    for start in range(0, len(x), SAMPLES):
        gain = gains[start // size]
        bias = biases[start // size]
        values = row_of(x, start)
        target = row_of(y, start)
        for b in range(SAMPLES):
            target[b] = gain * ((values[b] - mean[b]) * scale[b]) + bias


def denormalise_group(
    x: Floats,
    gains: Floats,
    batch: int,
    kept: Floats,
    gy: Floats,
    gx: Floats,
    to_gains: Floats,
    to_biases: Floats,
    scratch: Floats,
) -> None:
    """The gradients of `normalise_group`, added to `gx` and to those of gains and biases.

        z = (x - mean) scale,   gz = gain gy,   gx = scale (gz - mean of gz - z (mean of z gz))

    `mean` and `scale` are what `normalise_group` has kept.
    """
    size = len(x) // len(gains)
    count = np.float32(len(x) // SAMPLES * max(batch, 1))
    mean = row_of(kept, 0)
    scale = row_of(kept, SAMPLES)
    first = row_of(scratch, 0)
    second = row_of(scratch, SAMPLES)
    plain = row_of(scratch, 2 * SAMPLES)
    product = row_of(scratch, 3 * SAMPLES)
    set_all(scratch[: 2 * SAMPLES], ZERO)
    for channel in range(len(gains)):
        set_all(scratch[2 * SAMPLES : 4 * SAMPLES], ZERO)
        start = channel * size
        end = (channel + 1) * size
        add_up(gy[start:end], plain)
        add_deviations(x[start:end], mean, gy[start:end], product)
        for b in range(SAMPLES):
            product[b] *= scale[b]
        for b in range(SAMPLES):
            first[b] += gains[channel] * plain[b]
            second[b] += gains[channel] * product[b]
        to_gains[channel] += add_samples(product, 0)
        to_biases[channel] += add_samples(plain, 0)
    add_batch(first, batch)
    add_batch(second, batch)
    for b in range(SAMPLES):
        first[b] /= count
        second[b] /= count
    for start in range(0, len(x), SAMPLES):
        gain = gains[start // size]
        values = row_of(x, start)
        gradient = row_of(gy, start)
        target = row_of(gx, start)
        for b in range(SAMPLES):
            z = (values[b] - mean[b]) * scale[b]
            target[b] += scale[b] * (gain * gradient[b] - first[b] - z * second[b])
        if batch:  # the samples beyond the batch are none
            set_all(target[batch:], ZERO)


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
    y: Floats,
    classes: int,
    labels: Integers,
    index: Integers,
    share: Single,
    smoothing: Single,
    gradient: Floats,
) -> Single:
    """The sum of the samples' cross entropies times `share`, and its gradient, 0 beyond the last.

    With p = softmax(y) of a sample with label c: loss -sum_k q_k log p_k, gradient p - q, where q_k
    is smoothing / classes, and 1 - smoothing more at c.
    """
    loss = ZERO
    others = smoothing / np.float32(classes)
    chosen_share = np.float32(1) - smoothing
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
        loss += np.log(total) - chosen_share * chosen
        for k in range(classes):
            gradient[k * SAMPLES + b] *= share / total
        gradient[label * SAMPLES + b] -= chosen_share * share
        if smoothing:
            for k in range(classes):
                loss -= others * (y[k * SAMPLES + b] - largest)
                gradient[k * SAMPLES + b] -= others * share
    for b in range(len(index), SAMPLES):
        for k in range(classes):
            gradient[k * SAMPLES + b] = ZERO
    return loss * share
