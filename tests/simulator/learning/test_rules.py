"""Rules at the level of tensors: compensations, schedules, means."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import InvalidSettingError
from laggard.simulator.learning.pool import FREE, GradientPool, memory_for
from laggard.simulator.learning.rules import (
    SGD,
    Adam,
    Chained,
    ClipValue,
    Constant,
    Cosine,
    DCASGDa,
    DelayAdaptive,
    Progress,
    RMSProp,
    Rule,
    Step,
    WarmUp,
)
from laggard.simulator.learning.rules.scalars import cast
from laggard.simulator.learning.weights import mean, total

DOUBLE = torch.float64


def gradients_at(points, curvature=2.0):
    """Promises of the gradients of h w^2 / 2 at `points`, four updates late, one a worker."""
    task = Quadratic(curvature=curvature, dtype=DOUBLE)
    model = SimpleNamespace(rank=0, version=0, mixings=0)
    noise = torch.zeros(1, dtype=DOUBLE)
    pool = GradientPool(task, noise[None], lambda *_: None)
    weights = torch.tensor(points, dtype=DOUBLE)
    promises = [pool.promise(rank, model, w.view(1, 1), noise) for rank, w in enumerate(weights)]
    model.version = 4
    return promises


@pytest.mark.parametrize(("combine", "divisor"), [(mean, 2), (total, 1)])
def test_delay_adaptive_rate_bounds_each_gradient(combine, divisor):
    """Each gradient has the bound of its own staleness, at the rate of the schedule."""
    gradients = gradients_at([1.0, 1.0])  # 4 stale, slope 2
    gradients[1].version_read = 4  # fresh
    schedule = Step(every=1, factor=0.5, unit="updates")
    rule = Rule(SGD(), lr=0.8, schedule=schedule, compensation=DelayAdaptive(ceiling=0.2))
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    state = rule.init(weights)._replace(progress=Progress(1, 0.0))
    after, _ = rule.update(weights, gradients, state, combine=combine)
    assert float(after) == pytest.approx(-2.0 * (0.2 / 4 + 0.4) / divisor, rel=1e-14)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda value: value[0], r"Tensor \(1,\) of torch.float64"),
        (lambda value: value.float(), r"Tensor \(1, 1\) of torch.float32"),
        (lambda value: value.numpy(), r"ndarray \(1, 1\) of float64"),
        (lambda value: None, "NoneType"),
    ],
)
def test_update_refuses_mapped_value_of_other_form(function, got):
    """A value without the axis of members would be that of all members."""
    (gradient,) = gradients_at([1.0])
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    expected = r"worker 0: expected a tensor \(1, 1\) of torch.float64"
    with pytest.raises(TypeError, match=f"rule.update: the gradient of {expected}, got {got}"):
        Rule().update(weights, [gradient.map(function)], Rule().init(weights))


def test_update_refuses_what_is_no_gradient():
    (gradient,) = gradients_at([1.0])
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    state = Rule().init(weights)
    with pytest.raises(TypeError, match=r"update: expected a gradient, .*map`, got Derived"):
        Rule().update(weights, [gradient * 0.5], state)
    with pytest.raises(ValueError, match=r"update: expected one gradient or more, got \[\]"):
        Rule().update(weights, [], state)


def test_weights_are_values():
    weights = torch.ones(1, 1, dtype=DOUBLE)
    rule = Rule(Adam(), lr=0.5, compensation=DCASGDa())
    state = rule.init(weights)
    before = [weights._version, state.optimizer.first._version]
    rule.update(weights, gradients_at([1.0]), state)
    assert [weights._version, state.optimizer.first._version] == before
    assert state.workers == {}


@pytest.mark.parametrize(
    ("schedule", "epochs", "factor"),
    [
        (Step(every=1), sum([0.1] * 10), 0.1),
        (WarmUp(length=2.0), 7.0, 1.0),
        (Cosine(length=4.0, floor=0.1), 9.0, 0.1),
    ],
)
def test_schedule_keeps_value_after_its_end(schedule, epochs, factor):
    """Ten tenths of an epoch, whose sum is rounded, and epochs after the end; `tests/theory`
    compares what lies before with torch.
    """
    assert float(schedule(Progress(10, epochs))) == pytest.approx(factor)


SCHEDULES = [
    Constant(),
    Step(every=2, factor=0.3, unit="updates"),
    Step(at=(1, 3), factor=0.1, unit="updates"),
    WarmUp(length=5.0),
    Cosine(length=torch.tensor([[3.0], [4.0]], dtype=DOUBLE), floor=0.1),
    Chained([WarmUp(length=2.0), Step(every=1, factor=0.5)]),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("lr", [0.3, torch.tensor([[0.3], [0.7]], dtype=DOUBLE)], ids=type)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_rate_is_that_of_next_step(schedule, lr, dtype):
    rule = Rule(SGD(), lr=lr, schedule=schedule)
    weights = torch.zeros(2, 3, dtype=dtype)
    gradient = torch.tensor([[1.0, 0.1, -7.0], [3.0, 1e-5, 0.0]], dtype=dtype)
    state = rule.init(weights, replicas=2)
    for updates, epochs in enumerate(itertools.accumulate([1.4] * 4, initial=0.0)):
        rate = rule.rate(state)
        expected = lr * schedule(Progress(updates, epochs))
        assert rate is lr or torch.equal(torch.as_tensor(rate), torch.as_tensor(expected))
        after, state = rule.step(weights, gradient, state, epochs=0.7)
        assert torch.equal(after, gradient * -cast(expected, weights))


def test_negative_momentum_opposes_last_step():
    """On f = w^2 / 2 from w = 1: w(t+1) = (1 + m - lr) w(t) - m w(t-1), whatever the sign of m."""
    rule = Rule(SGD(momentum=-0.5), lr=0.3)
    weights = torch.ones(1, 1, dtype=DOUBLE)
    state, path = rule.init(weights), [1.0, 1.0]
    for _ in range(5):
        weights, state = rule.update(weights, gradients_at([float(weights)], curvature=1.0), state)
        path.append((1 - 0.5 - 0.3) * path[-1] + 0.5 * path[-2])
        assert float(weights) == pytest.approx(path[-1], rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SGD, {"momentum": torch.tensor([[0.5], [1.5]])}),
        (Rule, {"lr": torch.tensor([[0.5], [float("nan")]])}),
        (Rule, {"lr": torch.tensor([[0.5], [-0.1]])}),
    ],
)
def test_tensors_out_of_range_are_refused(kind, settings):
    with pytest.raises(InvalidSettingError, match=f"{kind.__name__}.*expected"):
        kind(**settings)


@pytest.mark.parametrize("shape", [(3,), (2, 1), (3, 3)])
def test_hyper_parameter_of_wrong_shape_is_refused(shape):
    weights = torch.zeros(3, 3)
    for rule in (Rule(lr=torch.full(shape, 0.1)), Rule(SGD(momentum=torch.full(shape, 0.1)))):
        with pytest.raises(InvalidSettingError, match=r"a tensor \(ensemble, 1\) = \(3, 1\)"):
            rule.init(weights)


def members(value):
    """A value for each of two members: a new tensor, since known ones are copied already."""
    return torch.full((2, 1), value, dtype=DOUBLE)


@pytest.mark.parametrize(
    ("optimizer", "scalars"),
    [
        (SGD(), 1),
        (SGD(momentum=members(0.9)), 2),
        (RMSProp(decay=members(0.9), eps=members(1e-8)), 4),
    ],
    ids=["lr", "lr and momentum", "lr, decay, 1 - decay and eps"],
)
def test_constant_scalar_is_copied_to_device_once(optimizer, scalars, monkeypatch):
    copied = []

    def copy_like(scalar, like):
        copied.append(scalar)
        return torch.empty_like(scalar, dtype=like.dtype, device=like.device)

    monkeypatch.setattr("laggard.simulator.learning.rules.scalars.copy_like", copy_like)
    rule = Rule(optimizer, lr=members(0.1))
    weights = torch.zeros(2, 3, device="meta")
    state = rule.init(weights)
    for _ in range(5):
        weights, state = rule.step(weights, weights, state, epochs=0.1)
    assert len(copied) == scalars


def test_promises_take_share_of_free_memory(monkeypatch):
    monkeypatch.setitem(FREE, "meta", lambda device: 64e9)
    task, start = Quadratic(dim=1000), torch.zeros(4, 1000)
    assert memory_for(start) == 4 * 2**30
    assert memory_for(start.to("meta")) == 16e9
    pool = GradientPool(task, torch.empty(4, 1000, device="meta"), lambda *_: None)
    assert pool._max_pending == 16e9 // (2 * 4 * 1000 * 4)


def test_clip_beyond_single_precision_changes_no_gradient():
    gradient = torch.tensor([[1.0, -3e38, torch.inf]])
    each = torch.tensor([[1e299]], dtype=DOUBLE)
    assert torch.equal(ClipValue(1e299)(gradient), gradient)
    assert torch.equal(ClipValue(each)(gradient), gradient)
