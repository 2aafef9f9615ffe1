"""Ringleader: its weights as a loop, how late a table is used, and servers of several cards."""

from functools import partial

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Record, Rule, Stop, simulate
from laggard.simulator.algorithms.contrib.ringleader import Ringleader
from laggard.simulator.algorithms.sharding import Shards
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.faults import Replaced, on_spoilt
from tests.theory.statements import at_most, close, equal, same
from tests.theory.trials import LR, UNEVEN, every, gradient_of, method

MARANJYAN = "Maranjyan & Richtarik (2025)"
P, ALPHA, TRANSFER = 8, 0.125, 0.25
"""Workers, the latency, and N beta of the cards below, in seconds."""


def uneven(factors, compute=None, **network):
    """Workers whose mini-batches take these multiples of 1 s, or of a law's times."""
    slow = [Factor(rank, factor=float(factor)) for rank, factor in enumerate(factors)]
    return Cluster(len(factors), compute or Constant(1.0), slow, network=Network(**network))


LAST_USES = {
    "speeds 1 : 2": uneven((2, 1)),
    "speeds 1 : 5": uneven((5, 1)),
    "speeds 1 : 2 : 3": uneven((6, 3, 2)),
    "4 exponential workers": uneven((1, 1, 1, 1), Exponential(1.0)),
}


@pytest.mark.parametrize("name", LAST_USES)
def test_last_use_of_gradient_is_late_by_bound(name):
    """A gradient stays in its table for a round, and may have waited in the next one for another."""
    cluster = LAST_USES[name]
    uses = []

    def observe(run):
        server = run.nodes[-1]
        apply = server.apply

        def note(weights, gradients):
            uses.extend(server.version - gradient.version_read for gradient in gradients)
            apply(weights, gradients)

        server.apply = note

    outcome = simulate(cluster, method("ringleader"), stop=Stop(updates=1200), observe=observe)
    text = f"ringleader, {name}: updates from a read to the last use of its gradient, 2 P - 2"
    equal(text, 2 * cluster.workers - 2, max(uses), source=MARANJYAN)
    if cluster.slowdowns and isinstance(cluster.compute, Constant):
        slowest = max(slow.factor for slow in cluster.slowdowns)
        rounds = 1200 / cluster.workers + 1
        text = f"ringleader, {name}: seconds of a round, over two mini-batches of the slowest"
        at_most(text, 1.0, outcome.progress.time / rounds / (2 * slowest), source=MARANJYAN)


def learn_by_loop(task, order, lr):
    """The weights of the method, written as a loop over workers in their order of arrival."""
    workers = max(order) + 1
    model = task.start([0])
    held = dict.fromkeys(range(workers), model)
    table, following, updated = {}, {}, set()
    batches = [task.batches(rank, [np.random.default_rng(0)]) for rank in range(workers)]
    for rank in order:
        gradient = gradient_of(task, held[rank], next(batches[rank]))
        if rank in updated:
            following.setdefault(rank, []).append(gradient)
            continue
        table.setdefault(rank, []).append(gradient)
        if len(table) < workers:
            continue
        model = model - lr * sum(sum(row) / len(row) for row in table.values()) / workers
        held[rank] = model
        updated.add(rank)
        if len(updated) == workers:
            table, following, updated = following, {}, set()
    return model


def test_weights_equal_loop_over_arrivals():
    optima, curvatures = np.linspace(-1, 2, 4).tolist(), np.linspace(1, 3, 4).tolist()
    task = Quadratic(noise=0.0, shift=optima, scale=curvatures, dtype=torch.float64)
    cluster = Cluster(4, Gamma(1.0, 0.8), network=Network(latency=0.3))
    algorithm = method("ringleader", Rule(lr=0.1))
    outcome = simulate(cluster, algorithm, task, stop=Stop(updates=200))
    rows = outcome.updates
    # They arrive in the order in which they are computed. Those without a row are not used yet.
    order = rows["worker"][np.argsort(rows["computed"], kind="stable")].tolist()
    expected = learn_by_loop(task, order, 0.1)
    close("ringleader = its loop over arrivals", outcome.weights, expected, source=MARANJYAN)


def test_model_goes_down_once_a_round_and_worker():
    """Other gradients are answered by tokens of no bytes; the first models are read at the start."""
    cluster, record = uneven((1, 1, 1, 1, 20), message_bytes=4.0), Record(messages=True)
    outcome = simulate(cluster, method("ringleader"), stop=Stop(updates=100), record=record)
    log = outcome.message_log
    models = (log["sender"] == -1) & (log["bytes"] > 0)
    assert models.sum() == 5 + 100
    assert ((log["sender"] == -1) & (log["bytes"] == 0)).sum() > 1000


def test_crash_holds_up_the_others_until_return():
    cluster = Cluster(3, slowdowns=[Crash(1, at=2.5, back=10.0)])
    outcome = simulate(cluster, method("ringleader"), stop=Stop(updates=12))
    times = np.unique(outcome.updates["time"])
    assert ((times <= 3) | (times >= 11)).all()


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_equal_one_server(shards):
    """On a free network all shards are sent their parts in one order."""
    one = every(UNEVEN, "ringleader")
    several = every(UNEVEN, "ringleader", shards=shards)
    text = f"ringleader, {shards} shards, free network = one server, every optimiser"
    same(text, several, one, source="derived")


def test_shards_of_different_order_stand_at_minimum():
    """Where workers' parts reach the shards in different orders, each counts all workers equally."""
    h = torch.tensor([1.0, 0.25, 2.0], dtype=torch.float64)
    a = torch.tensor([[0.0, 1.0, 2.0, 3.0], [5.0, -2.0, 4.0, 0.0], [1.0, 4.0, -3.0, 7.0]])
    a = a.to(torch.float64)
    task = Quadratic(
        curvature=[1.0, 0.5, 0.8, 0.9],
        scale=h.tolist(),
        shift=a.tolist(),
        initial=3.0,
        noise=0.0,
        dtype=torch.float64,
    )
    cluster = uneven((0.1, 0.3, 1), bandwidth=8.0, message_bytes=4.0, latency=0.01, sharing="fifo")
    algorithm = method("ringleader", Rule(lr=0.1), shards=2)
    outcome = simulate(cluster, algorithm, task, stop=Stop(updates=1000))
    rows = outcome.updates
    orders = [rows["worker"][rows["target"] == shard].tolist() for shard in (-1, -2)]
    assert orders[0] != orders[1]
    optimum = (h @ a / h.sum())[None]
    text = "ringleader, 2 shards, fifo: goes to sum h_i a_i / sum h_i"
    close(text, outcome.weights, optimum, source=MARANJYAN)


def on_cards(shards, stop, sharing, compute=1.0):
    """A run of equal workers on equal cards."""
    network = Network(bandwidth=12.0, latency=ALPHA, message_bytes=3.0, sharing=sharing)
    algorithm = method("ringleader", Rule(lr=LR), shards=shards)
    record = Record(messages=True)
    return simulate(
        Cluster(P, Constant(compute), network=network), algorithm, stop=stop, record=record
    )


@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_first_update_follows_closed_form(shards):
    """All workers are announced, sent the model, compute and send at the same moments."""
    outcome = on_cards(shards, Stop(updates=1), "fair")
    expected = 1.0 + 3 * ALPHA + 2 * P / shards * TRANSFER
    text = f"ringleader, P = {P}, {shards} shards: t_c + 3 alpha + 2 (P / S) N beta to an update"
    equal(text, expected, outcome.progress.time, source="derived")


@pytest.mark.parametrize("shards", [1, 2])
def test_cards_of_shards_limit_gradients(shards):
    """A gradient is sent once to the shards; a model comes back once a round and worker."""
    seconds = 60.0
    log = on_cards(shards, Stop(time=seconds), "fifo", compute=0.01).message_log
    assert log is not None
    sizes = np.unique(log["bytes"])
    equal("ringleader: bytes of a token", 0.0, sizes[0], source=MARANJYAN)
    equal(f"ringleader, {shards} shards: N / S", 3.0 / shards, sizes[1:], source="derived")
    parts = (log["sender"] >= 0) & (log["bytes"] > 0) & (log["arrived"] <= seconds)
    rate = parts.sum() / shards / seconds
    bound = shards / TRANSFER
    text = f"ringleader, {shards} shards, fifo: at most S / (N beta) gradients a second"
    at_most(text, bound, rate, source="derived")
    text = "of which the first exchanges and the rest of the time lack a few"
    at_most(text, 1 / 0.97, bound / rate, source="derived")


def forgetting(right):
    """A worker that goes on at half of what it holds when a shard sends it no new weights."""

    def take(self, shard, model):
        if model is None:
            model = 0.5 * self._models[shard]
        right(self, shard, model)

    return take


def whole_answers(own):
    return {"send": lambda to, content, size=1.0: own.send(to, content, size=min(1.0, 8 * size))}


def without_rounds(right):
    """A server that makes an update of every gradient, by the last one of each worker."""

    def server(self, own):
        state, table = self.rule.init(own.weights), {}
        while True:
            worker, gradient = yield own.receive()
            if gradient is not None:
                table[worker] = gradient
                taken = list(table.values())
                weights, state = self.rule.update(own.weights, taken, state)
                own.apply(weights, taken)
            own.send(worker, own.weights)

    return server


FAULTS = {
    "a table is never renewed": (
        Replaced(Ringleader, "server", without_rounds),
        partial(test_last_use_of_gradient_is_late_by_bound, "speeds 1 : 5"),
    ),
    "a token stands for weights": (
        Replaced(Shards, "_take", forgetting),
        partial(test_shards_equal_one_server, 2),
    ),
    "shards answer with whole models": (
        Replaced(Ringleader, "server", on_spoilt(whole_answers)),
        partial(test_first_update_follows_closed_form, 8),
    ),
    "shards are sent whole gradients": (
        Replaced(
            Shards,
            "push",
            lambda right: (
                lambda self, content, size=1.0: right(self, content, size * len(self._parts))
            ),
        ),
        partial(test_cards_of_shards_limit_gradients, 2),
    ),
}
