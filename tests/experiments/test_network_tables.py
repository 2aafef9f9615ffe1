"""Tables of bandwidths and latencies that a config reads."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from laggard import load, run, simulate
from laggard.experiments.cli import main
from laggard.experiments.config.grid import RunSpec
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.testing.fingerprint import fingerprint

PLAIN = """
cluster:
  workers: 3
  compute: {law: gamma, mean: 1.0, cv: 0.5}
  network: {bandwidth: 10, latency: 0.25, message_bytes: 5}
task: {model: timing}
stop: {updates: 40}
"""
COLUMNS = ["sender", "receiver", "from", "to", "bandwidth", "latency"]
ROWS = [
    Change(0, -1, start=0.0, end=4.0, bandwidth=1.0, latency=0.5),
    Change(-1, start=1.0, bandwidth=4.0),
    Change(receiver=2, start=2.5, end=6.0, latency=2.0),
    Change(start=7.0, end=9.0, bandwidth=0.0),
]
TABLE = pd.DataFrame(
    {
        "sender": [0, -1, math.nan, math.nan],
        "receiver": [-1, math.nan, 2, math.nan],
        "from": [0, 1, 2.5, 7],
        "to": [4, math.nan, 6, 9],
        "bandwidth": [1, 4, math.nan, 0],
        "latency": [0.5, math.nan, 2, math.nan],
    }
)


def write(folder: Path, name: str = "net.csv") -> Path:
    path = folder / "plain.yaml"
    path.write_text(
        PLAIN.replace("message_bytes: 5", f"message_bytes: 5, changes: {{file: {name}}}")
    )
    return path


@pytest.mark.parametrize("method", ["async_ps", "all_reduce"])
@pytest.mark.parametrize("name", ["net.csv", "stars.csv", "net.parquet"])
def test_a_table_and_its_rows_make_the_same_run(name: str, method: str, tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "net.csv", index=False)
    stars = TABLE.assign(sender=["0", "-1", "*", "*"], receiver=["-1", "*", "2", ""])
    stars.to_csv(tmp_path / "stars.csv", index=False)
    TABLE.to_parquet(tmp_path / "net.parquet")
    arguments = RunSpec(load(write(tmp_path, name), f"algorithm={method}")).arguments()
    cluster = arguments["cluster"]
    assert list(cluster.network.changes.rows) == ROWS
    of_rows = replace(cluster, network=replace(cluster.network, changes=Changes(ROWS)))
    plain = replace(cluster, network=replace(cluster.network, changes=None))
    prints = [
        fingerprint(simulate(**{**arguments, "cluster": each}))
        for each in (cluster, of_rows, plain)
    ]
    assert prints[0] == prints[1] != prints[2]


def test_the_content_of_a_table_makes_the_run_and_its_place_does_not(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for folder in (tmp_path, moved):
        TABLE.to_csv(folder / "net.csv", index=False)
    first = run(load(write(tmp_path)), tmp_path / "results")
    assert RunSpec(load(write(moved))).digest == RunSpec(load(write(tmp_path))).digest
    TABLE[:2].to_csv(tmp_path / "net.csv", index=False)
    second = run(load(write(tmp_path)), tmp_path / "results")
    (tmp_path / "plain.yaml").write_text(PLAIN)
    plain = run(load(tmp_path / "plain.yaml"), tmp_path / "results")
    assert len({first.path, second.path, plain.path}) == 3
    assert len({result.manifest["mileage"]["time"] for result in (first, second, plain)}) == 3
    assert plain.config.cluster.network.changes is None


BROKEN = {
    "a,,1,3,4,": "expected a rank, -1 for the server, or * for any as sender, got",
    "0,0.5,1,3,4,": "expected a rank, -1 for the server, or * for any as receiver, got",
    "0,nan,1,3,4,": "expected a rank, -1 for the server, or * for any as receiver, got",
    "1,1,1,3,4,": "expected a rank other than the sender's as receiver, got",
    "3,,1,3,4,": "expected a worker below workers = 3, or a server from -1 down to -3 as sender, got",
    ",-4,1,3,4,": "expected a worker below workers = 3, or a server from -1 down to -3 as receiver, got",
    "0,,3,1,4,": "expected a number > 3 as to, got",
    "0,,1,x,4,": "expected a number as to, got",
    "0,,,1,4,": "expected a number >= 0 as from, got",
    "0,,-1,1,4,": "expected a number >= 0 as from, got",
    "0,,1,3,fast,": "expected a number as bandwidth, got",
    "0,,1,3,-1,": "expected bytes per second, 0 or at least 1e-9 and at most 1e+30 as bandwidth, got",
    "0,,1,3,inf,": "expected bytes per second, 0 or at least 1e-9 and at most 1e+30 as bandwidth, got",
    "0,,1,,0,": "expected the moment at which the outage ends as to, got",
    "0,,1,3,,-1": "expected a number >= 0 as latency, got",
    "0,,1,3,,late": "expected a number as latency, got",
    "0,,1,3,,": "expected a bandwidth or a latency, or both as bandwidth, got",
    "1,,6,8,1,": "expected at least 7, when the bandwidth of the same messages before ends as from, got",
}


@pytest.mark.parametrize("row", BROKEN)
def test_a_broken_row_is_one_line_with_file_row_and_column(
    row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.csv").write_text(f"{','.join(COLUMNS)}\n1,,5,7,2,\n{row}\n")
    path = write(tmp_path)
    assert main(["validate", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{path}: cluster.network.changes.file: {BROKEN[row]} ")
    assert f"\"'{row}' in row 2 of {str(tmp_path)[:20]}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "content", ["", "sender,receiver\n1,2\n", f"{','.join(COLUMNS)}\n", "\x00\n", None]
)
def test_a_file_that_is_no_table_of_a_network_is_one_line(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("net.csv", "net.parquet"):
        if content is not None:
            (tmp_path / name).write_text(content)
        path = write(tmp_path, name)
        assert main(["validate", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{path}: cluster.network.changes.file: expected ")
        assert said.count("\n") == 1
