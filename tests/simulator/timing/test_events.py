"""Events of verbs without callbacks of their own: who waits for them, several at once, and what was
withdrawn.
"""

import pytest

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


def test_what_is_no_event_cannot_be_waited_for():
    def role(node):
        yield node.work(1.0)
        yield 7

    with pytest.raises(
        RuntimeError, match=r"the role role yields 7; expected an event of .*yield node.receive"
    ):
        run(role)


def test_an_error_of_a_role_that_names_callbacks_is_its_own():
    def role(node):
        yield node.work(1.0)
        node.callbacks  # noqa: B018

    with pytest.raises(AttributeError, match="callbacks"):
        run(role)


def test_several_roles_wait_for_one_event_and_go_on_in_that_order():
    ends, shared = [], {}

    def first(node):
        shared["work"] = node.work(2.0)
        ends.append(("first", (yield shared["work"]), node.now))

    def second(node):
        yield shared["work"]
        ends.append(("second", None, node.now))

    def third(node):
        yield shared["work"] | node.receive(tag="never")
        ends.append(("third", None, node.now))

    def fourth(node):
        yield shared["work"]
        ends.append(("fourth", None, node.now))

    run(first, second, third, fourth)
    assert sorted(ends) == [(name, None, 2.0) for name in ("first", "fourth", "second", "third")]
    # a choice is an event of its own
    assert [name for name, _, _ in ends] == ["first", "second", "fourth", "third"]


def test_receives_without_a_tag_are_served_in_the_order_of_request():
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


def test_two_roles_of_a_node_wait_for_messages_without_a_tag():
    seen = []

    def talk(node):
        for number in range(6):
            yield node.work(1.0)
            if node.rank == 0:
                node.send(1, number)

    def listen(name):
        def role(node):
            for _ in range(3 * node.rank):
                seen.append((name, (yield node.receive())[1]))

        return role

    run(talk, listen("a"), listen("b"), workers=2)
    assert seen == [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)]


@pytest.mark.parametrize("tag", [None, "t"])
def test_messages_of_one_tag_are_received_in_the_order_of_arrival(tag):
    """Also the first of them, which a choice has taken and put back."""
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


def test_an_event_tells_what_simpys_own_does():
    """Whether it has a value, and whether it has happened."""
    told = []

    def role(node):
        work, news = node.work(1.0), node.receive()
        told.append((news.triggered, news.processed, work.triggered, work.processed, work.ok))
        with pytest.raises(AttributeError, match="not yet available"):
            _ = news.value
        node.put("news")
        yield work
        told.append(
            (news.triggered, news.processed, news.value, work.triggered, work.processed, work.value)
        )

    run(role)
    assert told == [(False, False, True, False, True), (True, True, (0, "news"), True, True, None)]


def test_who_waits_behind_a_withdrawn_receive_moves_up():
    seen = []

    def role(node):
        if node.rank == 0:
            yield node.work(2.0)
            node.send(1, "news")
        else:
            stop, later = node.receive(), node.receive()
            yield node.work(1.0) | stop
            seen.append(((yield later), stop.fired, node.now))

    run(role, workers=2)
    assert seen == [((0, "news"), False, 2.0)]


def test_a_message_after_work_has_decided_a_choice_is_for_the_next_receive():
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


def test_a_message_is_waited_for_by_its_sender_and_its_receiver():
    seen = []

    def role(node):
        if node.rank == 0:
            sending = node.send(1, "word")
            yield sending
            seen.append(("sender", node.now, sending.fired))
        else:
            _, word = yield node.receive()
            seen.append((word, node.now))

    run(role, workers=2, network=Network(latency=0.5))
    assert seen == [("word", 0.5), ("sender", 0.5, True)]


def test_a_deadlock_names_every_receive_oldest_first():
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
def test_a_role_that_waits_when_its_node_crashes_starts_anew(tag):
    """What was sent to its first life reaches neither it nor the next one; both roles of the node
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


def test_a_server_answers_the_life_that_asked():
    """A worker crashes and returns while the server computes its answer: the answer is lost."""
    seen = []

    def role(node):
        node.send(SERVER, "asks")
        while True:
            seen.append(((yield node.receive())[1], node.now))

    def server(node):
        while True:
            worker, _ = yield node.receive()
            yield node.work(1.0)
            node.send(worker, "answer")

    outcome = run(role, server=server, slowdowns=[Crash(0, at=0.4, back=0.5)], stop=Stop(time=9.0))
    assert seen == [("answer", 2.0)]
    assert outcome.messages["lost"] == 1


def test_an_interrupt_between_two_events_is_not_the_end_of_a_role():
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


def test_a_role_that_is_no_generator_is_told():
    with pytest.raises(TypeError, match="a role is 3: expected a generator"):
        run(lambda node: 3)
