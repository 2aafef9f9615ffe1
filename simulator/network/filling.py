"""Progressive filling, which `nested` compiles: the rates of `max_min.fill`, over arrays.

Every array of messages has a row a message, of which the first `count` are used; `routes`
`(messages, hops)` holds the numbers of the links that a message crosses, and -1 after them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]

CEILING_WIDTH = 1.1
"""The first ceiling over the lowest level, see `max_min_rates`. Measured at 4,096 messages across
racks, 1.05 and 1.25 take a tenth longer, 1.5 a quarter.
"""
FEW_LINKS = 256
"""The number of links up to which one heap of all is as fast: fewer passes, and a heap in cache."""
MIN_SHARE = 1 / 32
"""The share of the links above a ceiling that the next one should reach or drop."""

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


def may_limit(
    routes: Indices, count: int, bandwidths: Doubles, waiting: Indices
) -> NDArray[np.bool_]:
    """Whether a link may be full first: one with a single message only as its narrowest link."""
    limits = waiting > 1
    for message in range(count):
        least = routes[message, 0]
        for hop in range(1, routes.shape[1]):
            link = routes[message, hop]
            if link < 0:
                break
            narrower = bandwidths[link] < bandwidths[least]
            equal = bandwidths[link] == bandwidths[least]
            if narrower or (equal and waiting[link] > waiting[least]):
                least = link
        limits[least] = True
    return limits


def max_min_rates(routes: Indices, count: int, bandwidths: Doubles) -> Doubles:
    """The max-min fair rates (bytes per second) of messages over links of these `bandwidths`.

    All rates grow equally until a link is full; those of its messages are then fixed. The level of
    a link is what it can still give to each growing message. It only increases when others are
    fixed, so that stored levels may be outdated but are never too high.

    Links with a level up to a ceiling are in a heap. The others wait unordered: most of them have
    no growing message any more once the ceiling reaches them, and are dropped unsorted. Since the
    heap has every link up to the ceiling, its first one is the lowest of all, and links become full
    in the same order wherever the ceilings are.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2.
    """
    links, hops = len(bandwidths), routes.shape[1]
    waiting, starts, crossing = messages_by_link(routes, count, links)
    unallocated = bandwidths.copy()
    rates = np.zeros(count)
    fixed = np.zeros(count, np.bool_)
    levels = np.empty(links)
    heap = np.empty(links, np.int64)
    size = 0
    limits = may_limit(routes, count, bandwidths, waiting)
    later_levels, later, number, lowest = initial_levels(bandwidths, waiting, limits)
    ceiling, width = 0.0, CEILING_WIDTH
    growing = count
    while growing:
        if size == 0:
            ceiling = math.inf
            if number > FEW_LINKS:
                ceiling = lowest * width
            before = number
            size, number, lowest = raise_ceiling(
                ceiling, waiting, levels, heap, later_levels, later, number
            )
            # Else levels of many magnitudes would take as many passes over all links.
            if before - number < MIN_SHARE * before:
                width *= width
            continue
        link = heap[0]
        if waiting[link]:
            level = unallocated[link] / waiting[link]
            if levels[0] < level <= ceiling:
                levels[0] = level
                sink(levels, heap, 0, size)
                continue
            if level > ceiling:
                # `lowest` may then be too high; it only determines how far the ceiling rises
                later_levels[number] = level
                later[number] = link
                number += 1
            else:
                level = levels[0]  # may be higher, by rounding
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
        levels[0] = levels[size]
        heap[0] = heap[size]
        sink(levels, heap, 0, size)
    return rates


def initial_levels(
    bandwidths: Doubles, waiting: Indices, limits: NDArray[np.bool_]
) -> tuple[Doubles, Indices, int, float]:
    """The levels of links that may limit, their numbers, how many they are, the lowest level."""
    links, number, lowest = len(bandwidths), 0, math.inf
    levels = np.empty(links)
    numbers = np.empty(links, np.int64)
    for link in range(links):
        if limits[link]:
            level = bandwidths[link] / waiting[link]
            levels[number] = level
            numbers[number] = link
            number += 1
            lowest = min(lowest, level)
    return levels, numbers, number, lowest


def raise_ceiling(
    ceiling: float,
    waiting: Indices,
    levels: Doubles,
    heap: Indices,
    later_levels: Doubles,
    later: Indices,
    number: int,
) -> tuple[int, int, float]:
    """Move links up to `ceiling` to the empty heap, and drop those without growing messages.

    Levels are not updated here: a link that is full at the same level as others would get another
    rounding error, which would depend on where the ceilings are.

    Returns:
        The size of the heap, the number of links that are left, and the lowest of their levels.
    """
    size, kept, lowest = 0, 0, math.inf
    for index in range(number):
        level, link = later_levels[index], later[index]
        if waiting[link] == 0:
            continue
        if level <= ceiling:
            levels[size], heap[size] = level, link
            size += 1
        else:
            later_levels[kept] = level
            later[kept] = link
            kept += 1
            lowest = min(lowest, level)
    for index in range(size // 2 - 1, -1, -1):
        sink(levels, heap, index, size)
    return size, kept, lowest


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
