"""Adam's step in compiled loops: the bits of torch's operations, and when it is taken."""

import pytest
import torch

from laggard.simulator.learning.rules import Adam, AdamW, adam_loops, compiled_adam
from laggard.simulator.learning.rules.compiled_adam import MIN_ENTRIES, loops_for

MEMBERS = 3
EACH = torch.tensor([[0.3], [1e-3], [0.0]], dtype=torch.float64)
"""A number for each member."""
EXTREMES = [0.0, -0.0, 1e-38, -1e-38, 1e-45, 1e20, -3e38, torch.inf, -torch.inf, torch.nan]


def drawn(seed, params):
    """Numbers over many orders of magnitude `(MEMBERS, params)`, all EXTREMES among them."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(MEMBERS, params, generator=generator)
    numbers *= 10 ** torch.randn(MEMBERS, params, generator=generator)
    places = torch.randperm(params, generator=generator)[: len(EXTREMES)]
    numbers[:, places] = torch.tensor(EXTREMES)
    return numbers


def changes(optimizer, lr, params):
    """Changes and running means of three steps."""
    weights = drawn(0, params)
    state = optimizer.init(weights)
    tensors = []
    for seed in range(1, 4):
        change, state = optimizer.step(drawn(seed, params), state, weights, lr)
        tensors += [change, state.first, state.second]
    return tensors


@pytest.mark.parametrize("lr", [0.1, EACH], ids=["one lr", "lr of each member"])
@pytest.mark.parametrize(
    "optimizer",
    [Adam(), AdamW(), Adam(beta1=EACH, beta2=0.99 - EACH, eps=EACH)],
    ids=["adam", "adamw", "adam of each member"],
)
@pytest.mark.parametrize(
    ("loops", "params"),
    [(compiled_adam.compile_loops, MIN_ENTRIES // MEMBERS + 5), (lambda: adam_loops, 41)],
    ids=["compiled", "interpreted"],
)
@pytest.mark.filterwarnings("ignore:.*encountered in scalar:RuntimeWarning")
def test_loops_have_the_bits_of_torch(loops, params, optimizer, lr, monkeypatch):
    monkeypatch.setattr(compiled_adam, "MIN_ENTRIES", MEMBERS * params)
    monkeypatch.setattr(compiled_adam, "compile_loops", loops)
    in_loops = changes(optimizer, lr, params)
    monkeypatch.setattr(compiled_adam, "compile_loops", lambda: None)
    for one, other in zip(in_loops, changes(optimizer, lr, params), strict=True):
        same = one.view(torch.int32) == other.view(torch.int32)
        assert (same | one.isnan() & other.isnan()).all()


def test_loops_are_taken_for_large_models():
    large = torch.zeros(2, MIN_ENTRIES // 2)
    assert loops_for(large) is compiled_adam.compile_loops() is not None
    assert loops_for(large[:, 1:]) is None
    assert loops_for(large.double()) is None
