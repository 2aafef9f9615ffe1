"""The times of messages in lock step, as a recurrence over steps: no two messages share a link.

In a step, node i sends to `to(i)` and receives from `source(i)`, and begins the next one when both
messages have arrived. With t_i(s) the moment at which it begins step s, and c_ij(m) the seconds of
a message of m models on the link from i to j,

    t_i(s + 1) = max(t_i(s) + c_(i, to(i)), t_source(i)(s) + c_(source(i), i))

The recurrence makes the same floating-point operations as messages under a clock, and keeps the
order of events in one instant, so that both ways give the same times in the same order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.network.hops import Exchange, Hops
from laggard.simulator.timing.distributions.distribution import Seconds

NEVER = 1e300
"""A moment (s) that never comes: unlike infinity, it has differences that are numbers."""
NOTHING = -1.0
"""The time of a message that does not exist: before any other."""
MOST_ORDER = 2**60
"""The largest place in the order of an instant: above it, places are numbered again from 0."""


class Instants(NamedTuple):
    """The moments of an event at each of P nodes, and its place among the events of that instant.

    Events of one instant run in the order of scheduling (`timing.clock`). So the first of these
    fields that differs decides which of two events is later.

    Attributes:
        time: seconds.
        since: when it was scheduled (s).
        hops: messages that led to it, one after another.
        order: its place among events of as many hops.
    """

    time: Any
    since: Any
    hops: Any
    order: Any


def later(one: Instants, other: Instants) -> NDArray[np.bool_]:
    """Whether `one` is later than `other`, for each node."""
    result = one.order > other.order
    for name in ("hops", "since", "time"):  # the most significant last: it overrides the others
        left, right = getattr(one, name), getattr(other, name)
        result = (left > right) | ((left == right) & result)
    return np.asarray(result)


def sort(instants: Instants) -> NDArray[np.int64]:
    """The ranks, the one with the earliest moment first."""
    return np.lexsort((instants.order, instants.hops, instants.since, instants.time))


def latest(one: Instants, other: Instants) -> Instants:
    """The later of the two, for each node."""
    return wherever(later(other, one), other, one)


def wherever(chosen: NDArray[np.bool_], one: Instants, other: Instants) -> Instants:
    """The instants of `one` for the `chosen` nodes, and of `other` for the rest."""
    if chosen.all():
        return one
    columns = zip(one, other, strict=True)
    return Instants(*(np.where(chosen, new, old) for new, old in columns))


@dataclass
class Tally:
    """Counts of messages up to a moment.

    Attributes:
        sending: seconds during which each node had a message under way.
        sent, delivered: numbers of messages.
    """

    sending: Seconds
    sent: int = 0
    delivered: int = 0


def follow(
    start: Instants,
    phases: Sequence[Sequence[Exchange]],
    hops: Hops,
    until: Instants | None = None,
    busy: Seconds | None = None,
) -> tuple[Instants, Tally]:
    """The moments at which each node has gone through all `phases`, and the messages up to then.

    Args:
        start: when each node begins.
        until: the event up to which messages are counted; None counts all.
        busy: moments until which nodes compute; they count as sending only from then on.
    """
    ready, tally = start, Tally(np.zeros(len(start.time)))
    for phase in phases:
        if ready.order.max() > MOST_ORDER // (2 * len(phase)):  # each phase multiplies orders
            place = np.empty_like(ready.order)
            place[sort(ready)] = np.arange(len(place))
            ready = ready._replace(order=place)
        ready = _through(ready, phase, hops, tally, until, busy)
    return ready, tally


def _through(
    ready: Instants,
    phase: Sequence[Exchange],
    hops: Hops,
    tally: Tally,
    until: Instants | None,
    busy: Seconds | None,
) -> Instants:
    """The moments at which each node has gone through one phase; counts it in `tally`."""
    after, sending = ready, ready.time
    for number, step in enumerate(phase):
        source, sends, receives, seconds, latency = hops.route(step)
        arrival, since = hops.arrive(ready.time, seconds, latency)
        order = 2 * (_places(ready, arrival) * len(phase) + number)
        sent = Instants(arrival, since, ready.hops + 1, order)
        received = Instants(*(column[source] for column in sent))
        if not receives.all():
            received = received._replace(time=np.where(receives, received.time, NOTHING))
        # A message is delivered before its sender goes on: its receiver has the even order, its
        # sender the odd one. A node that sends none goes on from its last event.
        own = wherever(sends, sent._replace(order=order + 1), ready)
        both = latest(received, own)
        after = latest(after, both) if number else both
        sending = np.maximum(sending, np.where(sends, arrival, NOTHING))
        if until is None:
            begun = delivered = sends
        else:
            begun, delivered = sends & ~later(ready, until), sends & ~later(sent, until)
        tally.sent += int(np.count_nonzero(begun))
        tally.delivered += int(np.count_nonzero(delivered))
    if until is not None:
        sending = np.minimum(sending, until.time)
    since = ready.time
    if busy is not None:
        since = np.maximum(since, busy)
    tally.sending += np.maximum(sending - since, 0.0)
    return after


def _places(ready: Instants, arrival: Seconds) -> NDArray[np.int64]:
    """The order of the nodes' messages: of those that arrive together, the first sent is first."""
    moments = np.sort(arrival)
    if (moments[1:] > moments[:-1]).all() or (ready.time == ready.time[0]).all():
        return np.asarray(ready.order)
    place: NDArray[np.int64] = np.empty_like(ready.order)
    place[np.lexsort((ready.order, ready.time))] = np.arange(len(place))
    return place


class Finish(NamedTuple):
    """Nodes that have gone through all steps, and the last arrival, after which they go on.

    Attributes:
        time, since, hops, order: of the arrival, as in `Instants`.
        ranks: in the order in which they go on.
    """

    time: float
    ranks: Sequence[int]
    since: float = -math.inf
    hops: int = 0
    order: int = 0


def finishes(ends: Instants) -> list[Finish]:
    """The nodes in the order in which they go on.

    The receiver and the sender of the same message are one entry, in this order.
    """
    result: list[Finish] = []
    columns = [column.tolist() for column in ends]
    last_message = None
    for rank in sort(ends).tolist():
        time, since, hops, order = (column[rank] for column in columns)
        message = time, since, hops, order // 2
        if message == last_message:
            last = result[-1]
            result[-1] = last._replace(ranks=(*last.ranks, rank))
        else:
            result.append(Finish(time, (rank,), since, hops, order))
        last_message = message
    return result


def rotate(
    start: float, last: int, steps: Sequence[Sequence[Exchange]], hops: Hops, workers: int
) -> tuple[list[Finish], Tally]:
    """As `follow` and `finishes`, for steps from each node to the next over equal links.

    There are at least P - 1 steps. Node `last`, which is ready last, at `start`, determines the
    time of one more node after it in every step. So all end at max_i t_i(0) + the seconds of all
    steps: 2 (P - 1) c for a ring of chunks. In that instant the node before `last` goes on first,
    then the one before that, and so on round to `last` itself.
    """
    sending = 0.0
    for (step,) in steps:
        route = hops.route(step)
        start, _ = hops.arrive(start, route.seconds, route.latency)
        sending += route.seconds + route.latency
    order = [(last - back) % workers for back in range(1, workers + 1)]
    ends = [Finish(start, [rank]) for rank in order[:-2]] + [Finish(start, order[-2:])]
    return ends, Tally(np.full(workers, sending), sent=workers * len(steps))
