"""Muon against its polynomial, its symmetries, and torch's own."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import _muon

from laggard.simulator import Cluster, InvalidSettingError, Rule
from laggard.simulator.algorithms.contrib.ringmaster import Ringmaster
from laggard.simulator.learning.rules import SGD, Muon
from laggard.simulator.learning.rules.contrib import muon
from laggard.simulator.learning.rules.contrib.muon import (
    FACTORS,
    STEPS,
    hidden_matrices,
    orthogonal,
)
from tests.faults import Replaced, on_spoilt, settings
from tests.theory.statements import at_most, close, equal, same
from tests.theory.trials import (
    LR,
    ONE,
    UPDATES,
    batches_of,
    first_weights,
    gradient_of,
    method,
    perceptron,
    weights_after,
)

JORDAN = "Jordan et al. (2024)"


def polynomial(value):
    """The polynomial of a singular value, applied as often as the iteration does."""
    first, third, fifth = FACTORS
    for _ in range(STEPS):
        value = first * value + third * value**3 + fifth * value**5
    return value


def random_matrix(rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, rows, columns, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_orthogonal_turns_with_the_matrix(shape):
    """O(Q G R) = Q O(G) R for orthogonal Q and R, and O(c G) = O(G)."""
    rows, columns = shape
    matrix = random_matrix(rows, columns)
    left, _ = torch.linalg.qr(random_matrix(rows, rows, 1))
    right, _ = torch.linalg.qr(random_matrix(columns, columns, 2))
    turned = left @ orthogonal(matrix) @ right
    text = f"muon: O(Q G R) = Q O(G) R, {rows} x {columns}"
    close(text, orthogonal(left @ matrix @ right), turned, source=JORDAN)
    close("muon: O(1000 G) = O(G)", orthogonal(1000 * matrix), orthogonal(matrix), source=JORDAN)


def test_singular_values_come_near_one():
    """Each is the polynomial of the old one over the norm: within [0.68, 1.21] from 0.003 on."""
    matrix = random_matrix(40, 40)
    before = torch.linalg.svdvals(matrix / matrix.norm())
    after = np.sort(torch.linalg.svdvals(orthogonal(matrix)).numpy().ravel())
    expected = np.sort([polynomial(float(value)) for value in before.ravel()])
    equal(
        "muon: singular values over those of the polynomial",
        1.0,
        after / expected,
        source=JORDAN,
        rtol=1e-9,
    )
    large = [polynomial(value) for value in np.geomspace(0.003, 1.0, 2000)]
    at_most("muon: greatest singular value from 0.003 on", 1.2024, large, source="derived")
    at_most("muon: its inverse", 1 / 0.68, [1 / value for value in large], source="derived")


@pytest.mark.parametrize("n", [4, 16, 64])
def test_orthogonal_matrix_is_scaled_by_published_polynomial(n):
    """Its singular values over its norm are all 1 / sqrt(n)."""
    matrix, _ = torch.linalg.qr(random_matrix(n, n))
    value = 1 / math.sqrt(n)
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    text = f"muon: an orthogonal {n} x {n} matrix times p(p(p(p(p(1 / sqrt n)))))"
    close(text, orthogonal(matrix), value * matrix, source=JORDAN)


def test_fresh_gradients_of_ringmaster_give_plain_muon():
    task, rule = perceptron(5, 4), Rule(Muon(), lr=LR)
    one = weights_after(ONE, method("ringmaster", rule, threshold=1), task)
    other = weights_after(ONE, method("delayed", rule), task)
    same("ringmaster, R = 1, P = 1 = muon alone", one, other, source="derived")


def torchs_muon(task, settings, updates=UPDATES):
    """A loop of torch's Muon on the hidden matrices and its AdamW on all other parameters."""
    batches = batches_of(task)
    weights = first_weights(task)
    shapes = task.shapes()
    sizes = [math.prod(shape) for shape in shapes.values()]
    parts = weights[0].split(sizes)
    params = [
        nn.Parameter(part.reshape(shape).clone())
        for part, shape in zip(parts, shapes.values(), strict=True)
    ]
    names = hidden_matrices(shapes)
    hidden = [param for name, param in zip(shapes, params, strict=True) if name in names]
    others = [param for param in params if all(param is not matrix for matrix in hidden)]
    steps = [
        torch.optim.Muon(hidden, LR, **settings),
        torch.optim.AdamW(others, LR, weight_decay=0.1),
    ]
    for _ in range(updates):
        flat = torch.cat([param.detach().flatten() for param in params])[None]
        gradient = gradient_of(task, flat, next(batches))
        for param, own in zip(params, gradient[0].split(sizes), strict=True):
            param.grad = own.reshape(param.shape)
        for step in steps:
            step.step()
    return torch.cat([param.detach().flatten() for param in params])[None]


@pytest.mark.parametrize(
    ("own", "its"),
    [
        ({}, {}),
        ({"nesterov": False}, {"nesterov": False}),
        ({"adjust": "match_rms_adamw"}, {"adjust_lr_fn": "match_rms_adamw"}),
    ],
)
def test_muon_matches_torch_except_precision(own, its):
    """With torch's iteration, which is in bfloat16, replaced by ours it is the same."""
    task = perceptron(5, 4)
    rule = Rule(Muon(momentum=0.9, weight_decay=0.1, **own), lr=LR)
    settings = {"momentum": 0.9, "weight_decay": 0.1, **its}
    # one step: the directions of many differ more, since each has the same length
    first = weights_after(ONE, method("delayed", rule), task, 1)
    rounded = torchs_muon(task, settings, 1)
    apart = float((first - rounded).norm() / (first - first_weights(task)).norm())
    at_most("muon: one step from torch's, over its length", 0.03, apart, source="torch")
    mine = weights_after(ONE, method("delayed", rule), task)

    def iterate(update, *_):
        return orthogonal(update[None])[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_muon, "_zeropower_via_newtonschulz", iterate)
        others = torchs_muon(task, settings)
    close(f"muon, {own} = torch's with the same iteration", mine, others, source="torch")


STAGED = perceptron(6, 5, 4)
"""Four linear layers, of which the last makes outputs: a stage without a hidden matrix."""


@pytest.mark.parametrize("delay", [0, 2])
def test_matrices_of_stages_match_the_model(delay):
    """A stage holds its matrices whole, and the last one of the model is no hidden one of its
    stage.
    """
    rule = Rule(Muon(weight_decay=0.1), lr=LR)
    staged = weights_after(ONE, method("delayed_stages", rule, delays=(delay,) * 4), STAGED)
    whole = weights_after(ONE, method("delayed", rule, delay=delay), STAGED)
    same(
        f"muon: delayed_stages, D_s = {delay} = delayed, D = {delay}",
        staged,
        whole,
        source="derived",
    )


def test_pipeline_steps_as_one_process():
    rule, stages = Rule(Muon(), lr=LR), Cluster(workers=4)
    flushed = weights_after(stages, method("gpipe", rule, micro_batches=2), STAGED)
    together = weights_after(ONE, method("sync_ps", rule, accumulate=2), STAGED)
    close("muon: gpipe, S = 4, M = 2 = one process", flushed, together, source="derived")


def test_matrix_cut_by_shards_is_refused():
    algorithm = method("sync_ps", Rule(Muon(), lr=LR), shards=2)
    with pytest.raises(InvalidSettingError, match=r"Muon\.optimizer.* cut in two"):
        weights_after(Cluster(workers=2), algorithm, STAGED, 1)


class OfWholeModels(SGD):
    """An optimiser with shapes that does not say what it does with a part of a model."""

    needs_shapes = True

    def with_shapes(self, shapes):
        return self


def test_optimiser_of_whole_models_is_refused_on_parts():
    algorithm = method("sync_ps", Rule(OfWholeModels()), shards=2)
    with pytest.raises(InvalidSettingError, match=r"Rule\.optimizer"):
        weights_after(Cluster(workers=2), algorithm, STAGED, 1)
    weights_after(Cluster(workers=2), method("sync_ps", Rule(OfWholeModels())), STAGED, 1)


def sending_more(own):
    """A worker that adds 1 to its gradients."""

    def send(receiver, content, **named):
        if content is not None:
            content = content.map(lambda value: value + 1)
        return own.send(receiver, content, **named)

    return {"send": send}


MATCHED = {"adjust": "match_rms_adamw"}, {"adjust_lr_fn": "match_rms_adamw"}
PLAIN = {"nesterov": False}, {"nesterov": False}
FAULTS = {
    "the last matrix of a stage is none of Muon's": (
        Replaced(
            muon.ShapedMuon,
            "of_part",
            lambda right: (
                lambda self, place: replace(
                    right(self, place), hidden=hidden_matrices(right(self, place).shapes)
                )
            ),
        ),
        partial(test_matrices_of_stages_match_the_model, 2),
    ),
    "Muon's factor has no root": (
        Replaced(muon.ShapedMuon, "factor", lambda right: lambda self, n, m: 0.2 * max(n, m)),
        partial(test_muon_matches_torch_except_precision, *MATCHED),
    ),
    "Muon always looks ahead": (
        Replaced(muon.ShapedMuon, "step", settings(nesterov=lambda self: True)),
        partial(test_muon_matches_torch_except_precision, *PLAIN),
    ),
    "a coefficient of Muon's polynomial is rounded": (
        Replaced(vars(muon), "FACTORS", lambda right: (*right[:2], 2.03)),
        partial(test_orthogonal_matrix_is_scaled_by_published_polynomial, 16),
    ),
    "Ringmaster's gradients are not those of its worker": (
        Replaced(Ringmaster, "worker", on_spoilt(sending_more)),
        test_fresh_gradients_of_ringmaster_give_plain_muon,
    ),
}
