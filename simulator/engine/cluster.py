"""A cluster: workers, their compute times and slowdowns, servers, and the network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Literal

from laggard.simulator.errors import InvalidSettingError, Range, Settings
from laggard.simulator.network.config import Network
from laggard.simulator.timing.distributions import Constant, Distribution
from laggard.simulator.timing.distributions.distribution import check_seconds, check_workers
from laggard.simulator.timing.failures import Checkpoint, ServerCrash, unite_server_crashes
from laggard.simulator.timing.members import Members
from laggard.simulator.timing.slowdowns import Crash, Recorded, Slowdown, unite_crashes
from laggard.simulator.timing.steps import StepFunction
from laggard.simulator.timing.streams import SLOWDOWNS, stream


@dataclass(frozen=True)
class Cluster(Settings):
    """The machines that train.

    Attributes:
        workers: the number of workers, with ranks 0 to workers - 1; servers are not counted.
        compute: the distribution of the time that one mini-batch's gradient takes (s).
        slowdowns: slowdowns of workers, whose factors multiply, and crashes: one item each, or many
            in a `Recorded`.
        network: links and topology; free by default.
        apply_seconds: the time that one update takes the server (s): a number, or a distribution
            from which the time of every update is drawn.
        receive_seconds: the time in which the server receives a message of one model (s), and does
            nothing else; m models take m times as long. A number, or a distribution from which the
            time of every message is drawn.
        reply_seconds: likewise, the time in which it sends a message (s). The message departs when
            the server begins to send.
        server_crashes: servers that crash, and return from a checkpoint.
        checkpoint: the period of the servers' checkpoints.
        members: the times at which workers join, leave and come back; by default all are always up.
        ties: the order of workers whose work ends in one instant. `rank`: the order in which they
            began, and of their ranks if they began together. `random`: drawn each time from a
            separate random stream. With equal constant times and `rank`, a server that waits for
            some workers always waits for the same ones.
        seed: the seed of the compute times and ties; by default the simulation's.
    """

    workers: Annotated[int, Range(least=1, most=2_000_000, whole=True)]
    compute: Distribution = field(default_factory=lambda: Constant(1.0))
    slowdowns: Sequence[Slowdown | Crash | Recorded] = ()
    network: Network = field(default_factory=Network)
    apply_seconds: float | Distribution = 0.0
    receive_seconds: float | Distribution = 0.0
    reply_seconds: float | Distribution = 0.0
    server_crashes: Sequence[ServerCrash] = ()
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    members: Members = field(default_factory=Members)
    ties: Literal["rank", "random"] = "rank"
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self, "apply_seconds", "receive_seconds", "reply_seconds")
        for index, slowdown in enumerate(self.slowdowns):
            self._check_ranks(f"slowdowns.{index}", slowdown)
        self._check_server_crashes()
        self._check_part("network", self.network.check)
        self._check_part("compute", partial(check_workers, self.compute))
        for name, law in self.members.laws.items():
            self._check_part(f"members.{name}", partial(check_workers, law))
        if self.members.change and self.crashes:
            expected = "none together with crashes of workers (cluster.slowdowns)"
            raise InvalidSettingError("Cluster", "members", expected, self.members)

    def bound(self, seed: int) -> "Cluster":
        """The cluster with random slowdowns drawn, each from the stream of its index in the
        list.
        """
        bound = []
        for index, slowdown in enumerate(self.slowdowns):
            bound.append(slowdown.bound(stream(seed, SLOWDOWNS, index)))
        return replace(self, slowdowns=bound)

    def slowdowns_of(self, rank: int) -> list[Slowdown | StepFunction]:
        """The factors on the compute times of worker `rank`."""
        factors: list[Slowdown | StepFunction] = []
        for slowdown in self.slowdowns:
            if isinstance(slowdown, Crash) or not slowdown.hits(rank):
                continue
            if isinstance(slowdown, Recorded):
                factors.append(slowdown.by_worker[rank])
            else:
                factors.append(slowdown)
        return factors

    @property
    def serves_at_once(self) -> bool:
        """Whether messages and updates take servers no time."""
        costs = self.apply_seconds, self.receive_seconds, self.reply_seconds
        return all(seconds == 0 for seconds in costs)

    @cached_property
    def crashes(self) -> list[Crash]:
        """The crashes of workers; adjacent or overlapping outages of a worker are one crash."""
        crashes = []
        for slowdown in self.slowdowns:
            if isinstance(slowdown, Recorded):
                crashes += slowdown.crashes
            elif isinstance(slowdown, Crash):
                crashes.append(slowdown)
        return unite_crashes(crashes)

    @property
    def server_downs(self) -> list[ServerCrash]:
        """The crashes of servers; adjacent or overlapping outages of a shard are one crash."""
        return unite_server_crashes(self.server_crashes)

    @property
    def crash_moments(self) -> list[float]:
        """The moments (s) that the cluster's settings name for crashes and returns."""
        moments = [crash.at for crash in self.crashes]
        moments += [crash.back for crash in self.crashes if crash.back is not None]
        moments += [crash.at for crash in self.server_crashes if crash.at is not None]
        return moments

    @property
    def has_crashes(self) -> bool:
        """Whether a node is ever down: a worker or server crashes, or a worker is away."""
        return bool(self.crashes or self.server_crashes or self.members.change)

    def _check_part(self, key: str, check: Callable[[int], None]) -> None:
        """Check the part called `key` against the number of workers."""
        try:
            check(self.workers)
        except InvalidSettingError as error:
            field = f"{key}.{error.field}"
            raise InvalidSettingError("Cluster", field, error.expected, error.got) from None

    def _check_ranks(self, key: str, slowdown: Slowdown | Crash | Recorded) -> None:
        wrong = [rank for rank in getattr(slowdown, "ranks", ()) if rank >= self.workers]
        if isinstance(slowdown, Recorded):
            if wrong:
                expected = f"ranks below workers = {self.workers}"
                raise InvalidSettingError("Cluster", f"{key}.file", expected, wrong[0])
            return
        if not wrong and any(slowdown.hits(rank) for rank in range(self.workers)):
            return
        field = "workers" if getattr(slowdown, "workers", ()) else "worker"
        got = wrong[0] if wrong else slowdown
        expected = f"a rank below workers = {self.workers}"
        raise InvalidSettingError("Cluster", f"{key}.{field}", expected, got)

    def _check_server_crashes(self) -> None:
        """Refuse a server with an `uptime` and further crashes."""
        by_shard: dict[int, list[int]] = {}
        for index, crash in enumerate(self.server_crashes):
            by_shard.setdefault(crash.shard, []).append(index)
        for shard, indices in by_shard.items():
            if len(indices) == 1:
                continue
            for index in indices:
                crash = self.server_crashes[index]
                if crash.at is None:
                    expected = f"null, since shard {shard} has other crashes too"
                    key = f"server_crashes.{index}.uptime"
                    raise InvalidSettingError("Cluster", key, expected, crash.uptime)
