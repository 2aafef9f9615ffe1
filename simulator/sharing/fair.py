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
        self._env, self._web = env, Web(env, self._hub)
        self._hubs: dict[Link, Hub] = {}
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        flow = Rated(next(self._numbers), size, route, passed)
        met = {link: next(iter(link.flows)).group for link in route if link.flows}
        group = self._group(met) if met else self._hub(flow.narrowest)
        flow.enter()
        group.join([flow])
        return flow

    def _hub(self, link: Link) -> Hub:
        """The hub at `link`, which is made once: as it knows its alarm and the alarm knows it, it is dear to forget."""
        if link not in self._hubs:
            self._hubs[link] = Hub(self._env, link)
        return self._hubs[link]

    def _group(self, met: dict[Link, Group]) -> Group:
        """The group of a message that meets others on links, whose groups are `met`; a hub that it cannot join ends."""
        hubs = [group for group in met.values() if isinstance(group, Hub)]
        if len(met) == len(hubs) == 1:
            (link,), (hub,) = met, hubs
            here = self._hub(link)
            if hub is not here and len(hub) == 1:  # a lone message meets nobody: its hub may as well be here
                here.join(hub.dissolve())
                hub = here
            if hub is here:
                return here
        for hub in dict.fromkeys(hubs):
            self._web.join(hub.dissolve())
        return self._web

    def withdraw(self, flow: Flow) -> None:
        """It leaves its links, and the rest shares them."""
        assert isinstance(flow, Rated)
        flow.group.withdraw(flow)
