"""The four verbs, and what an algorithm can get wrong with them."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    SERVER,
    Algorithm,
    Cluster,
    Deadlock,
    InvalidSettingError,
    Network,
    Record,
    Star,
    Stop,
    simulate,
)
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.network.topology import Exponential
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.simulator.engine.roles import run


def idle(node):
    yield node.receive(tag="never")


def test_peers_without_step_are_those_of_first():
    seen = []

    def worker(node):
        if node.rank == 0:
            for steps in ((), (0,), (1,)):
                peers = node.out_peers(*steps), node.in_peers(*steps)
                seen.append((*peers, node.mixing("uniform", *steps)))
        yield node.work(1.0)

    run(worker, cluster=Cluster(4, network=Network(topology=Exponential())), stop=Stop(time=1.0))
    without, first, second = seen
    assert without == first
    assert all(one != other for one, other in zip(first, second, strict=True))


def noting(value, **more):
    """The notes of a run in which one worker notes `value` after 1 s, and its time at the end."""

    def worker(node):
        yield node.work(1.0)
        node.note("threshold", value)
        yield node.work(2.0)
        node.note("end", node.now)

    outcome = run(worker, workers=1, task=Quadratic(dim=3), **more)
    return {name: column.tolist() for name, column in outcome.notes.items()}


def test_notes_have_a_row_for_each_member():
    assert noting(0.1, ensemble=2) == {
        "time": [1, 1, 3, 3],
        "updates": [0, 0, 0, 0],
        "node": [0, 0, 0, 0],
        "name": ["threshold", "threshold", "end", "end"],
        "member": [0, 1, 0, 1],
        "value": [0.1, 0.1, 3, 3],
    }
    assert noting(torch.tensor([2, 4]), ensemble=2)["value"] == [2, 4, 3, 3]
    assert noting(torch.tensor(2.0), ensemble=2)["value"] == [2, 2, 3, 3]
    assert noting(torch.tensor([[2.0], [4.0]]), ensemble=2)["value"] == [2, 4, 3, 3]


def test_note_keeps_its_value():
    value = torch.tensor([1.0])

    def worker(node):
        node.note("before", value)
        value.mul_(2)
        yield node.work(1.0)

    outcome = run(worker, workers=1, task=Quadratic(dim=3))
    assert outcome.notes["value"].tolist() == [1]


def test_run_without_a_note_has_no_columns():
    assert noting(0.5, stop=Stop(time=0.5)) == {}


def test_note_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"threshold.*\(2,\).*\(3,\)"):
        noting(torch.zeros(3), ensemble=2)
    for shape in ((2, 2), (1, 4)):
        with pytest.raises(ValueError, match="threshold"):
            noting(torch.zeros(shape), ensemble=4)
    with pytest.raises(TypeError, match="threshold"):
        noting([0.5])


def test_messages_come_in_order_of_arrival():
    seen = []

    def worker(node):
        if node.rank == 0:
            node.send(SERVER, "slow", tag="t", size=10.0)
            node.send(SERVER, "other tag", tag="u", size=0)
        else:
            yield node.work(1.0)
            node.send(SERVER, "quick", tag="t", size=1.0)
        yield node.work(50.0)

    def server(node):
        for _ in range(2):
            seen.append((yield node.receive(tag="t")))
        assert node.arrived("u")
        assert not node.arrived("t")
        seen.append((yield node.receive(tag="u")))

    network = Network(bandwidth=1.0, message_bytes=1.0)
    run(worker, server, cluster=Cluster(workers=2, network=network))
    assert seen == [(1, "quick"), (0, "slow"), (0, "other tag")]


@pytest.mark.parametrize(
    ("network", "moments"),
    [
        ({"latency": 0.5, "sharing": "fair"}, [(0.0, 0.5), (2.0, 2.5), (3.0, 3.5)]),
        ({"latency": 0.5, "sharing": "fifo"}, [(0.0, 0.5), (1.0, 1.5), (3.0, 3.5)]),
        ({"latency": 0.0, "sharing": "fifo"}, [(0.0, 0.0), (1.0, 1.0), (3.0, 3.0)]),
        ({"latency": Constant(0.5)}, [(0.0, 0.5), (2.0, 2.5), (3.0, 3.5)]),
        ({"latency": 0.5, "bandwidth": np.inf}, [(0.0, 0.5)] * 3),
    ],
)
def test_message_departs_before_its_latency(network, moments):
    """Messages of 0, 1 and 2 bytes are sent at once over a card of 1 B/s."""
    noted = []

    def worker(node):
        if node.rank == 0:
            messages = [node.send(1, None, size=size) for size in (0.0, 1.0, 2.0)]
            for message in messages:
                yield message.departed
                left = node.now
                yield message
                noted.append((left, node.now))
        yield node.work(1000.0)

    card = {"bandwidth": 1.0, "message_bytes": 1.0, **network}
    run(worker, cluster=Cluster(2, network=Network(Exponential(), **card)))
    # the free network lets the last one arrive while the first is awaited
    expected = [(max(left, before), arrived) for (left, arrived), (_, before) in zip(
        moments, [(0.0, 0.0), *moments], strict=False)]  # fmt: skip
    assert noted == expected


@pytest.mark.parametrize(("sharing", "moment"), [("fair", 4.0), ("fifo", 9.0)])
def test_message_that_crash_loses_has_departed(sharing, moment):
    """In a queue its time stays reserved."""
    noted = []

    def worker(node):
        if node.rank == 0:
            yield node.send(1, None, size=1.0).departed
            noted.append(node.now)
        yield node.work(1000.0)

    network = Network(Exponential(), bandwidth=1.0, message_bytes=9.0, latency=0.5, sharing=sharing)
    crash = Crash(1, at=4.0)
    run(worker, cluster=Cluster(2, slowdowns=[crash], network=network))
    assert noted == [moment]


def test_put_reaches_other_roles_at_once():
    """This also holds while the node computes and the network takes time."""
    seen = []

    class TwoRoles(Algorithm):
        def roles(self, workers):
            return {rank: [self.worker, self.listen] for rank in range(workers)}

        def worker(self, node):
            yield node.work(1.0)
            node.put("first", tag="t")
            work = node.work(2.0)
            node.put("second", tag="t")
            node.put("other tag")
            yield work

        def listen(self, node):
            for tag in ("t", "t", None):
                sender, content = yield node.receive(tag)
                seen.append((sender, content, node.now))

    cluster = Cluster(workers=1, network=Network(Star(), latency=0.5))
    outcome = simulate(cluster, TwoRoles(), stop=Stop(time=100.0), record=Record(messages=True))
    assert seen == [(0, "first", 1.0), (0, "second", 1.0), (0, "other tag", 1.0)]
    assert set(outcome.messages.values()) == {0}
    assert len(outcome.message_log["sent"]) == 0
    assert outcome.reached == "returned"


def test_verbs_started_early_overlap():
    ends = []

    def worker(node):
        sending, work = node.send(SERVER, None), node.compute(node.weights)
        yield sending & work
        ends.append(node.now)

    network = Network(bandwidth=1.0, message_bytes=3.0)
    run(worker, idle, cluster=Cluster(workers=1, compute=Constant(2.0), network=network))
    assert ends == [3.0]


def test_choice_of_message_leaves_work_running():
    ends = []

    def worker(node):
        yield node.work(1.0)
        node.send(SERVER, "now")
        yield node.work(50.0)

    def server(node):
        work, news = node.work(3.0), node.receive()
        yield work | news
        ends.append((node._env.now, news.fired, work.fired))
        yield work
        ends.append(node._env.now)

    run(worker, server, workers=1)
    assert ends == [(1.0, True, False), 3.0]


def test_cancelling_frees_node_and_withdraws_gradient():
    def worker(node):
        while True:
            work = node.compute(node.weights)
            yield work | node.receive(tag="stop")
            work.cancel()
            work.cancel()
            yield node.work(0.0)

    def server(node):
        yield node.work(0.25)
        for _ in range(2):
            node.send(0, None, tag="stop", size=0)
            yield node.work(0.25)

    outcome = run(worker, server, workers=1, task=Quadratic(), stop=Stop(time=10.5))
    # two cancelled on demand at 0.25 and 0.5, and those finished that nobody sends are withdrawn
    # too
    assert outcome.gradients == {
        "started": 13,
        "applied": 0,
        "dropped": 0,
        "cancelled": 12,
        "in flight": 1,
    }
    assert outcome.updates["time"][:3].tolist() == [0.25, 0.5, 1.5]
    assert outcome.evaluated == 0


def test_second_computation_while_one_runs_raises():
    def worker(node):
        node.compute(node.weights)
        yield node.compute(node.weights)

    with pytest.raises(
        RuntimeError, match="node 0 starts to compute at 0 s while it is computing already"
    ):
        run(worker)


def test_parts_of_mini_batch_add_up():
    """The second worker is three times as slow; a pause of 5 s is no work."""
    moments, durations = {0: [], 1: []}, {}

    def worker(node):
        durations[node.rank] = duration = node.duration()
        for share in (0.25, 0.0, 0.5, 0.25):
            yield node.work(share=share, of=duration)
            moments[node.rank].append(node.now)
        assert node.duration() != duration
        yield node.work(5.0)
        yield node.work(share=0.5, of=duration)
        moments[node.rank].append(node.now)

    run(worker, cluster=Cluster(2, Gamma(1.0, 0.5), [Factor(1, factor=3.0)]))
    for rank, factor in ((0, 1.0), (1, 3.0)):
        ends = factor * durations[rank] * np.array([0.25, 0.25, 0.75, 1.0, 1.5]) + [0, 0, 0, 0, 5]
        assert moments[rank] == pytest.approx(ends, rel=1e-12)


def test_server_cannot_compute():
    def server(node):
        yield node.compute(node.weights)

    with pytest.raises(RuntimeError, match="node -1 is a server"):
        run(idle, server)


def test_sending_to_unknown_rank_raises():
    def worker(node):
        yield node.send(7, None)

    with pytest.raises(
        InvalidSettingError, match=r"send.receiver: expected a rank of \[-1, 0, 1\], got 7"
    ):
        run(worker, idle)


def test_deadlock_of_many_names_few():
    with pytest.raises(Deadlock, match="and 22 more"):
        run(idle, workers=30)


@pytest.mark.parametrize("server", [None, idle])
def test_workers_that_return_end_run(server):
    def worker(node):
        yield node.work(3.0)

    outcome = run(worker, server)
    assert (outcome.reached, outcome.progress.time) == ("returned", 3.0)


def test_error_of_role_is_raised_unchanged():
    class Odd(Exception):
        def __init__(self, first, second):
            super().__init__(f"{first} and {second}")

    def worker(node):
        yield node.work(1.0)
        raise Odd("this", "that")

    with pytest.raises(Odd, match="this and that"):
        run(worker)


def test_weights_changed_in_place_raise():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.weights.mul_(0.5)
        node.apply(node.weights - 0.1 * gradient.value, [gradient])

    with pytest.raises(
        RuntimeError, match=r"weights at which worker 0 computes since 0 s were changed in place"
    ):
        run(worker, task=Quadratic(), workers=1)


CHANGES = {
    "fewer axes": lambda weights: weights[0],
    "more members": lambda weights: weights.repeat(3, 1),
    "other precision": lambda weights: weights.double(),
    "a gradient": lambda weights: Gradient(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weights_of_another_shape_are_refused_when_set(change):
    def applies(node):
        gradient = yield node.compute(node.weights)
        node.apply(change(node.weights), [gradient])

    def mixes(node):
        yield node.work(1.0)
        node.weights = change(node.weights)

    for worker in (applies, mixes):
        with pytest.raises(TypeError, match=r"model of node 0: expected a tensor \(1, 1\)"):
            run(worker, task=Quadratic(), workers=1)


def test_weights_may_change_before_they_are_read():
    def worker(node):
        node.weights = torch.ones(1, 1).add_(1.0)
        gradient = yield node.compute(node.weights)
        node.apply(node.weights - gradient.value, [gradient])

    assert run(worker, task=Quadratic(), workers=1).progress.updates == 1


def test_mixing_is_no_update():
    def worker(node):
        yield node.work(1.0)
        node.weights = node.weights * 0.5

    outcome = run(worker, task=Quadratic())
    assert outcome.progress.updates == 0
    assert float(outcome.weights) == 0.5


def test_model_without_server_is_mean_of_nodes():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.apply(torch.full_like(node.weights, float(node.rank)), [gradient])

    outcome = run(worker, task=Quadratic(batch=4), workers=4)
    assert float(outcome.weights) == 1.5
    assert outcome.progress.updates == 1
    assert outcome.progress.samples == 16


class Shared(Algorithm):
    """Two nodes that both apply the same gradients."""

    def __init__(self):
        self.board = []

    def worker(self, node):
        self.board.append((yield node.compute(node.weights)))
        yield node.work(1.0)
        node.apply(node.weights - 0.1, self.board)


def test_gradient_applied_by_several_nodes_counts_once():
    outcome = simulate(Cluster(workers=2), Shared(), Quadratic(batch=4), stop=Stop(time=9.0))
    assert outcome.gradients["applied"] == 2
    assert outcome.progress.updates == 1
    assert outcome.progress.samples == 8


def test_dropped_gradient_cannot_be_applied():
    def worker(node):
        gradient = yield node.compute(node.weights)
        gradient.drop()
        node.apply(node.weights, [gradient])

    with pytest.raises(
        RuntimeError, match="a gradient of worker 0 is to be applied, but was dropped"
    ):
        run(worker, task=Quadratic())


def test_value_of_gradient_cannot_be_applied():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.apply(node.weights, [gradient.value])

    with pytest.raises(TypeError, match=r"node.apply: expected a gradient, .*got Tensor \(1, 1\)"):
        run(worker, task=Quadratic())


def test_seconds_are_computing_sending_or_waiting():
    def worker(node):
        node.send(SERVER, None)
        yield node.receive()
        yield node.compute(node.weights)
        yield node.receive(tag="never")

    def server(node):
        for _ in range(2):
            rank, _ = yield node.receive()
            node.send(rank, None, size=0)
        yield node.work(100.0)

    network = Network(bandwidth=1.0, message_bytes=2.0, latency=0.5)
    cluster = Cluster(
        workers=2, compute=Constant(3.0), network=network, slowdowns=[Factor(1, factor=2.0)]
    )
    spent = run(worker, server, cluster=cluster, stop=Stop(time=20.0)).workers
    # both messages share the server's card for 4 s and arrive at 4.5; the answers come at 5
    assert spent["sending"].tolist() == [4.5, 4.5]
    assert spent["computing"].tolist() == [3.0, 6.0]
    assert spent["waiting"].tolist() == [12.5, 9.5]


def test_choices_nest_and_combine():
    moments = []

    def worker(node):
        yield (node.receive(tag="a") & node.receive(tag="b")) & node.receive(tag="c")
        moments.append(node._env.now)

    def server(node):
        for tag in "abc":
            yield node.work(1.0)
            node.send(0, None, tag=tag)

    run(worker, server, workers=1)
    assert moments == [3.0]


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("start", "key"),
    [
        (lambda node, number: node.work(number), "node 0.work"),
        (lambda node, number: node.send(SERVER, None, size=number), "send.size"),
        (lambda node, number: node.after(number), "node 0.after"),
    ],
    ids=["work", "send", "after"],
)
def test_numbers_out_of_range_are_refused(start, key, number):
    def worker(node):
        yield start(node, number)

    with pytest.raises(InvalidSettingError, match=f"{key}: expected a finite"):
        run(worker, idle)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_endless_message_raises(sharing):
    def worker(node):
        yield node.send(SERVER, None, size=1e295)

    network = Network(bandwidth=1e-9, message_bytes=1e9, sharing=sharing)
    with pytest.raises(InvalidSettingError, match=r"Network.bytes over bandwidth"):
        run(worker, idle, cluster=Cluster(workers=1, network=network))


def test_withdrawn_receives_leave_nothing_behind():
    nodes = []

    def worker(node):
        nodes.append(node)
        for _ in range(100):
            yield node.work(0.5) | node.receive(tag="stop")
        yield node.work(100.0)

    run(worker, workers=1)
    assert nodes[0].mailbox.waiting() == []


def test_cancelled_work_delays_no_end():
    def worker(node):
        work = node.compute(node.weights)
        work.cancel()
        if node.rank == 1:
            yield node.receive(tag="never")

    cluster = Cluster(workers=1, compute=Constant(1000.0))
    assert run(worker, cluster=cluster, stop=Stop(updates=1)).progress.time == 0.0
    with pytest.raises(Deadlock, match="deadlock at 0 s"):
        run(worker, cluster=Cluster(workers=2, compute=Constant(1000.0)), stop=Stop(updates=1))


def test_cancelled_work_never_fires():
    went_on = []

    def worker(node):
        work = node.compute(node.weights)
        if node.rank == 0:
            work.cancel()
        yield work
        went_on.append(node.rank)
        # the clock passes the moment at which the other's work would have ended
        yield node.work(5.0)

    with pytest.raises(Deadlock, match="workers wait for cancelled work"):
        run(worker)
    assert went_on == [1]


def test_work_of_zero_length_can_be_cancelled():
    def worker(node):
        work = node.work(node.apply_seconds)
        yield work | node.receive(tag="stop")
        work.cancel()

    assert run(worker).reached == "returned"


def test_gradient_given_twice_to_update_counts_once():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.apply(node.weights, [gradient, gradient])

    assert run(worker, task=Quadratic(batch=4), workers=1).progress.samples == 4
