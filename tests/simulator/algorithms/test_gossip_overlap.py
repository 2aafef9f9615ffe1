"""Overlap SGP: models and times of a loop over matrices, what it conserves, and how far ahead a
node may run.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard.simulator import Cluster, InvalidSettingError, Network, Rule, Stop, simulate
from laggard.simulator.algorithms.push_sum import SGP, OverlapSGP
from laggard.simulator.learning.rules import SGD
from laggard.simulator.network.config import SlowLink
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Complete, Exponential, Graph
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Factor
from laggard.simulator.timing.streams import BATCHES, stream

LR = 0.1
LATE, LOCAL = st.integers(0, 5), st.integers(1, 4)
FIXED = st.tuples(
    st.sampled_from([Exponential(peers=1), Exponential(peers=2), Complete()]), st.integers(2, 6)
)


class Loop:
    """Push-sum over matrices, with plain SGD, constant seconds for each node and a latency for each
    pair.

    Attributes:
        models: for each step, every node's x / w after its gradient, before it receives and pushes.
        times: for each step, when each node's gradient is done (s).
    """

    def __init__(self, task, W, seconds, latency, late, local):
        self.P, self.W, self.seconds, self.latency, self.late, self.local = (
            len(seconds),
            W,
            seconds,
            latency,
            late,
            local,
        )
        self.x, self.w = [task.start([0])] * self.P, [1.0] * self.P
        self.now, self.models, self.times, self.under_way = [0.0] * self.P, [], [], []
        self.task, self.batches = (
            task,
            [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(self.P)],
        )

    def run(self, steps):
        for step in range(1, steps + 1):
            self.step_down()
            push = step % self.local == 0
            if push and self.late == 0:
                self.push(step)
            for i in range(self.P):
                self.take(i, step)
            if push and self.late > 0:
                self.push(step)

    def step_down(self):
        for i in range(self.P):
            gradient = self.task.gradients((self.x[i] / self.w[i])[None], [next(self.batches[i])])[
                0
            ][0]
            self.x[i], self.now[i] = self.x[i] - LR * gradient, self.now[i] + self.seconds[i]
        self.models.append([x / w for x, w in zip(self.x, self.w, strict=True)])
        self.times.append(list(self.now))

    def push(self, step):
        p = self.W[(step // self.local - 1) % len(self.W)]
        for j in range(self.P):
            for i in (i for i in range(self.P) if i != j and p[i, j]):
                self.under_way.append(
                    (
                        i,
                        step,
                        self.now[j] + self.latency[j, i],
                        p[i, j] * self.x[j],
                        p[i, j] * self.w[j],
                    )
                )
            self.x[j], self.w[j] = p[j, j] * self.x[j], p[j, j] * self.w[j]

    def take(self, i, step):
        due = [
            arrives
            for to, began, arrives, _, _ in self.under_way
            if to == i and began + self.late <= step
        ]
        self.now[i] = max([self.now[i], *due])
        for message in [each for each in self.under_way if each[0] == i and each[2] <= self.now[i]]:
            self.under_way.remove(message)
            self.x[i], self.w[i] = self.x[i] + message[3], self.w[i] + message[4]


def cluster_of(graph, seconds, latency):
    """Nodes with a constant time each, and a latency for each edge."""
    workers = len(seconds)
    links = [
        SlowLink(j, i, latency=float(latency[j, i]), both=False)
        for j in range(workers) for i in range(workers) if i != j and graph.joins(j, i, workers)
    ]  # fmt: skip
    slow = [Factor(rank, factor=float(each)) for rank, each in enumerate(seconds)]
    return Cluster(
        workers, Constant(1.0), slowdowns=slow, network=Network(topology=graph, links=links)
    )


@settings(max_examples=40, deadline=None)
@given(data=st.data(), late=LATE, local=LOCAL, uneven=st.booleans(), seed=st.integers(0, 999))
def test_models_and_times_are_those_of_a_loop_over_matrices(
    data, late, local, uneven, seed, gossip
):
    graph, workers = data.draw(st.one_of(gossip.graphs(directed=True), FIXED))
    W, rng = (
        [matrix("uniform", graph, step, workers) for step in range(graph.period(workers))],
        np.random.default_rng(seed),
    )
    seconds = rng.uniform(0.3, 2.0, workers) if uneven else np.ones(workers)
    latency = rng.uniform(0.0, data.draw(st.sampled_from([0.5, 3.0, 12.0])), (workers, workers))
    algorithm = OverlapSGP(Rule(lr=LR), overlap=late, local_steps=local)
    seen = gossip.observe(
        cluster_of(graph, seconds, latency), algorithm, gossip.task(), Stop(updates=9)
    )
    loop = Loop(gossip.task(), W, seconds, latency, late, local)
    loop.run(max(map(len, seen.models.values())))
    rows = seen.outcome.updates
    for rank, models in seen.models.items():
        times = rows["time"][rows["target"] == rank]
        np.testing.assert_allclose(times, [at[rank] for at in loop.times[: len(times)]], rtol=1e-12)
        for step, model in enumerate(models):
            torch.testing.assert_close(model, loop.models[step][rank], rtol=1e-12, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(data=st.data(), time=st.floats(0.1, 25.0), late=LATE, local=LOCAL)
def test_nodes_and_messages_hold_all_the_weight_and_all_the_models(data, time, late, local, gossip):
    """sum w = P; sum x = P x_0 - lr (all gradients applied): whenever it stops."""
    graph, workers = data.draw(gossip.graphs(directed=True))
    network = Network(topology=graph, bandwidth=20.0, latency=0.3, message_bytes=8.0)
    cluster = Cluster(workers, data.draw(gossip.laws), network=network)
    algorithm = OverlapSGP(Rule(lr=LR), overlap=late, local_steps=local)
    seen = gossip.observe(cluster, algorithm, gossip.task(), Stop(time=time))
    under_way = [message.content for message in seen.untaken()]
    assert seen.total("weight") + sum(w for _, w in under_way) == pytest.approx(workers, rel=1e-12)
    total = sum(seen.local(rank, "x") for rank in range(workers)) + sum(x for x, _ in under_way)
    steps = LR * sum((gradient.value for gradient in seen.applied), torch.zeros(1))
    torch.testing.assert_close(
        total, workers * gossip.task().start([0]) - steps, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9)], ids=["sgd", "momentum"])
@pytest.mark.parametrize(
    "graph", [Exponential(peers=1), Exponential(peers=2), Complete()], ids=repr
)
@pytest.mark.parametrize("overlap", [0, 1])
def test_with_one_exchange_at_a_time_it_is_sgp_bit_for_bit(overlap, graph, optimizer, gossip):
    """Weights, and every column of every row, on a network that is slower than the gradients."""
    network = Network(topology=graph, bandwidth=10.0, latency=0.1, message_bytes=8.0)
    cluster, rule = Cluster(6, Gamma(1.0, 0.5), network=network), Rule(optimizer, lr=LR)
    one, other = (
        simulate(cluster, each(rule, overlap=overlap), gossip.task(), stop=Stop(updates=30))
        for each in (OverlapSGP, SGP)
    )
    assert torch.equal(one.weights, other.weights)
    for name, column in one.updates.items():
        np.testing.assert_array_equal(column, other.updates[name])
    assert one.messages == other.messages


def test_local_steps_send_one_message_every_h_gradients(gossip):
    cluster = Cluster(4, Constant(1.0), network=Network(topology=Exponential(peers=1), latency=0.5))
    seen = gossip.observe(
        cluster, OverlapSGP(Rule(lr=LR), overlap=1, local_steps=3), gossip.task(), Stop(time=12.5)
    )
    assert len(seen.sent) == 4 * 4


def test_a_share_of_one_is_no_share_to_go_on_with(tmp_path):
    file = tmp_path / "ring.edgelist"
    file.write_text("0 1 1.0\n1 2 1.0\n2 0 1.0\n")
    cluster = Cluster(workers=3, network=Network(topology=Graph(file=str(file), directed=True)))
    OverlapSGP(Rule(), mixing="weights", overlap=0, local_steps=3).check(cluster)
    with pytest.raises(
        InvalidSettingError, match=r"OverlapSGP\.mixing: .* a share of its own model"
    ):
        OverlapSGP(Rule(), mixing="weights", overlap=1).check(cluster)
