"""From the rows of a real run to the simulated cluster that takes the same times."""

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.load import text_of
from laggard.experiments.real import RealRunError
from laggard.experiments.real.processes import RealRun
from laggard.experiments.theory.iteration_time import COLLECTIVE_SECONDS

CLUSTER, COMPUTE, ROWS, ESTIMATES = "cluster.yaml", "compute.csv", "updates.parquet", "estimates.csv"
FEW = 5
"""Messages below which the seconds of taking one in are not told from those of its way."""


class MeasuredTime(NamedTuple):
    """A time of a cluster, as a real run shows it: a mean, since the tails of a machine weigh as much as its body.

    Attributes:
        key: of the config, below `cluster`.
        seconds: its mean.
        messages: of how many it is the mean.
        how: what was averaged.
    """

    key: str
    seconds: float
    messages: int
    how: str


def measured_times(run: RealRun, spec: RunSpec) -> list[MeasuredTime]:
    """The times of a run's messages and of its server, without those of its warm-up."""
    rows = run.rows[~run.rows["warm_up"]]
    if spec.config.algorithm.name == "all_reduce":
        return [_of_collective(rows, spec)]
    one_by_one = spec.config.algorithm.name == "async_ps"
    way = (rows["arrived"] - rows["computed"])[rows["computed"] >= rows["asked"]]
    up = float(way.mean()) if len(way) else 0.0
    lay = rows["computed"] + up <= rows["asked"]
    taken = (rows["arrived"] - rows["asked"])[lay]
    receive = float(taken.mean()) if len(taken) >= FEW else 0.0
    receive = min(up, receive) if len(way) else receive  # a server that is never idle does not show the way
    down = rows["read"] - rows["sent"]
    begun = rows["arrived"] if one_by_one else rows.groupby("version")["arrived"].transform("max")
    apply = (rows["applied"] - begun)[begun == rows["arrived"]]
    answered = rows["replied"] - rows["applied"]
    if not one_by_one:
        answered = answered.groupby(rows["version"]).max() / rows.groupby("version").size()
    replies = len(rows) if one_by_one else int(rows.groupby("version").size().sum())
    return [
        MeasuredTime(
            "network.latency", max(0.0, up - receive), len(way), "arrived - computed where the server was idle"
        ),
        MeasuredTime("network.server_latency", max(0.0, float(down.mean())), len(down), "read - sent"),
        MeasuredTime("receive_seconds", receive, len(taken), "arrived - asked where the message lay there already"),
        MeasuredTime("apply_seconds", float(apply.mean()), len(apply), "applied - arrived"),
        MeasuredTime("reply_seconds", float(answered.mean()), replies, "replied - applied, for each reply"),
    ]


def _of_collective(rows: pd.DataFrame, spec: RunSpec) -> MeasuredTime:
    """The latency of the messages of a collective that takes as long as the library's does."""
    collective, workers = spec.config.algorithm.build(1).collective, spec.config.cluster.workers
    last = rows.groupby("number")["computed"].transform("max")
    seconds = float((rows["applied"] - last).mean())
    steps = COLLECTIVE_SECONDS[collective](workers, 1.0, 0.0) if workers > 1 else 1.0
    return MeasuredTime(
        "network.latency", seconds / steps, len(rows), f"(applied - last computed) / {steps:g} messages"
    )


def calibrate_cluster(run: RealRun, spec: RunSpec, folder: Path) -> list[MeasuredTime]:
    """Write what a real run has measured: its rows, the estimates, and a config whose cluster has these times.

    The config replays each worker's compute times in order; `order: bootstrap` draws from them instead.

    Raises:
        RealRunError: of some worker no gradient was applied.
    """
    rows, workers = run.rows, spec.config.cluster.workers
    if missing := sorted(set(range(workers)) - set(rows["worker"])):
        raise RealRunError(f"a real run: no gradient of worker {missing[0]} was applied: let it run for longer")
    folder.mkdir(parents=True, exist_ok=True)
    found = measured_times(run, spec)
    seconds = pd.DataFrame({"worker": rows["worker"], "seconds": rows["computed"] - rows["read"]})
    seconds.to_csv(folder / COMPUTE, index=False)
    rows.to_parquet(folder / ROWS)
    pd.DataFrame(found).to_csv(folder / ESTIMATES, index=False)
    (folder / CLUSTER).write_text(text_of(document(spec, found, COMPUTE)), encoding="utf-8")
    return found


def document(spec: RunSpec, found: list[MeasuredTime], trace: str, order: str = "replay") -> dict[str, Any]:
    """The config of a run, on the cluster that was found; compute times are those in the file `trace`."""
    compute = {"law": "trace", "file": trace, "column": "seconds", "worker": "worker", "order": order}
    cluster: dict[str, Any] = {"workers": spec.config.cluster.workers, "compute": compute, "network": {}}
    if (size := spec.config.cluster.network.message_bytes) is not None:
        cluster["network"]["message_bytes"] = size
    for one in found:
        owner, _, key = one.key.rpartition(".")
        (cluster["network"] if owner else cluster)[key] = one.seconds
    return {**spec.config.explicit(), "cluster": cluster}
