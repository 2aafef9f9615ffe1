"""Starts the processes of a real run, waits for them, and joins their rows."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.plugins import FOLDERS
from laggard.experiments.real import RealRunError
from laggard.experiments.results.files import read_table
from laggard.models.backends.threads import cores
from laggard.simulator import Cluster, Network
from laggard.simulator.algorithms import AllReduce, AsyncPS, SyncPS
from laggard.simulator.network.topology import SERVER

METHODS: dict[str, Any] = {"async_ps": AsyncPS, "sync_ps": SyncPS, "all_reduce": AllReduce}
POLL_SECONDS = 0.02
MIN_GRADIENTS = 20
"""Gradients needed to measure a rate."""
WARM_UP_SHARE = 0.1
"""The share of a run's rows, from the first on, that is not counted."""


@dataclass(frozen=True)
class RealRun:
    """The measurements of a real run.

    Attributes:
        rows: a row per applied gradient, in order of application: the columns of `updates.parquet`,
            and the seconds since the start at which weights were `sent` and `read`, the gradient
            was `computed`, the server `asked`, the gradient `arrived`, was `applied`, and the
            server had `replied`; `warm_up` marks the first tenth.
        weights: the final model `(1, params)`.
        load: the machine's load average before the run.
        cores: the number available to the processes.
    """

    rows: pd.DataFrame
    weights: NDArray[np.float64]
    load: float
    cores: int

    @property
    def quiet(self) -> bool:
        """Whether the machine had spare cores when the run began; else its times mean little."""
        return self.load <= self.cores


def run_real(spec: RunSpec, seconds: float | None = None, patience: float | None = None) -> RealRun:
    """Run a config's method on real processes of this machine.

    Args:
        seconds: wall time after which the run ends, if no limit of the config is reached before.
        patience: seconds after which a process that waits for another gives up.

    Raises:
        ConfigError: real processes cannot run this config.
        RealRunError: a process died, failed or hung; the others are stopped.
    """
    if seconds is not None and not seconds > 0:
        raise ConfigError("`seconds`", f"expected a number > 0, got {seconds:g}")
    cluster = check_real(spec)
    updates, limit = _limits(spec, cluster.workers)
    if seconds is not None:
        limit = min(limit, seconds)
    if patience is None:
        patience = 60.0 + 50 * cluster.compute.mean
    members = cluster.workers
    if not isinstance(spec.config.algorithm.build(1), AllReduce):
        members += 1  # the server
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="laggard-real-") as name:
        folder = Path(name)
        plan = {
            "config": {**spec.config.as_dict(), "device": "cpu"},
            "folders": list(map(str, FOLDERS)),
            "members": members,
            "updates": updates,
            "seconds": limit,
            "patience": patience,
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        with _processes(folder, members) as processes:
            _wait(processes, folder, patience)
        rows = _join_rows(folder, members, cluster.workers)
        if len(rows) < MIN_GRADIENTS:
            problem = f"expected {MIN_GRADIENTS} applied gradients, got {len(rows)}"
            raise RealRunError(f"a real run: {problem}: let it run for longer")
        # those of the server, or of the last peer
        weights = np.load(folder / f"{members - 1}.npy")
        return RealRun(rows, weights, load, cores())


def check_real(spec: RunSpec) -> Cluster:
    """The cluster of a config, if real processes can run the config.

    Raises:
        ConfigError: real processes cannot run it; names the key that has to change.
    """
    config = spec.config
    name = config.algorithm.name
    algorithm = config.algorithm.build(config.cluster.workers)
    cluster = config.build_cluster()
    if METHODS.get(name) is not type(algorithm):
        expected = f"expected {', '.join(METHODS)} for real processes"
        raise ConfigError("algorithm.name", f"{expected}, got {name!r}")
    defaults = type(algorithm)(algorithm.rule)
    for key, value in vars(algorithm).items():
        if key not in ("rule", "collective"):
            _check_value(f"algorithm.{key}", value, getattr(defaults, key))
    _check_network(cluster.network)
    for key in ("receive_seconds", "reply_seconds"):
        _check_value(f"cluster.{key}", getattr(cluster, key), 0.0)
    if cluster.crashes:
        raise ConfigError("cluster.slowdowns", "expected no crash in a real run")
    if cluster.server_crashes:
        raise ConfigError("cluster.server_crashes", "expected none in a real run")
    if cluster.members.change:
        raise ConfigError("cluster.members", "expected none in a real run")
    if len(spec.members) > 1:
        problem = f"expected one model in a real run, got {len(spec.members)} members"
        raise ConfigError("sweep", problem)
    if config.device == "cuda":
        raise ConfigError("device", "expected cpu for real processes, got 'cuda'")
    return cluster


def _check_network(network: Network) -> None:
    """Refuse all settings but topology and message size: the messages are real."""
    defaults = Network()
    network = replace(network, topology=defaults.topology, message_bytes=None)
    for key, default in vars(defaults).items():
        value = getattr(network, key)
        if value or default:  # an empty list is an empty tuple
            _check_value(f"cluster.network.{key}", value, default)


def _check_value(key: str, value: Any, expected: Any) -> None:
    if value != expected:
        raise ConfigError(key, f"expected {expected} for real processes, got {value}")


def _limits(spec: RunSpec, workers: int) -> tuple[float, float]:
    """The numbers of updates and of seconds after which a run ends.

    Raises:
        ConfigError: the config ends at an accuracy, or its messages are smaller than a model.
    """
    config = spec.config
    stop = config.stop.build()
    if stop.accuracy is not None:
        problem = f"expected null, since a real run is not evaluated, got {stop.accuracy}"
        raise ConfigError("stop.accuracy", problem)
    task = config.task.task(
        workers=workers, seed=config.seed, device="cpu", backend="auto", threads=1
    )
    size = config.cluster.network.message_bytes
    model = task.start([0]).nbytes
    if size is not None and size < model:
        problem = f"expected at least a model's {model}, got {size:g}"
        raise ConfigError("cluster.network.message_bytes", problem)
    batches = workers  # of an update
    if config.algorithm.name == "async_ps":
        batches = 1
    updates, seconds = math.inf, math.inf
    if stop.updates is not None:
        updates = stop.updates
    if stop.epochs is not None:
        epoch = task.epoch / task.batch
        # 1e-9: the rounding that `Stop` allows for
        updates = min(updates, math.ceil(stop.epochs * epoch / batches * (1 - 1e-9)))
    if stop.gradients is not None:
        updates = min(updates, stop.gradients // batches)
    if stop.time is not None:
        seconds = stop.time
    return updates, seconds


@contextmanager
def _processes(folder: Path, members: int) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """The processes of a run; they end with this block, or with this process."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "laggard.experiments.real.member", str(folder)]
    try:
        for rank in range(members):
            with (folder / f"{rank}.err").open("wb") as errors:
                process = subprocess.Popen(
                    [*command, str(rank)],
                    stdin=subprocess.PIPE,
                    stdout=errors,
                    stderr=errors,
                    env=environment,
                )
            started.append(process)
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            if process.stdin:
                process.stdin.close()


def _wait(processes: Sequence["subprocess.Popen[bytes]"], folder: Path, patience: float) -> None:
    """Wait until all processes have ended.

    Raises:
        RealRunError: one failed, died or hangs; names the first that failed.
    """
    deadline = math.inf
    while True:
        codes = [process.poll() for process in processes]
        failed = [(code > 0, rank, code) for rank, code in enumerate(codes) if code]
        if failed:
            # a process that was killed comes first: it causes the others' errors
            _, rank, code = min(failed)
            cause = _describe_process_end(folder, rank, code)
            raise RealRunError(f"a real run: process {rank} of {len(codes)}{cause}")
        if None not in codes:
            return
        if 0 in codes:  # the run is over, so the others should end soon
            deadline = min(deadline, time.monotonic() + patience)
        if time.monotonic() > deadline:
            hanging = codes.index(None)
            raise RealRunError(
                f"a real run: process {hanging} of {len(codes)} did not end after the run"
            )
        time.sleep(POLL_SECONDS)


def _describe_process_end(folder: Path, rank: int, code: int) -> str:
    """The signal that killed a process, or the last line of its output."""
    if code < 0:
        return f" was killed by signal {-code}"
    output = (folder / f"{rank}.err").read_text(errors="replace").strip()
    if output:
        return f": {output.splitlines()[-1]}"
    return f": exit code {code}"


def _join_rows(folder: Path, members: int, workers: int) -> pd.DataFrame:
    """The rows of all processes, in the order in which gradients were applied."""
    tables = [read_table(folder / f"{rank}.parquet") for rank in range(members)]
    last = tables[-1]
    if last.empty:
        return last
    if members == workers:  # peers
        rows = pd.concat(tables).sort_values(["version_read", "worker"])
        targets = rows["worker"]
    else:
        of_workers = {
            rank: table.rename_axis("number") for rank, table in enumerate(tables[:workers])
        }
        computed = pd.concat(of_workers, names=["worker"]).reset_index()
        rows = last.merge(computed, on=["worker", "number"]).sort_values(["applied", "arrived"])
        targets = pd.Series(SERVER, rows.index)
    integers = dict.fromkeys(("worker", "number", "version_read", "staleness"), int)
    rows = rows.assign(
        time=rows["applied"],
        started=rows["read"],
        status="applied",
        mixings=0,
        version=rows["version_read"] + rows["staleness"],
        target=targets,
    )
    rows = rows.astype(integers | {"version": int, "target": int}).reset_index(drop=True)
    rows["warm_up"] = rows.index < WARM_UP_SHARE * len(rows)
    return rows
