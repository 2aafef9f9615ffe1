"""Workers that join late, leave and come back by laws: when, what is lost, and what they read."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    ADPSGD,
    ALGORITHMS,
    DPSGD,
    AllReduce,
    AsyncPS,
    Cluster,
    FedAvg,
    FedBuff,
    InvalidSettingError,
    LocalSGD,
    Network,
    Record,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.engine.machine import Machine
from laggard.simulator.learning.rules import SGD
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Uniform
from laggard.simulator.timing.members import Members
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.engine.books import check_books, differences
from tests.theory.test_membership import Visit

BYTES, BANDWIDTH, LATENCY = 40.0, 400.0, 0.0625
WIRES = Network(bandwidth=BANDWIDTH, latency=LATENCY, message_bytes=BYTES)
FREE = Network()
FOREVER = 1e9
TASK = Quadratic(curvature=1.0, dim=8, noise=0.1, epoch=100, dtype=torch.float64)
MOMENTUM = Rule(SGD(momentum=0.9), lr=0.05)
RANDOM = Members(start=Uniform(0.0, 5.0), uptime=Exponential(20.0), downtime=Exponential(5.0))


@dataclass(frozen=True)
class ByRank:
    """Constant seconds, which differ from worker to worker; those of rank 0 until the rank is known."""

    seconds: tuple[float, ...]
    std = 0.0

    @property
    def mean(self):
        return max(self.seconds)

    def of_worker(self, rank):
        return ByRank(self.seconds[rank:])

    def draw(self, rng, n):
        return np.full(n, self.seconds[0])


class Once(ByRank):
    """The seconds of a worker's first stay; it stays for ever after that."""

    def of_worker(self, rank):
        return Once(self.seconds[rank:])

    def draw(self, rng, n):
        return np.array([self.seconds[0]] + [FOREVER] * (n - 1))


def run(algorithm, members, workers=4, network=FREE, compute=None, task=TASK, **more):
    stop = {name: more.pop(name) for name in ("time", "updates", "gradients") if name in more}
    compute = compute or Constant(1.0)
    cluster = Cluster(workers, compute=compute, members=members, network=network)
    outcome = simulate(cluster, algorithm, task, stop=Stop(**stop), **more)
    check_books(outcome)
    return outcome


SHRINK = {"on_crash": "shrink", "restart_seconds": 0.25}
RUN = {
    "async_ps": {},
    "sync_ps": {},
    "k_sync": {"wait_for": 2},
    "local_sgd": {"local_steps": 3},
    "fedavg": {},
    "fedbuff": {},
    "scaffold": {},
    "adpsgd": {},
    "dpsgd": SHRINK,
    "sgp": {"on_crash": "restart"},
    "all_reduce": SHRINK,
    "diloco_all_reduce": {"on_crash": "restart", "local_steps": 3},
}
GAMMA = Gamma(1.0, 0.3)


@pytest.mark.parametrize("name", RUN)
def test_workers_that_never_leave_change_no_bit(name):
    algorithm = ALGORITHMS[name](Rule(lr=0.05), **RUN[name])
    staying = run(algorithm, Members(uptime=FOREVER), compute=GAMMA, network=WIRES, updates=12)
    never = run(algorithm, Members(), compute=GAMMA, network=WIRES, updates=12)
    assert differences(staying, never) == []


SHARDED = {"2 shards": AsyncPS(MOMENTUM, shards=2), "sync, 2 shards": SyncPS(MOMENTUM, shards=2)}


@pytest.mark.parametrize("name", [*RUN, *SHARDED])
def test_methods_run_to_their_end_with_one_timeline(name):
    """The same bits twice; an ensemble has the timeline of one member."""
    algorithm = SHARDED.get(name)
    if algorithm is None:
        algorithm = ALGORITHMS[name](Rule(lr=0.05), **RUN[name])
    more = {"compute": GAMMA, "network": WIRES, "time": 30.0}
    one = run(algorithm, RANDOM, **more)
    assert one.reached == "time"
    assert one.updates["time"][one.updates["status"] == "applied"].max() > 20
    assert (one.workers["down"] > 0).any()
    assert differences(one, run(algorithm, RANDOM, **more)) == []
    three = run(algorithm, RANDOM, ensemble=3, **more)
    assert torch.equal(three.weights[2:], one.weights)
    assert np.array_equal(three.updates["time"], one.updates["time"])
    assert three.messages == one.messages


def visits(start, uptime, downtime, seconds, end):
    """The ends of mini-batches up to `end` of a worker that never waits, and its seconds away."""
    ends, away, now = [], min(start, end), start
    while now < end:
        leaves = now + uptime
        while now < leaves - 1e-9:
            now += seconds
            ends.append(now)
        away += max(0.0, min(downtime, end - now))
        now += downtime
    return [moment for moment in ends if moment <= end], away


@pytest.mark.parametrize(
    ("start", "uptime", "downtime", "seconds"),
    [
        ((0.0, 0.5, 2.25), (3.25, 4.0, 1.5), (2.5, 0.25, 3.0), 1.0),
        ((0.0, 0.1, 0.7), (0.3, 0.7, 0.6), (0.2, 0.4, 0.3), 0.1),  # sums that are rounded
    ],
)
def test_constant_times_give_exact_leaves_and_returns(start, uptime, downtime, seconds):
    members = Members(ByRank(start), ByRank(uptime), ByRank(downtime))
    end = 40 * seconds + seconds / 2
    outcome = run(AsyncPS(Rule()), members, 3, compute=Constant(seconds), time=end)
    for rank in range(3):
        ends, away = visits(start[rank], uptime[rank], downtime[rank], seconds, end)
        own = outcome.updates["time"][outcome.updates["worker"] == rank]
        np.testing.assert_allclose(own, ends, rtol=1e-12)
        assert outcome.workers["down"][rank] == pytest.approx(away, rel=1e-12)
    assert outcome.gradients["cancelled"] == outcome.gradients["dropped"] == 0


@pytest.mark.parametrize(
    ("algorithm", "at"),
    [
        (AsyncPS(Rule()), 0.75),  # it computes
        (AsyncPS(Rule()), 1.3125),  # its gradient is under way
        (LocalSGD(Rule(), local_steps=3), 1.5),  # in the second of three local steps
        (FedAvg(Rule(), local_steps=3), 1.5),
    ],
)
def test_leaver_loses_no_result_and_crash_does(algorithm, at):
    left = run(algorithm, Members(uptime=at), 1, WIRES, time=9.0)
    crashed = simulate(
        Cluster(1, network=WIRES, slowdowns=[Crash(0, at=at)]), algorithm, TASK, stop=Stop(time=9.0)
    )
    assert left.gradients["applied"] == left.gradients["started"] > 0
    assert crashed.gradients["applied"] == 0
    assert left.reached == crashed.reached == "stalled"
    assert "node -1 waits" in left.stalled
    assert "node -1 waits" in crashed.stalled


def test_worker_that_waits_leaves_at_once():
    """Clients that are not asked have nothing to end."""
    members = Members(uptime=2.25, downtime=50.0)
    outcome = run(FedAvg(Rule(), clients=1), members, 4, time=40.0)
    np.testing.assert_allclose(sorted(outcome.workers["down"])[1:], 40 - 2.25)


@pytest.fixture
def computed(monkeypatch):
    """Of each mini-batch that begins: rank, time, the weights, and the gradient."""
    begun = []
    right = Machine.compute

    def compute(node, weights, *more, **named):
        work = right(node, weights, *more, **named)
        begun.append((node.rank, node.now, weights.clone(), work.gradient))
        return work

    monkeypatch.setattr(Machine, "compute", compute)
    return begun


@pytest.mark.parametrize("algorithm", [AsyncPS(MOMENTUM), SyncPS(MOMENTUM), FedBuff(MOMENTUM)])
def test_newcomer_starts_at_model_of_server(algorithm, computed):
    """It asks by a token, and gets the model: its bytes, and the time that they take, are counted."""
    server = {}

    def observe(simulation):
        node = simulation.nodes[-1]
        right = node.apply
        server[0] = node.weights.clone()

        def apply(*arguments):
            right(*arguments)
            server[node.version] = node.weights.clone()

        node.apply = apply

    members = Members(ByRank((0.0, 3.5)), ByRank((FOREVER, 4.25)), ByRank((1.0, 2.0)))
    record = Record(messages=True)
    outcome = run(algorithm, members, 2, WIRES, time=30.0, observe=observe, record=record)
    log = outcome.message_log
    asked = (log["sender"] == 1) & (log["bytes"] == 0)
    assert asked.sum() >= 2
    for moment in log["sent"][asked]:
        weights, gradient = next(
            (weights, gradient)
            for rank, now, weights, gradient in computed
            if rank == 1 and now > moment
        )
        read = (log["receiver"] == 1) & (log["arrived"] == gradient.started)
        assert log["bytes"][read].tolist() == [BYTES]
        assert log["arrived"][read] - log["sent"][read] >= LATENCY + BYTES / BANDWIDTH - 1e-12
        assert torch.equal(weights, server[gradient.version_read])
        before = (outcome.updates["status"] == "applied") & (outcome.updates["time"] < moment)
        assert gradient.version_read >= outcome.updates["version"][before].max(initial=0)


@pytest.mark.parametrize("method", [AllReduce, DPSGD])
@pytest.mark.parametrize(("rule", "models"), [(Rule(lr=0.05), 1), (MOMENTUM, 2)])
def test_newcomer_reads_lowest_live_rank(method, rule, models, computed):
    """Its model and its momentum, whose bytes take their time: the lowest rank itself was away."""
    members = Members(uptime=ByRank((4.5, FOREVER, FOREVER, FOREVER)), downtime=3.0)
    algorithm = method(rule, on_crash="shrink", restart_seconds=0.5)
    outcome = run(algorithm, members, 4, WIRES, time=15.0, record=Record(messages=True))
    log = outcome.message_log
    (read,) = np.flatnonzero((log["content"] == "other") | (log["content"] == "token"))
    assert (log["sender"][read], log["receiver"][read], log["bytes"][read]) == (
        1,
        0,
        models * BYTES,
    )
    seconds = LATENCY + models * BYTES / BANDWIDTH
    met = log["sent"][read]
    own = [entry for entry in computed if entry[0] == 0 and entry[1] >= met]
    source = next(entry for entry in computed if entry[0] == 1 and entry[1] == met)
    assert torch.equal(own[0][2], source[2])
    if method is DPSGD:  # the messages of the step share the cards
        assert own[0][1] >= met + seconds - 1e-12
    else:
        assert own[0][1] == pytest.approx(met + seconds, rel=1e-12)


UPDATES = 30
ABSENCES = [(2, 3.5, 6.0), (0, 7.25, 0.5), (0, 0.125, 20.0), (3, 26.0, 1.5)]
"""The rank that leaves, when its time is up (s), and how long it is away."""


@pytest.mark.parametrize("name", ["all_reduce", "dpsgd", "sgp", "osgp"])
@pytest.mark.parametrize("seconds", [0.0, 0.375])
@pytest.mark.parametrize(("rank", "uptime", "downtime"), ABSENCES)
def test_leave_between_steps_costs_only_meetings(name, seconds, rank, uptime, downtime):
    """Steps of a second: `restart` costs the absence and a meeting, `shrink` two meetings."""
    uptimes = [FOREVER] * 4
    uptimes[rank] = uptime
    members = Members(uptime=Once(tuple(uptimes)), downtime=downtime)
    for mode, lost in (("restart", downtime + seconds), ("shrink", 2 * seconds)):
        algorithm = ALGORITHMS[name](Rule(), on_crash=mode, restart_seconds=seconds)
        outcome = run(algorithm, members, task=None, updates=UPDATES)
        assert outcome.gradients["dropped"] == outcome.gradients["cancelled"] == 0
        assert outcome.progress.time == pytest.approx(UPDATES + lost, rel=1e-12), mode


@pytest.mark.parametrize("seconds", [0.0, 0.25])
@pytest.mark.parametrize("on_crash", ["restart", "shrink"])
def test_late_nodes_join_group(on_crash, seconds):
    """`restart` begins once all are there, `shrink` with those that are up, without a meeting."""
    members = Members(start=ByRank((0.0, 2.5, 0.0, 4.0)))
    algorithm = AllReduce(Rule(), on_crash=on_crash, restart_seconds=seconds)
    outcome = run(algorithm, members, updates=10)
    lost = {"restart": 4.0 + seconds, "shrink": 2 * seconds}[on_crash]
    assert outcome.progress.time == pytest.approx(10 + lost, rel=1e-12)
    assert outcome.workers["down"].tolist() == [0.0, 2.5, 0.0, 4.0]


@pytest.mark.parametrize("algorithm", [AsyncPS(Rule()), AllReduce(Rule(), on_crash="shrink")])
def test_run_waits_while_all_are_away(algorithm):
    """Stays of two mini-batches, seven seconds apart, and none at last."""
    outcome = run(algorithm, Members(start=1.0, uptime=1.5, downtime=7.0), 3, time=30.0)
    times = outcome.updates["time"].reshape(-1, 3)
    assert times.tolist() == [[moment] * 3 for moment in (2, 3, 11, 12, 20, 21, 29, 30)]
    alone = run(algorithm, Members(start=1.0, uptime=1.5), 3, time=30.0)
    crash = Crash(workers=(0, 1, 2), at=3.5)
    crashed = simulate(Cluster(3, slowdowns=[crash]), algorithm, stop=Stop(time=30.0))
    assert alone.reached == crashed.reached == "stalled"
    assert alone.stalled.partition(": ")[2] == crashed.stalled.partition(": ")[2]


def test_run_is_stalled_where_workers_only_come_and_go():
    """The model takes longer to them than they stay."""
    members = Members(uptime=0.25, downtime=1.0)
    outcome = run(AsyncPS(Rule()), members, network=Network(latency=2.0), updates=5)
    assert outcome.reached == "stalled"
    assert "times without a mini-batch" in outcome.stalled


def test_timers_go_on_while_all_are_away():
    ticks = []

    class Ticking(Visit):
        def server(self, node):
            while True:
                yield node.after(1.0)
                ticks.append(node.now)

    run(Ticking(), Members(uptime=1.5, downtime=7.0), 2, time=20.0)
    assert ticks == [float(second) for second in range(1, 21)]


def test_times_of_worker_do_not_depend_on_others():
    brief = Constant(1e-3)
    few = run(Visit(), RANDOM, 4, compute=brief, task=None, time=300.0)
    many = run(Visit(), RANDOM, 9, compute=brief, task=None, time=300.0)
    assert few.workers["down"].tolist() == many.workers["down"][:4].tolist()
    assert len(set(many.workers["down"])) == 9


def test_newcomer_in_pairwise_gossip_reads_lowest_rank(computed):
    """Ranks 0 and 2 come back together and read that of rank 1, whose card they share."""
    uptimes = Once((8.0, FOREVER, 1.5))  # until an average that ends at 9 s
    members = Members(uptime=uptimes, downtime=Constant(3.25))
    slow = Network(bandwidth=BYTES / 2, message_bytes=BYTES)
    run(ADPSGD(Rule(lr=0.05)), members, 3, slow, time=20.0)
    (model,) = (weights for rank, now, weights, _ in computed if (rank, now) == (1, 12.0))
    for newcomer in (0, 2):
        first = next(entry for entry in computed if entry[0] == newcomer and entry[1] > 9)
        assert first[1] == 9.0 + 3.25 + 4.0
        assert torch.equal(first[2], model)


def test_distribution_of_members_is_checked_against_workers():
    class Few(ByRank):
        def check_workers(self, workers):
            raise InvalidSettingError("Few", "file", "a row for each worker", workers)

    with pytest.raises(InvalidSettingError, match=r"Cluster\.members\.uptime\.file"):
        Cluster(2, members=Members(uptime=Few((1.0,))))
