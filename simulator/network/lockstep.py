"""The times of messages in lock step, step by step: no two messages share a link.

In a step, node i sends to `to(i)` and receives from `source(i)`, and begins the next one when the
last byte of its own message has left it, and the other message has arrived. With t_i(s) the moment
at which it begins step s, c_ij the seconds of a message's bytes on the link from i to j, and
alpha_ij the latency,

    t_i(s + 1) = max(t_i(s) + c_(i, to(i)),
                     t_source(i)(s) + c_(source(i), i) + alpha_(source(i), i))

With `rendezvous` its own message has to arrive too: c_(i, to(i)) + alpha_(i, to(i)).

These are the floating-point operations of messages under a clock, and nodes go on in the same order
(`timing.clock`): events of one instant run in the order in which they were scheduled. An arrival is
scheduled when the bytes have passed, or under `fifo` when the message is sent.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from laggard.simulator.network.hops import Exchange, Hops
from laggard.simulator.timing.distributions.distribution import Seconds

RECEIVED, ARRIVED, LEFT = 0, 1, 2
StepEvent = tuple[float, float, float, int, int, int, int]
"""An event of a node. Events are processed in the order of these tuples, the smallest first.

The entries: its moment (s); the moment (s) at which it is scheduled; the moment (s) at which the
event that schedules it was scheduled itself; the number of its message in the order of sending;
what happens; the rank of the node that it lets go on; the phase of the message.

What happens is `RECEIVED`, the receiver has the message; `ARRIVED`, the sender knows that it has
arrived, in the same event of the clock; or `LEFT`, the sender knows that its last byte has left. A
node joins as if it had received a message of phase -1.
"""
Joins = Sequence[tuple[int, float, float]]
"""For each node that begins the first step, in order: its rank, the moment (s), and the moment (s)
at which that was scheduled.
"""


@dataclass
class Tally:
    """Counts of messages up to a moment.

    A message is under way until it arrives, also where its sender goes on before that. A node that
    computes is not sending.

    Attributes:
        sending: seconds during which each node had a message under way, and did not compute.
        under_way: the moment (s) at which the last message of each node so far arrives.
        sent, delivered: numbers of messages.
        bytes_sent: the bytes of the sent messages.
    """

    sending: Seconds
    under_way: Seconds
    sent: int
    delivered: int
    bytes_sent: float


class Finish(NamedTuple):
    """Nodes that have gone through all steps, and the event after which they go on.

    Attributes:
        time, since: the time of that event, and the time at which it was scheduled (s).
        ranks: the nodes, in the order in which they go on.
        at_once: whether it is the event in which the last node has joined.
    """

    time: float
    ranks: Sequence[int]
    since: float = -math.inf
    at_once: bool = False


class LockStep:
    """Nodes that go through the steps of a collective, one event after another.

    Attributes:
        joined: the number of nodes that have begun.
        ends: the events after which nodes have gone through all steps.
    """

    def __init__(
        self,
        joins: Joins,
        phases: Sequence[Sequence[Exchange]],
        hops: Hops,
        under_way: Seconds,
        busy: Seconds,
    ) -> None:
        """Nothing has been sent yet.

        Args:
            under_way: as in `Tally`, of the messages before.
            busy: moments until which nodes compute; they count as sending only from then on.
        """
        self._routes = [[hops.route(step) for step in phase] for phase in phases]
        self._hops = hops
        self._events: list[StepEvent] = [
            (time, since, since, place, RECEIVED, rank, -1)
            for place, (rank, time, since) in enumerate(joins)
        ]
        heapify(self._events)
        workers = len(under_way)
        self._numbers = self._joining = len(joins)
        self.joined, self._delivered = 0, 0
        self._bytes_sent = 0.0
        self.ends: list[StepEvent] = []
        self._under_way: list[float] = under_way.tolist()
        self._busy: list[float] = busy.tolist()
        self._sending = [0.0] * workers
        self._arrived: list[Counter[int]] = [Counter() for _ in range(workers)]  # by phase
        self._phase = [-1] * workers
        self._began = [math.inf] * workers
        # the departures that nodes await in their phases, and the numbers of messages
        self._departs: list[StepEvent | None] = [None] * workers
        self._awaited = [0] * workers

    def run(self, until: float = math.inf) -> None:
        """Process the events up to the moment `until` (s)."""
        while self._events and self._events[0][0] <= until:
            self._process(heappop(self._events))

    def run_until(self, joined: int, ended: int) -> None:
        """Process events until `joined` nodes have begun and `ended` have gone through all steps.

        The last event is processed to its end: the sender of a message may go on in it as well.
        """
        message: tuple[float, ...] = ()
        while self.joined < joined or len(self.ends) < ended:
            event = heappop(self._events)
            message = event[:4]
            self._process(event)
        while self._events and self._events[0][:4] == message:
            self._process(heappop(self._events))

    def tally(self, until: float = math.inf) -> Tally:
        """The messages of the events so far, up to the moment `until` (s)."""
        sending = np.array(self._sending)
        for rank, phase in enumerate(self._phase):
            if 0 <= phase < len(self._routes):
                sending[rank] += self._seconds(rank, until)
        sent = self._numbers - self._joining
        under_way = np.array(self._under_way)
        return Tally(sending, under_way, sent, self._delivered, self._bytes_sent)

    def _seconds(self, rank: int, until: float) -> float:
        """The time for which a node has been sending in its present phase."""
        since = max(self._began[rank], self._busy[rank])
        return max(min(self._under_way[rank], until) - since, 0.0)

    def _process(self, event: StepEvent) -> None:
        _, _, _, _, kind, rank, phase = event
        if phase < 0:
            self.joined += 1
            self._go_on(rank, event)
        elif kind != RECEIVED:
            self._go_on(rank, event)
        else:
            self._delivered += 1
            self._arrived[rank][phase] += 1
            # A sender may be a phase ahead: its message counts once this node has begun that phase.
            if self._phase[rank] == phase and not self._waits(rank, event):
                self._go_on(rank, event)

    def _waits(self, rank: int, event: StepEvent) -> bool:
        """Whether a node waits for messages in its phase, or else for its own to depart."""
        if self._arrived[rank][self._phase[rank]] < self._awaited[rank]:
            return True
        departs = self._departs[rank]
        # Events up to this one have been processed: its own messages have left.
        if departs is None or departs <= event:
            return False
        heappush(self._events, departs)
        return True

    def _go_on(self, rank: int, event: StepEvent) -> None:
        """Begin the next phase, and those after it, until the node waits."""
        time = event[0]
        while True:
            phase = self._phase[rank]
            if phase >= 0:
                self._sending[rank] += self._seconds(rank, time)
                del self._arrived[rank][phase]
            phase += 1
            self._phase[rank] = phase
            self._began[rank] = time
            if phase == len(self._routes):
                self.ends.append(event)
                return
            self._send(rank, phase, event)
            if self._waits(rank, event):
                return

    def _send(self, rank: int, phase: int, event: StepEvent) -> None:
        """Send a node's messages of a phase."""
        time, event_since, *_ = event
        awaited = 0
        last: StepEvent | None = None
        for route in self._routes[phase]:
            awaited += route.receives[rank]
            to = route.to[rank]
            if to < 0:
                continue
            seconds, latency = route.times[rank]
            left, arrival, since = self._hops.send(time, seconds, latency)
            # The timer of the bytes was set when they were sent.
            before = time if since > time else event_since
            message = since, before, self._numbers
            self._numbers += 1
            self._bytes_sent += route.size
            heappush(self._events, (arrival, *message, RECEIVED, to, phase))
            self._under_way[rank] = max(self._under_way[rank], arrival)
            if self._hops.rendezvous or not latency:
                complete = arrival, *message, ARRIVED, rank, phase
            elif seconds:
                complete = left, *message, LEFT, rank, phase
            else:  # without bytes, it leaves at once
                continue
            last = complete if last is None else max(last, complete)
        self._departs[rank] = last
        self._awaited[rank] = awaited


def finishes(ends: Sequence[StepEvent]) -> list[Finish]:
    """The nodes in the order in which they go on.

    The receiver and the sender of the same message are one entry, in this order.
    """
    result: list[Finish] = []
    last_message = None
    for event in ends:
        time, since, _, _, kind, rank, phase = event
        message = event[:4]
        if message == last_message and kind == ARRIVED:
            last = result[-1]
            result[-1] = last._replace(ranks=(*last.ranks, rank))
        else:
            result.append(Finish(time, (rank,), since, at_once=phase < 0))
        last_message = message
    return result


def rotate(
    start: float, last: int, steps: Sequence[Sequence[Exchange]], hops: Hops, workers: int
) -> tuple[list[Finish], Tally]:
    """As `LockStep`, for steps from each node to the next over equal links on which a message is
    complete when it arrives.

    There are at least P - 1 steps. Node `last`, which is ready last, at `start`, determines the
    time of one more node after it in every step. So all end at max_i t_i(0) + the seconds of all
    steps: 2 (P - 1) c for a ring of chunks. In that instant the node before `last` goes on first,
    then the one before that, and so on round to `last` itself.
    """
    sending = 0.0
    bytes_sent = 0.0
    for (step,) in steps:
        route = hops.route(step)
        seconds, latency = route.times[0]
        start = hops.send(start, seconds, latency).arrival
        sending += seconds + latency
        bytes_sent += workers * route.size
    order = [(last - back) % workers for back in range(1, workers + 1)]
    # The last message lets its receiver and its sender go on, in one event.
    ends = [Finish(start, [rank]) for rank in order[:-2]] + [Finish(start, order[-2:])]
    seconds_of_all = np.full(workers, sending)
    under_way = np.full(workers, start)
    sent = workers * len(steps)
    return ends, Tally(seconds_of_all, under_way, sent, sent, bytes_sent)


def go_round(
    joins: Joins, steps: Sequence[Sequence[Exchange]], hops: Hops, under_way: Seconds
) -> tuple[list[Finish], Tally] | None:
    """As `LockStep`, for steps from each node to the next over equal links: all nodes at once.

    None where the times do not determine the order in which nodes go on: several nodes go on at one
    moment although they have not begun together.
    """
    workers = len(joins)
    ready = np.empty(workers)
    sending = np.zeros(workers)
    bytes_sent = 0.0
    for rank, time, _ in joins:
        ready[rank] = time
    first, last = ready.min(), ready.max()
    for (step,) in steps:
        route = hops.route(step)
        bytes_sent += workers * route.size
        left, arrival, since = hops.send(ready, *route.times[0])
        received = np.roll(arrival, 1)
        after = np.maximum(left, received)
        under_way = np.maximum(under_way, arrival)
        sending += np.minimum(under_way, after) - ready
        ready = after
    since = np.where(received > left, np.roll(since, 1), since)
    if first == last:
        order = [(rank + len(steps)) % workers for rank, *_ in joins]
    elif len(np.unique(ready)) == workers:
        order = np.argsort(ready).tolist()
    else:
        return None
    # A node goes on in the event in which the last one joins: only `LockStep` tells that.
    if ready.min() <= last:
        return None
    ends = [Finish(float(ready[rank]), (rank,), float(since[rank])) for rank in order]
    sent = workers * len(steps)
    return ends, Tally(sending, under_way, sent, sent, bytes_sent)


def bytes_of_rotation(
    joins: Joins, steps: Sequence[Sequence[Exchange]], hops: Hops, workers: int, until: float
) -> float:
    """The bytes that nodes have sent up to the moment `until` (s), as `LockStep` counts them, in
    steps from each node to the next over equal links.

    Of the `workers` nodes only those in `joins` have begun. The moments of all others are NaN, and
    so are those of the nodes that wait for them.
    """
    ready = np.full(workers, math.nan)
    for rank, time, _ in joins:
        ready[rank] = time
    total = 0.0
    for (step,) in steps:
        senders = np.count_nonzero(ready <= until)
        if not senders:
            break
        route = hops.route(step)
        total += float(senders) * route.size
        left, arrival, _ = hops.send(ready, *route.times[0])
        gone = arrival if hops.rendezvous else left
        ready = np.maximum(gone, np.roll(arrival, 1))
    return total
