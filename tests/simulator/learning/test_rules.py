"""Rules at the level of tensors: compensations, schedules, means."""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import InvalidSettingError
from laggard.simulator.learning.pool import FREE, GradientPool, memory_for
from laggard.simulator.learning.rules import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Chained,
    ClipNorm,
    ClipValue,
    Constant,
    Cosine,
    DCASGDa,
    DCASGDc,
    DelayAdaptive,
    GapAware,
    OneOverN,
    Progress,
    RMSProp,
    Rule,
    Staleness,
    Step,
    Uncompensated,
    WarmUp,
)
from laggard.simulator.learning.weights import mean, total

DOUBLE = torch.float64
LR = 0.1


def late(value, read, now, worker=0, staleness=3):
    """What a compensation sees of a gradient."""
    return SimpleNamespace(value=value, weights=read, worker=worker, staleness=staleness), now


def gradients_at(points, versions=None, curvature=2.0):
    """Promises of the gradients of h w^2 / 2 at `points`, each of a worker of its own."""
    task = Quadratic(curvature=curvature, dtype=DOUBLE)
    model = SimpleNamespace(rank=0, version=0, mixings=0)
    pool = GradientPool(task, torch.zeros(1, 1, dtype=DOUBLE), lambda *_: None)
    promises = [pool.promise(rank, model, torch.full((1, 1), w, dtype=DOUBLE), torch.zeros(1, dtype=DOUBLE))
                for rank, w in enumerate(points)]  # fmt: skip
    model.version = 4
    return promises


def test_dc_asgd_with_the_right_strength_gives_the_fresh_gradient_of_a_quadratic():
    h, read, now = (
        3.0,
        torch.tensor([[2.0, -1.0]], dtype=DOUBLE),
        torch.tensor([[1.5, 0.25]], dtype=DOUBLE),
    )
    stale = h * read
    compensation = DCASGDc(strength=1.0)
    # chosen anew for each coordinate: what lambda_0 approximates with one number
    strength = h / stale.square()
    object.__setattr__(compensation, "strength", strength)
    gradient, weights = late(stale, read, now)
    corrected, _ = compensation.correct(stale, gradient, weights, None, LR)
    torch.testing.assert_close(corrected, h * now, rtol=1e-14, atol=0)


def test_adaptive_dc_asgd_is_its_formula_and_keeps_a_state_per_worker():
    g, read, now = (
        torch.randn(1, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(i))
        for i in range(3)
    )
    compensation = DCASGDa(strength=2.0, decay=0.95)
    state = torch.full((1, 4), 0.3, dtype=DOUBLE)
    corrected, after = compensation.correct(g, *late(g, read, now), state, LR)
    squares = 0.95 * 0.3 + 0.05 * g**2
    torch.testing.assert_close(after, squares)
    torch.testing.assert_close(
        corrected, g + 2.0 / torch.sqrt(squares + 1e-7) * g * g * (now - read)
    )

    rule = Rule(SGD(), lr=0.1, compensation=compensation)
    weights = torch.ones(1, 1, dtype=DOUBLE)
    _, state = rule.update(weights, gradients_at([1.0, 5.0]), rule.init(weights))
    expected = {rank: 0.05 * (2.0 * w) ** 2 for rank, w in enumerate([1.0, 5.0])}
    assert {rank: float(s) for rank, s in state.workers.items()} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("compensation", "weight"), [(Staleness(), 1 / 4), (OneOverN(workers=8), 1 / 8)]
)
def test_damping_scales_the_step_of_sgd_before_or_after(compensation, weight):
    weights = torch.ones(1, 1, dtype=DOUBLE)
    for on in ("gradient", "step"):
        damped = type(compensation)(
            on=on, **({"workers": 8} if isinstance(compensation, OneOverN) else {})
        )
        rule = Rule(SGD(), lr=0.1, compensation=damped)
        after, _ = rule.update(weights, gradients_at([1.0]), rule.init(weights))
        assert float(after) == pytest.approx(1 - 0.1 * 2.0 * weight, rel=1e-14)


def test_damping_the_gradient_does_nothing_under_adam_but_damping_the_step_does():
    weights = torch.ones(1, 1, dtype=DOUBLE)
    after = {}
    for compensation in (Uncompensated(), Staleness(on="gradient"), Staleness(on="step")):
        rule = Rule(Adam(), lr=0.1, compensation=compensation)
        moved, _ = rule.update(weights, gradients_at([1.0]), rule.init(weights))
        after[compensation] = float(1 - moved)
    plain, before, step = after.values()
    assert before == pytest.approx(plain, rel=1e-6)
    assert step == pytest.approx(plain / 4, rel=1e-12)


@pytest.mark.parametrize("optimizer", [Adam(), RMSProp(), Adagrad()], ids=repr)
@pytest.mark.parametrize("compensation", [OneOverN, DelayAdaptive])
def test_what_normalises_its_gradient_undoes_a_factor_before_it_but_not_after(
    optimizer, compensation
):
    """1/16 of every gradient is the same step but for eps; 1/16 of every step is a sixteenth."""
    # gradients here are 4 stale
    size = {"workers": 16} if compensation is OneOverN else {"ceiling": LR * 4 / 16}
    moved = {}
    for damped in (
        Uncompensated(),
        compensation(on="gradient", **size),
        compensation(on="step", **size),
    ):
        rule = Rule(optimizer, lr=LR, compensation=damped)
        weights = torch.ones(1, 1, dtype=DOUBLE)
        state = rule.init(weights)
        for _ in range(5):
            weights, state = rule.update(weights, gradients_at([1.0]), state)
        moved[damped] = float(1 - weights)
    plain, before, after = moved.values()
    # eps over the smallest root: 1e-8 / (sqrt(1 - 0.99) 2 / 16)
    assert before == pytest.approx(plain, rel=1e-6)
    assert after == pytest.approx(plain / 16, rel=1e-12)


@pytest.mark.parametrize(("tau", "lr"), [(0, 0.3), (1, 0.3), (2, 0.1), (3, 0.1), (7, 0.1)])
def test_a_delay_adaptive_rate_is_the_smaller_of_the_rate_and_the_ceiling_over_the_staleness(
    tau, lr
):
    """Also with a schedule's factor in it, and at a rate of nothing, as warm-ups have it."""
    c, late = 0.2, SimpleNamespace(staleness=tau)
    expected = min(lr, c / tau) if tau else lr
    assert lr * DelayAdaptive(ceiling=c).weight(late, lr) == pytest.approx(expected, rel=1e-14)
    rates = torch.tensor([[lr], [0.0]], dtype=DOUBLE)
    assert (
        rates * DelayAdaptive(ceiling=c).weight(late, rates)
    ).flatten().tolist() == pytest.approx([expected, 0.0])
    gradient = gradients_at([1.0])[0]  # 4 stale, slope 2
    rule = Rule(
        SGD(),
        lr=0.4,
        schedule=Step(every=1, factor=0.25, unit="updates"),
        compensation=DelayAdaptive(ceiling=c),
    )
    weights = torch.ones(1, 1, dtype=DOUBLE)
    state = rule.init(weights)._replace(progress=Progress(1, 0.0))
    assert float(rule.update(weights, [gradient], state)[0]) == pytest.approx(
        1 - 2 * min(0.4 * 0.25, c / 4), rel=1e-14
    )


def test_a_delay_adaptive_rate_bounds_each_gradient_of_an_update_by_its_own_staleness():
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    gradients = gradients_at([1.0, 1.0])
    gradients[1].version_read = 4  # fresh
    for combine, divisor in ((mean, 2), (total, 1)):
        rule = Rule(SGD(), lr=0.4, compensation=DelayAdaptive(ceiling=0.2))
        after, _ = rule.update(weights, gradients, rule.init(weights), combine=combine)
        assert float(after) == pytest.approx(-2.0 * (0.2 / 4 + 0.4) / divisor, rel=1e-14)


def gap_aware_by_hand(path, read, value, decay):
    """The penalised gradient after the steps of `path`, each coordinate on its own, from the
    paper's formula.
    """
    steps = [[(b - a) ** 2 for a, b in zip(*pair, strict=True)] for pair in pairwise(path)]
    t = len(steps)
    weighed = [
        [(1 - decay) * decay ** (t - 1 - k) * square for square in step]
        for k, step in enumerate(steps)
    ]
    typical = [(sum(column) / (1 - decay**t)) ** 0.5 for column in zip(*weighed, strict=True)]
    gaps = [abs(now - then) for now, then in zip(path[-1], read, strict=True)]
    return [g / (1 + gap / c) for g, gap, c in zip(value, gaps, typical, strict=True)]


@pytest.mark.parametrize("decay", [0.999, 0.5, 0.0])
def test_gap_aware_divides_by_the_typical_steps_moved_since_the_read(decay):
    path = [[1.0, 2.0], [0.8, 2.5], [0.5, 2.4], [0.45, 2.0]]
    compensation, state, points = (
        GapAware(decay=decay),
        None,
        [torch.tensor([w], dtype=DOUBLE) for w in path],
    )
    value = torch.tensor([[3.0, -7.0]], dtype=DOUBLE)
    for index, now in enumerate(points):
        state = compensation.init(now) if state is None else state
        read = points[max(0, index - 2)]
        for _ in range(2):  # two gradients of one update see one step
            corrected, state = compensation.correct(value, *late(value, read, now), state, LR)
        expected = (
            [3.0, -7.0]
            if index == 0
            else gap_aware_by_hand(path[: index + 1], read[0].tolist(), [3.0, -7.0], decay)
        )
        assert corrected[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_the_typical_step_is_the_models_whoever_sends_the_gradient():
    """One worker's gradients are fresh; the other's first one meets a model whose steps it has not
    seen.
    """
    rule = Rule(SGD(), lr=LR, compensation=GapAware())
    weights = torch.ones(1, 1, dtype=DOUBLE)
    late_one = gradients_at([1.0, 1.0])[1]
    state = rule.init(weights)
    path = [weights]
    for _ in range(3):
        weights, state = rule.update(weights, gradients_at([float(weights)])[:1], state)
        path.append(weights)
    after, state = rule.update(weights, [late_one], state)
    (penalised,) = gap_aware_by_hand([[float(w)] for w in path], [1.0], [2.0], 0.999)
    assert float(weights - after) == pytest.approx(LR * penalised, rel=1e-12)
    assert len(state.workers) == 1


def test_a_coordinate_that_moves_by_a_constant_step_is_penalised_by_its_staleness():
    """Then |w - w_read| is tau typical steps, and the penalty 1 + tau."""
    compensation, state = GapAware(), None
    for t in range(30):
        now, read = (torch.full((1, 1), 1 - 0.1 * k, dtype=DOUBLE) for k in (t, t - 4))
        state = compensation.init(now) if state is None else state
        corrected, state = compensation.correct(
            torch.ones(1, 1, dtype=DOUBLE), *late(None, read, now), state, LR
        )
        assert float(corrected) == pytest.approx(1.0 if t == 0 else 1 / 5, rel=1e-9)


@pytest.mark.parametrize("tau", [0, 1])
def test_fresh_and_once_stale_gradients_count_in_full(tau):
    assert Staleness().weight(SimpleNamespace(staleness=tau), LR) == 1.0


def test_an_update_is_the_mean_of_its_gradients_evaluated_together():
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    gradients = gradients_at([1.0, 2.0, 6.0])
    rule = Rule(SGD(), lr=0.5)
    after, state = rule.update(weights, gradients, rule.init(weights))
    assert float(after) == pytest.approx(-0.5 * 2.0 * 3.0)
    assert gradients[0]._pool.calls == 1
    assert state.progress == Progress(1, pytest.approx(3 / 1000))


def test_weights_are_values():
    weights = torch.ones(1, 1, dtype=DOUBLE)
    rule = Rule(Adam(), lr=0.5, compensation=DCASGDa())
    state = rule.init(weights)
    before = [weights._version, state.optimizer.first._version]
    rule.update(weights, gradients_at([1.0]), state)
    assert [weights._version, state.optimizer.first._version] == before
    assert state.workers == {}


@pytest.mark.parametrize(
    ("schedule", "at", "factor"),
    [
        (Constant(), Progress(9, 9.0), 1.0),
        (Step(every=10, factor=0.5, unit="updates"), Progress(9, 0.0), 1.0),
        (Step(every=10, factor=0.5, unit="updates"), Progress(25, 0.0), 0.25),
        (Step(every=1), Progress(10, sum([0.1] * 10)), 0.1),
        (WarmUp(length=2.0), Progress(0, 0.5), 0.25),
        (WarmUp(length=2.0, start=0.2), Progress(0, 0.0), 0.2),
        (WarmUp(length=2.0), Progress(0, 7.0), 1.0),
        (Cosine(length=4.0, floor=0.1), Progress(0, 0.0), 1.0),
        (Cosine(length=4.0, floor=0.1), Progress(0, 2.0), 0.55),
        (Cosine(length=4.0, floor=0.1), Progress(0, 9.0), 0.1),
        (Step(factor=0.5, at=(2.0, 3.0)), Progress(0, 1.9), 1.0),
        (Step(factor=0.5, at=(2.0, 3.0)), Progress(0, 2.0), 0.5),
        (Step(factor=0.5, at=(2.0, 3.0)), Progress(0, 9.0), 0.25),
        (Chained([WarmUp(length=2.0), Step(every=1, factor=0.5)]), Progress(0, 1.0), 0.5 * 0.5),
    ],
)
def test_schedules(schedule, at, factor):
    assert float(schedule(at)) == pytest.approx(factor)


@pytest.mark.parametrize(
    "wrong", [{"every": 1.0, "at": (2.0,)}, {}, {"at": (3.0, 2.0)}, {"at": (0.0,)}]
)
def test_steps_are_at_one_distance_or_at_increasing_places(wrong):
    with pytest.raises(InvalidSettingError, match="Step"):
        Step(**wrong)


def test_a_gradient_is_clipped_member_by_member_as_torch_does_it():
    gradient = torch.tensor([[3.0, -4.0], [0.3, 0.4]], dtype=DOUBLE)
    for clip, by_torch in (
        (ClipNorm(2.0), lambda weights: torch.nn.utils.clip_grad_norm_(weights, 2.0)),
        (ClipValue(0.35), lambda weights: torch.nn.utils.clip_grad_value_(weights, 0.35)),
    ):
        for row, clipped in zip(gradient, clip(gradient), strict=True):
            weights = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
            weights.grad = row.clone()
            by_torch([weights])
            torch.testing.assert_close(clipped, weights.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("rule", "by_torch"),
    [
        (
            Rule(SGD(momentum=0.9), lr=LR, weight_decay=0.3),
            partial(torch.optim.SGD, momentum=0.9, weight_decay=0.3),
        ),
        (Rule(AdamW(weight_decay=0.3), lr=LR), partial(torch.optim.AdamW, weight_decay=0.3)),
    ],
    ids=["coupled", "decoupled"],
)
def test_a_weight_decay_is_torch_s(rule, by_torch):
    weights, own = (
        torch.full((1, 2), 2.0, dtype=DOUBLE),
        torch.full((1, 2), 2.0, dtype=DOUBLE, requires_grad=True),
    )
    state, optimizer = rule.init(weights), by_torch([own], lr=LR)
    for step in range(4):
        gradient = torch.tensor([[0.5, step - 2.0]], dtype=DOUBLE)
        weights, state = rule.step(weights, gradient, state, epochs=0.1)
        own.grad = gradient
        optimizer.step()
    torch.testing.assert_close(weights, own.detach(), rtol=1e-12, atol=0)


def test_a_schedule_counts_the_updates_and_epochs_that_were_applied():
    weights = torch.zeros(1, 1, dtype=DOUBLE)
    rule = Rule(SGD(), lr=1.0, schedule=WarmUp(length=2, unit="updates"))
    state, moves = rule.init(weights), []
    for _ in range(4):
        after, state = rule.update(weights, gradients_at([1.0]), state)
        moves.append(float(after))
    assert moves == [0.0, -1.0, -2.0, -2.0]


def test_negative_momentum_opposes_the_last_step():
    """On f = w^2 / 2 from w = 1: w(t+1) = (1 + m - lr) w(t) - m w(t-1), whatever the sign of m."""
    rule = Rule(SGD(momentum=-0.5), lr=0.3)
    weights = torch.ones(1, 1, dtype=DOUBLE)
    state, path = rule.init(weights), [1.0, 1.0]
    for _ in range(5):
        weights, state = rule.update(weights, gradients_at([float(weights)], curvature=1.0), state)
        path.append((1 - 0.5 - 0.3) * path[-1] + 0.5 * path[-2])
        assert float(weights) == pytest.approx(path[-1], rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SGD(momentum=1.0),
        lambda: SGD(momentum=-1.0),
        lambda: SGD(momentum=torch.tensor([[0.5], [1.5]])),
        lambda: Rule(lr=float("nan")),
        lambda: Rule(lr=torch.tensor([[0.5], [float("nan")]])),
        lambda: Staleness(on="weights"),
        lambda: Cosine(length=1.0, unit="seconds"),
        lambda: DCASGDa(strength=-1.0),
        lambda: OneOverN(workers=0),
        lambda: DelayAdaptive(ceiling=0.0),
        lambda: DelayAdaptive(on="lr"),
        lambda: GapAware(decay=1.0),
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match="expected"):
        wrong()


@pytest.mark.parametrize("shape", [(3,), (2, 1), (3, 3)])
def test_a_hyper_parameter_that_is_not_one_number_a_member_is_refused(shape):
    weights = torch.zeros(3, 3)
    for rule in (Rule(lr=torch.full(shape, 0.1)), Rule(SGD(momentum=torch.full(shape, 0.1)))):
        with pytest.raises(InvalidSettingError, match=r"a tensor \(ensemble, 1\) = \(3, 1\)"):
            rule.init(weights)


@pytest.mark.parametrize(
    ("optimizer", "scalars"),
    [
        (SGD(), 1),
        (SGD(momentum=torch.full((2, 1), 0.9, dtype=DOUBLE)), 2),
        (
            RMSProp(
                decay=torch.full((2, 1), 0.9, dtype=DOUBLE),
                eps=torch.full((2, 1), 1e-8, dtype=DOUBLE),
            ),
            4,
        ),
    ],
    ids=["lr", "lr and momentum", "lr, decay, 1 - decay and eps"],
)
def test_a_scalar_that_does_not_change_is_copied_to_a_device_once(optimizer, scalars, monkeypatch):
    copied = []

    def copy_like(scalar, like):
        copied.append(scalar)
        return torch.empty_like(scalar, dtype=like.dtype, device=like.device)

    monkeypatch.setattr("laggard.simulator.learning.rules.scalars.copy_like", copy_like)
    rule = Rule(optimizer=optimizer, lr=torch.tensor([[0.1], [0.2]], dtype=DOUBLE))
    weights = torch.zeros(2, 3, device="meta")
    state = rule.init(weights)
    for _ in range(5):
        weights, state = rule.step(weights, weights, state, epochs=0.1)
    assert len(copied) == scalars


def test_promises_take_a_share_of_a_device_s_free_memory(monkeypatch):
    monkeypatch.setitem(FREE, "meta", lambda device: 64e9)
    task, start = Quadratic(dim=1000), torch.zeros(4, 1000)
    assert memory_for(start) == 4 * 2**30
    assert memory_for(start.to("meta")) == 16e9
    pool = GradientPool(task, torch.empty(4, 1000, device="meta"), lambda *_: None)
    assert pool._max_pending == 16e9 // (2 * 4 * 1000 * 4)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), -0.1])
def test_a_rate_of_one_member_that_is_no_rate_is_refused(wrong):
    with pytest.raises(InvalidSettingError, match=r"Rule\.lr: expected a number"):
        Rule(lr=torch.tensor([[0.1], [wrong]], dtype=DOUBLE))
