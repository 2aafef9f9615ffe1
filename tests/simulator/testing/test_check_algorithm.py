"""The identities of every algorithm: each finds the algorithm that breaks it; `tests/theory` asks
all built-in ones.
"""

import importlib
import math
import random
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from laggard.simulator import (
    ADPSGD,
    SERVER,
    Algorithm,
    AllReduce,
    AsyncPS,
    Cluster,
    Delayed,
    Downpour,
    InvalidSettingError,
    MindFlayer,
    Network,
    Rule,
    Timing,
)
from laggard.simulator.learning.rules import RMSProp
from laggard.simulator.testing import IDENTITIES, check_algorithm, identities, trial, trial_of
from laggard.simulator.timing.distributions import Exponential, Gamma
from laggard.simulator.timing.members import Members
from laggard.simulator.timing.slowdowns import Crash

HERE = [name for name in IDENTITIES if "hashes" not in name]
"""The identities that are checked without another process."""


@dataclass(frozen=True)
class Server(Algorithm):
    """An asynchronous server that a broken algorithm changes in one place: `step` gives the new
    weights.
    """

    rule: Rule

    def worker(self, node):
        node.send(SERVER, None, size=0)
        while True:
            _, weights = yield node.receive()
            node.send(SERVER, (yield node.compute(weights)))

    def server(self, node):
        state = self.rule.init(node.weights)
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(self.step(node, weights, gradient), [gradient])
            node.send(worker, self.reply(node))

    def step(self, node, weights, gradient):
        return weights

    def reply(self, node):
        return node.weights


class Waiting(Server):
    def worker(self, node):
        yield node.receive(tag="never sent")


class Silent(Server):
    def server(self, node):
        yield node.receive(tag="never sent")


@dataclass(frozen=True)
class Endless(Algorithm):
    rule: Rule

    def worker(self, node):
        while True:
            (yield node.compute(node.weights)).drop()


class DroppedTwice(Server):
    def server(self, node):
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                node.apply(node.weights - 0.01 * gradient.value, [gradient])
                gradient.drop()
            node.send(worker, node.weights)


class Clipped(Server):
    """The norm is taken over all members, not over each."""

    def step(self, node, weights, gradient):
        return node.weights - 0.1 * gradient.value / gradient.value.norm()


class Branching(Server):
    def step(self, node, weights, gradient):
        return weights if gradient.value.norm() > 0.7 else node.weights


class Reading(Server):
    def step(self, node, weights, gradient):
        return weights if float(gradient.losses) < 1.0 else node.weights


class Cautious(Server):
    """An update is left out where it would make anything infinite, anywhere in the ensemble."""

    def step(self, node, weights, gradient):
        return weights if bool(weights.isfinite().all()) else node.weights


class Scribbling(Server):
    """The mini-batch is written to while its gradient is promised."""

    def worker(self, node):
        node.send(SERVER, None, size=0)
        while True:
            _, weights = yield node.receive()
            work = node.compute(weights)
            work.gradient.batch.mul_(0.5)
            node.send(SERVER, (yield work))


class Unyielding(Server):
    """The first gradient is sent off before it is computed."""

    def worker(self, node):
        node.send(SERVER, None, size=0)
        _, weights = yield node.receive()
        work = node.compute(weights)
        node.send(SERVER, work.gradient)
        yield work
        yield from super().worker(node)


class Noisy(Server):
    def step(self, node, weights, gradient):
        return weights + 0.01 * torch.randn(weights.shape[1], dtype=weights.dtype)


class Reseeding(Server):
    def step(self, node, weights, gradient):
        torch.manual_seed(node.version)
        return weights + 0.01 * torch.randn(weights.shape[1], dtype=weights.dtype)


class Unread(Server):
    """Workers get the result of arithmetic, of which nobody knows whose model it was."""

    def reply(self, node):
        return 0.9 * node.weights


class Remembering(Server):
    served: ClassVar[list[int]] = []  # kept from one run to the next, which is the fault

    def step(self, node, weights, gradient):
        self.served.append(gradient.worker)
        return weights * (1 - 1e-3 * len(self.served))


class Unordered(Server):
    """What arrives in one instant is served in the order of a set of gradients: by where they lie
    in memory.
    """

    def server(self, node):
        state = self.rule.init(node.weights)
        while True:
            arrived = [(yield node.receive())]
            yield node.work(1e-9)
            while node.arrived():
                arrived.append((yield node.receive()))
            for worker, gradient in arrived:
                if gradient is None:
                    node.send(worker, node.weights)
            for gradient in {gradient for _, gradient in arrived if gradient is not None}:
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                node.send(gradient.worker, node.weights)


class InPlace(Delayed):
    """The weights are written to after their gradient was evaluated, so that no promise is
    broken.
    """

    def worker(self, node):
        while True:
            weights = node.weights
            gradient = yield node.compute(weights)
            step = 0.01 * gradient.value
            node.apply(weights.sub_(step), [gradient])


class InPlaceOfGradients(Delayed):
    def worker(self, node):
        while True:
            gradient = yield node.compute(node.weights)
            node.apply(node.weights - gradient.value.mul_(0.01), [gradient])


class Aliased(Server):
    """Workers compute at the server's live weights, which it writes to behind torch's back."""

    def step(self, node, weights, gradient):
        node.weights.data.copy_(weights)
        return node.weights


BROKEN = {
    Waiting: ("it makes progress", "node 0 waits since 0 s"),
    Silent: ("it makes progress", "Deadlock"),
    Endless: ("it makes progress", "none was applied"),
    DroppedTwice: ("it makes progress", "is to be dropped, but was applied"),
    Clipped: ("ensemble = single runs", "their final weights by"),
    Branching: ("ensemble = single runs", "`if`, `float"),
    Reading: ("ensemble = single runs", "the run raised"),
    Cautious: ("a diverged member leaves the others as they are", "member 0"),
    Scribbling: ("deferred = immediate evaluation", "differ"),
    Aliased: ("deferred = immediate evaluation", "`.data`"),
    Unyielding: ("every gradient and message is accounted for", "before it was computed"),
    Unread: ("staleness counts the updates of a model", "not a node's model"),
    Remembering: ("the same seed is the same run", "their final weights by"),
    Noisy: ("the same seed is the same run", "`torch.rand`"),
    Reseeding: ("the same seed is the same run", "global random stream"),
    Unordered: ("ties fall in the order of scheduling", "the worker of gradient"),
    InPlace: ("weights are values", "was changed in place later"),
    InPlaceOfGradients: ("weights are values", "was changed in place"),
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_broken_algorithm_is_found(broken):
    name, how = BROKEN[broken]
    with pytest.raises(AssertionError) as failure:
        check_algorithm(broken, updates=20)
    text = str(failure.value)
    assert text.startswith(f"{name}: ")
    assert how in text
    assert "Look for" in text


def test_global_random_streams_are_left_unchanged():
    def draw():
        return random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002

    class Mine(AsyncPS):
        """Another process, which takes seconds, cannot import it."""

    expected = []
    for checks in (False, True):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        if checks:
            check_algorithm(Mine, updates=5)
        expected.append(draw())
    assert expected[0] == expected[1]


HASHED = """
from dataclasses import dataclass, replace
from laggard.simulator import SERVER, Algorithm, Rule

@dataclass(frozen=True)
class Hashed(Algorithm):
    rule: Rule

    def worker(self, node):
        node.send(SERVER, None, size=0)
        while True:
            _, weights = yield node.receive()
            node.send(SERVER, (yield node.compute(weights)))

    def server(self, node):
        names = {f"worker {rank}" for rank in range(node.workers)}
        order = [int(name.split()[1]) for name in names]
        state, gathered = self.rule.init(node.weights), {}
        while True:
            worker, gradient = yield node.receive()
            gathered[worker] = gradient
            if len(gathered) == node.workers:
                for rank in order:
                    if gathered[rank] is not None:
                        weights, state = self.rule.update(node.weights, [gathered[rank]], state)
                        node.apply(weights, [gathered[rank]])
                    node.send(rank, node.weights)
                gathered = {}
"""


@pytest.mark.slow
def test_order_of_hashes_is_found(tmp_path, monkeypatch):
    (tmp_path / "hashed_order.py").write_text(HASHED)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("hashed_order")
    with pytest.raises(
        AssertionError, match="the seed of Python's hashes changes nothing: another process"
    ):
        check_algorithm(module.Hashed, cluster=Cluster(8, compute=Exponential(1.0)))


@pytest.mark.slow
def test_local_class_is_not_checked_for_hashes():
    class Mine(AsyncPS):
        pass

    assert check_algorithm(Mine, updates=10) == HERE
    assert check_algorithm(AsyncPS, updates=10) == list(IDENTITIES)


def test_instance_keeps_rule_except_learning_rate():
    rules = []

    @dataclass(frozen=True)
    class Noting(AsyncPS):
        def server(self, node):
            rules.append(self.rule)
            return super().server(node)

    check_algorithm(Noting(Rule(RMSProp(decay=0.5), lr=0.125)), updates=5)
    assert {rule.optimizer for rule in rules} == {RMSProp(decay=0.5)}
    assert any(rule.lr == 0.125 for rule in rules if isinstance(rule.lr, float))
    assert all(
        0.125 in rule.lr for rule in rules if not isinstance(rule.lr, float) and len(rule.lr) == 3
    )


def test_cluster_fits_algorithm():
    assert trial_of(AsyncPS).cluster.workers == 4
    assert trial_of(Delayed(Rule(), delay=3)).cluster.workers == 1

    class Never(AsyncPS):
        def check(self, cluster):
            raise InvalidSettingError("Never", "workers", "more", 0)

    with pytest.raises(InvalidSettingError, match="expected more"):
        check_algorithm(Never)


def test_custom_task_and_cluster_are_checked(perceptron):
    class Mine(AsyncPS):
        """Another process, which takes seconds, cannot import it."""

    check_algorithm(Mine, cluster=Cluster(3, compute=Exponential(1.0)), task=Timing(), updates=20)
    check_algorithm(Mine, cluster=Cluster(3, compute=Exponential(1.0)), task=perceptron, updates=10)


GAMMA = Gamma(0.01, cv=0.4)
ALONE = Crash(2, at=0.01, back=0.02)
OF_USERS = {
    "nodes that wait for others": (
        "weights are values",
        partial(AllReduce, on_crash="shrink"),
        Cluster(4, compute=GAMMA, slowdowns=[ALONE]),
    ),
    "nodes that leave": (
        "weights are values",
        ADPSGD,
        Cluster(4, compute=GAMMA, members=Members(uptime=Exponential(0.05), downtime=0.05)),
    ),
    "slices of which a crash drops two": (
        "every gradient and message is accounted for",
        partial(Downpour, shards=3),
        Cluster(
            3,
            compute=GAMMA,
            slowdowns=[Crash(2, at=0.06, back=0.07)],
            network=Network(bandwidth=1e3, latency=1e-3, sharing="fifo"),
        ),
    ),
    "messages that leave one after another": (
        "ties fall in the order of scheduling",
        partial(AllReduce, ring_slices=2),
        Cluster(3, compute=GAMMA, network=Network(bandwidth=1e4, sharing="fifo")),
    ),
    "times that suit the cluster": (
        "ties fall in the order of scheduling",
        partial(MindFlayer, patience=0.3),
        Cluster(3, compute=GAMMA),
    ),
}


def test_method_fitted_to_distribution_is_not_tried_with_ties():
    law = Exponential(0.01)
    given = partial(MindFlayer, patience=0.01, success_rate=1 - math.exp(-1))
    made = trial_of(given, cluster=Cluster(3, compute=law), updates=20)
    assert IDENTITIES["ties fall in the order of scheduling"](made) is False


@pytest.mark.parametrize("name", OF_USERS)
def test_cluster_of_the_user_is_checked(name):
    identity, algorithm, cluster = OF_USERS[name]
    IDENTITIES[identity](trial_of(algorithm, cluster=cluster, updates=20))


SEEDS = {
    "random": random.seed,
    "numpy": np.random.seed,
    "torch": torch.default_generator.manual_seed,
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_seeding_global_stream_again_is_found(seed):
    seed(0)
    with (
        pytest.raises(identities.Broken, match="global random stream"),
        identities._global_streams_untouched(),
    ):
        seed(0)


def test_smallest_hidden_change_of_tensor_is_found():
    tensor = torch.tensor([1.0, 2.0], dtype=torch.float64)
    handed = trial.Handed("weights", tensor, tensor._version, tensor.clone())
    assert handed.unchanged()
    tensor.numpy()[0] = np.nextafter(1.0, 2.0)
    assert not handed.unchanged()
