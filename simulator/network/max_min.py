"""Max-min fair rates by progressive filling, of the messages that a change affects."""

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from laggard.simulator.network.links import Link, Rated

FILL_ROUNDING = 1e-12


def refill(touched: Iterable[Link]) -> list[Rated]:
    """The messages whose `share` (bytes per second) differs from their `rate` after a change.

    Rates are max-min fair if and only if each message has a bottleneck: a full link of its route
    over which no message is faster. So the rates of messages over the links `touched` are solved
    for, while all others keep theirs. Messages that have lost their bottleneck by that, or are
    faster than another message at its bottleneck, are then included, until every message has a
    bottleneck. Such rates are unique: solving for all gives the same.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2, the bottleneck condition.
    """
    solved = {flow: None for link in touched for flow in link.flows}
    added = list(solved)
    while added:
        added = [flow for link in fill(solved) for flow in invalidated(link, solved)]
        solved.update(dict.fromkeys(added))
    return [flow for flow in solved if flow.share != flow.rate]


def invalidated(link: Link, solved: dict[Rated, None]) -> list[Rated]:
    """The messages over `link` outside `solved` that cannot keep their rates.

    One is faster than the level at which `link` is full, or `link` was its bottleneck and is not
    any more: it is not full, or has a faster message.
    """
    others = [flow for flow in link.flows if flow not in solved]
    if not others:
        return others
    shares = [flow.share for flow in link.flows]
    is_full = sum(shares) >= link.bandwidth * (1 - FILL_ROUNDING)
    slowest_kept = math.inf  # of the messages whose bottleneck the link was
    if is_full:
        slowest_kept = max(shares) * (1 - FILL_ROUNDING)
    fastest_kept = link.level * (1 + FILL_ROUNDING)
    return [
        flow
        for flow in others
        if flow.share > fastest_kept or (flow.bottleneck is link and flow.share < slowest_kept)
    ]


def fill(flows: Iterable[Rated]) -> list[Link]:
    """Find the max-min fair `share` and `bottleneck` of each of `flows`, others fixed; return the
    links crossed.

    All shares grow equally until a link is full, at its `level`; the shares of its messages are
    then fixed. What a link can still give to each growing message increases when others are fixed.
    So a heap of these values, which may be outdated but are never too high, yields the next full
    link: O(n log n).
    """
    links = {link: None for flow in flows for link in flow.route}
    for flow in flows:
        flow.share, flow.bottleneck = 0.0, None
    heap = []
    for index, link in enumerate(links):
        crossing = link.flows
        link.level = math.inf
        link.unallocated = link.bandwidth
        link.waiting = 0
        for flow in crossing:
            link.unallocated -= flow.share
            if flow.bottleneck is None:
                link.waiting += 1
        # `waiting` is at least 1: each of `links` is crossed by one of `flows`.
        heap.append((link.unallocated / link.waiting, index, link))
    heapify(heap)
    while heap:
        share, index, link = heap[0]
        if link.waiting:
            current = link.unallocated / link.waiting
            if current > share:
                heapreplace(heap, (current, index, link))
                continue
            link.level = share
            for flow in link.flows:
                if flow.bottleneck is None:
                    flow.share = share
                    flow.bottleneck = link
                    for crossed in flow.route:
                        crossed.unallocated -= share
                        crossed.waiting -= 1
        heappop(heap)
    return list(links)
