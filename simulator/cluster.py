"""A cluster, as a config describes it: workers, their compute times, what slows them, and the network."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.bounds import Invalid, bounded
from simulator.laws import Constant, Law
from simulator.network import Network
from simulator.slowdowns import Slowdown


@dataclass(frozen=True)
class Cluster:
    """The machines that train.

    Attributes:
        workers: how many, ranks 0 to workers - 1; the server comes on top.
        compute: the law of the seconds that one mini-batch's gradient takes.
        slowdowns: what makes single workers slower, over time; their factors multiply.
        network: links and topology; free by default.
        apply_seconds: what one update costs the server.
        seed: of the compute times, where it differs from the simulation's.
    """

    workers: int
    compute: Law = field(default_factory=lambda: Constant(1.0))
    slowdowns: Sequence[Slowdown] = ()
    network: Network = field(default_factory=Network)
    apply_seconds: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        bounded(self, "workers", least=1, whole=True)
        bounded(self, "apply_seconds", least=0)
        for index, slowdown in enumerate(self.slowdowns):
            if not any(slowdown.hits(rank) for rank in range(self.workers)):
                got = getattr(slowdown, "worker", slowdown)
                raise Invalid("Cluster", f"slowdowns.{index}.worker", f"a rank below workers = {self.workers}", got)

    def slowdowns_of(self, rank: int) -> list[Slowdown]:
        """What slows worker `rank`."""
        return [slowdown for slowdown in self.slowdowns if slowdown.hits(rank)]
