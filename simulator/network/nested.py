"""Max-min fair sharing of trunks: a link is left out where all that cross it also cross one that is no faster."""

from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.links import Link
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock


class NestedMaxMin(MaxMin):
    """As `MaxMin`, which also finds the stars of `NestedFairSharing`."""

    def is_star(self, link: Link) -> bool:
        """Whether no link limits two or more of the messages over `link` before that does, or others."""
        shared = {crossed: None for flow in link.flows for crossed in flow.route if len(crossed.flows) > 1}
        return all(
            crossed.bandwidth >= link.bandwidth and all(link in flow.route for flow in crossed.flows)
            for crossed in shared
        )


class NestedFairSharing(FairSharing):
    """As `FairSharing`, for messages that cross several shared links, as a rack's trunk and then the server's card.

    With b_l the bandwidth of link l, if all messages over link m also cross link l and b_l <= b_m, then what l allows
    them together, m allows too. So messages that all cross l form a star at l, whatever else they share, where all
    links that they share are as fast. So it is with the trunks of racks on the way to a server's card.
    """

    def __init__(self, env: Clock) -> None:
        super().__init__(env)
        self._general = NestedMaxMin(env, self._star)

    def _group(self, met: dict[Link, MaxMin | ProcessorSharingStar]) -> MaxMin | ProcessorSharingStar:
        star = next(iter(met.values()))
        if isinstance(star, ProcessorSharingStar) and all(group is star for group in met.values()):
            narrowest = min(met, key=lambda link: link.bandwidth)
            if star.link in met and star.link.bandwidth == narrowest.bandwidth:
                return star
            if len(star) == 1:  # a single message can move its star
                here = self._star(narrowest)
                here.join(star.dissolve())
                return here
        return super()._group(met)
