"""Progressive filling, which `nested` compiles: the rates of `max_min.fill`, over arrays.

Every array of messages has a row a message, of which the first `count` are used; `routes`
`(messages, hops)` holds the numbers of the links that a message crosses, and -1 after them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]

LEFT, RATE, SINCE, END, SIZE = range(5)
"""The columns of `table`: bytes left at a moment, bytes per second since then, that moment, the
end, all bytes.
"""


def advance(
    now: float, routes: Indices, table: Doubles, count: int, bandwidths: Doubles, rounding: float
) -> float:
    """Give each message its max-min fair rate from `now` (s) on; return the first end, or inf.

    A rate that differs from the former one only by rounding stays, so that its end does too.
    """
    shares = max_min_rates(routes, count, bandwidths)
    first = math.inf
    for message in range(count):
        rate, share = table[message, RATE], shares[message]
        if abs(share - rate) > rounding * rate:
            left = table[message, LEFT] - rate * (now - table[message, SINCE])
            table[message, LEFT] = left
            table[message, SINCE] = now
            table[message, RATE] = share
            table[message, END] = now + left / share
        first = min(first, table[message, END])
    return first


def due(now: float, ulp: float, table: Doubles, count: int) -> Indices:
    """The rows of the messages that end at `now` (s), up to `links.slack`, the last row first."""
    rows = np.empty(count, np.int64)
    number = 0
    for message in range(count - 1, -1, -1):
        rate = table[message, RATE]
        rounding = 1e-12 * table[message, SIZE] + 4 * ulp * rate
        if (table[message, END] - now) * rate <= rounding:
            rows[number] = message
            number += 1
    return rows[:number]


def messages_by_link(routes: Indices, count: int, links: int) -> tuple[Indices, Indices, Indices]:
    """The number of messages over each link, and these messages, link by link, from its start."""
    hops = routes.shape[1]
    waiting, starts = np.zeros(links, np.int64), np.zeros(links + 1, np.int64)
    for message in range(count):
        for hop in range(hops):
            if routes[message, hop] >= 0:
                waiting[routes[message, hop]] += 1
    for link in range(links):
        starts[link + 1] = starts[link] + waiting[link]
    crossing, place = np.empty(starts[links], np.int64), starts[:links].copy()
    for message in range(count):
        for hop in range(hops):
            link = routes[message, hop]
            if link >= 0:
                crossing[place[link]] = message
                place[link] += 1
    return waiting, starts, crossing


def may_limit(
    routes: Indices, count: int, bandwidths: Doubles, waiting: Indices
) -> NDArray[np.bool_]:
    """Whether a link may be full first: one with a single message only as its narrowest link."""
    limits = waiting > 1
    for message in range(count):
        least = routes[message, 0]
        for hop in range(1, routes.shape[1]):
            link = routes[message, hop]
            if link >= 0 and (bandwidths[link], -waiting[link]) < (
                bandwidths[least],
                -waiting[least],
            ):
                least = link
        limits[least] = True
    return limits


def max_min_rates(routes: Indices, count: int, bandwidths: Doubles) -> Doubles:
    """The max-min fair rates (bytes per second) of messages over links of these `bandwidths`.

    All rates grow equally until a link is full; those of its messages are then fixed. What a link
    can still give to each growing message increases when others are fixed, so that a heap of these
    values, which may be outdated but are never too high, yields the next full link.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2.
    """
    links, hops = len(bandwidths), routes.shape[1]
    waiting, starts, crossing = messages_by_link(routes, count, links)
    limits = may_limit(routes, count, bandwidths, waiting)
    unallocated, rates, fixed = bandwidths.copy(), np.zeros(count), np.zeros(count, np.bool_)
    levels, heap, size = np.empty(links), np.empty(links, np.int64), 0
    for link in range(links):
        if limits[link]:
            levels[size], heap[size] = bandwidths[link] / waiting[link], link
            size += 1
    for index in range(size // 2 - 1, -1, -1):
        sink(levels, heap, index, size)
    growing = count
    while growing:
        link = heap[0]
        if waiting[link]:
            level = unallocated[link] / waiting[link]
            if level > levels[0]:
                levels[0] = level
                sink(levels, heap, 0, size)
                continue
            level = levels[0]
            for index in range(starts[link], starts[link + 1]):
                message = crossing[index]
                if not fixed[message]:
                    fixed[message], rates[message] = True, level
                    growing -= 1
                    for hop in range(hops):
                        crossed = routes[message, hop]
                        if crossed >= 0:
                            unallocated[crossed] -= level
                            waiting[crossed] -= 1
        size -= 1
        levels[0], heap[0] = levels[size], heap[size]
        sink(levels, heap, 0, size)
    return rates


def sink(levels: Doubles, heap: Indices, index: int, size: int) -> None:
    """Move the entry at `index` of a heap of links down to its place: by level, then by link."""
    level, link = levels[index], heap[index]
    while 2 * index + 1 < size:
        child = 2 * index + 1
        other = child + 1
        if other < size and (levels[other], heap[other]) < (levels[child], heap[child]):
            child = other
        if (level, link) <= (levels[child], heap[child]):
            break
        levels[index], heap[index] = levels[child], heap[child]
        index = child
    levels[index], heap[index] = level, link
