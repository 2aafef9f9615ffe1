"""A process of a real run: a server, a worker or a peer of torch.distributed, timed by the
machine's clock.

`processes` starts one as `python -m laggard.experiments.real.member FOLDER RANK`. It ends when its
standard input is closed, so that it outlives nobody. Workers have ranks 0 to P - 1, the server has
P.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from laggard.experiments.config.config import parse
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.plugins import look_in
from laggard.experiments.real.messages import Channel, join
from laggard.experiments.results.files import write_table
from laggard.simulator.algorithms import AllReduce, AsyncPS
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.task import bytes_of
from laggard.simulator.learning.weights import total
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions import Durations
from laggard.simulator.timing.distributions.distribution import is_law
from laggard.simulator.timing.slowdowns import apply_slowdowns
from laggard.simulator.timing.streams import (
    APPLY,
    BATCHES,
    COMPUTE,
    Seeds,
    StoredStream,
    Streams,
    start_seed,
)

Times = dict[str, float]


class RealGradient(GradientPromise):
    """A gradient that has been computed, as a rule takes it."""

    def __init__(
        self,
        worker: int,
        value: Tensor,
        weights: Tensor,
        version_read: int,
        staleness: int,
        share: float,
    ):
        self._value, self.worker, self.weights = value, worker, weights
        self.version_read, self.staleness, self.share = version_read, staleness, share


class Member:
    """One process, with the parts of the simulation that a rank has: its mini-batches, its
    durations, its rule.
    """

    def __init__(self, spec: RunSpec, rank: int, updates: float, seconds: float) -> None:
        given = spec.arguments()
        self.task, self.rank, self.workers = given["task"], rank, given["cluster"].workers
        self.algorithm, self._limits = given["algorithm"], (updates, seconds)
        seeds = Seeds(
            spec.config.seed if given["cluster"].seed is None else given["cluster"].seed,
            spec.learning_seeds,
        )
        self._cluster = given["cluster"].bound(seeds.cluster)
        self.weights: Tensor = self.task.start([start_seed(seed) for seed in seeds.learning])
        size = self._cluster.network.message_bytes
        self.channel = Channel(
            self.weights, bytes_of(self.task, self.weights.shape[1]) if size is None else size
        )
        self._batches = self.task.batches(rank, Streams(seeds.data(), BATCHES, rank))
        own = partial(StoredStream, np.random.default_rng(0), seeds.cluster)
        self._durations = Durations(self._cluster.compute, own(COMPUTE, rank), rank)
        apply = self._cluster.apply_seconds
        drawn = Durations(apply, own(APPLY, SERVER), SERVER).next if is_law(apply) else None
        self._apply_seconds: Callable[[], float] = drawn or repeat(apply).__next__
        self._slowdowns, self._share = (
            self._cluster.slowdowns_of(rank),
            self.task.batch / self.task.epoch,
        )
        self._zero, self.rows = 0.0, list[Times]()

    def warm_up(self) -> None:
        """Compute a gradient that nobody uses: what is compiled or read first is not to be
        timed.
        """
        batches = self.task.batches(self.rank, Streams([0], BATCHES, self.rank))
        self.task.gradients(self.weights[None], [next(batches)])

    def run(self) -> None:
        """Do what the method has this rank do, from now on."""
        dist.barrier()
        zero = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.broadcast(zero, 0)  # the processes of a machine share this clock
        self._zero = float(zero)
        if isinstance(self.algorithm, AllReduce):
            self.peer()
        elif self.rank < self.workers:
            self.worker()
        else:
            self.asynchronous_server() if isinstance(
                self.algorithm, AsyncPS
            ) else self.synchronous_server()

    def now(self) -> float:
        """Seconds since the start, which is the same for all processes."""
        return time.monotonic() - self._zero

    def sleep_until(self, moment: float) -> None:
        """Sleep until `moment` (s), if it is still to come."""
        time.sleep(max(0.0, moment - self.now()))

    def compute(self, weights: Tensor, started: float) -> Tensor:
        """The next mini-batch's gradient at `weights`; it takes as long as the compute times' law
        says, or longer.
        """
        seconds = apply_slowdowns(self._durations.next(), started, self._slowdowns)
        values, _ = self.task.gradients(weights[None], [next(self._batches)])
        self.sleep_until(started + seconds)
        gradient: Tensor = values[0]
        return gradient

    def worker(self) -> None:
        """Read the weights, compute a gradient, send it, until the server says that the run is
        over.
        """
        while True:
            _, weights, more = self.channel.receive(self.workers)
            if not more:
                return
            read = self.now()
            gradient = self.compute(weights, read)
            self.rows.append({"read": read, "computed": self.now()})
            self.channel.send(self.workers, gradient)

    def asynchronous_server(self) -> None:
        """Apply each gradient as it arrives, and answer with the new weights."""
        state, version, numbers = self.algorithm.rule.init(self.weights), 0, Counter[int]()
        reads = {worker: self._answer(worker, 0) for worker in range(self.workers)}
        left = set(reads)
        while left:
            asked = self.now()
            worker, value, _ = self.channel.receive()
            arrived = self.now()
            if not self._goes_on(version, arrived):
                self.channel.send(worker, self.weights, more=False)
                left.remove(worker)
                continue
            sent, weights, read = reads[worker]
            gradient = RealGradient(worker, value, weights, read, version - read, self._share)
            self.weights, state = self.algorithm.rule.update(
                self.weights, [gradient], state, combine=total
            )
            version += 1
            self.sleep_until(arrived + self._apply_seconds())
            applied = self.now()
            row = {
                "worker": worker,
                "number": numbers[worker],
                "version_read": read,
                "staleness": gradient.staleness,
            }
            numbers[worker] += 1
            self.rows.append(
                row | {"sent": sent, "asked": asked, "arrived": arrived, "applied": applied}
            )
            reads[worker] = self._answer(worker, version)
            self.rows[-1]["replied"] = self.now()

    def synchronous_server(self) -> None:
        """Wait for all workers' gradients, apply their mean, and answer in the order of arrival."""
        state, version = self.algorithm.rule.init(self.weights), 0
        reads = {worker: self._answer(worker, 0) for worker in range(self.workers)}
        while True:
            rows, values = dict[int, Times](), dict[int, Tensor]()
            for _ in range(self.workers):
                asked = self.now()
                worker, values[worker], _ = self.channel.receive()
                rows[worker] = {
                    "worker": worker,
                    "number": version,
                    "asked": asked,
                    "arrived": self.now(),
                }
            if not self._goes_on(version, self.now()):
                for worker in rows:
                    self.channel.send(worker, self.weights, more=False)
                return
            begun, share = self.now(), self._share
            gradients = [
                RealGradient(rank, values[rank], self.weights, version, 0, share)
                for rank in sorted(rows)
            ]
            self.weights, state = self.algorithm.rule.update(self.weights, gradients, state)
            self.sleep_until(begun + self._apply_seconds())
            applied, version = self.now(), version + 1
            for worker, row in rows.items():
                row |= {
                    "version_read": version - 1,
                    "staleness": 0,
                    "sent": reads[worker][0],
                    "applied": applied,
                }
                reads[worker] = self._answer(worker, version)
                self.rows.append(row | {"replied": self.now()})

    def peer(self) -> None:
        """Sum all gradients by the library's all-reduce, and apply their mean."""
        state, version, more = self.algorithm.rule.init(self.weights), 0, True
        while more:
            read = self.now()
            gradient = self.compute(self.weights, read)
            computed = self.now()
            dist.all_reduce(self.channel.pack(gradient, self._goes_on(version + 1, computed)))
            (mean, _), arrived = self.channel.unpack(), self.now()
            mean /= self.workers
            # all are to leave in the same round
            more = bool(self.channel.message[-1] == self.workers)
            taken = RealGradient(
                self.rank, mean, self.weights, version, 0, self.workers * self._share
            )
            self.weights, state = self.algorithm.rule.update(self.weights, [taken], state)
            applied = self.now()
            row = {
                "worker": self.rank,
                "number": version,
                "version_read": version,
                "staleness": 0,
                "sent": read,
            }
            times = {"read": read, "computed": computed, "asked": computed, "arrived": arrived}
            self.rows.append(row | times | {"applied": applied, "replied": applied})
            version += 1

    def _answer(self, worker: int, version: int) -> tuple[float, Tensor, int]:
        """Send the weights to a worker: when that began, the weights, and their version."""
        sent = self.now()
        self.channel.send(worker, self.weights)
        return sent, self.weights, version

    def _goes_on(self, updates: int, now: float) -> bool:
        """Whether another update is wanted after so many, at `now` (s)."""
        most, seconds = self._limits
        return updates < most and now < seconds


def leave_with_the_parent() -> None:
    """End this process once its standard input is closed: by the parent, or because the parent is
    no more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def take_part(folder: Path, rank: int) -> None:
    """Take part in the run that a folder describes, and leave its rows and weights there."""
    leave_with_the_parent()
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    torch.set_num_threads(1)
    look_in(*map(Path, plan["folders"]))
    member = Member(
        RunSpec(parse(plan["config"]), threads=1), rank, plan["updates"], plan["seconds"]
    )
    if rank < member.workers:
        member.warm_up()
    join(folder, rank, plan["members"], plan["patience"])
    member.run()
    write_table(folder / f"{rank}.parquet", pd.DataFrame(member.rows))
    np.save(folder / f"{rank}.npy", member.weights.numpy())


if __name__ == "__main__":
    take_part(Path(sys.argv[1]), int(sys.argv[2]))
