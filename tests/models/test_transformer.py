"""The Transformer looks at no character to come, and learns through every backend and partition as
the others do.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import (
    Disjoint,
    Supervised,
    Transformer,
    characters,
    synthetic,
)
from laggard.models.flat import flatten
from laggard.models.layers import layers
from laggard.models.modules import Attention
from tests.models.plain import gradient_by_torch

POSITIONS, CLASSES = 12, 27
SMALL = Transformer(width=16, blocks=2, heads=2)


@pytest.fixture(scope="module")
def text():
    return characters(samples=40, positions=POSITIONS, words=30)


def supervised(data, network=SMALL, **given):
    return Supervised(
        network.build,
        data,
        batch=6,
        device="cpu",
        **{"threads": 1, "dtype": torch.float64, **given},
    )


def mean_over_positions(logits, labels):
    return cross_entropy(logits.movedim(-1, 1), labels)


def test_transformer_has_parameters_of_text_book():
    width, hidden = 64, 256
    attention = 4 * width * (width + 1)
    full = hidden * (width + 1) + width * (hidden + 1)
    norms = 2 * 2 * width
    ends = (27 + 32) * width + 2 * width + 27 * (width + 1)
    parameters = Transformer().build((32,), 27).parameters()
    assert len(flatten(parameters)) == 2 * (attention + full + norms) + ends


def test_position_sees_only_earlier_positions(text):
    torch.manual_seed(0)
    module = SMALL.build((POSITIONS,), CLASSES).double()
    x = text.train_x[:1].double()
    for at in range(POSITIONS):
        other = x.clone()
        other[0, at] = (other[0, at] + 1) % CLASSES
        moved = (module(x) - module(other)).abs().amax(dim=-1)[0] > 1e-9
        assert moved.tolist() == [position >= at for position in range(POSITIONS)]


def test_attention_is_causal_attention_of_torch():
    torch.manual_seed(0)
    width, heads = 12, 3
    own, other = (
        Attention(width, heads).double(),
        nn.MultiheadAttention(width, heads, batch_first=True).double(),
    )
    with torch.no_grad():
        for mine, its in (
            (own.inputs.weight, other.in_proj_weight), (own.inputs.bias, other.in_proj_bias),
            (own.output.weight, other.out_proj.weight), (own.output.bias, other.out_proj.bias),
        ):  # fmt: skip
            its.copy_(mine)
    x = torch.randn(2, POSITIONS, width, dtype=torch.float64)
    later = nn.Transformer.generate_square_subsequent_mask(POSITIONS, dtype=torch.float64)
    expected, _ = other(x, x, x, attn_mask=later, need_weights=False)
    torch.testing.assert_close(own(x), expected)


def test_position_of_character_matters():
    torch.manual_seed(0)
    module = SMALL.build((POSITIONS,), CLASSES)
    output = module(torch.full((1, POSITIONS), 5.0))[0]
    assert (output[0] - output[1]).abs().max() > 1e-4


@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_gradient_is_of_mean_over_samples_and_positions(text, backend):
    task = supervised(text, backend=backend)
    weights = torch.stack([task.start([0, 1]), task.start([2, 3])])
    batches = [next(task.batches(0, [np.random.default_rng(seed)])) for seed in (0, 1)]
    gradients, losses = task.gradients(weights, batches)
    for update, member in np.ndindex(2, 2):
        module, row = SMALL.build((POSITIONS,), CLASSES).double(), weights[update, member]
        x, y = text.train_x[batches[update]].double(), text.train_y[batches[update]]
        expected, loss = gradient_by_torch(module, row, x, y, mean_over_positions)
        assert losses[update, member].item() == pytest.approx(loss.item(), rel=1e-12)
        assert (gradients[update, member] - expected).abs().max() < 1e-12


def test_evaluation_is_mean_over_characters_of_test_set(text):
    task = supervised(text)
    weights = task.start([4])
    module = SMALL.build((POSITIONS,), CLASSES).double()
    nn.utils.vector_to_parameters(weights[0], module.parameters())
    logits = module(text.test_x.double())
    found = task.evaluate(weights)
    hits = (logits.argmax(-1) == text.test_y).double().mean()
    assert found["test_accuracy"].item() == pytest.approx(hits.item())
    loss = mean_over_positions(logits, text.test_y)
    assert found["test_loss"].item() == pytest.approx(loss.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _: supervised(synthetic(samples=20, features=5)), "one label for an input"),
        (lambda _: Transformer().describe((1, 28, 28), 10), "sequences of characters"),
    ],
)
def test_data_that_do_not_fit_are_refused(make, expected, text):
    with pytest.raises(ValueError, match=expected):
        make(text)


def test_texts_are_split_among_workers(text):
    supervised(text, partition=Disjoint(), workers=4)


def test_transformer_can_be_cut_between_parts():
    module = Transformer().build((32,), 27)
    found = layers(module, (32,), batch=5)
    names = [
        "embedding",
        "attention1",
        "feedforward1",
        "attention2",
        "feedforward2",
        "norm",
        "logits",
    ]
    assert [layer.name for layer in found] == names
    assert sum(layer.params for layer in found) == sum(
        parameter.numel() for parameter in module.parameters()
    )
    work = {layer.name: layer.work for layer in found}
    # Per position, multiplications of the full layers: 4 w^2 of attention and 8 w^2 of the layer
    # after it; the rest, norms and activations, counts its outputs, 13 w of them at most.
    assert 0 <= work["attention1"] / 32 - 4 * 64**2 <= 13 * 64
    assert 0 <= work["feedforward1"] / 32 - 8 * 64**2 <= 13 * 64
    assert {layer.activations for layer in found[:-1]} == {5 * 32 * 64}
