"""Max-min fair sharing on networks with trunks, by stars across links and compiled filling."""

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from types import ModuleType

import numpy as np

from laggard.compiled_cache import compile_cached, compile_functions, decorate_functions
from laggard.simulator.network import filling
from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.links import Link, Rated
from laggard.simulator.network.max_min import FILL_ROUNDING
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock

MIN_CHANGED = 40_000
"""The number of rate changes after which `CompiledMaxMin` is used. Python takes nearly a second for
them, as long as it takes to import numba.
"""
FILLING_HEADER = """
from numba import njit

# numpy's divisions, which do not check for zero: bandwidths are positive
compiled = njit(error_model="numpy")
entry = njit(cache=CACHED, error_model="numpy")
"""
# the types of the arguments of the functions of `filling` that are called
FILLING_ENTRIES = {
    "advance": "(f8, i8[:, ::1], f8[:, ::1], i8, f8[::1], f8)",
    "due": "(f8, f8, f8[:, ::1], i8)",
}


@cache
def compile_filling() -> ModuleType:
    """The module `filling`, compiled.

    Raises:
        ImportError: numba is not installed.
    """
    decorators = dict.fromkeys(FILLING_ENTRIES, "@entry")
    lines = [FILLING_HEADER, *decorate_functions(filling, decorators)]
    return compile_cached(
        "\n".join(lines) + "\n", partial(compile_functions, signatures=FILLING_ENTRIES)
    )


class NestedMaxMin(MaxMin):
    """As `MaxMin`, which also finds the stars of `NestedFairSharing`."""

    def is_star(self, link: Link) -> bool:
        """Whether `link` is the only shared bottleneck of its messages.

        That is so if every other link that two or more of them share is no slower than `link`, and
        carries no other messages.
        """
        checked = {link}
        for flow in link.flows:
            for crossed in flow.route:
                if len(crossed.flows) == 1 or crossed in checked:
                    continue
                checked.add(crossed)
                if crossed.bandwidth < link.bandwidth:
                    return False
                if any(link not in other.route for other in crossed.flows):
                    return False
        return True


class CompiledMaxMin(NestedMaxMin):
    """As `NestedMaxMin`, but solves for all rates at once in compiled loops: O(n log n) an instant.

    A message is a row of arrays; the last row takes the place of one that has left.

    Raises:
        ImportError: numba is not installed.
    """

    def __init__(self, env: Clock, star: Callable[[Link], ProcessorSharingStar]) -> None:
        super().__init__(env, star)
        self._filling = compile_filling()  # here, since few runs need it, and numba takes time
        self._rows: dict[Rated, int] = {}
        self._messages: list[Rated] = []  # the message of each row
        self._numbers: dict[Link, int] = {}
        self._bandwidths = np.empty(0)
        self._routes = np.full((1, 1), -1)
        self._table = np.zeros((1, 5))  # see the columns of `filling`
        self._first = math.inf  # the first end (s)
        self._taken = math.nan  # the moment (s) whose ends have been taken at the present rates

    def join(self, flows: Iterable[Rated]) -> None:
        for flow in flows:
            flow.group = self
            row = self._rows[flow] = len(self._messages)
            self._messages.append(flow)
            numbers = [self._number(link) for link in flow.route]
            self._make_room(row, len(numbers))
            self._routes[row] = -1
            self._routes[row, : len(numbers)] = numbers
            self._table[row] = flow.left, 0.0, self._env.now, math.inf, flow.size
            self._touch(flow)

    def _number(self, link: Link) -> int:
        if link not in self._numbers:
            self._numbers[link] = len(self._numbers)
            self._bandwidths = np.append(self._bandwidths, link.bandwidth)
        return self._numbers[link]

    def _make_room(self, row: int, hops: int) -> None:
        rows, columns = self._routes.shape
        more, wider = 0, max(hops - columns, 0)
        if row == rows:
            more = rows  # doubling: n messages cost O(n) copies
        if more or wider:
            self._routes = np.pad(self._routes, ((0, more), (0, wider)), constant_values=-1)
            self._table = np.pad(self._table, ((0, more), (0, 0)))

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        self._forget(flow)
        self._touch(flow)

    def _forget(self, flow: Rated) -> None:
        row = self._rows.pop(flow)
        last = self._messages.pop()
        if last is not flow:
            end = len(self._messages)
            self._messages[row] = last
            self._rows[last] = row
            self._routes[row] = self._routes[end]
            self._table[row] = self._table[end]

    def _hand_over(self, flow: Rated) -> None:
        left, rate, since, *_ = self._table[self._rows[flow]].tolist()
        flow.left = left - rate * (self._env.now - since)
        self._forget(flow)

    def _take_ended(self) -> list[Rated]:
        now = self._env.now
        # The timer fires up to three times in an instant, and without new rates no more end in it.
        if now == self._taken:
            return []
        self._taken = now
        rows = self._filling.due(now, math.ulp(now), self._table, len(self._messages))
        return [self._messages[row] for row in rows.tolist()]

    def _solve_rates(self) -> None:
        if self._env.instant_goes_on:
            return  # a later event of this instant may touch further links
        touched, self._touched = self._touched, {}
        self._taken = math.nan
        count = len(self._messages)
        self._first = self._filling.advance(
            self._env.now, self._routes, self._table, count, self._bandwidths, FILL_ROUNDING
        )
        self._release_stars(touched)
        if len(self._messages) < count:  # the first to end may be in a star now
            ends = self._table[: len(self._messages), self._filling.END]
            self._first = ends.min(initial=math.inf)

    def _set_timer(self) -> None:
        if not self._messages:
            self._timer.cancel()
        elif self._touched:
            self._timer.schedule(self._env.now)
        else:
            self._timer.schedule(self._first)


class NestedFairSharing(FairSharing):
    """As `FairSharing`, for messages over several shared links: a rack's trunk and a server's card.

    With b_l the bandwidth of link l: if all messages over link m also cross link l, and b_l <= b_m,
    then m never limits them before l does. So messages that all cross l form a star at l if every
    other link that they share is at least as fast and carries no other messages, such as the trunks
    of racks on the way to a server's card.

    Messages outside stars, as between random racks, are in a `CompiledMaxMin` once many rates have
    changed.
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
                at_narrowest = self._star(narrowest)
                at_narrowest.join(star.dissolve())
                return at_narrowest
        if self._may_compile and self._general.changed >= MIN_CHANGED:
            self._compile()
        return super()._group(met)

    def _compile(self) -> None:
        self._may_compile = False
        try:
            compiled = CompiledMaxMin(self._env, self._star)
        except ImportError:  # the general solution is slower, and as exact
            return
        compiled.join(self._general.dissolve())
        self._general = compiled
