"""A process of a real run: a server, a worker or a peer, timed by the machine's clock.

`processes` starts it as `python -m laggard.experiments.real.member FOLDER RANK`. It ends when its
standard input is closed, so that it does not outlive its parent. Workers have ranks 0 to P - 1, the
server has rank P.
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
from typing import Any, NamedTuple

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
    """A gradient with a computed value, in the form that a rule takes."""

    def __init__(
        self,
        worker: int,
        value: Tensor,
        weights: Tensor,
        version_read: int,
        staleness: int,
        share: float,
    ):
        self.worker = worker
        self._value = value
        self.weights = weights
        self.version_read = version_read
        self.staleness = staleness
        self.share = share


class Sent(NamedTuple):
    """Weights sent to a worker: the moment (s), the weights, and their version."""

    time: float
    weights: Tensor
    version: int


class Member:
    """One process, with the mini-batches, durations and rule of its rank in the simulation."""

    def __init__(self, spec: RunSpec, rank: int, updates: float, seconds: float) -> None:
        arguments = spec.arguments()
        self.task = arguments["task"]
        self.algorithm = arguments["algorithm"]
        self.rank = rank
        self.workers = arguments["cluster"].workers
        self.rows: list[Times] = []
        self._max_updates = updates
        self._max_seconds = seconds
        self._zero = 0.0
        self._share = self.task.batch / self.task.epoch
        cluster_seed = arguments["cluster"].seed
        if cluster_seed is None:
            cluster_seed = spec.config.seed
        seeds = Seeds(cluster_seed, spec.learning_seeds)
        cluster = arguments["cluster"].bound(seeds.cluster)
        self.weights: Tensor = self.task.start([start_seed(seed) for seed in seeds.learning])
        size = cluster.network.message_bytes
        if size is None:
            size = bytes_of(self.task, self.weights.shape[1])
        self.channel = Channel(self.weights, size)
        self._batches = self.task.batches(rank, Streams(seeds.data(), BATCHES, rank))
        # the shared generator's own seed has no effect: a stream sets the state before each draw
        stream = partial(StoredStream, np.random.default_rng(0), seeds.cluster)
        self._durations = Durations(cluster.compute, stream(COMPUTE, rank), rank)
        self._slowdowns = cluster.slowdowns_of(rank)
        self._apply_seconds: Callable[[], float] = repeat(cluster.apply_seconds).__next__
        if is_law(cluster.apply_seconds):
            apply = Durations(cluster.apply_seconds, stream(APPLY, SERVER), SERVER)
            self._apply_seconds = apply.next

    def warm_up(self) -> None:
        """Compute and discard a gradient, so that compilation and first reads are not timed.

        Its mini-batch is from another stream: those of the run stay those of the simulation.
        """
        batches = self.task.batches(self.rank, Streams([0], BATCHES, self.rank))
        self.task.gradients(self.weights[None], [next(batches)])

    def run(self) -> None:
        """Play the role of this rank."""
        dist.barrier()
        zero = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.broadcast(zero, 0)  # the processes of a machine share this clock
        self._zero = float(zero)
        if isinstance(self.algorithm, AllReduce):
            self.peer()
        elif self.rank < self.workers:
            self.worker()
        elif isinstance(self.algorithm, AsyncPS):
            self.asynchronous_server()
        else:
            self.synchronous_server()

    def now(self) -> float:
        """Seconds since the start, which is the same for all processes."""
        return time.monotonic() - self._zero

    def sleep_until(self, moment: float) -> None:
        """Sleep until `moment` (s), unless it has passed."""
        time.sleep(max(0.0, moment - self.now()))

    def compute(self, weights: Tensor, started: float) -> Tensor:
        """Compute the next mini-batch's gradient, and sleep for the rest of its drawn duration."""
        seconds = apply_slowdowns(self._durations.next(), started, self._slowdowns)
        values, _ = self.task.gradients(weights[None], [next(self._batches)])
        self.sleep_until(started + seconds)
        gradient: Tensor = values[0]
        return gradient

    def worker(self) -> None:
        """Read the weights, compute a gradient and send it, until the server ends the run."""
        while True:
            _, weights, more = self.channel.receive(self.workers)
            if not more:
                return
            read = self.now()
            gradient = self.compute(weights, read)
            self.rows.append({"read": read, "computed": self.now()})
            self.channel.send(self.workers, gradient)

    def asynchronous_server(self) -> None:
        """Apply each gradient on arrival, and reply with the new weights."""
        rule = self.algorithm.rule
        state = rule.init(self.weights)
        version = 0
        numbers = Counter[int]()
        sent = {worker: self._send_weights(worker, 0) for worker in range(self.workers)}
        running = set(sent)
        while running:
            asked = self.now()
            worker, value, _ = self.channel.receive()
            arrived = self.now()
            if not self._continues(version, arrived):
                self.channel.send(worker, self.weights, more=False)
                running.remove(worker)
                continue
            read = sent[worker]
            staleness = version - read.version
            gradient = RealGradient(
                worker, value, read.weights, read.version, staleness, self._share
            )
            self.weights, state = rule.update(self.weights, [gradient], state, combine=total)
            version += 1
            self.sleep_until(arrived + self._apply_seconds())
            row = {
                "worker": worker,
                "number": numbers[worker],
                "version_read": read.version,
                "staleness": staleness,
                "sent": read.time,
                "asked": asked,
                "arrived": arrived,
                "applied": self.now(),
            }
            numbers[worker] += 1
            sent[worker] = self._send_weights(worker, version)
            self.rows.append(row | {"replied": self.now()})

    def synchronous_server(self) -> None:
        """Apply the mean of all workers' gradients, and reply in the order of arrival."""
        rule = self.algorithm.rule
        state = rule.init(self.weights)
        version = 0
        sent = {worker: self._send_weights(worker, 0) for worker in range(self.workers)}
        while True:
            rows = dict[int, Times]()
            gradients = dict[int, RealGradient]()
            for _ in range(self.workers):
                asked = self.now()
                worker, value, _ = self.channel.receive()
                arrived = self.now()
                rows[worker] = {
                    "worker": worker,
                    "number": version,
                    "version_read": version,
                    "staleness": 0,
                    "sent": sent[worker].time,
                    "asked": asked,
                    "arrived": arrived,
                }
                gradients[worker] = RealGradient(
                    worker, value, self.weights, version, 0, self._share
                )
            if not self._continues(version, self.now()):
                for worker in rows:
                    self.channel.send(worker, self.weights, more=False)
                return
            begun = self.now()
            # as `SyncPS` does it: a sum of floats depends on the order
            ordered = [gradients[rank] for rank in sorted(gradients)]
            self.weights, state = rule.update(self.weights, ordered, state)
            self.sleep_until(begun + self._apply_seconds())
            applied = self.now()
            version += 1
            for worker, row in rows.items():
                sent[worker] = self._send_weights(worker, version)
                self.rows.append(row | {"applied": applied, "replied": self.now()})

    def peer(self) -> None:
        """Sum all gradients by the library's all-reduce, and apply their mean."""
        rule = self.algorithm.rule
        state = rule.init(self.weights)
        version = 0
        more = True
        while more:
            read = self.now()
            gradient = self.compute(self.weights, read)
            computed = self.now()
            # + 1: the sum of this round is applied, also in the last one
            message = self.channel.pack(gradient, self._continues(version + 1, computed))
            dist.all_reduce(message)
            mean, _ = self.channel.unpack()
            arrived = self.now()
            mean /= self.workers
            # the sum of the flags: all peers end in the same round
            more = bool(self.channel.message[-1] == self.workers)
            share = self.workers * self._share
            taken = RealGradient(self.rank, mean, self.weights, version, 0, share)
            self.weights, state = rule.update(self.weights, [taken], state)
            applied = self.now()
            self.rows.append(
                {
                    "worker": self.rank,
                    "number": version,
                    "version_read": version,
                    "staleness": 0,
                    "sent": read,
                    "read": read,
                    "computed": computed,
                    "asked": computed,
                    "arrived": arrived,
                    "applied": applied,
                    "replied": applied,
                }
            )
            version += 1

    def _send_weights(self, worker: int, version: int) -> Sent:
        begun = self.now()
        self.channel.send(worker, self.weights)
        return Sent(begun, self.weights, version)

    def _continues(self, updates: int, now: float) -> bool:
        """Whether the run continues after this number of updates, at `now` (s)."""
        return updates < self._max_updates and now < self._max_seconds


def exit_with_parent() -> None:
    """End this process once its standard input is closed, by the parent or by the parent's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def take_part(folder: Path, rank: int) -> None:
    """Take part in the run that a folder describes, and write its rows and weights there."""
    exit_with_parent()
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    torch.set_num_threads(1)
    look_in(*map(Path, plan["folders"]))  # where `parse` imports plugins from
    spec = RunSpec(parse(plan["config"]), threads=1)
    member = Member(spec, rank, plan["updates"], plan["seconds"])
    if rank < member.workers:
        member.warm_up()
    join(folder, rank, plan["members"], plan["patience"])
    member.run()
    write_table(folder / f"{rank}.parquet", pd.DataFrame(member.rows))
    np.save(folder / f"{rank}.npy", member.weights.numpy())


if __name__ == "__main__":
    take_part(Path(sys.argv[1]), int(sys.argv[2]))
