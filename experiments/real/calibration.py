"""Calibration: the simulated cluster whose times are those measured in a real run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from laggard.experiments.config.document import text_of
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.real import RealRunError
from laggard.experiments.real.processes import RealRun
from laggard.experiments.results.files import write_table
from laggard.experiments.theory.communication import COLLECTIVE_SECONDS
from laggard.simulator.learning.task import bytes_of

CLUSTER = "cluster.yaml"
COMPUTE_TABLE = "compute.csv"
ROWS = "updates.parquet"
ESTIMATES = "estimates.csv"
LATENCY = "network.latency"
SERVER_LATENCY = "network.server_latency"
BANDWIDTH = "network.bandwidth"
MIN_QUEUED = 5
"""Queued messages needed to separate the seconds to receive a message from its latency."""


class MeasuredTime(NamedTuple):
    """A measured time of a cluster: a mean, since outliers cost a run as much as typical values.

    Attributes:
        key: the key of the config, below `cluster`.
        seconds: the mean; for a bandwidth the seconds per byte.
        messages: the number of messages averaged.
        how: the difference that was averaged.
    """

    key: str
    seconds: float
    messages: int
    how: str

    @property
    def setting(self) -> float:
        """The value of the key."""
        if self.key == BANDWIDTH:
            return 1 / self.seconds
        return self.seconds

    def __str__(self) -> str:
        if self.key == BANDWIDTH:
            value = f"{self.setting:9.4g} B/s"
        else:
            value = f"{1e3 * self.seconds:9.4g} ms "
        return f"{self.key:<24} {value} mean of {self.messages}: {self.how}"


def measured_times(run: RealRun, spec: RunSpec) -> list[MeasuredTime]:
    """The times of a run's messages and of its server, without its warm-up."""
    rows = run.rows[~run.rows["warm_up"]]
    method = spec.config.algorithm.name
    if method == "all_reduce":
        return [_collective_latency(rows, spec)]
    return [*_message_times(rows), *_server_times(rows, asynchronous=method == "async_ps")]


def _collective_latency(rows: pd.DataFrame, spec: RunSpec) -> MeasuredTime:
    last_computed = rows.groupby("number")["computed"].transform("max")
    seconds = float((rows["applied"] - last_computed).mean())
    steps, _ = messages_and_models(spec)
    how = f"(applied - last computed) / {steps:g} messages"
    return MeasuredTime(LATENCY, seconds / steps, len(rows), how)


def _message_times(rows: pd.DataFrame) -> list[MeasuredTime]:
    """The latencies to and from the server, and the seconds in which it receives a message.

    Where the server was idle, the time from a gradient's computation to its arrival is the latency
    plus the time to receive it. Where the message had to queue, the server's call takes only the
    time to receive it.
    """
    total = (rows["arrived"] - rows["computed"])[rows["computed"] >= rows["asked"]]
    up = 0.0
    if len(total):
        up = float(total.mean())
    queued = rows["computed"] + up <= rows["asked"]
    received = (rows["arrived"] - rows["asked"])[queued]
    receive = 0.0
    if len(received) >= MIN_QUEUED:
        receive = float(received.mean())
    if len(total):  # else the server was never idle, and the latency is unknown
        receive = min(up, receive)
    latency = max(0.0, up - receive)
    down = rows["read"] - rows["sent"]
    server_latency = max(0.0, float(down.mean()))
    idle = "arrived - computed where the server was idle"
    waited = "arrived - asked where the message was queued"
    return [
        MeasuredTime(LATENCY, latency, len(total), idle),
        MeasuredTime(SERVER_LATENCY, server_latency, len(down), "read - sent"),
        MeasuredTime("receive_seconds", receive, len(received), waited),
    ]


def _server_times(rows: pd.DataFrame, asynchronous: bool) -> list[MeasuredTime]:
    """The seconds of an update, and of a reply."""
    rounds = rows.groupby("version")
    begun = rows["arrived"]
    reply = rows["replied"] - rows["applied"]
    if not asynchronous:  # one update, and one series of replies, in each round
        begun = rounds["arrived"].transform("max")
        reply = reply.groupby(rows["version"]).max() / rounds.size()
    apply = (rows["applied"] - begun)[begun == rows["arrived"]]
    how = "replied - applied, for each reply"
    return [
        MeasuredTime("apply_seconds", float(apply.mean()), len(apply), "applied - arrived"),
        MeasuredTime("reply_seconds", float(reply.mean()), len(rows), how),
    ]


def messages_and_models(spec: RunSpec) -> tuple[float, float]:
    """How many latencies, and how many transfers of a whole model, a collective takes."""
    collective = spec.config.algorithm.build(1).collective
    workers = spec.config.cluster.workers
    if workers == 1:
        return 1.0, 1.0
    seconds = COLLECTIVE_SECONDS[collective]
    return seconds(workers, 1.0, 0.0), seconds(workers, 0.0, 1.0)


def message_bytes(spec: RunSpec) -> float:
    """The bytes of a message: `message_bytes` of the config, or else the bytes of a model."""
    configured = spec.config.cluster.network.message_bytes
    if configured is not None:
        return float(configured)
    task = spec.config.task.task(workers=1, seed=0, device="cpu", backend="auto", threads=1)
    start = task.start([0])
    return float(max(start.nbytes, bytes_of(task, start.shape[1])))


def fit_sizes(
    measured: Sequence[Sequence[MeasuredTime]], sizes: Sequence[float], spec: RunSpec
) -> list[MeasuredTime]:
    """The times for a config's own message size, from runs with messages of two sizes.

    Each time is linear in the bytes N. A message to the server, or of a collective, takes
    alpha + N beta: the latency and 1 / bandwidth. If larger messages took no longer, there is no
    bandwidth. The other times are interpolated at the config's own size.

    Args:
        measured: the times measured at each size.

    Raises:
        ConfigError: the sizes are equal.
    """
    if sizes[0] == sizes[1]:
        raise ConfigError("`message_bytes`", f"expected two sizes, got {sizes[0]:g} twice")
    by_size = {
        size: {time.key: time for time in times}
        for size, times in zip(sizes, measured, strict=True)
    }
    small, large = sorted(by_size)
    low, high = by_size[small], by_size[large]
    slopes = {key: (high[key].seconds - low[key].seconds) / (large - small) for key in low}
    steps, models = 1.0, 1.0
    if spec.config.algorithm.name == "all_reduce":
        steps, models = messages_and_models(spec)
    beta = max(0.0, slopes[LATENCY] * steps / models)
    own_size = message_bytes(spec)
    fitted = []
    for key, time in low.items():
        seconds = time.seconds + slopes[key] * (own_size - small)
        if key in (LATENCY, SERVER_LATENCY):  # the bandwidth accounts for the rest
            seconds -= own_size * beta * models / steps
        messages = time.messages + high[key].messages
        how = f"{time.how}; at {small:g} and {large:g} bytes"
        fitted.append(MeasuredTime(key, max(0.0, seconds), messages, how))
    if beta > 0:
        latency = fitted[0]  # `measured_times` begins with it, for every method
        fitted.append(MeasuredTime(BANDWIDTH, beta, latency.messages, latency.how))
    return fitted


def calibrate_cluster(
    run: RealRun, spec: RunSpec, folder: Path, times: list[MeasuredTime] | None = None
) -> list[MeasuredTime]:
    """Write the rows of a real run, the estimates, and a config whose cluster has these times.

    The config replays each worker's compute times in order; `order: bootstrap` draws from them
    instead.

    Args:
        times: the estimates; by default those of this run.

    Raises:
        RealRunError: no gradient of some worker was applied.
    """
    rows = run.rows
    missing = sorted(set(range(spec.config.cluster.workers)) - set(rows["worker"]))
    if missing:
        problem = f"no gradient of worker {missing[0]} was applied: let it run for longer"
        raise RealRunError(f"a real run: {problem}")
    if times is None:
        times = measured_times(run, spec)
    folder.mkdir(parents=True, exist_ok=True)
    seconds = pd.DataFrame({"worker": rows["worker"], "seconds": rows["computed"] - rows["read"]})
    seconds.to_csv(folder / COMPUTE_TABLE, index=False)
    write_table(folder / ROWS, rows)
    pd.DataFrame(times).to_csv(folder / ESTIMATES, index=False)
    (folder / CLUSTER).write_text(text_of(document(spec, times, COMPUTE_TABLE)), encoding="utf-8")
    return times


def replay(file: str) -> dict[str, Any]:
    """The `compute` of a config that replays each worker's times in a table."""
    columns = {"column": "seconds", "worker": "worker"}
    return {"law": "trace", "file": file, **columns, "order": "replay"}


def document(spec: RunSpec, times: list[MeasuredTime], trace: str) -> dict[str, Any]:
    """The config of a run on a cluster with measured times; the file `trace` has compute times."""
    configured = spec.config.cluster
    network: dict[str, Any] = {}
    cluster = {"workers": configured.workers, "compute": replay(trace), "network": network}
    if configured.network.message_bytes is not None:
        network["message_bytes"] = configured.network.message_bytes
    for time in times:
        section, _, key = time.key.rpartition(".")
        if section:
            network[key] = time.setting
        else:
            cluster[key] = time.setting
    if spec.config.algorithm.name == "all_reduce":
        # The latency was estimated as if a round ended at all nodes at once.
        network["rendezvous"] = True
    # messages share the thread of the server, not a link of the network
    if "bandwidth" in network and spec.config.algorithm.name != "all_reduce":
        network["wiring"] = "pairs"
    return {**spec.config.explicit(), "cluster": cluster}
