"""Tables of bandwidths and latencies that a config reads."""

import math

import pandas as pd
import pytest

from laggard import InvalidSettingError, load
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.tables import PartitionTable, SlowdownTable
from laggard.simulator.network.changes import Change
from tests.cases import yaml_table

PLAIN = """
cluster:
  workers: 3
  compute: {law: gamma, mean: 1.0, cv: 0.5}
  network: {bandwidth: 10, latency: 0.25, message_bytes: 5}
task: {model: timing}
stop: {updates: 40}
"""
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


def write(folder, name):
    path = folder / "plain.yaml"
    path.write_text(
        PLAIN.replace("message_bytes: 5", f"message_bytes: 5, changes: {{file: {name}}}")
    )
    return path


@pytest.mark.parametrize("name", ["net.csv", "stars.csv", "net.parquet"])
def test_table_of_changes_gives_rows_to_network(name, tmp_path):
    TABLE.to_csv(tmp_path / "net.csv", index=False)
    stars = TABLE.assign(sender=["0", "-1", "*", "*"], receiver=["-1", "*", "2", ""])
    stars.to_csv(tmp_path / "stars.csv", index=False)
    TABLE.to_parquet(tmp_path / "net.parquet")
    cluster = RunSpec(load(write(tmp_path, name))).arguments()["cluster"]
    assert list(cluster.network.changes.rows) == ROWS


TABLES = yaml_table(__file__, "broken_tables.yaml")
ROWS_REFUSED = [(kind, row) for kind, table in TABLES.items() for row in table["rows"]]
NAMES = {"slowdowns": "slowdowns: [{file: %s}]", "changes": "network: {changes: {file: %s}}"}


def config_with(folder, kind, name, content):
    """A config in `folder` with a table beside it, if there is content."""
    if content is not None:
        (folder / name).write_text(content)
    path = folder / "plain.yaml"
    cluster = f"cluster: {{workers: 3, {NAMES[kind] % name}}}"
    path.write_text(f"{cluster}\ntask: {{model: timing}}\nstop: {{updates: 40}}\n")
    return path


def refusal(folder, kind, name, content, mistake):
    """What `validate` says of a table, after the config and the key."""
    path = config_with(folder, kind, name, content)
    message = mistake("validate", path)
    place = f"{path}: {TABLES[kind]['key']}: "
    assert message.startswith(place)
    return message.removeprefix(place)


@pytest.mark.parametrize(("kind", "row"), ROWS_REFUSED)
def test_broken_row_gives_one_line_error(kind, row, tmp_path, mistake):
    table = TABLES[kind]
    content = f"{table['columns']}\n{table['valid']}\n{row}\n"
    message = refusal(tmp_path, kind, "table.csv", content, mistake)
    assert message.startswith(f"{table['rows'][row]}, got ")


ONE_CRASH = "worker,from,to,factor\n0,0.5,,down\n1,1,3,2\n"


@pytest.mark.parametrize(
    "content",
    [
        ONE_CRASH.replace("down", "Down"),
        ONE_CRASH.replace(",,", ",NA,"),
        ONE_CRASH.replace(",,", ",inf,"),
        "rank,start,until,factor\n0.0,0.5,,down\n1.0,1.0,3.0,2.0\n",
        "worker,fromMs,to (min),factor\nworker0,500,,down\nworker1,1000,0.05,2\n",
        "worker,from,to,factor\nrank 0,500 ms,,down\nrank 1,1 s,3000 ms,2\n",
    ],
)
@pytest.mark.filterwarnings("ignore:.* is read in")
def test_spellings_of_slowdown_table_are_equivalent(content, tmp_path):
    path, plain = tmp_path / "table.csv", tmp_path / "plain.csv"
    path.write_text(content)
    plain.write_text(ONE_CRASH)
    assert SlowdownTable(str(path)).rows == SlowdownTable(str(plain)).rows


def test_names_that_may_count_from_one_are_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("worker,from,to,factor\nworker1,0,1,2\nworker2,0,1,2\n")
    with pytest.raises(InvalidSettingError, match="count from 0 or 1"):
        SlowdownTable(str(path))


def test_partition_takes_names_and_no_sample_twice(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("worker,sample\nclient-1,0.0\nclient-0,1\n")
    assert PartitionTable(str(path)).rows.tolist() == [[1, 0], [0, 1]]
    path.write_text("worker,sample\n0,1\n0,01\n")
    with pytest.raises(InvalidSettingError, match="each row once"):
        PartitionTable(str(path))


@pytest.mark.parametrize("content", ["", "x,y\n1,2\n", "COLUMNS\n", "\x00\n", None])
@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("kind", TABLES)
def test_file_without_table_gives_one_line_error(kind, name, content, tmp_path, mistake):
    if content is not None:
        content = content.replace("COLUMNS", TABLES[kind]["columns"])
    assert refusal(tmp_path, kind, name, content, mistake).startswith("expected ")
