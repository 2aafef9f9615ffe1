"""Events of verbs without callbacks of their own: who waits for them, several at once, and what was
withdrawn.
"""

import pytest

from laggard.errors import InvalidSettingError
from laggard.simulator import SERVER, Algorithm, Cluster, Deadlock, Network, Stop, simulate
from laggard.simulator.network.topology import Complete, Star
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Event
from laggard.simulator.timing.roles import RoleProcess
from laggard.simulator.timing.slowdowns import Crash


def run(*roles, workers=1, server=None, stop=None, **cluster):
    """Simulate `roles`, generator functions of a node, all on every worker; worker 0 and the server
    can exchange.
    """

    class Made(Algorithm):
        topology = Star() if server else Complete()

        def roles(self, workers):
            ranks = {rank: list(roles) for rank in range(workers)}
            return ranks | ({SERVER: [server]} if server else {})

        def models(self, workers):
            return range(workers)

    return simulate(Cluster(workers, **cluster), Made(), stop=stop or Stop(time=100.0))


def test_yielding_no_event_raises():
    def role(node):
        yield node.work(1.0)
        yield 7

    with pytest.raises(InvalidSettingError, match=r"algorithm.role: .*yield node.receive.*got 7"):
        run(role)


def test_attribute_error_of_role_is_raised_unchanged():
    def role(node):
        yield node.work(1.0)
        node.callbacks  # noqa: B018

    with pytest.raises(AttributeError, match="callbacks"):
        run(role)


def test_roles_waiting_for_event_go_on_in_order():
    ends, shared = [], {}

    def first(node):
        shared["work"] = node.work(2.0)
        yield shared["work"]
        ends.append(("first", node.now))

    def other(name, choose=lambda node: shared["work"]):
        def role(node):
            yield choose(node)
            ends.append((name, node.now))

        return role

    choice = other("choice", lambda node: shared["work"] | node.receive(tag="never"))
    run(first, other("second"), choice, other("last"))
    # a choice is an event of its own
    assert ends == [(name, 2.0) for name in ("first", "second", "last", "choice")]


def test_receives_are_served_in_order_of_request():
    seen = []

    def role(node):
        if node.rank == 0:
            yield node.work(1.0)
            for number in range(4):
                node.send(1, number)
        else:
            first, second, third = node.receive(), node.receive(), node.receive()
            seen.append((yield third))
            seen.extend([(yield first), (yield second), (yield node.receive())])
            assert [first.value, second.value, third.value] == [(0, 0), (0, 1), (0, 2)]

    run(role, workers=2)
    assert seen == [(0, 2), (0, 0), (0, 1), (0, 3)]


@pytest.mark.parametrize("tag", [None, "t"])
def test_messages_of_tag_come_in_order_of_arrival(tag):
    """This includes the first message, which a choice has taken and put back."""
    seen = []

    def role(node):
        if node.rank == 0:
            for number in range(4):
                node.send(1, number, tag)
        else:
            yield node.work(1.0)
            node.put(None, "go")
            yield node.receive("go") | node.receive(tag)
            for _ in range(4):
                seen.append((yield node.receive(tag)))
        yield node.work()

    run(role, workers=2)
    assert seen == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_event_has_states_of_simpy():
    """An event may have a value and may have been processed."""
    states = []

    def role(node):
        work, news = node.work(1.0), node.receive()
        states.append((news.triggered, news.processed, work.triggered, work.processed, work.ok))
        with pytest.raises(AttributeError, match="not yet available"):
            _ = news.value
        node.put("news")
        yield work
        states.append((news.triggered, news.processed, work.triggered, work.processed))
        states.append((news.value, work.value))

    run(role)
    assert states == [(False, False, True, False, True), (True,) * 4, ((0, "news"), None)]


def test_receive_behind_withdrawn_one_moves_up():
    seen = []

    def role(node):
        if node.rank == 0:
            yield node.work(2.0)
            node.send(1, "news")
        else:
            stop, later = node.receive(), node.receive()
            yield node.work(1.0) | (stop | node.receive(tag="other"))
            seen.append(((yield later), stop.fired, node.now))

    run(role, workers=2)
    assert seen == [((0, "news"), False, 2.0)]


def test_message_after_choice_is_for_next_receive():
    seen = []

    def role(node):
        if node.rank == 0:
            yield node.work(1.0)
            node.send(1, "kept")
        else:
            work, news = node.work(1.0), node.receive()
            yield work | news
            assert (work.fired, news.fired, node.arrived()) == (True, False, True)
            seen.append((yield node.receive()))

    run(role, workers=2)
    assert seen == [(0, "kept")]


def test_sender_and_receiver_may_wait_for_message():
    seen = []

    def role(node):
        if node.rank == 0:
            sending = node.send(1, "word")
            content = yield sending
            seen.append((content, node.now, sending.fired))
        else:
            _, word = yield node.receive()
            seen.append((word, node.now))

    run(role, workers=2, network=Network(latency=0.5))
    assert seen == [("word", 0.5), ("word", 0.5, True)]


def test_deadlock_names_every_receive_oldest_first():
    def role(node):
        node.receive(tag="t")
        yield node.work(1.0)
        node.receive()
        yield node.receive()

    first = "node 0 waits since 0 s for a message with tag 't'"
    later = "node 0 waits since 1 s for a message"
    with pytest.raises(Deadlock, match=f"{first}; {later}; {later}$"):
        run(role)


@pytest.mark.parametrize("tag", [None, "t"])
def test_waiting_role_restarts_after_crash(tag):
    """Messages to the first incarnation reach neither it nor the next one; both roles of the node
    start again.
    """
    seen = []

    def listen(node):
        if node.rank == 1:
            seen.append(("starts", node.now))
            while True:
                seen.append(((yield node.receive(tag))[1], node.now))

    def talk(node):
        for number in range(4):
            yield node.work(1.0)
            if node.rank == 0:
                node.send(1, number, tag)

    run(listen, talk, workers=2, slowdowns=[Crash(1, at=1.5, back=2.5)])
    assert seen == [("starts", 0.0), (0, 1.0), ("starts", 2.5), (2, 3.0), (3, 4.0)]


def test_interrupt_between_events_ends_run():
    """A signal may arrive after the role has yielded and before its event is noted: it ends the run
    all the same.
    """

    class Interrupting(Event):
        @property
        def callbacks(self):
            raise KeyboardInterrupt(2)

        @callbacks.setter
        def callbacks(self, value):
            pass

    env = Clock()

    def role():
        yield Interrupting(env)

    process = RoleProcess(env, role())
    with pytest.raises(KeyboardInterrupt):
        process.resume(None)
    assert process.is_alive


def test_role_that_is_no_generator_raises():
    with pytest.raises(InvalidSettingError, match=r"algorithm.role: expected a generator.*got 3"):
        run(lambda node: 3)
