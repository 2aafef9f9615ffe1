"""Max-min fair sharing of trunks: a link is left out where all that cross it also cross one that is
no faster.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.links import Link, Rated
from laggard.simulator.network.max_min import FILL_ROUNDING
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock

REACH = 32
"""Rates that each message changes by coming or leaving, from which on a `CompiledMaxMin` is
faster.
"""


class NestedMaxMin(MaxMin):
    """As `MaxMin`, which also finds the stars of `NestedFairSharing`."""

    def is_star(self, link: Link) -> bool:
        """Whether no link limits two or more of the messages over `link` before that does, or
        others.
        """
        checked = {link}
        for flow in link.flows:
            for crossed in flow.route:
                if len(crossed.flows) > 1 and crossed not in checked:
                    checked.add(crossed)
                    if crossed.bandwidth < link.bandwidth or any(
                        link not in other.route for other in crossed.flows
                    ):
                        return False
        return True


class CompiledMaxMin(NestedMaxMin):
    """As `NestedMaxMin`, with all rates solved for at once, in compiled loops over arrays: O(n log
    n) an instant.

    What is known of a message is a row of arrays; the last row takes the place of one that has
    left.

    Raises:
        ImportError: there is no numba.
        RuntimeError: numba cannot store what it compiles.
    """

    def __init__(self, env: Clock, star: Callable[[Link], ProcessorSharingStar]) -> None:
        # here, since few runs need it, and importing numba takes time
        from laggard.simulator.network import filling

        super().__init__(env, star)
        self._filling = filling
        self._rows: dict[Rated, int] = {}
        self._messages: list[Rated] = []  # the message of each row
        self._numbers: dict[Link, int] = {}
        self._bandwidths = np.empty(0)
        self._routes, self._known = np.full((1, 1), -1), np.zeros((1, 5))
        self._first = math.inf

    def join(self, flows: Iterable[Rated]) -> None:
        for flow in flows:
            flow.group = self
            row = self._rows[flow] = len(self._messages)
            self._messages.append(flow)
            numbers = [self._number(link) for link in flow.route]
            self._make_room(row, len(numbers))
            self._routes[row], self._routes[row, : len(numbers)] = -1, numbers
            self._known[row] = flow.left, 0.0, self._env.now, math.inf, flow.size
            self._touch(flow)

    def _number(self, link: Link) -> int:
        if link not in self._numbers:
            self._numbers[link] = len(self._numbers)
            self._bandwidths = np.append(self._bandwidths, link.bandwidth)
        return self._numbers[link]

    def _make_room(self, row: int, hops: int) -> None:
        rows, columns = self._routes.shape
        if row == rows or hops > columns:
            more, wider = rows * (row == rows), max(hops - columns, 0)
            self._routes = np.pad(self._routes, ((0, more), (0, wider)), constant_values=-1)
            self._known = np.pad(self._known, ((0, more), (0, 0)))

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        self._forget(flow)
        self._touch(flow)

    def _forget(self, flow: Rated) -> None:
        row, last = self._rows.pop(flow), self._messages.pop()
        if last is not flow:
            end = len(self._messages)
            self._messages[row], self._rows[last] = last, row
            self._routes[row], self._known[row] = self._routes[end], self._known[end]

    def _hand_over(self, flow: Rated) -> None:
        left, rate, since, *_ = self._known[self._rows[flow]].tolist()
        flow.left = left - rate * (self._env.now - since)
        self._forget(flow)

    def _through(self) -> list[Rated]:
        now = self._env.now
        rows = self._filling.due(now, math.ulp(now), self._known, len(self._messages))
        return [self._messages[row] for row in rows.tolist()]

    def _rate(self) -> None:
        if self._env.instant_goes_on:
            return  # what is still to happen in this instant may touch further links
        touched, self._touched = self._touched, {}
        count = len(self._messages)
        self._first = self._filling.advance(
            self._env.now, self._routes, self._known, count, self._bandwidths, FILL_ROUNDING
        )
        self._release_stars(touched)
        if len(self._messages) < count:  # the first to end may be in a star now
            self._first = self._known[: len(self._messages), self._filling.END].min(
                initial=math.inf
            )

    def _rest(self) -> None:
        if self._messages:
            self._timer.schedule(self._env.now if self._touched else self._first)
        else:
            self._timer.cancel()


class NestedFairSharing(FairSharing):
    """As `FairSharing`, for messages that cross several shared links, as a rack's trunk and then
    the server's card.

    With b_l the bandwidth of link l, if all messages over link m also cross link l and b_l <= b_m,
    then what l allows them together, m allows too. So messages that all cross l form a star at l,
    whatever else they share, where all links that they share are as fast. So it is with the trunks
    of racks on the way to a server's card.

    Messages of no star, as between racks at random, are in a `CompiledMaxMin` once each changes the
    rates of many.
    """

    def __init__(self, env: Clock) -> None:
        super().__init__(env)
        self._general = NestedMaxMin(env, self._star)
        self._may_compile = True

    def _group(
        self, met: dict[Link, MaxMin | ProcessorSharingStar]
    ) -> MaxMin | ProcessorSharingStar:
        star = next(iter(met.values()))
        if isinstance(star, ProcessorSharingStar) and all(group is star for group in met.values()):
            narrowest = min(met, key=lambda link: link.bandwidth)
            if star.link in met and star.link.bandwidth == narrowest.bandwidth:
                return star
            if len(star) == 1:  # a single message can move its star
                here = self._star(narrowest)
                here.join(star.dissolve())
                return here
        if self._may_compile and self._general.reach >= REACH:
            self._compile()
        return super()._group(met)

    def _compile(self) -> None:
        self._may_compile = False
        try:
            compiled = CompiledMaxMin(self._env, self._star)
        except (ImportError, RuntimeError):  # the general solution is slower, and as right
            return
        compiled.join(self._general.dissolve())
        self._general = compiled
