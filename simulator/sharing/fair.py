"""Max-min fairness: which messages depend on which, and who rates them."""

import itertools

from simulator.clock import Clock
from simulator.sharing.hub import Hub
from simulator.sharing.link import Flow, Group, Link, Passed, Rated
from simulator.sharing.web import Web


class FairSharing:
    """Messages under way share the links max-min fairly at every moment: the fluid model.

    Every message's rate grows alike until a link is full; its messages keep their rate and the others grow on. Only
    messages connected through shared links depend on one another. Such a group is a `Hub` where one link is all that
    they share, as at a parameter server's card, and otherwise a `Web`.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; SimGrid's CM02 with all factors 1.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        flow = Rated(next(self._numbers), size, route, passed)
        busy = [link for link in route if link.flows]
        groups = list(dict.fromkeys([next(iter(link.flows)).group for link in busy]))
        if not groups:
            flow.enter()
            Hub(self._env, flow.narrowest).join([flow])
        elif len(busy) == 1 and isinstance(groups[0], Hub) and groups[0].centred_on(busy[0]):
            flow.enter()
            groups[0].join([flow])
        elif len(busy) == 1 and len(groups[0]) == 1:
            others = groups[0].dissolve()
            flow.enter()
            Hub(self._env, busy[0]).join([*others, flow])
        else:
            self._connect(flow, groups)
        return flow

    def withdraw(self, flow: Flow) -> None:
        """It leaves its links, and the rest shares them."""
        assert isinstance(flow, Rated)
        flow.group.withdraw(flow)

    def _connect(self, flow: Rated, groups: list[Group]) -> None:
        """`flow` makes one group of `groups`: the largest web takes in the others."""
        webs = [group for group in groups if isinstance(group, Web)]
        web = max(webs, key=len, default=Web(self._env))
        for group in groups:
            if group is not web:
                web.join(group.dissolve())
        flow.enter()
        web.join([flow])
