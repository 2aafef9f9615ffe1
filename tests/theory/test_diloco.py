"""Local steps between averages by a collective, and outer steps that nobody waits for."""

import math

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, InvalidSettingError, Network, Record, Rule, Stop, simulate
from laggard.simulator.algorithms.contrib.decoupled_diloco import Push
from laggard.simulator.learning.rules import Adam, Chained, Cosine, Step, WarmUp
from laggard.simulator.learning.rules.contrib.cgad import CGAD
from laggard.simulator.learning.rules.contrib.heloco import HeLoCo
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.theory.statements import close, differ, equal, same
from tests.theory.trials import ONE, RULES, UNEVEN, every, method

DOUILLARD, LIU = "Douillard et al. (2023)", "Liu et al. (2024)"
ASIF, SHAH = "Asif et al. (2026)", "Shah & Sun (2026)"
STREAM, DECOUPLED = "Douillard et al. (2025)", "Douillard et al. (2026)"
GU = "Gu et al. (2024)"


class UnevenShards(Quadratic):
    """Workers with optima of their own, and 10, 20, 30, .. samples."""

    def samples(self, rank):
        return 10 * (rank + 1)


def shards():
    return UnevenShards(shift=[0.0, 1.0, 5.0], noise=0.1, dtype=torch.float64)


def run(name, cluster=None, updates=12, **settings):
    algorithm = method(name, Rule(lr=0.1), local_steps=4, **settings)
    return simulate(cluster or Cluster(3), algorithm, shards(), stop=Stop(updates=updates))


@pytest.mark.parametrize(
    ("collective", "served"),
    [("local_all_reduce", "local_sgd"), ("diloco_all_reduce", "diloco")],
)
def test_average_by_collective_equals_server(collective, served):
    """Also where nodes learn from different numbers of samples, and with every optimiser."""
    for weighting in ("samples", "equal"):
        one, other = (run(name, weighting=weighting).weights for name in (collective, served))
        close(f"{collective} = {served}, weighting {weighting}", one, other, source=DOUILLARD)
    one, other = (every(UNEVEN, name, local_steps=3) for name in (collective, served))
    close(f"{collective} = {served}, every optimiser", one, other, source=DOUILLARD)


def test_round_is_local_steps_and_one_collective():
    """Of nodes that are equally fast."""
    network = Network(bandwidth=4e6, latency=0.5, message_bytes=4e6)
    cluster = Cluster(3, Constant(1.0), network=network)
    outcome = run("diloco_all_reduce", cluster, updates=5)
    ring = 2 * 2 * 0.5 + 2 * (2 / 3) * 1.0
    text = "diloco_all_reduce, ring: H t_c + 2 (P - 1) alpha + 2 ((P - 1) / P) N beta"
    equal(text, 5 * (4 * 1.0 + ring), outcome.progress.time, source="derived")


HALVED = Step(at=[8, 24], factor=0.5, unit="updates")
WARMED = Chained([WarmUp(length=20, unit="updates"), HALVED])


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        (HALVED, "a rate that is halved twice"),
        (WARMED, "the same after a warm-up"),
    ],
)
def test_rounds_grow_with_the_inverse_square_of_the_rate(schedule, kind):
    """H = 2 at the full rate, 4 times as many at half of it, and at a quarter the cap of 20."""
    algorithm = method(
        "qsr", Rule(lr=0.1, schedule=schedule), local_steps=2, growth=2.0, most_steps=20
    )
    outcome = simulate(Cluster(3), algorithm, shards(), stop=Stop(updates=7))
    rounds = torch.tensor([2.0, 2.0, 2.0, 2.0, 8.0, 8.0, 20.0], dtype=torch.float64)
    # the first node begins an eighth round while the others end the seventh
    noted = torch.from_numpy(outcome.notes["value"][:7])
    close(f"qsr, {kind}: H = max(H_base, growth / s^2)", rounds, noted, source=GU)
    equal(f"qsr, {kind}: gradients of P nodes", 3 * 44, outcome.gradients["applied"], source=GU)


@pytest.mark.parametrize(("growth", "steps"), [(0.0, 4), (5.9, 5)])
def test_constant_rate_gives_rounds_of_local_all_reduce(growth, steps):
    one = every(UNEVEN, "qsr", growth=growth)
    other = every(UNEVEN, "local_all_reduce", local_steps=steps)
    text = f"qsr, constant rate, growth {growth:g} = local_all_reduce, H = {steps}"
    close(text, one, other, source="derived")


def test_members_of_an_ensemble_have_one_schedule():
    lengths = torch.tensor([[2.0], [4.0]], dtype=torch.float64)
    algorithm = method("qsr", Rule(schedule=Cosine(length=lengths)))
    with pytest.raises(InvalidSettingError, match=r"Cosine\.length"):
        simulate(Cluster(3), algorithm, shards(), stop=Stop(updates=1), ensemble=2)


def arrivals_of(name, workers, **settings):
    """The changes that reach the server, its weights after each, and how stale each was."""
    changes = []
    weights = []
    staleness = []

    def observe(simulation):
        apply = simulation.nodes[-1].apply

        def note(updated, *given):
            apply(updated, *given)
            weights.append(updated)
            staleness.append(given[0][0].staleness)

        simulation.nodes[-1].apply = note
        for node in simulation.nodes.values():
            if node.rank >= 0:
                node.send = sending(node.send, changes)

    algorithm = method(name, Rule(lr=0.1), local_steps=4, **settings)
    task = shards_of(workers)
    simulate(UNEVEN, algorithm, task, stop=Stop(updates=24), observe=observe)
    return changes, weights, staleness


def shards_of(workers):
    return Quadratic(shift=list(range(workers)), noise=0.1, dtype=torch.float64)


def sending(send, changes):
    """A worker's `send`, with the changes in its messages noted in the order of sending."""

    def noted(receiver, content, *given, **named):
        if content is not None:
            changes.append(content[0])
        return send(receiver, content, *given, **named)

    return noted


def test_arrivals_sum_to_one_step_of_nesterov():
    """With c = 0, after every N arrivals the weights are those of Nesterov's step with their mean,
    however stale they are.
    """
    changes, weights, _ = arrivals_of("async_diloco", 4, outer_lr=0.7, outer_momentum=0.9)
    momentum = torch.zeros(1, 1, dtype=torch.float64)
    expected = shards_of(4).start([0])
    means = []
    for first in range(0, 24, 4):
        mean = torch.stack(changes[first : first + 4]).mean(0)
        momentum = 0.9 * momentum + mean
        expected = expected - 0.7 * (mean + 0.9 * momentum)
        means.append(expected)
    text = "async_diloco, c = 0: N arrivals = Nesterov's step with their mean"
    close(text, weights[3::4], means, source=LIU)


def test_other_arrivals_share_momentum_step():
    """With c > 0 an arrival between two steps of the momentum m moves the weights by c of it."""
    N, c, beta, lr = 4, 0.2, 0.8, 0.5
    settings = {"momentum_every": N, "spread": c, "outer_momentum": beta, "outer_lr": lr}
    changes, weights, _ = arrivals_of("async_diloco", 4, **settings)
    expected = shards_of(4).start([0])
    momentum = total = torch.zeros_like(expected)
    models = []
    for number, change in enumerate(changes[: len(weights)], 1):
        total = total + change
        part = c
        if number % N == 0:
            momentum, total = beta * momentum + total / N, torch.zeros_like(total)
            part = 1 - c * N + c
        expected = expected - lr * (part * beta * momentum + change / N)
        models.append(expected)
    close("async_diloco, c = .2 = its loop", weights, models, source=LIU)


def test_late_changes_count_less():
    """d / sqrt(1 + tau) in place of d, also in the momentum."""
    settings = {"momentum_every": 2, "outer_momentum": 0.8, "outer_lr": 0.5}
    changes, weights, staleness = arrivals_of(
        "async_diloco", 4, staleness_weight="inverse_root", **settings
    )
    assert max(staleness) >= 4
    expected = shards_of(4).start([0])
    momentum = total = torch.zeros_like(expected)
    models = []
    for number, (change, late) in enumerate(zip(changes, staleness, strict=False), 1):
        weighted = change / math.sqrt(1 + late)
        total = total + weighted
        step = weighted / 2
        if number % 2 == 0:
            momentum, total = 0.8 * momentum + total / 2, torch.zeros_like(total)
            step = step + 0.8 * momentum
        expected = expected - 0.5 * step
        models.append(expected)
    close("async_diloco, d / sqrt(1 + tau) = its loop", weights, models, source=LIU)


def test_one_worker_and_every_arrival_is_diloco():
    one = every(ONE, "async_diloco", local_steps=3, momentum_every=1)
    other = every(ONE, "diloco", local_steps=3)
    same("async_diloco, P = N = 1, = diloco, every optimiser", one, other, source=LIU)


def test_single_steps_without_momentum_are_asynchronous_sgd():
    sgd = RULES[:1]
    plain = {"momentum_every": 1, "outer_lr": 1.0, "outer_momentum": 0.0}
    one = every(UNEVEN, "async_diloco", rules=sgd, local_steps=1, **plain)
    other = every(UNEVEN, "async_ps", rules=sgd)
    close("async_diloco, H = N = 1, outer lr 1, sgd, = async_ps", one, other, source="derived")


HELOCO = HeLoCo(shrinkage=0.7, turning=0.4, relative=0.3)
m = torch.tensor([[3.0, 0.0, 4.0, 0.0, 0.0]], dtype=torch.float64)
"""A momentum of length 5."""


def nesterov(change, momentum):
    """HeLoCo's step where nothing is corrected."""
    mean = 0.9 * momentum + (1 - 0.9) * change
    return (change + 0.9 * mean) * -0.5


def test_aligned_changes_are_not_corrected():
    """Nor is any where there is no momentum, or none of the strengths."""
    aligned = 0.3 * m + torch.tensor([[0.0, 3.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    for text, change, momentum in (
        ("cosine above .2", aligned, m),
        ("m = 0", -m, 0 * m),
    ):
        step, _ = HELOCO.step(change, momentum, 0.9, 0.5, {})
        same(f"heloco, {text}: not corrected", step, nesterov(change, momentum), source=ASIF)
    none = HeLoCo(shrinkage=0.0, turning=0.0, relative=0.3)
    across = torch.tensor([[-1.0, 2.0, 1.0, 0.5, 3.0]], dtype=torch.float64)
    for sign in (1, -1):
        step, _ = none.step(sign * across, m, 0.9, 0.5, {})
        expected = nesterov(sign * across, m)
        close("heloco, k_s = k_d = 0: not corrected", step, expected, source=ASIF)


def test_conflicting_changes_are_shortened_and_others_turned():
    across = torch.tensor([[0.0, 2.0, 0.5, 0.0, 0.0]], dtype=torch.float64)
    cosine = float((across * m).sum() / across.norm() / m.norm())
    assert 0 < cosine < 0.2
    turned, length = HELOCO.correct(across, m), across.norm()
    text = "heloco, 0 <= c < .2: |D| is kept"
    equal(text, 1.0, (turned.norm() / length).item(), source=ASIF, rtol=1e-12)
    part = 0.4 * (1 - cosine) * float(length / (length + 0.3 * m.norm()))
    between = (1 - part) * across / length + part * m / m.norm()
    text = "and turned towards the momentum: u' = (1 - l) u + l v"
    close(text, turned, length * between / between.norm(), source=ASIF)
    for size, relative in ((0.2, 0.3), (3.0, 0.0)):
        rule = HeLoCo(shrinkage=0.7, turning=0.4, relative=relative)
        confidence = size / (size + relative)
        b = min(0.7 * confidence, 0.5)
        left = rule.correct(-size * m, m).norm().item() / (5 * size)
        text = f"heloco, D = -{size:g} m: |D| shrinks by 1 - b"
        equal(text, 1 - b, left, source=ASIF, rtol=1e-12)


def test_tensors_are_corrected_one_by_one():
    shapes = {"weight": (1, 3), "bias": (2,)}
    change = torch.tensor([[-1.0, 0.5, 2.0, -3.0, 1.0]], dtype=torch.float64)
    momentum = torch.tensor([[1.0, 2.0, 0.5, 1.0, 4.0]], dtype=torch.float64)
    step, _ = HELOCO.step(change, momentum, 0.9, 0.5, shapes)
    parts = []
    for columns in (slice(0, 3), slice(3, 5)):
        own = momentum[:, columns]
        parts.append(nesterov(HELOCO.correct(change[:, columns], own), own))
    close("heloco: tensor by tensor", step, torch.cat(parts, dim=1), source=ASIF)
    whole, _ = HELOCO.step(change, momentum, 0.9, 0.5, {})
    differ("heloco: not the whole vector at once", step, whole, source=ASIF)


def test_outer_rules_are_their_loops():
    """At the server: each arrival's change, at its staleness."""
    changes, weights, _ = arrivals_of("async_diloco", 4, outer_lr=0.1, heloco=HELOCO)
    momentum = torch.zeros(1, 1, dtype=torch.float64)
    expected, models = shards_of(4).start([0]), []
    for change in changes[: len(weights)]:
        step, momentum = HELOCO.step(change, momentum, 0.9, 0.1, {})
        expected = expected + step
        models.append(expected)
    close("async_diloco, heloco = its loop", weights, models, source=ASIF)
    rule = CGAD(decay=0.3, cutoff=5.0)
    changes, weights, staleness = arrivals_of("async_diloco", 4, outer_lr=0.1, cgad=rule)
    assert min(staleness) < 3 < 5 <= max(staleness)
    expected, models = shards_of(4).start([0]), []
    moments = Adam().init(expected)
    for change, late in zip(changes, staleness, strict=False):
        size = 0.0
        if late < 5:
            size = (1 + math.cos(math.pi * late / 5)) / 2 * math.exp(-0.3 * late)
        step, moments = Adam().step(size * change, moments, expected, 0.1)
        expected = expected + step
        models.append(expected)
    close("async_diloco, cgad = its loop", weights, models, source=SHAH)


def test_staleness_is_the_number_of_others():
    outcome = run("async_diloco", Cluster(3, Constant(1.0)), updates=60)
    staleness = outcome.updates["staleness"][4 * 3 :]
    equal("async_diloco, equal speeds: staleness P - 1", 2.0, staleness, source="derived")


def test_slow_workers_make_fewer_steps():
    """max(H_min, floor(H v / max v)), so that answers of all take about as long."""
    cluster = Cluster(3, Constant(1.0), slowdowns=[Factor(2, factor=3.0), Factor(1, factor=30.0)])
    algorithm = method("async_diloco", Rule(), local_steps=16, dynamic_steps=True, least_steps=2)
    outcome = simulate(cluster, algorithm, stop=Stop(time=3000.0))
    rows = outcome.updates
    for worker, expected in enumerate((16, 2, 5)):
        versions = rows["version"][rows["worker"] == worker]
        steps = np.unique(versions, return_counts=True)[1][1:]
        text = f"async_diloco, dynamic steps, H 16, speed 1 : 1/30 : 1/3, worker {worker}"
        equal(text, expected, steps, source=LIU)


def test_grace_answers_those_that_arrive_together():
    """Within the grace all arrivals are applied before any worker is answered."""
    cluster = Cluster(3, Constant(1.0), slowdowns=[Factor(1, factor=1.05)])
    outcome = run("async_diloco", cluster, updates=30, grace=0.5)
    read = outcome.updates["version_read"]
    equal("async_diloco, grace: all read after all were applied", 0.0, read % 3, source=LIU)


def test_worker_that_returns_within_grace_is_answered_once():
    """Worker 0 has sent a change, crashes, and is back before the server answers.

    With a second answer in its mailbox each of its changes would be of the model before.
    """
    cluster = Cluster(2, Constant(1.0), slowdowns=[Crash(0, at=4.6, back=4.7)])
    rows = run("async_diloco", cluster, updates=30, grace=0.5).updates
    text = "async_diloco, P = 2, grace, a worker back within it: mean staleness"
    equal(text, 0.5, rows["staleness"].mean(), source=LIU)


def test_streaming_one_fragment_is_diloco():
    """Without overlap and without a part of its own, a node takes the average as it is."""
    one = every(UNEVEN, "streaming_diloco", local_steps=4, fragments=1)
    other = every(UNEVEN, "diloco_all_reduce", local_steps=4, weighting="equal")
    # a share of 1/4 is exact in binary: x / P and (1 / P) x are the same
    same("streaming_diloco, F = 1, = diloco_all_reduce, every optimiser", one, other, source=STREAM)


@pytest.mark.parametrize("overlap", [0, 1, 2, 4])
def test_streaming_hides_messages_behind_local_steps(overlap):
    """H steps take H t_c + F max(0, T_f - overlap t_c), and N bytes a node once in H steps."""
    network = Network(bandwidth=1.0, message_bytes=4.0)
    algorithm = method("streaming_diloco", Rule(), local_steps=16, fragments=4, overlap=overlap)
    cluster = Cluster(4, Constant(1.0), network=network)
    record = Record(messages=True)
    outcome = simulate(cluster, algorithm, stop=Stop(updates=40), record=record)
    fragment_seconds = 2 * (3 / 4) * 1.0
    expected = 16 + 4 * max(0.0, fragment_seconds - overlap)
    starts = np.unique(outcome.updates["started"][outcome.updates["worker"] == 0])
    text = f"streaming_diloco, overlap {overlap}: seconds of H steps"
    # the last steps of a run may lack a merge
    equal(text, expected, starts[96] - starts[80], source="derived")
    log = outcome.message_log
    assert log is not None
    text = "streaming_diloco, ring: bytes of a message, N / (F P)"
    equal(text, 4.0 / (4 * 4), log["bytes"], source="derived")
    total = log["bytes"][log["status"] == "delivered"].sum()
    text = "streaming_diloco: bytes of a node in H steps, 2 ((P - 1) / P) N"
    equal(text, 2 * (3 / 4) * 4.0, total / 4 / (40 / 4), source="derived", rtol=0.02)


def test_streaming_keeps_part_of_own_fragment():
    """One node, no momentum: X <- X - outer_lr (X - x), and x <- keep x + (1 - keep) X."""
    settings = {"outer_lr": 0.5, "outer_momentum": 0.0, "keep": 0.25}
    algorithm = method("streaming_diloco", Rule(lr=0.1), local_steps=3, fragments=1, **settings)
    task = Quadratic(noise=0.0, initial=1.0, dtype=torch.float64)
    outcome = simulate(ONE, algorithm, task, stop=Stop(updates=5))
    own = common = 1.0
    for _ in range(5):
        for _ in range(3):
            own -= 0.1 * own
        common -= 0.5 * (common - own)
        own = 0.25 * own + 0.75 * common
    equal(
        "streaming_diloco, P = 1: keep", common, outcome.weights.item(), source=STREAM, rtol=1e-12
    )


CENTRES = np.random.default_rng(0).normal(size=(4, 6))
SCALES = np.array([1.0, 0.25, 2.0, 0.5])
"""Optima `(workers, params)` and curvatures of four workers."""


def four_workers():
    shift = CENTRES.tolist()
    return Quadratic(scale=SCALES.tolist(), shift=shift, dim=6, initial=1.0, dtype=torch.float64)


def step_of(worker, model):
    """A local step of one worker, without noise."""
    return model - 0.05 * SCALES[worker] * (model - CENTRES[worker])


def outer_step(model, momentum, columns, change):
    """Nesterov's step of one fragment, in place."""
    momentum[columns] = 0.9 * momentum[columns] + change
    model[columns] -= 0.7 * (change + 0.9 * momentum[columns])


def fragments_of(number):
    """The columns of each of equal fragments of six numbers."""
    size = 6 // number
    return [slice(size * fragment, size * (fragment + 1)) for fragment in range(number)]


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_streamed_fragments_match_loop(overlap):
    """Three fragments, each with a momentum of its own, merged `overlap` steps after their sum."""
    keep, updates, fragments = 0.25, 18, fragments_of(3)
    model, momentum = np.ones(6), np.zeros(6)
    own, pending = [np.ones(6) for _ in range(4)], {}
    for step in range(1, 2 * updates + overlap + 1):
        own = [step_of(worker, weights) for worker, weights in enumerate(own)]
        if step % 2 == 0 and step <= 2 * updates:
            columns = fragments[(step // 2 - 1) % 3]
            mean = np.mean([weights[columns] for weights in own], axis=0)
            outer_step(model, momentum, columns, model[columns] - mean)
            pending[step + overlap] = columns, model[columns].copy()
        if step in pending:
            columns, merged = pending.pop(step)
            for weights in own:
                weights[columns] = keep * weights[columns] + (1 - keep) * merged
    settings = {"local_steps": 6, "fragments": 3, "overlap": overlap, "keep": keep}
    algorithm = method("streaming_diloco", Rule(lr=0.05), **settings)
    outcome = simulate(Cluster(4), algorithm, four_workers(), stop=Stop(updates=updates))
    text = f"streaming_diloco, F = 3, overlap {overlap}, keep {keep:g} = its loop"
    close(text, outcome.weights, torch.from_numpy(model)[None], source=STREAM)


SECONDS = [1.0, 1.0, 1.7, 2.3]
"""The mini-batch of each learner."""
QUORUM, GRACE, KEEP, PERIOD = 2, 0.6, 0.3, 2


class Learner:
    """A learner in the loop: its model, and what it read of each of two fragments, and when."""

    def __init__(self):
        self.model, self.steps = np.ones(6), 0
        self.anchors = [np.ones(3), np.ones(3)]
        self.merges, self.begun = [0, 0], [0, 0]
        self.arrived = []

    def push(self):
        """The fragment that is due, what was read of it, its change, and the steps of that."""
        fragment = (self.steps // PERIOD - 1) % 2
        change = self.anchors[fragment] - self.model[fragments_of(2)[fragment]]
        return fragment, self.merges[fragment], change, self.steps - self.begun[fragment]

    def take_merged(self):
        self.model = self.model.copy()
        for fragment, merges, merged in self.arrived:
            columns = fragments_of(2)[fragment]
            self.model[columns] = KEEP * self.model[columns] + (1 - KEEP) * merged
            self.anchors[fragment], self.merges[fragment] = merged, merges
            self.begun[fragment] = self.steps
        self.arrived = []


def decoupled_by_loop(updates, merge):
    """The server's model after `updates` merges, on a free network."""
    model, momentum = np.ones(6), np.zeros(6)
    learners = [Learner() for _ in SECONDS]
    ends = list(SECONDS)
    pushes, due, merges = [{}, {}], [math.inf, math.inf], [0, 0]

    def merge_what_is_due(now):
        for fragment in (0, 1):
            if due[fragment] > now or sum(merges) == updates:
                continue
            ordered = [pushes[fragment][worker] for worker in sorted(pushes[fragment])]
            weights = np.array([steps for _, steps in ordered]) / sum(s for _, s in ordered)
            changes = np.array([change for change, _ in ordered])
            change = weights @ changes
            if merge == "radial":
                lengths = np.linalg.norm(changes, axis=1)
                direction = weights @ (changes / lengths[:, None])
                change = weights @ lengths * direction / np.linalg.norm(direction)
            columns = fragments_of(2)[fragment]
            outer_step(model, momentum, columns, change)
            merges[fragment] += 1
            pushes[fragment], due[fragment] = {}, math.inf
            for learner in learners:
                learner.arrived.append((fragment, merges[fragment], model[columns].copy()))

    while sum(merges) < updates:
        now = min(*ends, *due)
        ready = [worker for worker, end in enumerate(ends) if end == now]
        sent = []
        for worker in ready:
            learner = learners[worker]
            learner.model, learner.steps = step_of(worker, learner.model), learner.steps + 1
            if learner.steps % PERIOD == 0:
                sent.append((worker, learner.push()))
        for worker, (fragment, read, change, steps) in sent:
            if read == merges[fragment]:
                pushes[fragment][worker] = change, steps
                if len(pushes[fragment]) == len(SECONDS):
                    due[fragment] = now
                elif len(pushes[fragment]) >= QUORUM:
                    due[fragment] = min(due[fragment], now + GRACE)
            merge_what_is_due(now)
        merge_what_is_due(now)
        for worker in ready:
            learners[worker].take_merged()
            ends[worker] = now + SECONDS[worker]
    return model


def decoupled_learners(merge, updates, **more):
    """The same by the simulator."""
    slow = [Factor(rank, factor=seconds) for rank, seconds in enumerate(SECONDS)]
    settings = {"quorum": QUORUM, "grace": GRACE, "keep": KEEP, "merge": merge}
    algorithm = method(
        "decoupled_diloco", Rule(lr=0.05), local_steps=2 * PERIOD, fragments=2, **settings
    )
    cluster = Cluster(4, Constant(1.0), slow)
    return simulate(cluster, algorithm, four_workers(), stop=Stop(updates=updates), **more)


@pytest.mark.parametrize("merge", ["mean", "radial"])
def test_decoupled_learners_match_loop(merge):
    """Uneven learners, a quorum and a grace: late pushes are dropped, and steps weigh changes."""
    outcome = decoupled_learners(merge, 25)
    expected = torch.from_numpy(decoupled_by_loop(25, merge))[None]
    text = f"decoupled_diloco, {merge}, 2 of 4 learners, grace {GRACE:g} s = its loop"
    close(text, outcome.weights, expected, source=DECOUPLED)
    assert outcome.gradients["dropped"] > 0


def test_decoupled_messages_are_fragments():
    """One up for each push, and one down to each learner for each merge."""
    log = decoupled_learners("mean", 25, record=Record(messages=True)).message_log
    assert log is not None
    whole = log["bytes"].max()
    down = (log["sender"] < 0) & (log["bytes"] < whole)
    up = (log["sender"] >= 0) & (log["bytes"] > 0)
    text = "decoupled_diloco, F = 2: models of a message"
    equal(text, 1 / 2, log["bytes"][up | down] / whole, source=DECOUPLED)
    equal("decoupled_diloco: messages down a merge: P", 25 * 4, down.sum(), source=DECOUPLED)


def decoupled(cluster, stop, **settings):
    algorithm = method("decoupled_diloco", Rule(lr=0.1), local_steps=4, **settings)
    return simulate(cluster, algorithm, shards_of(cluster.workers), stop=stop)


def test_decoupled_with_all_learners_is_diloco():
    """Of equal speed, on a free network: every merge is there before the next step."""
    cluster, stop, rule = Cluster(3, Constant(1.0)), Stop(updates=12), Rule(lr=0.1)
    one = decoupled(cluster, stop, fragments=1, merge="mean").weights
    other = simulate(cluster, method("diloco", rule, local_steps=4), shards_of(3), stop=stop)
    text = "decoupled_diloco, K = P, F = 1, mean, = diloco"
    close(text, one, other.weights, source=DECOUPLED)


def merged(changes, steps, merge):
    algorithm = method("decoupled_diloco", Rule(), merge=merge)
    pushes = [Push(0, 0, *pair, []) for pair in zip(changes, steps, strict=True)]
    mean = algorithm.mean_of(pushes)
    return mean


def test_radial_mean_keeps_the_length_of_changes():
    """That of M orthogonal ones of length R is R, where the mean has R / sqrt(M)."""
    R, M = 3.0, 4
    changes = [R * torch.eye(M, dtype=torch.float64)[number : number + 1] for number in range(M)]
    lengths = {merge: merged(changes, [1] * M, merge).norm() for merge in ("radial", "mean")}
    text = "decoupled_diloco: the radial mean of orthogonal changes has their length"
    equal(text, R, lengths["radial"].item(), source=DECOUPLED, rtol=1e-12, wrong=R / M**0.5)
    equal("the mean has R / sqrt M", R / M**0.5, lengths["mean"].item(), source="derived")
    one = merged(changes[:1], [5], "radial")
    same("the radial mean of one change is itself", one, changes[0], source=DECOUPLED)
    uneven = merged(changes, [1, 2, 3, 4], "radial")
    back = merged(changes[::-1], [4, 3, 2, 1], "radial")
    close("it does not depend on the order of learners", uneven, back, source=DECOUPLED)


def test_learners_never_wait():
    """Neither for a slow learner nor for one that is gone, on a free network."""
    slowdowns = [Factor(1, factor=7.0), Crash(2, at=9.5)]
    cluster = Cluster(4, Constant(1.0), slowdowns=slowdowns)
    outcome = decoupled(cluster, Stop(time=100.0), fragments=2, quorum=2, grace=0.5)
    busy = outcome.workers["computing"] + outcome.workers["down"]
    text = "decoupled_diloco: seconds in which a learner computes or is down, of 100"
    equal(text, 100.0, busy, source=DECOUPLED)
    assert outcome.progress.updates > 40


def test_run_stalls_once_all_learners_are_gone():
    slowdowns = [Crash(rank, at=9.5) for rank in range(3)]
    cluster = Cluster(3, Constant(1.0), slowdowns=slowdowns)
    outcome = decoupled(cluster, Stop(updates=100), quorum=2, grace=3.0)
    assert outcome.reached == "stalled"
