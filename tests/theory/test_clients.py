"""Federated methods: clients that a server asks, their fixed points, staleness and rounds."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Rule, Stop, simulate
from laggard.simulator.algorithms.clients import ClientAnswer
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import Crash
from tests.theory.statements import (
    ERRORS,
    Statement,
    batch_means,
    check,
    close,
    equal,
    mean_is,
    same,
)
from tests.theory.trials import ONE, RULES, UNEVEN, every, method

MCMAHAN, LI, KARIMIREDDY = "McMahan et al. (2017)", "Li et al. (2020)", "Karimireddy et al. (2020)"
XIE, NGUYEN = "Xie et al. (2019)", "Nguyen et al. (2022)"
CURVATURES, OPTIMA = np.array([1.0, 0.25, 4.0]), np.array([0.0, 2.0, 10.0])
MINIMUM = float((CURVATURES * OPTIMA).sum() / CURVATURES.sum())
RATE, STEPS, PROXIMAL = 0.05, 8, 0.5


def differing():
    """Losses h_i (x - a_i)^2 / 2 with full gradients, a client each."""
    return Quadratic(
        scale=CURVATURES.tolist(), shift=OPTIMA.tolist(), noise=0.0, dtype=torch.float64
    )


@cache
def end(name, updates=100, **settings):
    """Where a method ends on clients that differ."""
    algorithm = method(name, Rule(lr=RATE), **{"local_steps": STEPS, **settings})
    return simulate(Cluster(3), algorithm, differing(), stop=Stop(updates=updates)).weights.item()


def timed(name, workers, updates, **settings):
    """A run of the clock alone, with exponential mini-batches of 1 s on average."""
    algorithm = method(name, Rule(), **{"local_steps": 1, **settings})
    return simulate(Cluster(workers, Exponential(1.0)), algorithm, stop=Stop(updates=updates))


def test_fedavg_with_all_clients_is_local_sgd():
    """The same models of the same clients are averaged in the same order."""
    one = every(UNEVEN, "fedavg", local_steps=3)
    other = every(UNEVEN, "local_sgd", local_steps=3, reset=True)
    same("fedavg, C = M, = local_sgd that resets, every optimiser", one, other, source=MCMAHAN)


def test_fedprox_without_proximal_term_is_fedavg():
    one, other = (
        every(UNEVEN, name, local_steps=3, clients=2, **more)
        for name, more in (("fedprox", {"proximal": 0.0}), ("fedavg", {}))
    )
    same("fedprox, proximal 0, = fedavg, every optimiser", one, other, source=LI)


def test_fixed_point_of_fedavg_is_not_the_minimum():
    """Clients with more curvature are nearer to their own optimum after H steps, and count more."""
    share = 1 - (1 - RATE * CURVATURES) ** STEPS
    expected = float((share * OPTIMA).sum() / share.sum())
    text = "fedavg goes to sum q_i a_i / sum q_i, q_i = 1 - (1 - lr h_i)^H"
    equal(text, expected, end("fedavg"), source="derived", rtol=1e-12, wrong=MINIMUM)


def test_fedprox_ends_at_its_fixed_point():
    steeper = CURVATURES + PROXIMAL
    share = (1 - (1 - RATE * steeper) ** STEPS) * CURVATURES / steeper
    expected = float((share * OPTIMA).sum() / share.sum())
    text = "fedprox: q_i = (1 - (1 - lr (h_i + mu))^H) h_i / (h_i + mu)"
    measured = end("fedprox", proximal=PROXIMAL)
    equal(text, expected, measured, source="derived", rtol=1e-12, wrong=end("fedavg"))


def test_scaffold_finds_the_minimum():
    """Its clients make as many local steps as those of FedAvg."""
    text = "scaffold goes to sum h_i a_i / sum h_i"
    measured = end("scaffold")
    equal(text, MINIMUM, measured, source=KARIMIREDDY, rtol=1e-12, wrong=end("fedavg"))


def scaffold_by_loop(rounds):
    """The weights after `rounds` of these clients, by the paper's lines."""
    weights, shared, own = 1.0, 0.0, np.zeros(3)
    for clients in rounds:
        models, changes = [], []
        for client in clients:
            model = weights
            for _ in range(STEPS):
                gradient = CURVATURES[client] * (model - OPTIMA[client])
                model -= RATE * (gradient - own[client] + shared)
            changes.append((weights - model) / (STEPS * RATE) - shared)
            models.append(model)
        own[clients] += changes
        shared += sum(changes) / 3
        weights += float(np.mean(models)) - weights
    return weights


def test_scaffold_with_sampled_clients_equals_its_pseudo_code():
    algorithm = method("scaffold", Rule(lr=RATE), local_steps=STEPS, clients=2)
    outcome = simulate(Cluster(3), algorithm, differing(), stop=Stop(updates=30))
    rows = outcome.updates
    rounds = [np.unique(rows["worker"][rows["version"] == version]) for version in range(30)]
    assert {len(clients) for clients in rounds} == {2}
    expected = scaffold_by_loop(rounds)
    measured = outcome.weights.item()
    equal(
        "scaffold, 2 of 3 clients = its lines", expected, measured, source=KARIMIREDDY, rtol=1e-12
    )


def test_shared_control_is_mean_of_clients_controls():
    """sum_i c_i = M c at the start of every round, with c_i by the paper's second option."""
    own, surplus = dict.fromkeys(range(3), 0.0), []
    asked = {}  # what each client was sent: w and c

    def send_of_server(send):
        def noted(client, content, **named):
            _, shared = asked[client] = content
            surplus.append(sum(own.values()) - 3 * shared.item())
            return send(client, content, **named)

        return noted

    def send_of_client(send, rank):
        def noted(server, content, **named):
            if isinstance(content, tuple):
                (model, _), _, _ = content
                read, shared = asked[rank]
                own[rank] += (read - model).item() / (STEPS * RATE) - shared.item()
            return send(server, content, **named)

        return noted

    def observe(run):
        for node in run.nodes.values():
            if node.rank < 0:
                node.send = send_of_server(node.send)
            else:
                node.send = send_of_client(node.send, node.rank)

    algorithm = method("scaffold", Rule(lr=RATE), local_steps=STEPS, clients=2)
    simulate(Cluster(3), algorithm, differing(), stop=Stop(updates=30), observe=observe)
    text = "scaffold, 2 of 3 clients: sum c_i - M c when a client is asked"
    equal(text, 0.0, surplus, source=KARIMIREDDY, rtol=1e-12)


def test_scaffold_of_single_steps_is_gradient_descent():
    """The corrections of all clients add up to 0."""
    one, other = (
        simulate(Cluster(3), method(name, Rule(lr=0.2), **more), differing(), stop=Stop(updates=25))
        for name, more in (("scaffold", {"local_steps": 1}), ("sync_ps", {}))
    )
    text = "scaffold, H = 1, full gradients, C = M = sync_ps"
    close(text, one.weights, other.weights, source=KARIMIREDDY)


@pytest.mark.parametrize(("name", "models"), [("fedavg", 2), ("fedprox", 2), ("scaffold", 4)])
def test_round_of_one_client_has_bytes_of_models(name, models):
    """One model each way, or two with the controls of SCAFFOLD."""
    network = Network(bandwidth=8.0, latency=0.125, message_bytes=4.0)
    algorithm = method(name, Rule(), local_steps=3)
    outcome = simulate(Cluster(1, Constant(1.0), network=network), algorithm, stop=Stop(updates=9))
    rounds = np.diff(np.unique(outcome.updates["time"]))
    text = f"{name}, P = 1: a round takes H t_c + 2 alpha + {models} N beta"
    equal(text, 3 + 2 * 0.125 + models * 0.5, rounds, source="derived")


def test_fedasync_with_one_client_takes_its_model():
    one = every(ONE, "fedasync", local_steps=3, share=1.0)
    other = every(ONE, "local_sgd", local_steps=3, reset=True)
    same("fedasync, one client, a s = 1, = its model, every optimiser", one, other, source=XIE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"staleness_weight": "constant"}, [1.0, 1.0, 1.0]),
        ({"staleness_weight": "polynomial", "power": 0.5}, [1.0, 4**-0.5, 9**-0.5]),
        ({"staleness_weight": "hinge", "power": 10.0, "hinge_from": 4.0}, [1.0, 1.0, 1 / 41]),
    ],
)
def test_stale_models_have_published_weights(settings, expected):
    """s(tau) at 0, 3 and 8."""
    algorithm = method("fedasync", Rule(), **settings)
    measured = [algorithm.weight_at(staleness) for staleness in (0, 3, 8)]
    for staleness, right, value in zip((0, 3, 8), expected, measured, strict=True):
        text = f"fedasync, {settings['staleness_weight']}: s({staleness})"
        equal(text, right, value, source=XIE, rtol=1e-15)


def test_fedbuff_of_single_steps_is_soft_sync():
    """Without weights for staleness a buffer of gradient steps is a sum of gradients."""
    sgd = RULES[:1]
    one = every(UNEVEN, "fedbuff", rules=sgd, local_steps=1, buffer=2, power=0.0)
    other = every(UNEVEN, "soft_sync", rules=sgd, gradients=2)
    close("fedbuff, H = 1, s = 1, C = M, sgd, = soft_sync", one, other, source=NGUYEN)


def test_buffer_is_divided_by_its_answers():
    """Not by the sum of their weights, so that stale changes move the model less."""
    read, model, weights = torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1, 1)
    answers = []
    for staleness in (0, 3):
        gradient = SimpleNamespace(staleness=staleness)
        answers.append(ClientAnswer(0, read, model, [gradient], samples=1))
    merged = method("fedbuff", Rule(), buffer=2, power=0.5).merge(weights, answers)
    text = "fedbuff: (1/K) sum s(tau_k), tau = 0 and 3"
    equal(text, (1 + 4**-0.5) / 2, merged.item(), source=NGUYEN, rtol=1e-7, wrong=1.0)


@pytest.mark.parametrize(("in_flight", "buffer"), [(10, 1), (10, 5), (20, 5)])
def test_mean_staleness_follows_buffer_size(in_flight, buffer):
    outcome = timed("fedbuff", 20, 6000 // buffer, in_flight=in_flight, buffer=buffer)
    staleness = outcome.updates["staleness"][1000:]
    text = f"fedbuff, {in_flight} in flight, K = {buffer}: mean staleness (C - 1) / K"
    mean_is(text, (in_flight - 1) / buffer, batch_means(staleness), source="derived")


def test_round_lasts_as_long_as_its_slowest_client():
    """The mean of the maximum of C exponential times is the C-th harmonic number."""
    outcome = timed("fedavg", 12, 2000, clients=5)
    rounds = np.diff(np.unique(outcome.updates["time"]))
    expected = sum(1 / client for client in range(1, 6))
    text = "fedavg, 5 of 12 exponential clients: a round takes 1 + 1/2 + .. + 1/5"
    mean_is(text, expected, rounds, source="order statistics")
    taken = np.bincount(outcome.updates["worker"], minlength=12) / 2000
    mean_is("fedavg: each client is in C / M of the rounds", 5 / 12, taken, source="sampling")


def test_answers_per_round_follow_time_out():
    outcome = timed("fedavg", 40, 500, clients=10, timeout=0.7)
    arrivals = np.bincount(outcome.updates["version"][outcome.updates["status"] == "applied"])
    text = "fedavg, time-out T: C (1 - e^(-mu T)) answers a round"
    mean_is(text, 10 * (1 - np.exp(-0.7)), arrivals, source="exponential law")


@pytest.mark.parametrize("name", ["fedasync", "fedbuff", "fedavg"])
@pytest.mark.parametrize("stop", [Stop(epochs=1), Stop(epochs=1, time=90)], ids=["epochs", "time"])
def test_run_that_no_client_answers_in_time_stalls(name, stop, monkeypatch):
    """The network, which no check of the settings sees, takes longer than the time-out."""
    monkeypatch.setattr("laggard.simulator.algorithms.clients.MAX_GIVEN_UP", 50)
    cluster = Cluster(4, Constant(0.1), network=Network(latency=0.5))
    algorithm = method(name, Rule(), local_steps=1, timeout=0.9)
    outcome = simulate(cluster, algorithm, stop=stop)
    assert outcome.reached == ("time" if stop.time else "stalled")
    assert outcome.progress.samples == 0


class Uneven(Quadratic):
    """Losses of clients that learn from 1, 2, 3 and 6 samples."""

    def samples(self, rank):
        return (1, 2, 3, 6)[rank]


def test_clients_are_drawn_by_samples():
    """Without replacement: the second of two by the samples of those that are left."""
    shares = np.array([1, 2, 3, 6]) / 12
    seconds = np.zeros(4)
    for first in range(4):
        others = np.where(np.arange(4) == first, 0.0, shares)
        seconds += shares[first] * others / others.sum()
    for drawn, expected in ((1, shares), (2, shares + seconds)):
        algorithm = method("fedavg", Rule(), local_steps=1, clients=drawn, sample="by_samples")
        stop = Stop(updates=1000)
        outcome = simulate(Cluster(4, Exponential(1.0)), algorithm, Uneven(), stop=stop)
        workers, rounds = outcome.updates["worker"], outcome.updates["version"]
        for client in range(4):
            is_in = np.bincount(rounds[workers == client], minlength=1000).astype(float)
            text = f"fedavg, {drawn} of 4 by samples: share of rounds of client {client}"
            mean_is(text, float(expected[client]), is_in, source=LI)


def test_clients_drawn_by_samples_count_equally():
    one, other = (
        simulate(
            Cluster(4),
            method(name, Rule(lr=RATE), local_steps=STEPS, **more),
            Uneven(scale=[1.0, 2.0, 0.5, 1.5], shift=[0.0, 3.0, -1.0, 2.0], noise=0.0),
            stop=Stop(updates=9),
        ).weights
        for name, more in (
            ("fedavg", {"sample": "by_samples"}),
            ("local_sgd", {"weighting": "equal", "reset": True}),
        )
    )
    same("fedavg, C = M by samples, = local_sgd with equal weights", one, other, source=LI)


def test_round_ends_with_first_of_more_clients():
    """The mean time of the first C of n exponential times is 1/n + .. + 1/(n - C + 1)."""
    outcome = timed("fedavg", 60, 700, clients=10, select=1.3)
    rounds = np.diff(np.unique(outcome.updates["time"][outcome.updates["status"] == "applied"]))
    expected = sum(1 / left for left in range(4, 14))
    text = "fedavg, the first 10 of 13 asked: 1/13 + .. + 1/4 a round"
    mean_is(text, expected, rounds, source="order statistics")


@pytest.mark.parametrize(("timeout", "answers"), [(None, 110.0), (3.0, 198.0)])
def test_time_out_frees_slot_of_crashed_client(timeout, answers):
    """Without a time-out the server keeps one client fewer at work for ever after."""
    algorithm = method("fedbuff", Rule(), local_steps=1, in_flight=2, buffer=1, timeout=timeout)
    cluster = Cluster(4, Constant(1.0), slowdowns=[Crash(0, at=10.5)])
    outcome = simulate(cluster, algorithm, stop=Stop(time=100.0))
    applied = outcome.gradients["applied"]
    text = f"fedbuff, 2 in flight, one of 4 clients gone, time-out {timeout}: answers in 100 s"
    check(Statement(text, "derived", answers, applied, 2.0))
    assert outcome.unanswered == 1


def test_idle_client_that_crashes_is_not_drawn_twice():
    """It announces itself when it is back, and is idle still."""
    algorithm = method("fedavg", Rule(), local_steps=1, clients=1)
    crashes = [Crash(rank, at=0.5 + rank, back=0.6 + rank) for rank in (1, 2, 3)]
    cluster = Cluster(4, Constant(1.0), slowdowns=crashes)
    outcome = simulate(cluster, algorithm, stop=Stop(updates=1000))
    share = float((outcome.updates["worker"] == 0).mean())
    text = "fedavg, 1 of 4, the others have crashed while idle: share of rounds of the first"
    error = (0.25 * 0.75 / 1000) ** 0.5
    check(Statement(text, "sampling", 0.25, share, ERRORS * error))
