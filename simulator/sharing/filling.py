"""Progressive filling: max-min fair rates, of all messages or of those that a change concerns."""

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from simulator.sharing.link import Link, Rated

ROUNDING = 1e-12


def ripple(touched: Iterable[Link]) -> list[Rated]:
    """The messages whose `share` (bytes per second) is not their `rate` any more, now that messages came or left.

    Rates are max-min fair if and only if each message has a neck: a full link of its route over which nobody is
    faster. So the messages over the links `touched` are filled anew, and those that they meet elsewhere keep what they
    have; but whoever's neck is one no more, or who is faster than a slower one at its neck, is filled anew too, and so
    on until everybody has a neck. As the rates with that property are unique, they are those of filling all anew.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2, the bottleneck condition.
    """
    anew = {flow: None for link in touched for flow in link.flows}
    opened = list(anew)
    while opened:
        opened = [flow for link in fill(anew) for flow in spoilt(link, anew)]
        anew.update(dict.fromkeys(opened))
    return [flow for flow in anew if flow.share != flow.rate]


def spoilt(link: Link, anew: dict[Rated, None]) -> list[Rated]:
    """The messages over `link`, of those not filled `anew`, that cannot keep their rates."""
    kept = [flow for flow in link.flows if flow not in anew]
    if not kept:
        return kept
    shares = [flow.share for flow in link.flows]
    least = max(shares) * (1 - ROUNDING)
    if sum(shares) < link.bandwidth * (1 - ROUNDING):
        least = math.inf
    most = link.level * (1 + ROUNDING)
    return [flow for flow in kept if flow.share > most or (flow.neck is link and flow.share < least)]


def fill(flows: Iterable[Rated]) -> Iterable[Link]:
    """Find the max-min fair `share` and the `neck` of each of `flows`, others keeping theirs; return the links crossed.

    All shares grow alike until a link is full, at its `level`; its messages keep theirs and the others grow on. What a
    link could give to each message that still grows rises when others stop, so that a heap of such figures, out of
    date but never too high, yields the link that is full next: O(n log n).
    """
    links = {link: None for flow in flows for link in flow.route}
    for flow in flows:
        flow.share, flow.neck = 0.0, None
    heap = []
    for index, link in enumerate(links):
        crossing = link.flows
        link.level, link.room, link.waiting = math.inf, link.bandwidth, 0
        for flow in crossing:
            link.room -= flow.share
            if flow.neck is None:
                link.waiting += 1
        heap.append((link.room / link.waiting, index, link))
    heapify(heap)
    while heap:
        share, index, link = heap[0]
        if link.waiting:
            current = link.room / link.waiting
            if current > share:
                heapreplace(heap, (current, index, link))
                continue
            link.level = share
            for flow in link.flows:
                if flow.neck is None:
                    flow.share, flow.neck = share, link
                    for crossed in flow.route:
                        crossed.room -= share
                        crossed.waiting -= 1
        heappop(heap)
    return links
