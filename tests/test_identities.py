"""Identities that hold for every optimiser: bit for bit where the operations are the same, else to 1e-12."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models import Quadratic
from simulator import AsyncPS, Cluster, Delayed, Evaluate, KAsync, KBatchSync, Rule, SoftSync, Stop, SyncPS, simulate
from simulator.laws import Constant, Exponential, Gamma
from simulator.rules import (
    COMPENSATIONS,
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Cosine,
    DCASGDa,
    DCASGDc,
    DelayAdaptive,
    GapAware,
    Nesterov,
    RMSProp,
    Staleness,
    Step,
    WarmUp,
)
from simulator.streams import BATCHES, start_seed, stream

LR = 0.03
TORCH = {
    "sgd": (SGD(), lambda p: torch.optim.SGD(p, LR)),
    "momentum": (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "nesterov": (Nesterov(momentum=0.8), lambda p: torch.optim.SGD(p, LR, momentum=0.8, nesterov=True)),
    "adagrad": (Adagrad(), lambda p: torch.optim.Adagrad(p, LR)),
    "rmsprop": (RMSProp(decay=0.95), lambda p: torch.optim.RMSprop(p, LR, alpha=0.95)),
    "adam": (Adam(), lambda p: torch.optim.Adam(p, LR)),
    "adamw": (AdamW(weight_decay=0.1), lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1)),
}
OPTIMISERS = {name: optimizer for name, (optimizer, _) in TORCH.items()}
UPDATES = 40
ONE = Cluster(workers=1, compute=Exponential(1.0))
LATE = [
    DCASGDc(strength=1.0), DCASGDa(), Staleness(), Staleness(on="step"), DelayAdaptive(ceiling=0.05),
    DelayAdaptive(ceiling=0.05, on="step"), GapAware(),
]  # fmt: skip
every_optimiser = pytest.mark.parametrize("name", TORCH)


def weights_of(cluster, algorithm, task, **more):
    more = {"stop": Stop(updates=UPDATES), "evaluate": Evaluate(every_updates=UPDATES), **more}
    return simulate(cluster, algorithm, task, **more).weights


def plain_loop(task, optimiser, seed=0):
    """The training loop that anyone would write, with torch's own optimiser."""
    weights = torch.nn.Parameter(task.start([start_seed(seed)]))
    optimiser = optimiser([weights])
    batches = task.batches(0, [stream(seed, BATCHES, 0)])
    for _ in range(UPDATES):
        weights.grad = task.gradients(weights.detach()[None], [next(batches)])[0][0]
        optimiser.step()
    return weights.detach()


def test_every_optimiser_of_the_table_is_held_against_torch():
    assert {type(optimizer) for optimizer in OPTIMISERS.values()} == set(OPTIMIZERS.values())


@every_optimiser
@pytest.mark.parametrize("algorithm", [Delayed, AsyncPS, SyncPS])
def test_one_worker_is_the_plain_loop_with_torch_optim(name, algorithm, quadratic, perceptron):
    optimizer, torch_optimiser = TORCH[name]
    for task in (quadratic, perceptron):
        mine = weights_of(ONE, algorithm(Rule(optimizer, lr=LR)), task)
        torch.testing.assert_close(mine, plain_loop(task, torch_optimiser), rtol=1e-12, atol=1e-13)


@every_optimiser
@pytest.mark.parametrize("P", [2, 5])
def test_equal_asynchronous_workers_are_a_constant_delay(name, P, dealt, quadratic, perceptron):
    rule = Rule(OPTIMISERS[name], lr=LR)
    for task in (quadratic, perceptron):
        workers = weights_of(Cluster(workers=P, compute=Constant(0.1)), AsyncPS(rule), dealt(task, P))
        delayed = weights_of(Cluster(workers=1, compute=Constant(0.1)), Delayed(rule, delay=P - 1), dealt(task, 1))
        assert torch.equal(workers, delayed)


@every_optimiser
def test_synchronous_is_one_worker_with_all_mini_batches_together(name, quadratic):
    optimizer, torch_optimiser = TORCH[name]
    P = 4
    together = weights_of(Cluster(workers=P, compute=Exponential(1.0)), SyncPS(Rule(optimizer, lr=LR)), quadratic)
    weights = torch.nn.Parameter(quadratic.start([0]))
    torch_optimiser = torch_optimiser([weights])
    streams = [quadratic.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    for _ in range(UPDATES):
        gradients = [quadratic.gradients(weights.detach()[None], [next(stream)])[0][0] for stream in streams]
        weights.grad = torch.stack(gradients).mean(0)
        torch_optimiser.step()
    torch.testing.assert_close(together, weights.detach(), rtol=1e-12, atol=1e-13)


def test_waiting_for_all_is_synchronous(quadratic):
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    runs = [weights_of(cluster, SyncPS(Rule(lr=LR), wait_for=n, cancel=c), quadratic) for n, c in
            [(None, False), (4, False), (4, True)]]  # fmt: skip
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


@every_optimiser
def test_one_gradient_an_update_is_asynchronous_and_all_workers_are_synchronous(name, quadratic):
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    rule = Rule(OPTIMISERS[name], lr=LR)
    asynchronous = weights_of(cluster, AsyncPS(rule), quadratic)
    assert torch.equal(asynchronous, weights_of(cluster, KAsync(rule, wait_for=1), quadratic))
    assert torch.equal(asynchronous, weights_of(cluster, SoftSync(rule, gradients=1), quadratic))
    synchronous = weights_of(cluster, SyncPS(rule), quadratic)
    assert torch.equal(synchronous, weights_of(cluster, KAsync(rule, wait_for=4), quadratic))


def test_k_batch_sync_of_one_worker_is_the_mean_of_k_mini_batches(quadratic):
    """What it begins at old weights and cancels takes a mini-batch of its own: every (K + 1)-th is skipped."""
    K = 3
    together = weights_of(ONE, KBatchSync(Rule(lr=LR), gradients=K), quadratic)
    weights, batches = quadratic.start([0]), quadratic.batches(0, [stream(0, BATCHES, 0)])
    for _ in range(UPDATES):
        gradients = [quadratic.gradients(weights[None], [next(batches)])[0][0] for _ in range(K)]
        weights = weights - LR * torch.stack(gradients).mean(0)
        next(batches)
    torch.testing.assert_close(together, weights, rtol=1e-12, atol=1e-13)


@every_optimiser
@pytest.mark.parametrize("compensation", [DCASGDc(strength=0.0), DCASGDa(strength=0.0)])
def test_delay_compensation_of_strength_zero_is_asgd(name, compensation, quadratic):
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    plain = Rule(OPTIMISERS[name], lr=LR)
    assert torch.equal(
        weights_of(cluster, AsyncPS(plain), quadratic),
        weights_of(cluster, AsyncPS(replace(plain, compensation=compensation)), quadratic),
    )


@every_optimiser
@pytest.mark.parametrize("compensation", [*LATE, DelayAdaptive(ceiling=1e-9)])
def test_compensation_changes_nothing_for_one_worker(name, compensation, quadratic):
    plain = Rule(OPTIMISERS[name], lr=LR)
    assert torch.equal(
        weights_of(ONE, AsyncPS(plain), quadratic),
        weights_of(ONE, AsyncPS(replace(plain, compensation=compensation)), quadratic),
    )


@pytest.mark.parametrize("compensation", LATE)
def test_compensation_does_something_for_four_workers(compensation, quadratic):
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    plain = weights_of(cluster, AsyncPS(Rule(lr=LR)), quadratic)
    assert not torch.equal(plain, weights_of(cluster, AsyncPS(Rule(lr=LR, compensation=compensation)), quadratic))


@every_optimiser
@pytest.mark.parametrize("defer", [True, False])
def test_an_ensemble_is_its_members_run_alone(name, defer, quadratic, perceptron):
    """Learning rates, momenta, compensation strengths, schedules and seeds, each a member of its own."""
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), seed=3)
    members = [(0.01, 0.5, 3.0, 5), (0.05, 2.0, 1.0, 5), (0.02, 0.0, 0.5, 6)]

    def rule(lr, strength, length):
        warm_up = WarmUp(length=length, unit="epochs")
        return Rule(OPTIMISERS[name], lr=lr, schedule=warm_up, compensation=DCASGDa(strength=strength))

    def column(index):
        return torch.tensor([member[index] for member in members], dtype=torch.float64)[:, None]

    for task in (quadratic, perceptron):
        seeds = [member[3] for member in members]
        together = weights_of(
            cluster, AsyncPS(rule(column(0), column(1), column(2))), task, learning_seeds=seeds, defer=defer
        )
        for member, (lr, strength, length, seed) in enumerate(members):
            alone = weights_of(cluster, AsyncPS(rule(lr, strength, length)), task, learning_seeds=[seed])
            assert torch.equal(together[member : member + 1], alone)


@every_optimiser
def test_hyper_parameters_of_an_ensemble_are_those_of_its_members(name):
    """In single precision too: scalars are double in both, and rounded once."""
    task = Quadratic(curvature=1.0, dim=7, condition=30.0, noise=0.3, epoch=50)
    fields = {"sgd": "momentum", "momentum": "momentum", "nesterov": "momentum", "adagrad": "eps", "rmsprop": "decay"}
    field, values = fields.get(name, "beta2"), [0.3, 0.7, 0.95]
    cluster = Cluster(workers=3, compute=Gamma(1.0, 0.5))
    tensor = torch.tensor(values, dtype=torch.float64)[:, None]
    schedules = [Step(every=0.5), Cosine(length=0.7)]
    for schedule in schedules:
        rules = [Rule(replace(OPTIMISERS[name], **{field: value}), LR, schedule) for value in [tensor, *values]]
        together = weights_of(cluster, AsyncPS(rules[0]), task, ensemble=3)
        for member, alone in enumerate(rules[1:]):
            assert torch.equal(together[member : member + 1], weights_of(cluster, AsyncPS(alone), task))


@pytest.mark.parametrize("algorithm", [AsyncPS, SyncPS, lambda rule: SyncPS(rule, wait_for=3, cancel=True)])
def test_deferred_evaluation_is_immediate_evaluation(algorithm, quadratic, perceptron):
    cluster = Cluster(workers=5, compute=Gamma(1.0, 0.5))
    for task in (quadratic, perceptron):
        late, now = (
            simulate(cluster, algorithm(Rule(lr=LR)), task, stop=Stop(updates=UPDATES), defer=defer)
            for defer in (True, False)
        )
        assert torch.equal(late.weights, now.weights)
        for column in late.metrics:
            np.testing.assert_array_equal(late.metrics[column], now.metrics[column])
        assert late.evaluated <= now.evaluated


@every_optimiser
def test_a_diverged_member_leaves_the_others_untouched(name, quadratic):
    cluster = Cluster(workers=3, compute=Gamma(1.0, 0.5))
    lr = torch.tensor([LR, float(np.finfo(float).max), LR], dtype=torch.float64)[:, None]
    outcome = simulate(
        cluster, AsyncPS(Rule(OPTIMISERS[name], lr=lr)), quadratic, stop=Stop(updates=UPDATES), ensemble=3
    )
    assert outcome.diverged[0] is outcome.diverged[2] is None
    assert outcome.diverged[1].updates <= UPDATES
    alone = weights_of(cluster, AsyncPS(Rule(OPTIMISERS[name], lr=LR)), quadratic)
    assert torch.equal(outcome.weights[::2], alone.expand(2, -1))


@pytest.mark.parametrize("on", ["gradient", "step"])
@every_optimiser
def test_ceilings_and_decays_of_an_ensemble_are_those_of_its_members(name, on):
    """In single precision, with a learning rate and a schedule per member too."""
    task = Quadratic(curvature=1.0, dim=7, condition=30.0, noise=0.3, epoch=50)
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    members = [(0.01, 0.02, 0.9), (0.03, 0.05, 0.99), (0.02, 9.0, 0.5)]
    columns = [
        torch.tensor([[value] for value in column], dtype=torch.float64) for column in zip(*members, strict=True)
    ]

    def rules(lr, ceiling, decay):
        for compensation in (DelayAdaptive(on=on, ceiling=ceiling), GapAware(decay=decay)):
            yield Rule(OPTIMISERS[name], lr=lr, schedule=WarmUp(length=0.7), compensation=compensation)

    together = [weights_of(cluster, AsyncPS(rule), task, ensemble=3) for rule in rules(*columns)]
    for index, member in enumerate(members):
        for all_members, alone in zip(together, rules(*member), strict=True):
            assert torch.equal(all_members[index : index + 1], weights_of(cluster, AsyncPS(alone), task))


def test_every_compensation_of_the_table_has_an_identity():
    tested = {"none", "staleness", "one_over_n", "delay_adaptive", "dc_asgd_c", "dc_asgd_a", "gap_aware"}
    assert set(COMPENSATIONS) == tested
