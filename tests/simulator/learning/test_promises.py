"""Promises: arithmetic that waits."""

import pytest
import torch

from laggard.simulator.learning.promises import Derived, Later, Promise


class Known(Promise):
    """A leaf that notes with which others it was evaluated."""

    asked: list

    def __init__(self, value, asked):
        self._value, self._later, self.asked = None, value, asked

    def evaluate(self, leaves):
        self.asked.append(len(leaves))
        for leaf in leaves:
            leaf._value = leaf._later


def leaves(count, asked, size=4):
    return [
        Known(torch.arange(float(size), dtype=torch.float64)[None] + 10 * n, asked)
        for n in range(count)
    ]


def test_values_are_computed_together_when_asked():
    asked = []
    a, b, c = leaves(3, asked)
    half = (a + b)[1:3] * 0.5
    other = half + c[1:3]
    assert asked == []
    torch.testing.assert_close(other.value, (a._later + b._later)[:, 1:3] * 0.5 + c._later[:, 1:3])
    assert asked == [3]
    torch.testing.assert_close(half.value, (a._later + b._later)[:, 1:3] * 0.5)
    assert asked == [3]
    assert torch.equal((0.5 * (a + b)[1:3]).value, half.value)


def test_promise_is_not_a_sequence():
    (promise,) = leaves(1, [])
    with pytest.raises(TypeError, match=r"expected a sequence .* \[gradient\], got one Known"):
        list(promise)


def test_long_sums_do_not_recurse():
    asked = []
    first, *rest = leaves(5000, asked, size=1)
    total = first
    for promise in rest:
        total = total + promise
    assert total.value.item() == sum(10.0 * n for n in range(5000))
    assert asked == [5000]


def test_shared_promise_is_computed_once():
    asked, computed = [], []
    (a,) = leaves(1, asked)
    shared = Derived((a,), lambda value: computed.append(1) or value * 2)
    levels = shared
    for _ in range(40):  # 2^40 additions if every path were walked
        levels = levels + levels
    assert levels.value[0, 1].item() == 2.0**41
    assert computed == [1]


def test_promises_derive_from_later_promise():
    asked = []
    later = Later()
    half = later[1:3] * 0.5
    (promise,) = leaves(1, asked)
    later.become(promise)
    assert asked == []
    assert torch.equal(half.value, torch.tensor([[0.5, 1.0]], dtype=torch.float64))
    assert torch.equal(later.value, promise.value)
    assert asked == [1]
