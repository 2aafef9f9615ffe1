"""The four verbs, and what an algorithm can get wrong with them."""

from dataclasses import dataclass

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
    Rule,
    Star,
    Stop,
    simulate,
)
from laggard.simulator.network.topology import Exponential
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Factor


def run(worker, server=None, workers=2, stop=None, **more):
    """Simulate roles given as plain generator functions of a node."""

    class Made(Algorithm):
        pass

    Made.worker = lambda self, node: worker(node)
    if server is not None:
        Made.server = lambda self, node: server(node)
    cluster = more.pop("cluster", None) or Cluster(workers=workers)
    return simulate(cluster, Made(), more.pop("task", None), stop=stop or Stop(time=100.0), **more)


def idle(node):
    yield node.receive(tag="never")


def test_without_a_step_peers_and_mixing_are_those_of_its_first():
    seen = []

    def worker(node):
        if node.rank == 0:
            seen.append((node.out_peers(), node.in_peers(), node.mixing("uniform")))
            seen.extend(
                (node.out_peers(step), node.in_peers(step), node.mixing("uniform", step))
                for step in (0, 1)
            )
        yield node.work(1.0)

    run(worker, cluster=Cluster(4, network=Network(topology=Exponential())), stop=Stop(time=1.0))
    by_default, first, second = seen
    assert by_default == first
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_a_message_carries_its_sender_content_and_tag_in_order_of_arrival():
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


def test_send_fires_when_the_message_has_arrived():
    moments = []

    def worker(node):
        moments.append(("content", (yield node.send(SERVER, "hello"))))
        moments.append(node._env.now)

    network = Network(bandwidth=4.0, latency=0.5, message_bytes=8.0)
    run(worker, idle, cluster=Cluster(workers=1, network=network))
    assert moments == [("content", "hello"), 2.5]


def test_roles_of_a_node_tell_each_other_at_once_and_send_no_message():
    """Also while the node computes, on a network that takes time for everything."""
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
    assert outcome.messages == {"sent": 0, "delivered": 0, "lost": 0, "in flight": 0}
    assert len(outcome.message_log["sent"]) == 0
    assert outcome.reached == "returned"


def test_what_is_started_early_overlaps():
    ends = []

    def worker(node):
        sending, work = node.send(SERVER, None), node.compute(node.weights)
        yield sending & work
        ends.append(node._env.now)

    network = Network(bandwidth=1.0, message_bytes=3.0)
    run(worker, idle, cluster=Cluster(workers=1, compute=Constant(2.0), network=network))
    assert ends == [3.0]


def test_a_receive_left_unfired_in_a_choice_takes_no_message_later():
    seen = []

    def worker(node):
        yield node.work(5.0)
        node.send(SERVER, "late")
        yield node.work(50.0)

    def server(node):
        stop = node.receive()
        yield node.work(1.0) | (stop | node.receive(tag="other"))
        assert not stop.fired
        seen.append((yield node.receive()))

    run(worker, server, workers=1)
    assert seen == [(0, "late")]


def test_a_choice_taken_by_the_message_leaves_the_work_running():
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


def test_cancelling_frees_the_node_and_withdraws_the_gradient():
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


def test_a_second_computation_while_one_runs_raises():
    def worker(node):
        node.compute(node.weights)
        yield node.compute(node.weights)

    with pytest.raises(
        RuntimeError, match="node 0 starts to compute at 0 s while it is computing already"
    ):
        run(worker)


def test_parts_of_a_mini_batch_take_what_it_takes_however_they_are_spread():
    """The second worker is three times as slow; a pause of 5 s is no work."""
    moments, durations = {0: [], 1: []}, {}

    def worker(node):
        durations[node.rank] = of = node.duration()
        for share in (0.25, 0.0, 0.5, 0.25):
            yield node.work(share=share, of=of)
            moments[node.rank].append(node.now)
        assert node.duration() != of
        yield node.work(5.0)
        yield node.work(share=0.5, of=of)
        moments[node.rank].append(node.now)

    run(worker, cluster=Cluster(2, Gamma(1.0, 0.5), [Factor(1, factor=3.0)]))
    for rank, factor in ((0, 1.0), (1, 3.0)):
        seconds = factor * durations[rank]
        expected = [0.25 * seconds, 0.25 * seconds, 0.75 * seconds, seconds, 1.5 * seconds + 5.0]
        assert moments[rank] == pytest.approx(expected, rel=1e-12)


def test_work_of_no_time_is_no_wait():
    order = []

    def worker(node):
        yield node.work(0)
        order.append(node.rank)
        yield node.work(1.0)

    run(worker, workers=3)
    assert order == [0, 1, 2]


def test_a_server_has_no_mini_batches():
    def server(node):
        yield node.compute(node.weights)

    with pytest.raises(RuntimeError, match="node -1 is a server"):
        run(idle, server)


def test_sending_to_nobody_raises_and_names_the_ranks():
    def worker(node):
        yield node.send(7, None)

    with pytest.raises(
        InvalidSettingError, match=r"send.receiver: expected a rank of \[-1, 0, 1\], got 7"
    ):
        run(worker, idle)


def test_a_deadlock_names_who_waits_for_what_since_when():
    def worker(node):
        yield node.work(2.0 + node.rank)
        yield node.receive(tag="never")

    with pytest.raises(Deadlock, match="deadlock at 3 s after 0 updates") as caught:
        run(worker, idle)
    assert "node 0 waits since 2 s for a message with tag 'never'" in str(caught.value)
    assert "node -1 waits since 0 s" in str(caught.value)


def test_a_deadlock_of_many_names_a_few():
    with pytest.raises(Deadlock, match="and 22 more"):
        run(idle, workers=30)


@pytest.mark.parametrize("server", [None, idle])
def test_workers_that_return_end_the_simulation(server):
    def worker(node):
        yield node.work(3.0)

    outcome = run(worker, server)
    assert (outcome.reached, outcome.progress.time) == ("returned", 3.0)


def test_what_a_role_raises_comes_out_as_it_was():
    class Odd(Exception):
        def __init__(self, first, second):
            super().__init__(f"{first} and {second}")

    def worker(node):
        yield node.work(1.0)
        raise Odd("this", "that")

    with pytest.raises(Odd, match="this and that"):
        run(worker)


def test_weights_changed_in_place_while_a_gradient_is_promised_raise():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.weights.mul_(0.5)
        node.apply(node.weights - 0.1 * gradient.value, [gradient])

    with pytest.raises(
        RuntimeError, match=r"weights at which worker 0 computes since 0 s were changed in place"
    ):
        run(worker, task=Quadratic(), workers=1)


def test_weights_changed_under_the_name_that_the_algorithm_kept_raise_too():
    def worker(node):
        mine = torch.ones(1, 1)
        node.weights = mine
        gradient = yield node.compute(node.weights)
        mine.add_(1.0)
        node.apply(node.weights - gradient.value, [gradient])

    with pytest.raises(RuntimeError, match="changed in place"):
        run(worker, task=Quadratic(), workers=1)


def test_weights_changed_in_place_after_the_value_was_taken_do_not():
    def worker(node):
        gradient = yield node.compute(node.weights)
        step = gradient.value
        node.apply(node.weights.clone().sub_(step), [gradient])

    assert run(worker, task=Quadratic(), workers=1).progress.updates == 1


def test_weights_changed_in_place_before_they_were_read_do_not():
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


def test_where_no_server_is_the_model_is_the_mean_and_an_update_of_one_node_counts_a_share():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.apply(torch.full_like(node.weights, float(node.rank)), [gradient])

    outcome = run(worker, task=Quadratic(batch=4), workers=4)
    assert float(outcome.weights) == 1.5
    assert outcome.progress.updates == 1
    assert outcome.progress.samples == 16


@dataclass(frozen=True)
class Shared(Algorithm):
    """Two nodes that both apply the same gradients."""

    rule: Rule

    def worker(self, node):
        gradient = yield node.compute(node.weights)
        board.append(gradient)
        yield node.work(1.0)
        weights, _ = self.rule.update(node.weights, board, self.rule.init(node.weights))
        node.apply(weights, board)


board = []


def test_a_gradient_applied_by_several_nodes_counts_once():
    board.clear()
    outcome = simulate(Cluster(workers=2), Shared(Rule()), Quadratic(batch=4), stop=Stop(time=9.0))
    assert outcome.gradients["applied"] == 2
    assert outcome.progress.updates == 1
    assert outcome.progress.samples == 8


def test_a_gradient_has_one_fate():
    def worker(node):
        gradient = yield node.compute(node.weights)
        gradient.drop()
        node.apply(node.weights, [gradient])

    with pytest.raises(
        RuntimeError, match="a gradient of worker 0 is to be applied, but was dropped"
    ):
        run(worker, task=Quadratic())


def test_time_is_spent_computing_sending_or_waiting():
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


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_work_that_is_no_duration_raises(seconds):
    def worker(node):
        yield node.work(seconds)

    with pytest.raises(
        InvalidSettingError, match=r"node 0.work: expected a finite duration >= 0 s"
    ):
        run(worker)


@pytest.mark.parametrize("size", [-1.0, float("nan"), float("inf")])
def test_a_message_of_no_size_raises(size):
    def worker(node):
        yield node.send(SERVER, None, size=size)

    with pytest.raises(InvalidSettingError, match=r"send.size: expected a finite number of models"):
        run(worker, idle)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_a_message_that_takes_for_ever_raises(sharing):
    def worker(node):
        yield node.send(SERVER, None, size=1e295)

    network = Network(bandwidth=1e-9, message_bytes=1e9, sharing=sharing)
    with pytest.raises(InvalidSettingError, match=r"Network.bytes over bandwidth"):
        run(worker, idle, cluster=Cluster(workers=1, network=network))


def test_of_two_messages_in_the_mailbox_a_choice_takes_one():
    seen = []

    def worker(node):
        for content in "ab":
            node.send(SERVER, content, tag=content)
        yield node.work(9.0)

    def server(node):
        yield node.work(1.0)
        first, second = node.receive(tag="a"), node.receive(tag="b")
        yield first | second
        seen.append((first.fired, second.fired, first.value))
        seen.append((yield node.receive(tag="b")))

    run(worker, server, workers=1)
    assert seen == [(True, False, (0, "a")), (0, "b")]


def test_receives_that_were_withdrawn_leave_nothing_behind():
    nodes = []

    def worker(node):
        nodes.append(node)
        for _ in range(100):
            yield node.work(0.5) | node.receive(tag="stop")
        yield node.work(100.0)

    run(worker, workers=1)
    assert nodes[0].mailbox.waiting() == []


def test_cancelled_work_holds_up_neither_the_end_nor_a_deadlock():
    def worker(node):
        work = node.compute(node.weights)
        work.cancel()
        if node.rank == 1:
            yield node.receive(tag="never")

    cluster = Cluster(workers=1, compute=Constant(1000.0))
    assert run(worker, cluster=cluster, stop=Stop(updates=1)).progress.time == 0.0
    with pytest.raises(Deadlock, match="deadlock at 0 s"):
        run(worker, cluster=Cluster(workers=2, compute=Constant(1000.0)), stop=Stop(updates=1))


def test_whoever_waits_for_cancelled_work_waits_for_ever():
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


def test_work_of_no_time_can_be_cancelled_too():
    def worker(node):
        work = node.work(node.apply_seconds)
        yield work | node.receive(tag="stop")
        work.cancel()

    assert run(worker).reached == "returned"


def test_a_gradient_given_twice_to_one_update_counts_once():
    def worker(node):
        gradient = yield node.compute(node.weights)
        node.apply(node.weights, [gradient, gradient])

    assert run(worker, task=Quadratic(batch=4), workers=1).progress.samples == 4
