"""The times of messages in lock step: a recurrence over steps, where no two messages ever share a
link.

In a step, node i sends to `to(i)` and receives from `source(i)`, and begins the next one when both
messages have arrived. With t_i(s) the moment at which it begins step s, and c_ij(m) the seconds of
a message of m models on the link from i to j,

    t_i(s + 1) = max(t_i(s) + c_(i, to(i)), t_source(i)(s) + c_(source(i), i))

The recurrence makes the same floating-point operations as messages under a clock, and keeps the
order of what happens in one instant, so that both ways give the same times in the same order.
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
"""The largest place in the order of an instant at which places are numbered anew."""


class Instants(NamedTuple):
    """When something happens at each of P nodes, and its place among the events of that instant.

    What happens in one instant does so in the order of its scheduling. So one event is later than
    another if it is so by the first of these that differs.

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
    for mine, theirs in ((one.hops, other.hops), (one.since, other.since), (one.time, other.time)):
        result = (mine > theirs) | ((mine == theirs) & result)
    return np.asarray(result)


def sort(instants: Instants) -> NDArray[np.int64]:
    """The ranks, the one with the earliest moment first."""
    return np.lexsort((instants.order, instants.hops, instants.since, instants.time))


def latest(one: Instants, other: Instants) -> Instants:
    """The later of the two, for each node."""
    return wherever(later(other, one), other, one)


def wherever(chosen: NDArray[np.bool_], one: Instants, other: Instants) -> Instants:
    """That of `one` for the nodes that are `chosen`, and that of `other` for the rest."""
    if chosen.all():
        return one
    return Instants(*(np.where(chosen, new, old) for new, old in zip(one, other, strict=True)))


@dataclass
class Tally:
    """What happened up to a moment.

    Attributes:
        sending: seconds during which each node had a message under way.
        sent, delivered: messages.
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
    """When each node has gone through all `phases`, whose steps begin together; and what happened
    `until` then.

    Nodes that are still `busy` until a moment count as sending from then on only.
    """
    ready, tally = start, Tally(np.zeros(len(start.time)))
    for phase in phases:
        if ready.order.max() > MOST_ORDER // (2 * len(phase)):
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
    """When each node has gone through one phase; `tally` counts it."""
    after, sending = ready, ready.time
    begun = True if until is None else ~later(ready, until)
    for number, step in enumerate(phase):
        source, sends, receives, *takes = hops.route(step)
        arrival, since = hops.arrive(ready.time, *takes)
        order = 2 * (_places(ready, arrival) * len(phase) + number)
        own = Instants(arrival, since, ready.hops + 1, order)
        theirs = Instants(*(column[source] for column in own))
        if not receives.all():
            theirs = theirs._replace(time=np.where(receives, theirs.time, NOTHING))
        # a message is delivered before its sender goes on, and who sends none goes on from where it
        # was
        both = latest(theirs, wherever(sends, own._replace(order=order + 1), ready))
        after = latest(after, both) if number else both
        sending = np.maximum(sending, np.where(sends, arrival, NOTHING))
        tally.sent += int(np.count_nonzero(sends & begun))
        tally.delivered += int(
            np.count_nonzero(sends & begun if until is None else sends & ~later(own, until))
        )
    if until is not None:
        sending = np.minimum(sending, until.time)
    if busy is None:
        since = ready.time
    else:
        since = np.maximum(ready.time, busy)
    tally.sending += np.maximum(sending - since, 0.0)
    return after


def _places(ready: Instants, arrival: Seconds) -> NDArray[np.int64]:
    """The order in which nodes send: where messages sent at several moments arrive in one, the
    earlier comes first.
    """
    moments = np.sort(arrival)
    if (moments[1:] > moments[:-1]).all() or (ready.time == ready.time[0]).all():
        return np.asarray(ready.order)
    place: NDArray[np.int64] = np.empty_like(ready.order)
    place[np.lexsort((ready.order, ready.time))] = np.arange(len(place))
    return place


class Finish(NamedTuple):
    """Nodes that have gone through all steps, those first that go on first, and the arrival that
    lets them go on.

    Attributes:
        time, since, hops, order: of the arrival, as of `Instants`.
    """

    time: float
    ranks: Sequence[int]
    since: float = -math.inf
    hops: int = 0
    order: int = 0


def finishes(ends: Instants) -> list[Finish]:
    """Who goes on when, in order; together those whom the same message lets go on: its receiver,
    then its sender.
    """
    found: list[Finish] = []
    seconds, places = (
        np.stack([ends.time, ends.since]).T.tolist(),
        np.stack([ends.hops, ends.order]).T.tolist(),
    )
    for rank in sort(ends).tolist():
        finish, last = (
            Finish(seconds[rank][0], (rank,), seconds[rank][1], *places[rank]),
            found[-1:],
        )
        if last and (*last[0][2:4], last[0].time, last[0].order // 2) == (
            *finish[2:4],
            finish.time,
            finish.order // 2,
        ):
            found[-1] = last[0]._replace(ranks=(*last[0].ranks, rank))
        else:
            found.append(finish)
    return found


def rotate(
    start: float, last: int, steps: Sequence[Sequence[Exchange]], hops: Hops, workers: int
) -> tuple[list[Finish], Tally]:
    """Who goes on when after at least P - 1 steps from each node to the next, over links that are
    all alike.

    Node `last`, which is ready last, at `start`, determines the time of one more node after it in
    every step. So all end at max_i t_i(0) + the seconds of all steps: 2 (P - 1) c for a ring of
    chunks. In that instant the node before `last` goes on first, then the one before that, and so
    on round to `last` itself.
    """
    sending = 0.0
    for (step,) in steps:
        route = hops.route(step)
        start, _ = hops.arrive(start, route.seconds, route.latency)
        sending += route.seconds + route.latency
    order = [(last - back) % workers for back in range(1, workers + 1)]
    ends = [Finish(start, [rank]) for rank in order[:-2]] + [Finish(start, order[-2:])]
    return ends, Tally(np.full(workers, sending), sent=workers * len(steps))
