"""Methods without a server that go on after a crash: when, with which nodes, from which model."""

import math
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    DPSGD,
    SGP,
    AllReduce,
    Cluster,
    DiLoCoAllReduce,
    LocalAllReduce,
    Network,
    OverlapSGP,
    PriorityAllReduce,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.learning.rules import SGD, RuleState
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash
from tests.theory.trials import batches_of, first_weights, gradient_of

ONE_STEP = partial(LocalAllReduce, local_steps=1)
METHODS = [AllReduce, PriorityAllReduce, DPSGD, SGP, OverlapSGP, ONE_STEP]
UPDATES = 16
ABSENCES = [
    (2, 3.5, 6.0, 0.375),
    (0, 7.25, 7.5, 0.375),  # back before the others have met
    (0, 0.125, 9.0, 0.0),
    (3, 10.75, 11.5, 0.0),
]
"""The rank that is away, from when until when (s), and the seconds of a restart."""


def end_of(method, mode, seconds, *crashes, workers=4):
    """The outcome of `UPDATES` updates, of a second each."""
    cluster = Cluster(workers, slowdowns=list(crashes))
    algorithm = method(Rule(), on_crash=mode, restart_seconds=seconds)
    outcome = simulate(cluster, algorithm, stop=Stop(updates=UPDATES))
    assert (outcome.reached, outcome.progress.updates) == ("updates", UPDATES)
    return outcome


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rank", "down", "back", "seconds"), ABSENCES)
def test_restart_costs_absence_and_step_under_way(method, rank, down, back, seconds):
    outcome = end_of(method, "restart", seconds, Crash(rank, at=down, back=back))
    lost = (back - down) + seconds + math.fmod(down, 1)
    assert outcome.progress.time == pytest.approx(UPDATES + lost, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rank", "down", "back", "seconds"), ABSENCES)
def test_shrinking_costs_step_under_way_and_two_meetings(method, rank, down, back, seconds):
    outcome = end_of(method, "shrink", seconds, Crash(rank, at=down, back=back))
    meetings = 1 if back < down + seconds else 2  # a return in time joins the first one
    lost = math.fmod(down, 1) + meetings * seconds
    assert outcome.progress.time == pytest.approx(UPDATES + lost, rel=1e-12)
    applied = np.bincount(outcome.updates["worker"][outcome.updates["status"] == "applied"])
    begins = down + seconds  # steps of the others alone
    alone = 0 if meetings == 1 else math.ceil(back - begins)
    assert applied.tolist() == [UPDATES - alone * (worker == rank) for worker in range(4)]


@pytest.mark.parametrize("method", METHODS)
def test_group_shrinks_to_one_of_two(method):
    outcome = end_of(method, "shrink", 0.0, Crash(0, at=2.5), workers=2)
    assert outcome.progress.time == pytest.approx(UPDATES + 0.5, rel=1e-12)
    cluster = Cluster(2, slowdowns=[Crash(0, at=2.5)])
    outcome = simulate(cluster, method(Rule(), on_crash="restart"), stop=Stop(updates=UPDATES))
    assert (outcome.reached, outcome.progress.updates) == ("stalled", 2)
    assert "nodes [0], which are down" in outcome.stalled


LR, MOMENTUM = 0.05, 0.9


def learn_by_loop(task, workers, steps):
    """The model of all-reduce with momentum; a step has the ranks that take part, or that lose."""
    model = first_weights(task)
    buffer = torch.zeros_like(model)
    batches = [batches_of(task, rank) for rank in range(workers)]
    for ranks, counts in steps:
        gradients = [gradient_of(task, model, next(batches[rank])) for rank in ranks]
        if counts:
            buffer = MOMENTUM * buffer + sum(gradients) / len(gradients)
            model = model - LR * buffer
    return model


@pytest.mark.parametrize("method", [AllReduce, PriorityAllReduce])
@pytest.mark.parametrize(
    ("mode", "alone"), [("restart", []), ("shrink", [([0, 1, 3], True)] * 3)], ids=["all", "three"]
)
def test_step_under_way_is_lost_and_state_kept(method, mode, alone, quadratic):
    """Worker 2 is down from 3.5 to 6 s; the fourth mini-batches of all are lost."""
    everyone = range(4)
    steps = [(everyone, True)] * 3 + [(everyone, False)] + alone
    if alone and method is PriorityAllReduce:
        steps.append(([0, 1, 3], False))  # the forward passes that had begun when worker 2 joined
    steps += [(everyone, True)] * (10 - 3 - len(alone))
    rule = Rule(SGD(momentum=MOMENTUM), LR)
    cluster = Cluster(4, slowdowns=[Crash(2, at=3.5, back=6.0)])
    outcome = simulate(cluster, method(rule, on_crash=mode), quadratic, stop=Stop(updates=10))
    expected = learn_by_loop(quadratic, 4, steps)
    torch.testing.assert_close(outcome.weights, expected, rtol=1e-12, atol=1e-13)


def test_sum_that_one_node_has_is_not_lost(quadratic):
    """The first node sends the sum to the others in turn: one has it when another crashes."""
    network = Network(bandwidth=100.0, sharing="fifo")  # 0.2 s a message
    rule = Rule(SGD(momentum=MOMENTUM), LR)
    algorithm = AllReduce(rule, collective="server", on_crash="restart")
    free = simulate(Cluster(4, network=network), algorithm, quadratic, stop=Stop(updates=1))
    first, second = np.unique(free.updates["time"])[:2]
    ahead = free.updates["worker"][free.updates["time"] == first].tolist()
    crash = Crash(3, at=(first + second) / 2, back=4.0)
    cluster = Cluster(4, network=network, slowdowns=[crash])
    outcome = simulate(cluster, algorithm, quadratic, stop=Stop(updates=5))
    everyone = range(4)
    steps = [(everyone, True), (ahead, False)] + [(everyone, True)] * 4
    expected = learn_by_loop(quadratic, 4, steps)
    torch.testing.assert_close(outcome.weights, expected, rtol=1e-12, atol=1e-13)
    assert outcome.gradients["applied"] == 20


class WatchedSGP(SGP):
    """SGP whose nodes are kept for a look."""

    nodes: ClassVar = {}

    def worker(self, node):
        self.nodes[node.rank] = node
        return super().worker(node)


@pytest.mark.parametrize("mode", ["restart", "shrink"])
@pytest.mark.parametrize("end", [5.25, 20.5])
def test_push_sum_weights_add_up_to_nodes(mode, end, quadratic):
    crashes = [Crash(1, at=2.5, back=4.0), Crash(2, at=3.3, back=12.0), Crash(1, at=9.7, back=11.0)]
    cluster = Cluster(6, slowdowns=crashes)
    WatchedSGP.nodes.clear()
    algorithm = WatchedSGP(Rule(lr=0.01), on_crash=mode)
    simulate(cluster, algorithm, quadratic, stop=Stop(time=end))
    members = WatchedSGP.nodes[0].members
    weights = [WatchedSGP.nodes[rank].weight for rank in members]
    assert sum(weights) == pytest.approx(len(members), rel=1e-12)


@pytest.mark.parametrize("sharing", ["fair", pytest.param("fifo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["restart", "shrink"])
@pytest.mark.parametrize("method", [*METHODS, partial(DiLoCoAllReduce, local_steps=3)])
def test_random_crashes_break_no_rule(method, mode, sharing, quadratic):
    rng = np.random.default_rng(3)
    crashes = []
    for rank in range(5):
        moments = np.sort(rng.uniform(0, 25, 4))
        crashes += [
            Crash(rank, at=moments[0], back=moments[1]),
            Crash(rank, at=moments[2], back=moments[3]),
        ]
    network = Network(bandwidth=200.0, latency=0.05, sharing=sharing)
    cluster = Cluster(5, Gamma(1.0, 0.5), slowdowns=crashes, network=network)
    algorithm = method(Rule(lr=0.01), on_crash=mode, restart_seconds=0.2)
    outcome = simulate(cluster, algorithm, quadratic, stop=Stop(updates=25))
    assert (outcome.reached, outcome.progress.updates) == ("updates", 25)
    assert sum(outcome.gradients.values()) == 2 * outcome.gradients["started"]
    counts = outcome.messages
    assert counts["sent"] == counts["delivered"] + counts["lost"] + counts["in flight"]
    assert counts["in flight"] >= 0
    shares = sum(outcome.workers[name] for name in ("computing", "sending", "waiting", "down"))
    np.testing.assert_allclose(shares, outcome.progress.time, rtol=1e-9)
    if algorithm.one_model:
        assert (outcome.updates["staleness"] == 0).all()


RESETTING = partial(LocalAllReduce, local_steps=2, reset=True)


@pytest.mark.parametrize("method", [DPSGD, SGP, OverlapSGP, ONE_STEP, RESETTING])
def test_schedule_in_epochs_counts_present_members(method):
    """From 3.5 s on three of four nodes make the epochs that their schedules follow."""
    nodes = {}
    cluster = Cluster(4, slowdowns=[Crash(2, at=3.5)])
    outcome = simulate(
        cluster,
        method(Rule(), on_crash="shrink"),
        Quadratic(curvature=1.0, dim=3, epoch=20),
        stop=Stop(updates=10),
        observe=lambda simulation: nodes.update(simulation.nodes),
    )
    for rank in (0, 1, 3):
        state = nodes[rank].state
        if not isinstance(state, RuleState):
            state, _ = state  # beside that of the outer rule
        assert state.progress.epochs == pytest.approx(outcome.progress.epochs, rel=1e-9)
