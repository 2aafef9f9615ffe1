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
        self._env, self._web = env, Web(env)
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        flow = Rated(next(self._numbers), size, route, passed)
        met = [(link, next(iter(link.flows)).group) for link in route if link.flows]
        hubs = [group for _, group in met if isinstance(group, Hub)]
        group: Group = self._web
        if not met:
            group = Hub(self._env, flow.narrowest)
        elif len(met) == len(hubs) == 1 and hubs[0].centre(met[0][0]):
            group = hubs[0]
        else:
            for hub in dict.fromkeys(hubs):
                self._web.join(hub.dissolve())
        flow.enter()
        group.join([flow])
        return flow

    def withdraw(self, flow: Flow) -> None:
        """It leaves its links, and the rest shares them."""
        assert isinstance(flow, Rated)
        flow.group.withdraw(flow)
