"""A step of Adam in two loops, which `compiled_adam` compiles.

Each operation rounds like torch's, in the same order, and none are contracted, so that the bits are
the same. All arrays are float32 of one member, `(params,)`. Written arrays share no memory with
read ones; otherwise loops would not be vectorised.
"""

import numpy as np
from numpy.typing import NDArray

Entries = NDArray[np.float32]


def update_means(
    gradient: Entries,
    first: Entries,
    second: Entries,
    decays: Entries,
    new_first: Entries,
    new_second: Entries,
) -> None:
    """The running means of g and g^2; `decays` are beta1, 1 - beta1, beta2 and 1 - beta2."""
    beta1, rest1, beta2, rest2 = decays
    for i in range(len(gradient)):
        g = gradient[i]
        new_first[i] = first[i] * beta1 + g * rest1
        new_second[i] = second[i] * beta2 + g * g * rest2


def divide_by_roots(first: Entries, numbers: Entries, roots: Entries) -> None:
    """Write the change of the weights over `roots`, the square roots of the mean of g^2.

    Args:
        numbers: -lr / (1 - beta1^t), sqrt(1 - beta2^t) and eps.
    """
    size, root, eps = numbers
    for i in range(len(first)):
        roots[i] = first[i] * size / (roots[i] / root + eps)
