"""Progressive filling, which `nested` compiles: the rates of `max_min.fill`, over arrays.

Every array of messages has a row a message, of which the first `count` are used; `routes`
`(messages, hops)` holds the numbers of the links that a message crosses, and -1 after them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]

BUCKET_SHIFT = 47
"""Levels that have equal bits above this one share a bucket: there are 32 buckets between a level
and its double. Measured at 4,096 messages across racks, 8 to 128 are equally fast.
"""

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
    """The rows of messages that end at `now` (s), to within `links.slack`, the last row first."""
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
    """For each link the number of messages and their start; and all messages, ordered by link."""
    hops = routes.shape[1]
    waiting = np.zeros(links, np.int64)
    starts = np.zeros(links + 1, np.int64)
    for message in range(count):
        for hop in range(hops):
            if routes[message, hop] >= 0:
                waiting[routes[message, hop]] += 1
    for link in range(links):
        starts[link + 1] = starts[link] + waiting[link]
    crossing = np.empty(starts[links], np.int64)
    place = starts[:links].copy()
    for message in range(count):
        for hop in range(hops):
            link = routes[message, hop]
            if link >= 0:
                crossing[place[link]] = message
                place[link] += 1
    return waiting, starts, crossing


def max_min_rates(routes: Indices, count: int, bandwidths: Doubles) -> Doubles:
    """The max-min fair rates (bytes per second) of messages over links of these `bandwidths`.

    All rates grow equally until a link is full; those of its messages are then fixed. The level of
    a link is what it can still give to each growing message. It only increases when others are
    fixed, so that stored levels may be outdated but are never too high.

    Links wait in buckets of nearly equal levels. Only those of the present bucket are in a heap.
    When their turn comes, most links have no growing message any more, and are dropped unsorted.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2.
    """
    links, hops = len(bandwidths), routes.shape[1]
    waiting, starts, crossing = messages_by_link(routes, count, links)
    unallocated = bandwidths.copy()
    rates = np.zeros(count)
    fixed = np.zeros(count, np.bool_)
    levels, buckets, following, lowest = buckets_of_levels(bandwidths, waiting)
    bits = levels.view(np.int64)  # of a positive double they grow with it
    heap_levels = np.empty(links)
    heap = np.empty(links, np.int64)
    size, bucket, growing = 0, -1, count
    while growing:
        if size == 0:  # the next bucket; a function of its own makes all a fifth slower
            bucket += 1
            link = buckets[bucket]
            while link >= 0:
                next_link = following[link]
                if waiting[link]:
                    levels[link] = unallocated[link] / waiting[link]
                    place = (bits[link] >> BUCKET_SHIFT) - lowest
                    if place > bucket:
                        following[link] = buckets[place]
                        buckets[place] = link
                    else:
                        heap_levels[size], heap[size] = levels[link], link
                        size += 1
                link = next_link
            for index in range(size // 2 - 1, -1, -1):
                sink(heap_levels, heap, index, size)
            continue
        link = heap[0]
        if waiting[link]:
            level = unallocated[link] / waiting[link]
            if level > levels[link]:
                levels[link] = level
                place = (bits[link] >> BUCKET_SHIFT) - lowest
                if place == bucket:
                    heap_levels[0] = level
                    sink(heap_levels, heap, 0, size)
                    continue
                following[link] = buckets[place]
                buckets[place] = link
            else:
                level = levels[link]  # may be higher, by rounding
                # Not a function: for few messages, numba takes longer to slice `crossing`.
                for index in range(starts[link], starts[link + 1]):
                    message = crossing[index]
                    if not fixed[message]:
                        fixed[message] = True
                        rates[message] = level
                        growing -= 1
                        for hop in range(hops):
                            crossed = routes[message, hop]
                            if crossed >= 0:
                                unallocated[crossed] -= level
                                waiting[crossed] -= 1
        size -= 1
        heap_levels[0] = heap_levels[size]
        heap[0] = heap[size]
        sink(heap_levels, heap, 0, size)
    return rates


def buckets_of_levels(
    bandwidths: Doubles, waiting: Indices
) -> tuple[Doubles, Indices, Indices, int]:
    """The level of each link with messages, and these links in buckets.

    Returns:
        The levels; the first link of each bucket, or -1; the link that follows each in its bucket,
        or -1; the number of the lowest bucket, from which on buckets are counted.
    """
    links = len(bandwidths)
    levels = np.empty(links)
    ends = np.array([math.inf, 0.0])  # no level rises above the highest bandwidth
    for link in range(links):
        if waiting[link]:
            levels[link] = bandwidths[link] / waiting[link]
            ends[0] = min(ends[0], levels[link])
            ends[1] = max(ends[1], bandwidths[link])
    bits = levels.view(np.int64)
    lowest, highest = ends.view(np.int64) >> BUCKET_SHIFT
    buckets = np.full(highest - lowest + 1, -1)
    following = np.empty(links, np.int64)
    for link in range(links):
        if waiting[link]:
            place = (bits[link] >> BUCKET_SHIFT) - lowest
            following[link] = buckets[place]
            buckets[place] = link
    return levels, buckets, following, lowest


def sink(levels: Doubles, heap: Indices, index: int, size: int) -> None:
    """Move the entry at `index` of a heap of links down to its place: by level, then by link."""
    level, link = levels[index], heap[index]
    while 2 * index + 1 < size:
        child = 2 * index + 1
        other = child + 1
        if other < size and is_before(levels[other], heap[other], levels[child], heap[child]):
            child = other
        if is_before(level, link, levels[child], heap[child]):
            break
        levels[index] = levels[child]
        heap[index] = heap[child]
        index = child
    levels[index], heap[index] = level, link


def is_before(level: float, link: int, other_level: float, other: int) -> bool:
    """Whether a link comes before another one in the heap. numba compares tuples more slowly."""
    return level < other_level or (level == other_level and link < other)
