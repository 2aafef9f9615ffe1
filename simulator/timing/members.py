"""Workers that join late, leave, and come back, at fixed or drawn times."""

from dataclasses import dataclass

from laggard.simulator.errors import HUGE, InvalidSettingError, Settings, bounded
from laggard.simulator.timing.distributions import Distribution
from laggard.simulator.timing.distributions.distribution import check_seconds, is_law, mean_of


@dataclass(frozen=True)
class Members(Settings):
    """The times at which workers join, leave and come back, as spot instances and volunteers do.

    Each worker is away up to `start`, then in turn up for `uptime` and away for `downtime`. Where
    these are distributions, each time is drawn, and each worker has its own random streams. In the
    long run P E[uptime] / (E[uptime] + E[downtime]) of P workers are up.

    A worker leaves in order: once its uptime is over it begins no mini-batch, and it goes when all
    its messages have arrived. A crash would lose work and messages; a leave loses neither. It
    keeps no model. When it returns it reads the model of the server or, without one, of the lowest
    rank that is up, with the state of the optimiser where nodes share it. The read crosses the
    network. Nodes without a server meet again at each leave and each return (`on_crash`,
    `restart_seconds`).

    Attributes:
        start: when a worker first joins (s): a number, or a distribution from which each worker's
            time is drawn.
        uptime: the time for which a worker stays (s); null is for ever.
        downtime: the time for which a worker that has left is away (s); null is for ever.
    """

    start: float | Distribution = 0.0
    uptime: float | Distribution | None = None
    downtime: float | Distribution | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self, "start")
        for name in ("uptime", "downtime"):
            seconds = getattr(self, name)
            if seconds is not None and not is_law(seconds):
                bounded(self, name, above=0, most=HUGE)
        if self.uptime is None and self.downtime is not None:
            expected = "null without an uptime, since no worker leaves"
            raise InvalidSettingError("Members", "downtime", expected, self.downtime)

    @property
    def laws(self) -> dict[str, Distribution]:
        """The times that are drawn, by name."""
        return {name: seconds for name, seconds in vars(self).items() if is_law(seconds)}

    @property
    def change(self) -> bool:
        """Whether a worker is ever away."""
        return self.uptime is not None or mean_of(self.start) > 0

    @property
    def share_up(self) -> float:
        """The share of the time for which a worker is up in the long run."""
        if self.uptime is None:
            return 1.0
        if self.downtime is None:
            return 0.0
        up = mean_of(self.uptime)
        return up / (up + mean_of(self.downtime))
