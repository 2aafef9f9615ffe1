"""Max-min fair sharing of any links: which messages are a star, and when rates change.

`star` has the messages that share one link only, in virtual time; `max_min` solves for the rates of
all others. A network of racks is `nested`, with the compiled solution in `filling`.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from laggard.simulator.network.links import Link, Passed, Rated, Timer, slack
from laggard.simulator.network.max_min import refill
from laggard.simulator.network.star import ProcessorSharingStar, StarEntry
from laggard.simulator.timing.clock import Clock

MIN_STAR = 4
"""The number of messages from which a `ProcessorSharingStar` is faster than general filling."""


class MaxMin:
    """Messages that share links in any way, connected or not, each with a rate.

    Rates are solved for once per instant, when its timer fires. Messages that form a star are then
    moved to a `ProcessorSharingStar`.

    Attributes:
        changed: the number of rates that have been changed.
    """

    def __init__(self, env: Clock, star: Callable[[Link], ProcessorSharingStar]) -> None:
        self._env, self._star = env, star
        self._flows: dict[Rated, None] = {}
        self.changed = 0
        self._touched: dict[Link, None] = {}  # links whose messages need new rates
        # A heap. Entries whose end differs from the message's are outdated: a rate that changes
        # pushes a new entry, since a heap cannot move one.
        self._ends: list[StarEntry] = []
        self._timer = Timer(env, self._wake)

    def join(self, flows: Iterable[Rated]) -> None:
        """Start to transfer the bytes `left` of `flows`, which are on their links already."""
        for flow in flows:
            flow.group = self
            flow.since = self._env.now
            flow.rate, flow.bottleneck = 0.0, None
            flow.end = math.nan  # makes an entry from an earlier stay outdated
            self._flows[flow] = None
            self._touch(flow)

    def dissolve(self) -> list[Rated]:
        """Remove and return the messages, with `left` up to date, for another group."""
        flows = list(self._flows)
        for flow in flows:
            self._hand_over(flow)
        self._touched, self._ends = {}, []
        self._timer.cancel()
        return flows

    def withdraw(self, flow: Rated) -> None:
        """Remove `flow` from its links, which the others then share."""
        self._remove(flow)
        self._set_timer()

    def touch(self, links: Iterable[Link]) -> None:
        """Solve in this instant for the rates that new bandwidths of `links` affect."""
        self._touched.update(dict.fromkeys(links))
        self._timer.schedule(self._env.now)

    def _touch(self, flow: Rated) -> None:
        for link in flow.route:
            self._touched[link] = None
        self._timer.schedule(self._env.now)

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        flow.end = math.nan
        del self._flows[flow]
        self._touch(flow)

    def _wake(self) -> None:
        """Complete the messages that end now, or solve for rates where links were touched."""
        done = self._take_ended()
        for flow in done:
            self._remove(flow)
        for flow in sorted(done, key=lambda flow: flow.number):
            flow.passed(0.0)
        # After ends the timer fires once more in this instant, after messages that these cause.
        if self._touched and not done:
            self._solve_rates()
        self._set_timer()

    def _take_ended(self) -> list[Rated]:
        """The messages whose bytes have passed by now, without their heap entries."""
        done, now = [], self._env.now
        while self._ends:
            end, _, flow = entry = self._ends[0]
            if self._holds(entry):
                if (end - now) * flow.rate > slack(flow.size, flow.rate, now):
                    break
                done.append(flow)
                flow.end = math.nan
            heappop(self._ends)
        return done

    def _solve_rates(self) -> None:
        """Solve for the rates that changes on the touched links affect."""
        now = self._env.now
        touched = [link for link in self._touched if self._is_solved_here(link)]
        changed = refill(touched)
        self.changed += len(changed)
        self._touched = {}
        for flow in changed:
            flow.left -= flow.rate * (now - flow.since)
            flow.since, flow.rate = now, flow.share
            flow.end = math.nan
            if flow.rate:  # else a link of its route is down
                flow.end = now + flow.left / flow.rate
                heappush(self._ends, (flow.end, flow.number, flow))
        self._release_stars(touched)
        if len(self._ends) > 2 * len(self._flows) + 16:  # else outdated entries would pile up
            self._ends = [entry for entry in self._ends if self._holds(entry)]
            heapify(self._ends)

    def _is_solved_here(self, link: Link) -> bool:
        """Whether there are messages over `link`, and they are not in a star."""
        return bool(link.flows) and next(iter(link.flows)).group is self

    def _holds(self, entry: StarEntry) -> bool:
        """Whether a heap entry is up to date."""
        end, _, flow = entry
        return end == flow.end and flow.group is self

    def _release_stars(self, touched: Iterable[Link]) -> None:
        for link in touched:
            if len(link.flows) >= MIN_STAR and self._is_solved_here(link) and self.is_star(link):
                self._release(link)

    def _release(self, link: Link) -> None:
        """Move the messages over `link` to the `ProcessorSharingStar` of that link."""
        for flow in link.flows:
            self._hand_over(flow)
        self._star(link).join(link.flows)

    def _hand_over(self, flow: Rated) -> None:
        """Remove a message that is still under way, with `left` up to date."""
        flow.left -= flow.rate * (self._env.now - flow.since)
        flow.end = math.nan
        del self._flows[flow]

    def is_star(self, link: Link) -> bool:
        """Whether the messages over `link` share no other link with another message.

        A message with a link that is down has no rate, which a star cannot hold.
        """
        return all(
            crossed.bandwidth and (crossed is link or len(crossed.flows) == 1)
            for flow in link.flows
            for crossed in flow.route
        )

    def _set_timer(self) -> None:
        """Set the timer: now where links are touched, else for the first end."""
        while self._ends and not self._holds(self._ends[0]):
            heappop(self._ends)
        if self._touched and self._flows:
            self._timer.schedule(self._env.now)
        elif self._ends:
            self._timer.schedule(self._ends[0][0])
        else:
            self._timer.cancel()


class FairSharing:
    """Messages under way share the links max-min fairly at every moment: the fluid model.

    All rates grow equally until a link is full; the rates of its messages are then fixed and the
    others grow on. Only messages connected through shared links affect each other. Such a group is
    a `ProcessorSharingStar` where they share one link only, as at a parameter server's card, and
    otherwise part of a `MaxMin`.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; SimGrid's CM02 with all factors 1.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._general = MaxMin(env, self._star)
        self._stars: dict[Link, ProcessorSharingStar] = {}
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Rated:
        """Carry `size` bytes over `route` from now on, and call `passed` at their end."""
        flow = Rated(next(self._numbers), size, route, passed)
        # All messages over one link are in one group: any of them tells which.
        met = {link: next(iter(link.flows)).group for link in route if link.flows}
        if met:
            group = self._group(met)
        else:
            group = self._star(flow.narrowest)
        flow.enter()
        group.join([flow])
        return flow

    def _star(self, link: Link) -> ProcessorSharingStar:
        """The star at `link`, made once: it and its timer are a cycle, expensive to free."""
        if link not in self._stars:
            self._stars[link] = ProcessorSharingStar(self._env, link)
        return self._stars[link]

    def _group(
        self, met: dict[Link, MaxMin | ProcessorSharingStar]
    ) -> MaxMin | ProcessorSharingStar:
        """The group of a message that meets groups on its links; dissolves stars it cannot join."""
        stars = [group for group in met.values() if isinstance(group, ProcessorSharingStar)]
        if len(met) == len(stars) == 1:
            (link,), (star,) = met, stars
            at_link = self._star(link)
            if star is not at_link and len(star) == 1:  # a single message can move its star
                at_link.join(star.dissolve())
                star = at_link
            if star is at_link:
                return at_link
        for star in dict.fromkeys(stars):
            self._general.join(star.dissolve())
        return self._general

    def withdraw(self, flow: Rated) -> None:
        """Carry `flow` no further, and never call its `passed`."""
        flow.group.withdraw(flow)
