"""From the rows of a real run to the simulated cluster that takes the same times."""

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

CLUSTER, COMPUTE, ROWS, ESTIMATES = (
    "cluster.yaml",
    "compute.csv",
    "updates.parquet",
    "estimates.csv",
)
LATENCY, SERVER_LATENCY, BANDWIDTH = (
    "network.latency",
    "network.server_latency",
    "network.bandwidth",
)
FEW = 5
"""Messages below which the seconds of taking one in are not told from those of its way."""


class MeasuredTime(NamedTuple):
    """A time of a cluster, as a real run shows it: a mean, since the tails of a machine weigh as
    much as its body.

    Attributes:
        key: of the config, below `cluster`.
        seconds: its mean; of a bandwidth, the seconds a byte.
        messages: of how many it is the mean.
        how: what was averaged.
    """

    key: str
    seconds: float
    messages: int
    how: str

    @property
    def setting(self) -> float:
        """The value of the key."""
        return 1 / self.seconds if self.key == BANDWIDTH else self.seconds

    def __str__(self) -> str:
        value = (
            f"{self.setting:9.4g} B/s"
            if self.key == BANDWIDTH
            else f"{1e3 * self.seconds:9.4g} ms "
        )
        return f"{self.key:<24} {value} mean of {self.messages}: {self.how}"


def measured_times(run: RealRun, spec: RunSpec) -> list[MeasuredTime]:
    """The times of a run's messages and of its server, without those of its warm-up."""
    rows = run.rows[~run.rows["warm_up"]]
    if spec.config.algorithm.name == "all_reduce":
        last = rows.groupby("number")["computed"].transform("max")
        seconds, (steps, _) = float((rows["applied"] - last).mean()), messages_and_models(spec)
        how = f"(applied - last computed) / {steps:g} messages"
        return [MeasuredTime(LATENCY, seconds / steps, len(rows), how)]
    one_by_one = spec.config.algorithm.name == "async_ps"
    way = (rows["arrived"] - rows["computed"])[rows["computed"] >= rows["asked"]]
    up = float(way.mean()) if len(way) else 0.0
    lay = rows["computed"] + up <= rows["asked"]
    taken = (rows["arrived"] - rows["asked"])[lay]
    receive = float(taken.mean()) if len(taken) >= FEW else 0.0
    # a server that is never idle does not show the way
    receive = min(up, receive) if len(way) else receive
    down = rows["read"] - rows["sent"]
    begun = rows["arrived"] if one_by_one else rows.groupby("version")["arrived"].transform("max")
    apply = (rows["applied"] - begun)[begun == rows["arrived"]]
    answered = rows["replied"] - rows["applied"]
    if not one_by_one:
        answered = answered.groupby(rows["version"]).max() / rows.groupby("version").size()
    replies = len(rows) if one_by_one else int(rows.groupby("version").size().sum())
    return [
        MeasuredTime(
            LATENCY,
            max(0.0, up - receive),
            len(way),
            "arrived - computed where the server was idle",
        ),
        MeasuredTime(SERVER_LATENCY, max(0.0, float(down.mean())), len(down), "read - sent"),
        MeasuredTime(
            "receive_seconds",
            receive,
            len(taken),
            "arrived - asked where the message lay there already",
        ),
        MeasuredTime("apply_seconds", float(apply.mean()), len(apply), "applied - arrived"),
        MeasuredTime(
            "reply_seconds", float(answered.mean()), replies, "replied - applied, for each reply"
        ),
    ]


def messages_and_models(spec: RunSpec) -> tuple[float, float]:
    """How often the collective of a config takes a message's latency, and how often the time of a
    model's bytes.
    """
    collective, workers = spec.config.algorithm.build(1).collective, spec.config.cluster.workers
    if workers == 1:
        return 1.0, 1.0
    seconds = COLLECTIVE_SECONDS[collective]
    return seconds(workers, 1.0, 0.0), seconds(workers, 0.0, 1.0)


def message_bytes(spec: RunSpec) -> float:
    """The bytes of a message: those that the config says, or a model's."""
    given = spec.config.cluster.network.message_bytes
    task = spec.config.task.task(workers=1, seed=0, device="cpu", backend="auto", threads=1)
    start = task.start([0])
    return float(max(start.nbytes, bytes_of(task, start.shape[1])) if given is None else given)


def fit_sizes(
    found: Sequence[Sequence[MeasuredTime]], sizes: Sequence[float], spec: RunSpec
) -> list[MeasuredTime]:
    """The times for a config's messages, from runs with messages of two sizes: each time is linear
    in the bytes.

    What a message to the server, or of a collective, takes at both sizes gives alpha + N beta, the
    latency and the bandwidth 1 / beta; without a bandwidth where larger messages took no longer.
    What holds the server, and the latency from it, are those of the config's own size.

    Raises:
        ConfigError: the sizes are equal.
    """
    if sizes[0] == sizes[1]:
        raise ConfigError("--message-bytes", f"expected two sizes, got {sizes[0]:g} twice")
    (first, low), (second, high) = sorted(
        zip(sizes, ({one.key: one for one in times} for times in found), strict=True)
    )
    own = message_bytes(spec)
    slopes = {key: (high[key].seconds - low[key].seconds) / (second - first) for key in low}
    collective = spec.config.algorithm.name == "all_reduce"
    steps, models = messages_and_models(spec) if collective else (1.0, 1.0)
    beta = max(0.0, slopes[LATENCY] * steps / models)
    fitted = []
    for key, one in low.items():
        seconds = one.seconds + slopes[key] * (own - first)
        if key in (LATENCY, SERVER_LATENCY):
            seconds -= own * beta * models / steps
        how = f"{one.how}; at {first:g} and {second:g} bytes"
        fitted.append(MeasuredTime(key, max(0.0, seconds), one.messages + high[key].messages, how))
    if beta > 0:
        fitted.append(MeasuredTime(BANDWIDTH, beta, fitted[0].messages, fitted[0].how))
    return fitted


def calibrate_cluster(
    run: RealRun, spec: RunSpec, folder: Path, found: list[MeasuredTime] | None = None
) -> list[MeasuredTime]:
    """Write what a real run has measured: its rows, the estimates, and a config whose cluster has
    these times.

    The config replays each worker's compute times in order; `order: bootstrap` draws from them
    instead.

    Args:
        found: the times, if they are not those of this run alone.

    Raises:
        RealRunError: of some worker no gradient was applied.
    """
    rows, workers = run.rows, spec.config.cluster.workers
    if missing := sorted(set(range(workers)) - set(rows["worker"])):
        raise RealRunError(
            f"a real run: no gradient of worker {missing[0]} was applied: let it run for longer"
        )
    folder.mkdir(parents=True, exist_ok=True)
    found = measured_times(run, spec) if found is None else found
    seconds = pd.DataFrame({"worker": rows["worker"], "seconds": rows["computed"] - rows["read"]})
    seconds.to_csv(folder / COMPUTE, index=False)
    write_table(folder / ROWS, rows)
    pd.DataFrame(found).to_csv(folder / ESTIMATES, index=False)
    (folder / CLUSTER).write_text(text_of(document(spec, found, COMPUTE)), encoding="utf-8")
    return found


def document(spec: RunSpec, found: list[MeasuredTime], trace: str) -> dict[str, Any]:
    """The config of a run, on the cluster that was found; compute times are those in the file
    `trace`.
    """
    compute = {
        "law": "trace",
        "file": trace,
        "column": "seconds",
        "worker": "worker",
        "order": "replay",
    }
    cluster: dict[str, Any] = {
        "workers": spec.config.cluster.workers,
        "compute": compute,
        "network": {},
    }
    if (size := spec.config.cluster.network.message_bytes) is not None:
        cluster["network"]["message_bytes"] = size
    for one in found:
        owner, _, key = one.key.rpartition(".")
        (cluster["network"] if owner else cluster)[key] = one.setting
    if spec.config.algorithm.name != "all_reduce" and any(one.key == BANDWIDTH for one in found):
        cluster["network"]["wiring"] = "pairs"  # it is the server's thread that messages share
    return {**spec.config.explicit(), "cluster": cluster}
