"""A cluster, as a config describes it: workers, their compute times, what slows them, and the
network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

from laggard.simulator.errors import InvalidSettingError, Range, Settings
from laggard.simulator.network.config import Network
from laggard.simulator.timing.distributions import Constant, Distribution
from laggard.simulator.timing.distributions.distribution import check_seconds, check_workers
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash, Recorded, Slowdown
from laggard.simulator.timing.steps import StepFunction
from laggard.simulator.timing.streams import SLOWDOWNS, stream


@dataclass(frozen=True)
class Cluster(Settings):
    """The machines that train.

    Attributes:
        workers: how many, ranks 0 to workers - 1; servers are not counted.
        compute: the distribution of the time that one mini-batch's gradient takes (s).
        slowdowns: what happens to workers over time: slower, with factors that multiply, or down;
            one by one, or many of them as `Recorded`.
        network: links and topology; free by default.
        apply_seconds: what one update costs the server (s); a number, or a law that is drawn for
            every update.
        receive_seconds: what taking in a message of one model costs the server (s), which does
            nothing else meanwhile; a message of m models costs m times as much. A number, or a law
            that is drawn for every message.
        reply_seconds: likewise, what sending a message costs it (s). The message departs when the
            server begins to send.
        server_crashes: servers that crash, and return from a checkpoint.
        checkpoint: how often servers save what they return with.
        ties: who comes first among workers whose work ends in one instant: `rank`, the one that
            began first, which is the lowest rank where all began together; or `random`, anew each
            time, from a random stream of its own. With equal constant times and `rank`, a server
            that waits for some workers always waits for the same.
        seed: of the compute times and ties, where it differs from the simulation's.
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
    ties: Literal["rank", "random"] = "rank"
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self, "apply_seconds", "receive_seconds", "reply_seconds")
        for index, slowdown in enumerate(self.slowdowns):
            self._check_ranks(f"slowdowns.{index}", slowdown)
        self._check_crashes()
        self._check_server_crashes()
        self._check_part("network", self.network.check)
        self._check_part("compute", partial(check_workers, self.compute))

    def bound(self, seed: int) -> "Cluster":
        """The cluster with random slowdowns drawn, each from the stream of its index in the
        list.
        """
        bound = [
            one.bound(stream(seed, SLOWDOWNS, index)) for index, one in enumerate(self.slowdowns)
        ]
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
        """Whether servers take no time over messages and updates."""
        return all(
            seconds == 0
            for seconds in (self.apply_seconds, self.receive_seconds, self.reply_seconds)
        )

    @property
    def crashes(self) -> list[Crash]:
        """Which workers go down, and when."""
        return [crash for _, crash in self._crashes()]

    def _crashes(self) -> list[tuple[str, Crash]]:
        """The key and the crash of each."""
        found = []
        for index, one in enumerate(self.slowdowns):
            if isinstance(one, Recorded):
                found += [(f"slowdowns.{index}.file", crash) for crash in one.crashes]
            elif isinstance(one, Crash):
                found.append((f"slowdowns.{index}.at", one))
        return found

    @property
    def has_crashes(self) -> bool:
        """Whether a worker or a server crashes."""
        return bool(self.crashes or self.server_crashes)

    def _check_part(self, key: str, check: Callable[[int], None]) -> None:
        """Check the part called `key` against the number of workers."""
        try:
            check(self.workers)
        except InvalidSettingError as error:
            raise InvalidSettingError(
                "Cluster", f"{key}.{error.field}", error.expected, error.got
            ) from None

    def _check_ranks(self, key: str, slowdown: Slowdown | Crash | Recorded) -> None:
        wrong = [rank for rank in getattr(slowdown, "ranks", ()) if rank >= self.workers]
        if isinstance(slowdown, Recorded):
            if wrong:
                expected = f"ranks below workers = {self.workers}"
                raise InvalidSettingError("Cluster", f"{key}.file", expected, wrong[0])
        elif wrong or not any(slowdown.hits(rank) for rank in range(self.workers)):
            if getattr(slowdown, "workers", ()):
                field = "workers"
            else:
                field = "worker"
            got = wrong[0] if wrong else slowdown
            raise InvalidSettingError(
                "Cluster", f"{key}.{field}", f"a rank below workers = {self.workers}", got
            )

    def _check_crashes(self) -> None:
        last: dict[int, Crash] = {}
        for key, crash in sorted(self._crashes(), key=lambda each: each[1].at):
            for rank in crash.ranks:
                back = last[rank].back if rank in last else -1.0
                if back is None or crash.at <= back:
                    expected = f"a moment after worker {rank} is back from the crash before"
                    raise InvalidSettingError("Cluster", key, expected, crash.at)
                last[rank] = crash

    def _check_server_crashes(self) -> None:
        """Refuse crashes of a server that is away, and a law of its crashes beside others."""
        for shard in {crash.shard for crash in self.server_crashes}:
            own = {
                index: one for index, one in enumerate(self.server_crashes) if one.shard == shard
            }
            drawn = [index for index, one in own.items() if one.at is None]
            if drawn and len(own) > 1:
                expected = f"null, since shard {shard} has other crashes too"
                raise InvalidSettingError(
                    "Cluster", f"server_crashes.{drawn[0]}.uptime", expected, own[drawn[0]].uptime
                )
            for before, index in pairwise(sorted(own, key=lambda index: own[index].at or 0.0)):
                back, at = (own[before].at or 0.0) + own[before].restore_seconds, own[index].at
                if at is not None and at <= back:
                    expected = (
                        f"a moment after {back:g} s, when shard {shard} is back from the crash "
                        "before"
                    )
                    raise InvalidSettingError("Cluster", f"server_crashes.{index}.at", expected, at)
