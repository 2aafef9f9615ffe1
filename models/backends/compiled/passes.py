"""A network's forward and backward pass, as Python for numba, in one module with `kernels`.

A network is a table with a row of FIELDS integers for each step. Many of these are places, counted
in numbers from the start of one of three arrays: the weights `(params,)`; the working memory
`space`, with the outputs of the steps and the gradients in use; and `tables`, which hold places.
"""

from typing import Any

import numpy as np

from laggard.models.backends.compiled.kernels import (
    LANES,
    SAMPLES,
    TILE_SUMS,
    ZERO,
    Floats,
    Integers,
    Single,
    activate,
    add,
    add_columns,
    add_lanes,
    add_places,
    add_rows,
    add_segments,
    add_to,
    average,
    copy_segments,
    correlate,
    correlate_row,
    cross_entropy,
    deactivate,
    denormalise_group,
    gather,
    normalise_group,
    pool,
    set_all,
    spread,
    transpose,
    unpool,
)

# the columns of a step
FIELDS = 25
(
    KIND,
    X,  # places in `space` of inputs, the output and their gradients; GX < 0 is not needed
    OTHER,
    Y,
    GX,
    G_OTHER,
    GY,
    NEW_GX,  # 1 where this step is the first to add to a gradient
    NEW_G_OTHER,
    SCRATCH,
    KEPT,  # what the backward pass needs of the forward pass: winners, or means and scales
    WEIGHT,  # places in the weights; -1 without a bias
    BIAS,
    INPUTS,  # sizes of a sample
    OUTPUTS,
    CHANNELS,  # of the output
    KERNEL,  # weights of an output
    GROUP,  # channels that are normalised together
    LENGTH,  # numbers of a segment
    UNIT,
    TERMS,  # the first entry of tables, and the one after the last
    ROWS,
    PLACES,
    OUTS,
    END,
) = range(FIELDS)
# kinds of steps
SEGMENTS, ADD, LINEAR, CONVOLUTION, POOL, AVERAGE, GROUP_NORM, BATCH_NORM = range(8)
# What is added up at a time, so that it stays in the fastest cache, or, for a strip, in the second.
TERMS_AT_ONCE = 72  # of a product
PLACES_AT_ONCE = 8  # of a product, whose calls cost too much for one place
CORRELATED_AT_ONCE = 32  # places of a correlation
STRIP = 256  # places of an image


def multiply(
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
    """y += A x at each place, for a matrix A `(rows, terms)` and SAMPLES columns of x and y.

    Args:
        a: the entry (m, k) of A is a[m * across + k * down].
        terms: the offsets of the rows of x from each of the places `x_places`.
        rows: the offsets of the rows of y from each of the places `y_places`.
    """
    for k in range(0, len(terms), TERMS_AT_ONCE):
        some = terms[k : k + TERMS_AT_ONCE]
        add_rows(a[k * down :], across, down, x, x_places, some, y, y_places, rows)


def convolve(
    w: Floats,
    biases: Floats,
    x: Floats,
    terms: Integers,
    rows: Integers,
    places: Integers,
    outs: Integers,
    y: Floats,
) -> None:
    """y[o, place] = biases[o] + sum_k w[o, k] x[place + terms[k]], for each entry k of a kernel."""
    for start in range(0, len(places), PLACES_AT_ONCE):
        some = places[start : start + PLACES_AT_ONCE]
        targets = outs[start : start + PLACES_AT_ONCE]
        for o in range(len(rows)):
            bias = ZERO
            if len(biases):
                bias = biases[o]
            # `outs` are next to each other, so that the places of a row are one piece.
            own = rows[o] + targets[0]
            set_all(y[own : own + len(targets) * SAMPLES], bias)
        multiply(w, len(terms), 1, x, some, terms, y, targets, rows)


def convolve_back(
    w: Floats,
    gy: Floats,
    terms: Integers,
    rows: Integers,
    places: Integers,
    outs: Integers,
    gx: Floats,
) -> None:
    """gx[place + terms[k]] += sum_o w[o, k] gy[o, place]."""
    for start in range(0, len(places), PLACES_AT_ONCE):
        some = places[start : start + PLACES_AT_ONCE]
        sources = outs[start : start + PLACES_AT_ONCE]
        multiply(w, 1, len(terms), gy, sources, rows, gx, some, terms)


def add_correlations(
    gy: Floats,
    x: Floats,
    kernel: int,
    terms: Integers,
    rows: Integers,
    places: Integers,
    scratch: Floats,
    to: Floats,
) -> None:
    """to[o * kernel + k] += the sum over places and samples of gy[o, place] x[place + terms[k]].

    `terms` goes on beyond `kernel` to a multiple of TILE_SUMS: those sums are left out.
    """
    apart = len(places) * SAMPLES
    for start in range(0, len(places), STRIP):
        end = min(start + STRIP, len(places))
        o = 0
        while o < len(rows):
            tile = 1
            if len(rows) - o >= TILE_SUMS:
                tile = TILE_SUMS
            size = tile * TILE_SUMS * LANES
            set_all(scratch[: len(terms) * tile * LANES], ZERO)
            for place in range(start, end, CORRELATED_AT_ONCE):
                some = places[place : min(place + CORRELATED_AT_ONCE, end)]
                gradient = gy[rows[o] + place * SAMPLES :]
                for k in range(0, len(terms), TILE_SUMS):
                    sums = scratch[k // TILE_SUMS * size :]
                    if tile == 1:
                        correlate_row(x, some, terms[k:], gradient, apart, sums)
                    else:
                        correlate(x, some, terms[k:], gradient, apart, sums)
            for k in range(kernel):
                own = scratch[k // TILE_SUMS * size + k % TILE_SUMS * LANES :]
                for m in range(tile):
                    total = add_lanes(own[m * TILE_SUMS * LANES :])
                    to[(o + m) * kernel + k] += total
            o += tile


def add_outer_products(
    gy: Floats,
    x: Floats,
    inputs: int,
    terms: Integers,
    rows: Integers,
    to_rows: Integers,
    scratch: Floats,
    to: Floats,
) -> None:
    """to[o * inputs + k] += sum_b gy[o, b] x[k, b], for SAMPLES inputs k at a time."""
    product = scratch[SAMPLES * SAMPLES : (SAMPLES + len(rows)) * SAMPLES]
    samples = terms[:SAMPLES]
    here = to_rows[:1]
    for start in range(0, inputs, SAMPLES):
        count = min(SAMPLES, inputs - start)
        transpose(x[start * SAMPLES :], count, SAMPLES, SAMPLES, scratch, SAMPLES)
        if count == SAMPLES:
            multiply(gy, SAMPLES, 1, scratch, here, samples, to[start:], here, to_rows)
        else:  # such a product would reach beyond the rows of the gradient
            set_all(product, ZERO)
            multiply(gy, SAMPLES, 1, scratch, here, samples, product, here, rows)
            add_columns(product, len(rows), start, inputs, to)


def normalise_all(
    step: Integers,
    numbers: Floats,
    gains: Floats,
    biases: Floats,
    batch: int,
    x: Floats,
    y: Floats,
    kept: Floats,
) -> None:
    """`normalise_group` and the unit of a step, one group after another: it stays in the cache."""
    group = step[GROUP]
    size = len(x) // step[CHANNELS] * group
    together = 0
    if step[KIND] == BATCH_NORM:
        together = batch
    for g in range(step[CHANNELS] // group):
        of_x = slice(g * size, (g + 1) * size)
        of_channels = slice(g * group, (g + 1) * group)
        own = y[of_x]
        statistics = kept[2 * SAMPLES * g :]
        factors = gains[of_channels]
        shifts = biases[of_channels]
        normalise_group(x[of_x], factors, shifts, together, numbers[2], own, statistics)
        activate(own, step[UNIT], numbers[0], numbers[1])


def denormalise_all(
    step: Integers,
    numbers: Floats,
    gains: Floats,
    batch: int,
    x: Floats,
    y: Floats,
    kept: Floats,
    gy: Floats,
    gx: Floats,
    to_gains: Floats,
    to_biases: Floats,
    scratch: Floats,
) -> None:
    """The backward pass of `normalise_all`."""
    group = step[GROUP]
    size = len(x) // step[CHANNELS] * group
    together = 0
    if step[KIND] == BATCH_NORM:
        together = batch
    for g in range(step[CHANNELS] // group):
        of_x = slice(g * size, (g + 1) * size)
        of_channels = slice(g * group, (g + 1) * group)
        own = gy[of_x]
        to = gx[of_x]
        statistics = kept[2 * SAMPLES * g :]
        deactivate(own, y[of_x], step[UNIT], numbers[0], numbers[1])
        if step[NEW_GX]:
            set_all(to, ZERO)
        denormalise_group(
            x[of_x],
            gains[of_channels],
            together,
            statistics,
            own,
            to,
            to_gains[of_channels],
            to_biases[of_channels],
            scratch,
        )


def forward(
    steps: Integers,
    numbers: Floats,
    tables: Integers,
    w: Floats,
    space: Floats,
    batch: int,
) -> None:
    """The output of each step in turn, for `batch` samples."""
    for number in range(len(steps)):
        step = steps[number]
        kind = step[KIND]
        inputs = step[INPUTS]
        outputs = step[OUTPUTS]
        channels = step[CHANNELS]
        terms = tables[step[TERMS] : step[ROWS]]
        rows = tables[step[ROWS] : step[PLACES]]
        places = tables[step[PLACES] : step[OUTS]]
        outs = tables[step[OUTS] : step[END]]
        weight = w[step[WEIGHT] :]  # not used without weights, where the place is -1
        biases = w[:0]
        if step[BIAS] >= 0:
            biases = w[step[BIAS] : step[BIAS] + channels]
        kept = space[step[KEPT] :]
        x = space[step[X] : step[X] + inputs * SAMPLES]
        y = space[step[Y] : step[Y] + outputs * SAMPLES]
        channel_in = len(x) // channels
        channel_out = len(y) // channels
        if kind == SEGMENTS:
            copy_segments(x, places, y, outs, step[LENGTH])
        elif kind == ADD:
            add(x, space[step[OTHER] : step[OTHER] + len(y)], y)
        elif kind in (LINEAR, CONVOLUTION):
            # A linear layer has one place, 0, and its `outs` (rows of its weights) begin with 0.
            targets = outs[: len(places)]
            convolve(weight, biases, x, terms[: step[KERNEL]], rows, places, targets, y)
        elif kind == POOL:
            for c in range(channels):
                own = x[c * channel_in :]
                to = c * channel_out
                pool(own, places, terms, y[to:], kept[to:])
        elif kind == AVERAGE:
            for c in range(channels):
                average(x[c * channel_in :], places, terms, y[c * channel_out :])
        else:
            # `normalise_all` also applies the activation, so `activate` is left out.
            normalise_all(step, numbers[number], weight, biases, batch, x, y, kept)
            continue
        activate(y, step[UNIT], numbers[number, 0], numbers[number, 1])


def backward(
    steps: Integers,
    numbers: Floats,
    tables: Integers,
    w: Floats,
    space: Floats,
    batch: int,
    gradient: Floats,
) -> None:
    """Add the gradient of each step to `gradient` `(params,)`, from the last step to the first that
    needs one.
    """
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if step[GY] < 0:  # nothing before it has parameters
            continue
        kind = step[KIND]
        inputs = step[INPUTS]
        outputs = step[OUTPUTS]
        channels = step[CHANNELS]
        terms = tables[step[TERMS] : step[ROWS]]
        rows = tables[step[ROWS] : step[PLACES]]
        places = tables[step[PLACES] : step[OUTS]]
        outs = tables[step[OUTS] : step[END]]
        weight = w[step[WEIGHT] :]  # not used without weights, where the place is -1
        to_weight = gradient[step[WEIGHT] :]
        scratch = space[step[SCRATCH] :]
        kept = space[step[KEPT] :]
        x = space[step[X] : step[X] + inputs * SAMPLES]
        y = space[step[Y] : step[Y] + outputs * SAMPLES]
        gy = space[step[GY] : step[GY] + outputs * SAMPLES]
        channel_in = len(x) // channels
        channel_out = len(y) // channels
        if kind in (GROUP_NORM, BATCH_NORM):
            gx = space[step[GX] : step[GX] + len(x)]
            to_bias = gradient[step[BIAS] :]
            given = step, numbers[number], weight, batch, x, y, kept
            denormalise_all(*given, gy, gx, to_weight, to_bias, scratch)
            continue
        deactivate(gy, y, step[UNIT], numbers[number, 0], numbers[number, 1])
        if step[BIAS] >= 0:
            count = outputs // channels
            for o in range(channels):
                gradient[step[BIAS] + o] += add_places(gy[o * count * SAMPLES :], count, scratch)
        if kind == LINEAR:
            add_outer_products(gy, x, inputs, terms, rows, outs, scratch, to_weight)
        elif kind == CONVOLUTION:
            kernel = step[KERNEL]
            add_correlations(gy, x, kernel, terms, rows, places, scratch, to_weight)
        elif kind == ADD and step[G_OTHER] >= 0:
            g_other = space[step[G_OTHER] : step[G_OTHER] + len(gy)]
            if step[NEW_G_OTHER]:
                set_all(g_other, ZERO)
            add_to(gy, g_other)
        if step[GX] < 0:
            continue
        gx = space[step[GX] : step[GX] + len(x)]
        if step[NEW_GX]:
            set_all(gx, ZERO)
        if kind == SEGMENTS:
            add_segments(gy, outs, gx, places, step[LENGTH])
        elif kind == ADD:
            add_to(gy, gx)
        elif kind in (LINEAR, CONVOLUTION):
            sources = outs[: len(places)]
            convolve_back(weight, gy, terms[: step[KERNEL]], rows, places, sources, gx)
        elif kind == POOL:
            for c in range(channels):
                start = c * channel_out
                unpool(gy[start:], kept[start:], places, terms, gx[c * channel_in :])
        elif kind == AVERAGE:
            for c in range(channels):
                spread(gy[c * channel_out :], places, terms, gx[c * channel_in :])


def differentiate(
    steps: Integers,
    numbers: Floats,
    tables: Integers,
    w: Floats,
    x: Floats,
    labels: Integers,
    index: Integers,
    smoothing: Single,
    gradient: Floats,
    space: Floats,
) -> Single:
    """The gradient and mean loss of the samples `index` of `x` `(samples, features)`."""
    last = steps[-1]
    y = space[last[Y] : last[Y] + last[OUTPUTS] * SAMPLES]
    gy = space[last[GY] : last[GY] + last[OUTPUTS] * SAMPLES]
    loss = ZERO
    share = np.float32(1 / len(index))
    set_all(gradient, ZERO)
    for start in range(0, len(index), SAMPLES):
        batch = index[start : start + SAMPLES]
        # The input of the network is at the start of `space`.
        gather(x, batch, space[last[SCRATCH] :], space)
        forward(steps, numbers, tables, w, space, len(batch))
        loss += cross_entropy(y, last[OUTPUTS], labels, batch, share, smoothing, gy)
        backward(steps, numbers, tables, w, space, len(batch), gradient)
    return loss


def predict(
    steps: Integers,
    numbers: Floats,
    tables: Integers,
    w: Floats,
    x: Floats,
    index: Integers,
    outputs: Floats,
    space: Floats,
) -> None:
    """The outputs `(batch, classes)` of the samples `index` of `x` `(samples, features)`."""
    last = steps[-1]
    y = space[last[Y] : last[Y] + last[OUTPUTS] * SAMPLES]
    for start in range(0, len(index), SAMPLES):
        batch = index[start : start + SAMPLES]
        gather(x, batch, space[last[SCRATCH] :], space)
        forward(steps, numbers, tables, w, space, len(batch))
        for b in range(len(batch)):
            for k in range(last[OUTPUTS]):
                outputs[start + b, k] = y[k * SAMPLES + b]
