"""One reader for tables: every dialect gives the same table, and no second reading is guessed."""

import bz2
import gzip
import lzma
import random
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.timing.distributions import Trace
from laggard.simulator.timing.distributions.trace_file import read_rows
from laggard.simulator.timing.tables import read_foreign_table, to_unit

COMPRESS = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]
SEPARATORS = [",", ";", "\t", "|", " "]


def write(path: Path, rng: random.Random, rows: list[tuple[int, float]]) -> Path:
    """Write ranks and seconds in a random dialect; return the file."""
    separator = rng.choice(SEPARATORS)
    decimal = rng.choice([".", ","])
    quoted = separator == "," and decimal == ","
    # repr has at least one decimal, so that no comma can stand between thousands
    lines = [separator.join(["worker", "seconds"])]
    for rank, seconds in rows:
        number = f"{seconds:.5f}".replace(".", decimal)
        cell = f'"{number}"' if quoted else number
        lines.append(separator.join([str(rank), cell]))
    if rng.random() < 0.3:
        lines.insert(0, "# recorded today")
    if rng.random() < 0.3:
        lines.insert(rng.randrange(1, len(lines)), "")
    text = rng.choice(["\n", "\r\n"]).join(lines) + "\n" * rng.randrange(3)
    suffix = rng.choice(list(COMPRESS))
    path = path.with_name(path.name + suffix)
    path.write_bytes(COMPRESS[suffix](text.encode(rng.choice(ENCODINGS))))
    return path


def random_rows(rng: random.Random) -> list[tuple[int, float]]:
    """Rows of 1 to 5 workers with seconds of five decimals."""
    workers = rng.randrange(1, 6)
    ranks = [*range(workers), *(rng.randrange(workers) for _ in range(rng.randrange(20)))]
    rng.shuffle(ranks)
    return [(rank, rng.randrange(1, 10**6) / 1e5) for rank in ranks]


SEEDS = pytest.mark.parametrize(
    "seeds", [range(150), pytest.param(range(1000, 2000), marks=pytest.mark.slow)]
)


@SEEDS
def test_random_dialects_give_the_same_rows(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        rows = random_rows(rng)
        path = write(tmp_path / f"{seed}.csv", rng, rows)
        trace = Trace(str(path), worker="worker")
        for rank, seconds in trace.by_rank.items():
            expected = [value for owner, value in rows if owner == rank]
            np.testing.assert_allclose(seconds, expected, rtol=1e-12)


def break_table(path: Path, rng: random.Random) -> None:
    """Plant a fault in a table of plain text."""
    lines = path.read_text().splitlines()
    row = rng.randrange(1, len(lines))
    rank, seconds = lines[row].split(",")
    faults = [
        f"{rank},-{seconds}",
        f"{rank},nan",
        f"{rank},",
        f"{rank},fast",
        f"{rank},{seconds},7",
        f"-1,{seconds}",
        f"one,{seconds}",
        f",{seconds}",
        f"{rank}.5,{seconds}",
        f"{rank},1_000",
        f"{rank},0x10",
    ]
    lines[row] = rng.choice(faults)
    path.write_text("\n".join(lines))


@SEEDS
def test_broken_tables_are_refused_in_one_line(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.csv"
        # a second row keeps the column of ranks one of numbers
        rows = [(0, 1.5), (0, 2.5), *random_rows(rng)]
        path.write_text("worker,seconds\n" + "".join(f"{a},{b}\n" for a, b in rows))
        break_table(path, rng)
        with pytest.raises(InvalidSettingError) as caught:
            Trace(str(path), worker="worker")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "unit", "seconds"),
    [
        ("duration", None, 5.0),
        ("duration", "ms", 0.005),
        ("duration (ms)", "ms", 0.005),
        ("t[us]", "us", 5e-6),
        ("time_ns", "ns", 5e-9),
        ("step_time_s", None, 5.0),
        ("durationMs", None, 0.005),
        ("elapsedMillis", None, 0.005),
        ("ms", None, 0.005),
        ("ms_per_step", None, 0.005),
        ("step time (ms/batch)", None, 0.005),
        ("t / ms", None, 0.005),
        ("time_ms_mean", None, 0.005),
        ("seconds_per_step", None, 5.0),
        ("duration_days", None, 432000.0),
        ("time_min", "s", 5.0),
    ],
)
@pytest.mark.filterwarnings("ignore:.* is read in")
def test_key_and_column_name_give_unit(tmp_path, name, unit, seconds):
    path = tmp_path / "a.csv"
    path.write_text(f"{name}\n5\n")
    assert Trace(str(path), unit=unit).mean == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "quantity", "factor"),
    [
        ("bandwidthMbps", "bandwidth", 1.25e5),
        ("linkBandwidthGiBps", "bandwidth", 2.0**30),
        ("bandwidth_MB_s", "bandwidth", 1e6),
        ("bandwidth_mbps", "bandwidth", 1.25e5),
        ("bandwidth (Gbit/s)", "bandwidth", 1.25e8),
        ("bandwidth_MBps", "bandwidth", 1e6),
        ("rate_bytes_per_s", "bandwidth", 1.0),
        ("size_KiB", "size", 1024.0),
        ("items", "time", 1.0),
        ("terms", "time", 1.0),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_unit_gives_factor_of_its_quantity(tmp_path, name, quantity, factor):
    path = tmp_path / "a.csv"
    path.write_text(f"{name}\n5\n")
    assert to_unit(read_foreign_table("Trace", path), 0, quantity) == pytest.approx(factor)


PREFIXES = ["worker", "node-", "gpu host ", "w0."]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.filterwarnings("ignore:.*ranks by")
def test_names_of_workers_are_ranked_in_natural_order(tmp_path, prefix, width):
    order = random.Random(3).sample(range(12), 12)
    rows = [f"{prefix}{rank:0{width}d},{(rank + 1) / 100}" for rank in order]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["worker,seconds", *rows]))
    by_rank = Trace(str(path), worker="worker").by_rank
    assert {rank: seconds.tolist() for rank, seconds in by_rank.items()} == {
        rank: [(rank + 1) / 100] for rank in range(12)
    }


@pytest.mark.parametrize(
    "text",
    [
        "t\n500 ms\n1.25 s\n",  # each cell has its unit
        '"","t"\n"1",0.5\n"2",1.25\n',  # R's write.csv
        '"t" "u"\n"1" 0.5 "a b"\n"2" 1.25 "c"\n',  # R's write.table
        '"t";"u"\n"x";0,5;"a"\n"y";1,25;"b"\n',  # R's write.csv2 without its first name
        ",t\n0,0.5\n1,1.25\n",  # an index of pandas
        't,note\n0.5,"two\nlines"\n1.25,"one, ""quoted"""\n',
        "t,\n0.5,\n1.25,\n",  # a separator at the end of each line
        "t,note\n0.5,a\u2028b\n1.25,c\x85\x0bd\n",  # line ends of Unicode within cells
    ],
)
def test_tables_of_other_tools_are_read(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    assert read_rows(path, "t", None, None).seconds.tolist() == [0.5, 1.25]


def test_columns_of_workers_stand_beside_counters(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Unnamed: 0,Epoch,iter,gpu10,gpu2\n0,0,0,0.5,0.25\n")
    rows = read_rows(path, None, "columns", None)
    assert dict(zip(rows.ranks.tolist(), rows.seconds.tolist(), strict=True)) == {1: 0.5, 0: 0.25}


def test_rank_other_than_number_in_name_is_reported(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("worker,seconds\nn1,0.1\nn2,0.2\n")
    with pytest.warns(UserWarning, match="n1 is 0, n2 is 1"):
        Trace(str(path), worker="worker")


@pytest.mark.parametrize("worker", [None, "columns"])
@pytest.mark.parametrize("heading", ["rank{}", "worker {}", "Worker-{}"])
def test_column_for_each_worker_is_read(tmp_path, worker, heading):
    names = ["step", *(heading.format(rank) for rank in (10, 9, *range(9)))]
    path = tmp_path / "a.csv"
    rows = [[step, *(f"{step}.{rank:02d}" for rank in (10, 9, *range(9)))] for step in (1, 2)]
    path.write_text("\n".join(",".join(map(str, row)) for row in (names, *rows)))
    by_rank = Trace(str(path), worker=worker).by_rank
    assert by_rank[10].tolist() == [1.1, 2.1]
    assert by_rank[2].tolist() == [1.02, 2.02]
    assert len(by_rank) == 11


def test_second_column_of_a_worker_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("worker0_ms,worker1_ms,worker0_s\n500,250,1\n")
    with pytest.raises(InvalidSettingError, match="a second column of worker0"):
        Trace(str(path))


def test_names_in_comment_above_numbers_are_read(tmp_path):
    path = tmp_path / "a.txt"
    np.savetxt(path, [[0, 0.5], [1, 0.25]], header="worker seconds")
    assert Trace(str(path), worker="worker").by_rank[1].tolist() == [0.25]


def test_parquet_is_recognised_by_content(tmp_path):
    path = tmp_path / "a.dat"
    parquet.write_table(pa.table({"rank": [0.0, 1.0], "seconds": [0.5, 0.25]}), path)
    assert Trace(str(path), worker="worker").by_rank[1].tolist() == [0.25]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"seconds\n1\n" * 99)[:-9], "damaged archive"),
        (lzma.compress(b"seconds\n1\n" * 99)[:-30], "damaged archive"),
        (bytes([0x28, 0xB5, 0x2F, 0xFD]) + b"...", "zstd"),
        (b"\xd0\xcf\x11\xe0...", "Excel"),
        (b"PAR1...", "Parquet|magic"),
        (b"\x80\x05...", "pickle"),
        (b"ARROW1..", "Arrow"),
        (b"", "empty"),
    ],
    ids=["gzip", "xz", "zstd", "excel", "parquet", "pickle", "arrow", "nothing"],
)
def test_damaged_or_foreign_files_are_named(tmp_path, content, reason):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidSettingError, match=reason) as caught:
        read_foreign_table("Trace", path)
    assert "\n" not in str(caught.value)


def test_zip_is_read_only_with_one_file(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "seconds\n0.5\n")
    assert Trace(str(path)).mean == 0.5
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("b.csv", "seconds\n0.5\n")
    with pytest.raises(InvalidSettingError, match="2 files"):
        Trace(str(path))


def test_folders_and_pipes_are_refused(tmp_path):
    with pytest.raises(InvalidSettingError, match="a folder"):
        read_foreign_table("Trace", tmp_path)
    with pytest.raises(InvalidSettingError, match="regular"):
        read_foreign_table("Trace", "/dev/zero")
