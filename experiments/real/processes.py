"""Starts the processes of a real run, watches over them, and joins their rows."""

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
FEWEST = 20
"""Gradients below which a run says nothing about its rate."""
WARM_UP_SHARE = 0.1
"""The share of a run's rows that comes first and is not counted."""


@dataclass(frozen=True)
class RealRun:
    """What a real run has measured.

    Attributes:
        rows: a row per applied gradient, in order of application: the columns of `updates.parquet`,
            and the seconds since the start at which weights were `sent` and `read`, the gradient
            was `computed`, the server `asked`, the gradient `arrived`, was `applied`, and the
            server had `replied`; `warm_up` marks the first tenth.
        weights: the final model `(1, params)`.
        load: the machine's load average before the run.
        cores: those that the processes could use.
    """

    rows: pd.DataFrame
    weights: NDArray[np.float64]
    load: float
    cores: int

    @property
    def quiet(self) -> bool:
        """Whether the machine had cores to spare when the run began: otherwise its times say
        little.
        """
        return self.load <= self.cores


def run_real(spec: RunSpec, seconds: float | None = None, patience: float | None = None) -> RealRun:
    """Run a config's method on real processes of this machine until its limits, or for so many
    `seconds`.

    Args:
        patience: seconds after which a process that waits for another gives up.

    Raises:
        ConfigError: the config says what real processes here cannot do.
        RealRunError: a process died, failed or hung; the others are stopped.
    """
    if seconds is not None and not seconds > 0:
        raise ConfigError("--seconds", f"expected a number > 0, got {seconds:g}")
    cluster = check_real(spec)
    updates, limit = _ends_of(spec, cluster.workers)
    if patience is None:
        patience = 60.0 + 50 * cluster.compute.mean
    members = cluster.workers + (not isinstance(spec.config.algorithm.build(1), AllReduce))
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="laggard-real-") as name:
        folder = Path(name)
        plan = {
            "config": {**spec.config.as_dict(), "device": "cpu"},
            "folders": list(map(str, FOLDERS)),
            "members": members,
            "updates": updates,
            "seconds": min(limit, math.inf if seconds is None else seconds),
            "patience": patience,
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        with _processes(folder, members) as processes:
            _wait(processes, folder, patience)
        rows = _join_rows(folder, members, cluster.workers)
        if len(rows) < FEWEST:
            raise RealRunError(
                f"a real run: {len(rows)} gradients were applied, expected {FEWEST}: let it run for longer"
            )
        return RealRun(rows, np.load(folder / f"{members - 1}.npy"), load, cores())


def check_real(spec: RunSpec) -> Cluster:
    """The cluster of a config that real processes can run.

    Raises:
        ConfigError: they cannot; says what would have to change.
    """
    config, default = spec.config, Network()
    algorithm, cluster = config.algorithm.build(config.cluster.workers), config.build_cluster()
    name = config.algorithm.name
    if METHODS.get(name) is not type(algorithm):
        raise ConfigError(
            "algorithm.name", f"expected {', '.join(METHODS)} for real processes, got {name!r}"
        )
    plain = type(algorithm)(algorithm.rule)
    for key, value in vars(algorithm).items():
        if key not in ("rule", "collective") and value != getattr(plain, key):
            raise ConfigError(
                f"algorithm.{key}",
                f"expected {getattr(plain, key)} for real processes, got {value}",
            )
    network = replace(cluster.network, topology=default.topology, message_bytes=None)
    for key, value in vars(default).items():
        got = getattr(network, key)
        if got != value and (got or value):  # an empty list is an empty tuple
            raise ConfigError(
                f"cluster.network.{key}",
                f"expected {value}, since messages are real ones, got {got}",
            )
    for key in ("receive_seconds", "reply_seconds"):
        if (got := getattr(cluster, key)) != 0:
            raise ConfigError(
                f"cluster.{key}", f"expected 0.0, since messages are real ones, got {got}"
            )
    if cluster.crashes:
        raise ConfigError("cluster.slowdowns", "expected no crash in a real run")
    if cluster.server_crashes:
        raise ConfigError("cluster.server_crashes", "expected none in a real run")
    if len(spec.members) > 1:
        raise ConfigError(
            "sweep", f"expected one model in a real run, got {len(spec.members)} members"
        )
    if config.device == "cuda":
        raise ConfigError("device", "expected cpu for real processes, got 'cuda'")
    return cluster


def _ends_of(spec: RunSpec, workers: int) -> tuple[float, float]:
    """The updates and the seconds after which a run ends.

    Raises:
        ConfigError: it is to end at an accuracy, or its messages are smaller than a model.
    """
    stop, config = spec.config.stop.build(), spec.config
    if stop.accuracy is not None:
        raise ConfigError(
            "stop.accuracy",
            f"expected null, since a real run is not evaluated, got {stop.accuracy}",
        )
    batches = 1 if config.algorithm.name == "async_ps" else workers
    task = spec.config.task.task(
        workers=workers, seed=config.seed, device="cpu", backend="auto", threads=1
    )
    start, size = task.start([0]), config.cluster.network.message_bytes
    if size is not None and size < start.nbytes:
        raise ConfigError(
            "cluster.network.message_bytes",
            f"expected at least a model's {start.nbytes}, got {size:g}",
        )
    epoch = task.epoch / task.batch
    updates = [
        math.inf if stop.updates is None else stop.updates,
        math.inf if stop.epochs is None else math.ceil(stop.epochs * epoch / batches * (1 - 1e-9)),
        math.inf if stop.gradients is None else stop.gradients // batches,
    ]
    return min(updates), math.inf if stop.time is None else stop.time


@contextmanager
def _processes(folder: Path, members: int) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """The processes of a run; they end with this block, or with this process."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    try:
        for rank in range(members):
            command = [
                sys.executable,
                "-m",
                "laggard.experiments.real.member",
                str(folder),
                str(rank),
            ]
            with (folder / f"{rank}.err").open("wb") as errors:
                given = {
                    "stdin": subprocess.PIPE,
                    "stdout": errors,
                    "stderr": errors,
                    "env": environment,
                }
                started.append(subprocess.Popen(command, **given))  # type: ignore[call-overload]
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            if process.stdin:
                process.stdin.close()


def _wait(processes: Sequence["subprocess.Popen[bytes]"], folder: Path, patience: float) -> None:
    """Wait until all processes have ended well.

    Raises:
        RealRunError: one has not; names the first that failed.
    """
    deadline = math.inf
    while any(codes := [process.poll() for process in processes]) or None in codes:
        if failed := [(code > 0, rank, code) for rank, code in enumerate(codes) if code]:
            _, rank, code = min(failed)  # one that was killed is the cause of the others' errors
            raise RealRunError(_reason(folder, rank, code, len(processes)))
        if 0 in codes:  # the run is over: the others are to leave as well
            deadline = min(deadline, time.monotonic() + patience)
        if time.monotonic() > deadline:
            raise RealRunError(
                f"a real run: process {codes.index(None)} of {len(codes)} hangs at its end"
            )
        time.sleep(0.02)


def _reason(folder: Path, rank: int, code: int, members: int) -> str:
    """Why a process has failed, in one line: the signal that killed it, or the last line that it
    said.
    """
    if code < 0:
        return f"a real run: process {rank} of {members} was killed by signal {-code}"
    said = (folder / f"{rank}.err").read_text(errors="replace").strip().splitlines()
    return f"a real run: process {rank} of {members}: {said[-1] if said else f'exit code {code}'}"


def _join_rows(folder: Path, members: int, workers: int) -> pd.DataFrame:
    """The rows of all processes, in the order in which gradients were applied."""
    tables = [read_table(folder / f"{rank}.parquet") for rank in range(members)]
    if tables[-1].empty:
        return tables[-1]
    if members == workers:
        rows = pd.concat(tables).sort_values(["version_read", "worker"])
    else:
        own = {rank: table.rename_axis("number") for rank, table in enumerate(tables[:workers])}
        computed = pd.concat(own, names=["worker"]).reset_index()
        rows = (
            tables[-1].merge(computed, on=["worker", "number"]).sort_values(["applied", "arrived"])
        )
    rows = rows.astype({name: int for name in ("worker", "number", "version_read", "staleness")})
    rows["time"], rows["started"], rows["status"], rows["mixings"] = (
        rows["applied"],
        rows["read"],
        "applied",
        0,
    )
    rows["version"] = rows["version_read"] + rows["staleness"]
    rows["target"] = rows["worker"] if members == workers else SERVER
    rows = rows.reset_index(drop=True)
    rows["warm_up"] = rows.index < WARM_UP_SHARE * len(rows)
    return rows
