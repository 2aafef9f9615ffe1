"""Crashes of servers and their checkpoints; how methods without a server go on after a crash."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from laggard.simulator.errors import (
    HUGE,
    Counted,
    InvalidSettingError,
    NonNegative,
    NonNegativeInt,
    Positive,
    Range,
    Settings,
    bounded,
)
from laggard.simulator.timing.distributions import Distribution
from laggard.simulator.timing.distributions.distribution import is_law, mean_of


@dataclass(frozen=True)
class Checkpoint(Settings):
    """The period at which servers save their weights and their rule's state, in no virtual time.

    Without a period the only checkpoint is the model at the start. With period T seconds and
    crashes after exponential times of rate r, the age of the last checkpoint at a crash has the
    mean 1 / r - T / (exp(r T) - 1), T / 2 for rare crashes.

    Attributes:
        every_updates: updates of the server from its start, its return or its last checkpoint to
            the next.
        every_seconds: T, instead (s), counted from the start and from each return. A checkpoint
            precedes the updates of its instant.

    Source: Young (1974), CACM 17.9.
    """

    every_updates: Counted | None = None
    every_seconds: Annotated[float, Range(least=1e-9, most=HUGE)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every_updates is not None and self.every_seconds is not None:
            raise InvalidSettingError(
                "Checkpoint", "every_seconds", "null with every_updates", self.every_seconds
            )


@dataclass(frozen=True)
class ServerCrash(Settings):
    """A server, or one shard of it, that crashes and returns from its last checkpoint.

    It loses its updates since then, the gradients that it holds, and the messages under way to and
    from it; messages sent to it while it is down are lost too. When it is back, each worker that
    waits for its answer announces itself again and reads its weights. A worker that is computing
    continues: its gradient, of weights from before the crash, counts like any other; a synchronous
    server drops it as late if it has lost updates. Other shards keep their newer slices, so the
    model then mixes two versions.

    Attributes:
        at: when it crashes (s).
        uptime: instead, the time from the start, and from each return, to the next crash (s): a
            number, or a law.
        restore_seconds: the time from a crash to the return (s).
        shard: the number of the server's shard, from 0.

    Source: Qiao et al. (2019), arXiv 1810.07354 (partial recovery).
    """

    at: NonNegative | None = None
    uptime: float | Distribution | None = None
    restore_seconds: Positive = 1.0
    shard: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.at is None) == (self.uptime is None):
            raise InvalidSettingError("ServerCrash", "at", "either at or uptime, not both", self.at)
        if self.uptime is not None and not is_law(self.uptime):
            bounded(self, "uptime", above=0, most=HUGE)

    @property
    def first(self) -> float:
        """The time of the first crash (s), or its mean under a law."""
        if self.uptime is not None:
            return mean_of(self.uptime)
        return self.at or 0.0


def unite_server_crashes(crashes: Sequence[ServerCrash]) -> list[ServerCrash]:
    """One crash for each time that a shard is down: the union of intervals that touch or overlap.

    Crashes by a law never overlap, since the next one counts from the return.
    """
    united: list[ServerCrash] = []
    last: dict[int, int] = {}  # shard -> the place of its last crash in `united`
    by_time = sorted(crashes, key=lambda crash: crash.first)  # equal ones stay as they are listed
    for crash in by_time:
        place = last.get(crash.shard)
        if place is not None:
            before = united[place]
            back = before.first + before.restore_seconds
            if crash.first <= back:
                end = max(back, crash.first + crash.restore_seconds)
                united[place] = replace(before, restore_seconds=end - before.first)
                continue
        last[crash.shard] = len(united)
        united.append(crash)
    return united


class CrashRule(NamedTuple):
    """The rule by which a method without a server continues after a crash.

    Attributes:
        shrinks: whether the others go on without a node that is down; else they wait for it.
        seconds: the time that the nodes take to notice and to meet again (s).
        one_model: whether all nodes have the same model after as many updates.
    """

    shrinks: bool
    seconds: float
    one_model: bool
