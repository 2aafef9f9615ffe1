"""Tables that a config reads: a replayed recording, and slowdowns."""

import math

import numpy as np
import pandas as pd
import pytest

from laggard import load, run
from tests.cases import yaml_table

PLAIN = """
cluster: {workers: 3, compute: {law: gamma, mean: 1.0, cv: 0.5}, network: {latency: 0.25}}
task: {model: timing}
stop: {updates: 60}
"""


def compute_times(result):
    """The tidy table of a run's compute times: in the order in which each worker began."""
    rows = result.updates.sort_values(["worker", "started"])
    rows = rows.assign(
        step=rows.groupby("worker").cumcount(), seconds=rows["computed"] - rows["started"]
    )
    return rows[["worker", "step", "seconds"]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("method", ["async_ps", "sync_ps", "all_reduce"])
def test_replayed_recording_has_the_recorded_times(tmp_path, method, suffix):
    """Times agree bit for bit: multiples of 2^-10 s are not rounded. The last updates of an
    asynchronous run are left out: gradients in flight may be missing.
    """
    rng = np.random.default_rng(5)
    drawn = pd.DataFrame({"worker": np.arange(90) % 3, "seconds": rng.integers(1, 4096, 90) / 1024})
    drawn.to_csv(tmp_path / "drawn.csv", index=False)
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN)
    law = "cluster.compute={{law: trace, file: {}, column: seconds, worker: worker, order: {}}}"
    slow = "cluster.slowdowns=[{worker: 1, factor: 4, start: 8, end: 16}]"
    more = [f"algorithm={method}", "evaluate.every_updates=7"]
    last = 40 if method == "async_ps" else 60
    recorded = run(
        load(path, law.format(tmp_path / "drawn.csv", "sequential"), slow, *more),
        tmp_path / "results",
    )
    table, file = compute_times(recorded), tmp_path / f"compute{suffix}"
    table.to_csv(file, index=False) if suffix == ".csv" else table.to_parquet(file)
    replayed = run(
        load(path, law.format(file, "replay"), *more, f"stop.updates={last}"), tmp_path / "results"
    )
    first = recorded.updates[recorded.updates["version"] < last]
    pd.testing.assert_frame_equal(replayed.updates, first, check_exact=True)


TABLE = pd.DataFrame(
    {
        "worker": [0, 1, 0, 2],
        "from": [1.0, 2.5, 5.0, 4.0],
        "to": [3.0, math.nan, 9.0, 6.0],
        "factor": ["4", "1.5", "0.25", "down"],
    }
)
LIST = """[{worker: 0, start: 1, end: 3, factor: 4}, {worker: 1, start: 2.5, end: 1.0e+30, factor: 1.5},
  {worker: 0, start: 5, end: 9, factor: 0.25}, {worker: 2, at: 4, back: 6}]"""


def test_table_of_slowdowns_equals_a_list(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN)
    listed = run(load(path, f"cluster.slowdowns={LIST}"), tmp_path / "results")
    TABLE.to_csv(tmp_path / "slow.csv", index=False)
    TABLE.to_parquet(tmp_path / "slow.parquet")
    plain = run(load(path), tmp_path / "results")
    for name in ("slow.csv", "slow.parquet"):
        path.write_text(PLAIN.replace("network:", f"slowdowns: [{{file: {name}}}], network:"))
        table = run(load(path), tmp_path / "results")
        pd.testing.assert_frame_equal(table.updates, listed.updates, check_exact=True)
        assert table.updates["time"].max() != plain.updates["time"].max()
        assert len({table.path, listed.path, plain.path}) == 3


def test_factor_without_end_gives_one_line_error(tmp_path, mistake):
    (tmp_path / "slow.csv").write_text("worker,from,to,factor\n1,5,7,1e-15\n")
    path = tmp_path / "plain.yaml"
    path.write_text(PLAIN.replace("network:", "slowdowns: [{file: slow.csv}], network:"))
    assert "stop.time: expected at most 1e-07 s" in mistake("validate", path, "stop={time: 1}")


BROKEN = yaml_table(__file__, "broken_recordings.yaml")


@pytest.mark.parametrize(("columns", "message"), BROKEN["times"])
def test_broken_table_of_times_gives_one_line_error(columns, message, tmp_path, mistake):
    pd.DataFrame(columns).to_parquet(tmp_path / "compute.parquet")
    path = tmp_path / "plain.yaml"
    law = "{law: trace, file: compute.parquet, column: seconds, worker: worker}"
    path.write_text(PLAIN.replace("{law: gamma, mean: 1.0, cv: 0.5}", law))
    err = mistake("validate", path)
    assert err.startswith(f"{path}: cluster.compute.{message}")
    (tmp_path / "compute.parquet").write_bytes((tmp_path / "compute.parquet").read_bytes()[:-9])
    err = mistake("validate", path)
    assert err.startswith(
        f"{path}: cluster.compute.file: expected a table, as CSV or Parquet, got "
    )
