"""A network's forward and backward pass, as Python for numba, in one module with `kernels`.

A network is a table with a row of FIELDS a step, in numbers from the start of two arrays: of the
weights `(params,)`, and of the working memory `space`, which holds each step's input and output,
and two gradients in turn.
"""

from typing import Any

import numpy as np

from laggard.models.backends.compiled.kernels import (
    SAMPLES,
    TILE_ROWS,
    ZERO,
    Floats,
    Integers,
    Single,
    activate,
    add_columns,
    add_places,
    add_row,
    add_rows,
    copy,
    crop,
    cross_entropy,
    deactivate,
    gather,
    pad,
    pool,
    set_all,
    transpose,
    unpool,
)

# the columns of a step: places in `space`, places in the weights (-1: no bias), sizes, and its unit
FIELDS = 18
(
    KIND,
    X,
    Y,
    GX,
    GY,
    SCRATCH,
    IMAGE,
    WINNERS,
    WEIGHT,
    BIAS,
    INPUTS,
    OUTPUTS,
    UNIT,
    CHANNELS,
    HEIGHT,
    WIDTH,
    TOP,
    LEFT,
) = range(18)
# kinds; each convolution of a network has its own, from the last on
COPY, LINEAR, POOL, PAD, CONVOLUTION = range(5)
TERMS = 128
"""Terms of a product that are added up at a time: their SAMPLES columns stay in the fastest cache."""


def multiply(
    a: Floats, across: Any, down: Any, x: Floats, y: Floats, apart: Any, rows: Any, terms: Any
) -> None:
    """y += A x, for a matrix A `(rows, terms)` and SAMPLES columns of x and y.

    Args:
        a: the entry (m, k) of A is a[m * across + k * down].
        apart: the numbers from one row of y to the next.
    """
    for k in range(0, terms, TERMS):
        count = min(terms - k, TERMS)
        xs = x[k * SAMPLES :]
        for m in range(0, rows - TILE_ROWS + 1, TILE_ROWS):
            add_rows(a[m * across + k * down :], across, down, xs, y[m * apart :], apart, count)
        for m in range(rows - rows % TILE_ROWS, rows):
            add_row(a[m * across + k * down :], across, down, xs, y[m * apart :], apart, count)


def add_outer_products(
    gy: Floats, x: Floats, outputs: int, inputs: int, scratch: Floats, gradient: Floats
) -> None:
    """gradient[o * inputs + k] += sum_b gy[o, b] x[k, b], for SAMPLES inputs k at a time."""
    product = scratch[SAMPLES * SAMPLES : (SAMPLES + outputs) * SAMPLES]
    for start in range(0, inputs, SAMPLES):
        count = min(SAMPLES, inputs - start)
        transpose(x[start * SAMPLES :], count, SAMPLES, SAMPLES, scratch, SAMPLES)
        if count == SAMPLES:
            multiply(gy, SAMPLES, 1, scratch, gradient[start:], inputs, outputs, SAMPLES)
        else:  # such a product would reach beyond the rows of the gradient
            set_all(product, ZERO)
            multiply(gy, SAMPLES, 1, scratch, product, SAMPLES, outputs, SAMPLES)
            add_columns(product, outputs, start, inputs, gradient)


def convolve(
    number: int, w: Floats, bias: Floats, x: Floats, y: Floats, winners: Floats, image: Floats
) -> None:
    """The network's convolution `number`, with its pooling: generated."""


def convolve_back(
    number: int,
    w: Floats,
    x: Floats,
    gy: Floats,
    winners: Floats,
    gw: Floats,
    gx: Floats,
    sums: Floats,
    image: Floats,
) -> None:
    """The gradient of `convolve`: added to `gw`, and written to `gx` where needed; generated."""


def forward(steps: Integers, numbers: Floats, w: Floats, space: Floats) -> None:
    """The output of each step in turn."""
    for number in range(len(steps)):
        step = steps[number]
        kind = step[KIND]
        inputs, outputs = step[INPUTS], step[OUTPUTS]
        channels, height, width = step[CHANNELS], step[HEIGHT], step[WIDTH]
        weight = w[step[WEIGHT] :]  # not used without weights, where the place is -1
        winners = space[step[WINNERS] :]
        x = space[step[X] : step[X] + inputs * SAMPLES]
        y = space[step[Y] : step[Y] + outputs * SAMPLES]
        if kind == COPY:
            copy(x, y)
        elif kind == LINEAR:
            for o in range(outputs):
                start = ZERO
                if step[BIAS] >= 0:
                    start = w[step[BIAS] + o]
                set_all(y[o * SAMPLES : (o + 1) * SAMPLES], start)
            multiply(weight, inputs, 1, x, y, SAMPLES, outputs, inputs)
        elif kind == POOL:
            pool(x, channels, height, width, y, winners)
        elif kind == PAD:
            pad(x, channels, height, width, step[TOP], step[LEFT], y)
        else:
            bias = w[max(step[BIAS], 0) :]
            image = space[step[IMAGE] :]
            convolve(kind - CONVOLUTION, weight, bias, x, y, winners, image)
        activate(y, step[UNIT], numbers[number, 0], numbers[number, 1])


def backward(
    steps: Integers, numbers: Floats, w: Floats, space: Floats, first: int, gradient: Floats
) -> None:
    """Add each step's gradient to `gradient` `(params,)`, from the last step back to `first`."""
    for number in range(len(steps) - 1, first - 1, -1):
        step = steps[number]
        kind = step[KIND]
        inputs, outputs = step[INPUTS], step[OUTPUTS]
        channels, height, width = step[CHANNELS], step[HEIGHT], step[WIDTH]
        weight = w[step[WEIGHT] :]  # not used without weights, where the place is -1
        to_weight = gradient[step[WEIGHT] :]
        scratch = space[step[SCRATCH] :]
        winners = space[step[WINNERS] :]
        x = space[step[X] : step[X] + inputs * SAMPLES]
        y = space[step[Y] : step[Y] + outputs * SAMPLES]
        gx = space[step[GX] : step[GX] + inputs * SAMPLES]
        gy = space[step[GY] : step[GY] + outputs * SAMPLES]
        deactivate(gy, y, step[UNIT], numbers[number, 0], numbers[number, 1])
        if step[BIAS] >= 0:
            places = outputs // channels
            for o in range(channels):
                gradient[step[BIAS] + o] += add_places(gy[o * places * SAMPLES :], places, scratch)
        if kind == COPY:
            copy(gy, gx)
        elif kind == LINEAR:
            add_outer_products(gy, x, outputs, inputs, scratch, to_weight)
            if number > first:  # nothing before the first step with parameters needs a gradient
                set_all(gx, ZERO)
                multiply(weight, 1, inputs, gy, gx, SAMPLES, inputs, outputs)
        elif kind == POOL:
            unpool(gy, winners, channels, height, width, gx)
        elif kind == PAD:
            crop(gy, channels, height, width, step[TOP], step[LEFT], gx)
        else:
            image = space[step[IMAGE] :]
            convolve_back(kind - CONVOLUTION, weight, x, gy, winners, to_weight, gx, scratch, image)


def differentiate(
    steps: Integers,
    numbers: Floats,
    first: int,
    w: Floats,
    x: Floats,
    labels: Integers,
    index: Integers,
    gradient: Floats,
    space: Floats,
) -> Single:
    """The gradient and mean loss of the samples `index` of `x` `(samples, features)`."""
    last = steps[-1]
    y = space[last[Y] : last[Y] + last[OUTPUTS] * SAMPLES]
    gy = space[last[GY] : last[GY] + last[OUTPUTS] * SAMPLES]
    loss, share = ZERO, np.float32(1 / len(index))
    set_all(gradient, ZERO)
    for start in range(0, len(index), SAMPLES):
        batch = index[start : start + SAMPLES]
        gather(x, batch, space[steps[0][SCRATCH] :], space[steps[0][X] :])
        forward(steps, numbers, w, space)
        loss += cross_entropy(y, last[OUTPUTS], labels, batch, share, gy)
        backward(steps, numbers, w, space, first, gradient)
    return loss


def predict(
    steps: Integers,
    numbers: Floats,
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
        gather(x, batch, space[steps[0][SCRATCH] :], space[steps[0][X] :])
        forward(steps, numbers, w, space)
        for b in range(len(batch)):
            for k in range(last[OUTPUTS]):
                outputs[start + b, k] = y[k * SAMPLES + b]
