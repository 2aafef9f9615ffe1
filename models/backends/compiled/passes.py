"""A network's forward and backward pass: Python that numba compiles, in one module with `kernels`
and `source`'s text.

A network is a table with a row of FIELDS a step, in numbers from the start of two arrays: of the
weights `(params,)`, and of the working memory `space`, which holds each step's input and output,
and two gradients in turn.
"""

from typing import Any

import numpy as np

from laggard.models.backends.compiled.kernels import (
    SAMPLES,
    ZERO,
    Floats,
    Integers,
    Single,
    activate,
    add_columns,
    add_places,
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


def multiply(a: Floats, x: Floats, y: Floats, rows: int, terms: Any) -> None:
    """y += A x, for a matrix `(rows, terms)` and all samples: generated."""


def multiply_transposed(a: Floats, x: Floats, y: Floats, rows: int, terms: int) -> None:
    """y += A' x, for a matrix `(terms, rows)` and all samples: generated."""


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
    """Its gradient: the kernels' is added to `gw`, and the input's written to `gx` where it is
    needed: generated.
    """


def forward(steps: Integers, numbers: Floats, w: Floats, space: Floats) -> None:
    """The output of each step in turn."""
    for number in range(len(steps)):
        step = steps[number]
        x = space[step[X] : step[X] + step[INPUTS] * SAMPLES]
        y = space[step[Y] : step[Y] + step[OUTPUTS] * SAMPLES]
        if step[KIND] == COPY:
            copy(x, y)
        elif step[KIND] == LINEAR:
            for o in range(step[OUTPUTS]):
                start = ZERO
                if step[BIAS] >= 0:
                    start = w[step[BIAS] + o]
                set_all(y[o * SAMPLES : (o + 1) * SAMPLES], start)
            multiply(w[step[WEIGHT] :], x, y, step[OUTPUTS], step[INPUTS])
        elif step[KIND] == POOL:
            pool(x, step[CHANNELS], step[HEIGHT], step[WIDTH], y, space[step[WINNERS] :])
        elif step[KIND] == PAD:
            pad(x, step[CHANNELS], step[HEIGHT], step[WIDTH], step[TOP], step[LEFT], y)
        else:
            bias = w[max(step[BIAS], 0) :]
            winners, image = space[step[WINNERS] :], space[step[IMAGE] :]
            convolve(step[KIND] - CONVOLUTION, w[step[WEIGHT] :], bias, x, y, winners, image)
        activate(y, step[UNIT], numbers[number, 0], numbers[number, 1])


def backward(
    steps: Integers, numbers: Floats, w: Floats, space: Floats, first: int, gradient: Floats
) -> None:
    """Add to `gradient` `(params,)` that of each step in turn, from the last to the `first` with
    parameters.
    """
    for number in range(len(steps) - 1, first - 1, -1):
        step = steps[number]
        x = space[step[X] : step[X] + step[INPUTS] * SAMPLES]
        y = space[step[Y] : step[Y] + step[OUTPUTS] * SAMPLES]
        gx = space[step[GX] : step[GX] + step[INPUTS] * SAMPLES]
        gy = space[step[GY] : step[GY] + step[OUTPUTS] * SAMPLES]
        scratch, winners = space[step[SCRATCH] :], space[step[WINNERS] :]
        deactivate(gy, y, step[UNIT], numbers[number, 0], numbers[number, 1])
        if step[BIAS] >= 0:
            places = step[OUTPUTS] // step[CHANNELS]
            for o in range(step[CHANNELS]):
                gradient[step[BIAS] + o] += add_places(gy[o * places * SAMPLES :], places, scratch)
        if step[KIND] == COPY:
            copy(gy, gx)
        elif step[KIND] == LINEAR:
            product = scratch[SAMPLES * SAMPLES : (SAMPLES + step[OUTPUTS]) * SAMPLES]
            for start in range(0, step[INPUTS], SAMPLES):
                transpose(x, start, step[INPUTS], scratch)
                set_all(product, ZERO)
                multiply(gy, scratch, product, step[OUTPUTS], np.int64(SAMPLES))
                add_columns(product, step[OUTPUTS], start, step[INPUTS], gradient[step[WEIGHT] :])
            if number > first:
                set_all(gx, ZERO)
                multiply_transposed(w[step[WEIGHT] :], gy, gx, step[INPUTS], step[OUTPUTS])
        elif step[KIND] == POOL:
            unpool(gy, winners, step[CHANNELS], step[HEIGHT], step[WIDTH], gx)
        elif step[KIND] == PAD:
            crop(gy, step[CHANNELS], step[HEIGHT], step[WIDTH], step[TOP], step[LEFT], gx)
        else:
            kernels, to_kernels, image = (
                w[step[WEIGHT] :],
                gradient[step[WEIGHT] :],
                space[step[IMAGE] :],
            )
            convolve_back(
                step[KIND] - CONVOLUTION, kernels, x, gy, winners, to_kernels, gx, scratch, image
            )


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
    """The gradient `(params,)` and mean loss of the samples `index` of `x` `(samples,
    features)`.
    """
    last = steps[-1]
    y = space[last[Y] : last[Y] + last[OUTPUTS] * SAMPLES]
    gy = space[last[GY] : last[GY] + last[OUTPUTS] * SAMPLES]
    loss, share = ZERO, np.float32(1 / len(index))
    set_all(gradient, ZERO)
    for start in range(0, len(index), SAMPLES):
        batch = index[start : start + SAMPLES]
        gather(x, batch, space[steps[0][X] :])
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
        gather(x, batch, space[steps[0][X] :])
        forward(steps, numbers, w, space)
        for b in range(len(batch)):
            for k in range(last[OUTPUTS]):
                outputs[start + b, k] = y[k * SAMPLES + b]
