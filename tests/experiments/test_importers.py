"""What other programs have recorded, read back and replayed; broken files are one line."""

import gzip
import json
import random
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.real.importers import chrome_steps
from tests.experiments.test_recordings import BROKEN

SECONDS = np.array([[0.25, 0.5, 0.125], [0.375, 0.25, 0.75]])
"""Of two workers at three steps: sums of powers of two, so that no clock rounds them."""


def chrome(worker, rank=True, first=0):
    """A trace as PyTorch's profiler writes it for one worker, with its GPU's track."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    start = 5e6
    for step, seconds in enumerate(SECONDS[worker], first):
        own = {
            "ph": "X",
            "name": f"ProfilerStep#{step}",
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": seconds * 1e6,
        }
        events += [
            {**own, "cat": "user_annotation"},
            {**own, "cat": "gpu_user_annotation", "dur": 1.0},
            {**own, "cat": "cpu_op", "name": "aten::add", "dur": 2.0},
        ]
        start += seconds * 1e6
    order = events[::-1] if worker else events
    return {**({"distributedInfo": {"rank": worker}} if rank else {}), "traceEvents": order}


def straggler_analysis(**columns):
    """Two data-parallel ranks with two stages: the first computes from the start, the second to the
    end.
    """
    rows = []
    for (worker, step), seconds in np.ndenumerate(SECONDS):
        begin = 100.0 + 8 * step
        for stage, optype, start, lasts in [
            (0, "params-all-gather", begin - 2, 2.0),
            (0, "forward-compute", begin, seconds / 4),
            (1, "forward-compute", begin + seconds / 4, seconds / 8),  # and waits
            (1, "backward-compute", begin + seconds / 2, seconds / 8),
            (0, "backward-compute", begin + 5 * seconds / 8, 3 * seconds / 8),
            (0, "grads-reduce-scatter", begin + seconds, 3.0),
        ]:
            rows.append((worker, step, stage, 2 * stage + worker, optype, start, lasts))
    names = ["dp_rank", "step", "stage", "rank", "optype", "start_ts", "duration"]
    table = pd.DataFrame(rows, columns=names)
    return table.sample(frac=1, random_state=0).assign(**columns)


def write(path, content):
    """A file in the format that its name says."""
    if path.suffix == ".parquet":
        content.to_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def by_worker(steps):
    return [own["seconds"].tolist() for _, own in steps.groupby("worker")]


@pytest.mark.filterwarnings("ignore:no file says its rank")
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("rank", [True, False])
def test_steps_of_chrome_traces_are_read_back(tmp_path, suffix, rank):
    paths = [
        write(tmp_path / f"{name}{suffix}", chrome(worker, rank))
        for worker, name in enumerate("ab")
    ]
    steps = chrome_steps(paths)
    assert list(steps.columns) == ["worker", "step", "seconds"]
    assert by_worker(steps) == SECONDS.tolist()
    assert by_worker(chrome_steps(paths[::-1])) == SECONDS.tolist()


def profiled(seconds, **top):
    """The text of a trace with steps of these seconds."""
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": 7.0,
            "dur": 1e6 * s,
        }
        for step, s in enumerate(seconds)
    ]
    return json.dumps({"traceEvents": events, **top})


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("name", ["rank{}", "host-{}.pt.trace", "{}"])
def test_files_without_ranks_are_taken_in_natural_order(tmp_path, name, width):
    order = [10, 2, 0, 11, 1, 9, 3, 8, 4, 7, 5, 6]
    paths = [tmp_path / f"{name.format(f'{rank:0{width}d}')}.json" for rank in order]
    for rank, path in zip(order, paths, strict=True):
        path.write_text(profiled([(rank + 1) / 64]))
    assert by_worker(chrome_steps(paths)) == [[(rank + 1) / 64] for rank in range(12)]


def test_number_in_name_other_than_rank_is_reported(tmp_path):
    paths = [write(tmp_path / f"rank{number}.json", profiled([0.5])) for number in (1, 2)]
    with pytest.warns(UserWarning, match=r"rank1.json is 0, rank2.json is 1"):
        chrome_steps(paths)


def test_world_size_other_than_file_count_is_reported(tmp_path):
    info = {"rank": 0, "world_size": 2}
    path = write(tmp_path / "a.json", profiled([0.5], distributedInfo=info))
    with pytest.warns(UserWarning, match="world_size is 2, but 1"):
        chrome_steps([path])


def pairs(seconds):
    """The text of a trace whose steps are pairs of a begin and an end, with others between."""
    events = []
    for step, s in enumerate(seconds):
        start = 1e7 * step
        events += [
            {"ph": "B", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": start},
            {"ph": "B", "name": "forward", "pid": 1, "tid": 1, "ts": start},
            {"ph": "E", "pid": 1, "tid": 1, "ts": start + 1},
            {"ph": "E", "pid": 1, "tid": 1, "ts": start + 1e6 * s},
        ]
    return json.dumps(events)


CALL_STACK = '{"ph": "X", "args": {"Call stack": "src\\data\\unit\\x.py"}},'
DAMAGED = {
    "backslashes": lambda text: text.replace(
        "[", "[" + CALL_STACK.replace("\\\\", "\\"), 1
    ).encode(),
    "Latin-1": lambda text: text.replace("{", '{"traceName": "caf\u00e9", ', 1).encode("latin-1"),
    "line end in a string": lambda text: text.replace("{", '{"note": "a\nb", ', 1).encode(),
    "trailing comma": lambda text: text.replace("]", ", ]").encode(),
    "no end": lambda text: text[: text.rindex("]")].encode(),
    "comma and no end": lambda text: (text[: text.rindex("]")] + ",\n").encode(),
    "cut within an event": lambda text: (text[: text.rindex("]")] + ', {"ph": "X", "na').encode(),
}


@pytest.mark.filterwarnings("ignore:.*repaired")
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_trace_gives_its_whole_events(tmp_path, damage):
    path = tmp_path / "a.json"
    path.write_bytes(DAMAGED[damage](profiled([0.5, 0.25])))
    assert by_worker(chrome_steps([path])) == [[0.5, 0.25]]


def test_repairs_are_reported(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(DAMAGED["no end"](profiled([0.5])))
    with pytest.warns(UserWarning, match="repaired a missing end"):
        chrome_steps([path])


@pytest.mark.filterwarnings("ignore:.*repaired")
@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(1000, 3000), marks=pytest.mark.slow)], ids=len
)
def test_truncated_traces_give_steps_or_one_line(tmp_path, seeds):
    """A trace that was cut anywhere gives a part of its steps, or one line."""
    for seed in seeds:
        rng = random.Random(seed)
        seconds = [rng.randrange(1, 64) / 64 for _ in range(rng.randrange(1, 9))]
        text = rng.choice([profiled, pairs])(seconds)
        path = tmp_path / f"{seed}.json"
        cut = len(text)
        if seed % 2:
            cut = rng.randrange(len(text))
        path.write_text(text[:cut])
        steps = read_or_refuse(path)
        assert steps == seconds[: len(steps)]
        assert seed % 2 or len(steps) == len(seconds)


def read_or_refuse(path):
    try:
        return chrome_steps([path])["seconds"].tolist()
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return []


def test_steps_of_all_workers_are_kept(tmp_path):
    paths = [
        write(tmp_path / f"{worker}.json", chrome(worker, first=10 + worker)) for worker in range(2)
    ]
    steps = chrome_steps(paths)
    assert steps["step"].tolist() == [11, 12, 11, 12]
    assert by_worker(steps) == [SECONDS[0, 1:].tolist(), SECONDS[1, :2].tolist()]


PROFILED = """
import sys
from torch.profiler import ProfilerActivity, profile, schedule

with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3)) as profiler:
    for _ in range(5):
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
print(*[one.time_range.elapsed_us() / 1e6 for one in profiler.events() if "ProfilerStep" in one.name])
"""


@pytest.mark.slow
def test_trace_written_by_pytorch_is_read(tmp_path):
    """A subprocess writes it: the profiler crashes a process whose threads have computed
    gradients.
    """
    path = tmp_path / "trace.json"
    call = [sys.executable, "-c", PROFILED, str(path)]
    output = subprocess.run(call, capture_output=True, text=True, check=True, timeout=120).stdout
    steps = chrome_steps([path])
    assert steps["step"].tolist() == [2, 3, 4]
    assert steps["seconds"].tolist() == pytest.approx([float(word) for word in output.split()])


@pytest.mark.parametrize("form", ["chrome", "straggler-analysis"])
def test_imported_recording_is_replayed(tmp_path, capsys, form):
    """A synchronous step takes as long as the slowest worker's."""
    if form == "chrome":
        paths = [write(tmp_path / f"{worker}.json", chrome(worker)) for worker in range(2)]
    else:
        paths = [write(tmp_path / "trace.parquet", straggler_analysis())]
    out = tmp_path / "imported"
    assert main(["import", form, *map(str, paths), "--out", str(out)]) == 0
    first, config, *_, following = capsys.readouterr().out.splitlines()
    assert following == f"Next: laggard run {config}"
    assert first.startswith("2 workers, 3 steps ")
    assert config == f"{out}/cluster.yaml"
    assert by_worker(pd.read_csv(out / "compute.csv")) == SECONDS.tolist()
    result = run(load(out / "cluster.yaml"), tmp_path / "results")
    steps = np.unique(result.updates["time"])
    assert steps.tolist() == np.cumsum(SECONDS.max(0)).tolist()


@pytest.fixture
def refusal(mistake, tmp_path):
    """Imports what cannot be: returns the one line that refuses it, and nothing is written."""

    def call(*words):
        error = mistake("import", *words, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return error

    return call


def bounds(name, begin, end, named=True):
    """The begin and the end of an event as two events."""
    label = {"name": name} if named else {}
    first = {"ph": "B", "name": name, "pid": 1, "tid": 1, "ts": begin}
    return [first, {"ph": "E", "pid": 1, "tid": 1, "ts": end, **label}]


STEP, OTHER = bounds("ProfilerStep#0", 0, 5e5), bounds("optimizer", 1e5, 6e5)


@pytest.mark.parametrize(
    "events",
    [
        [STEP[0], OTHER[0], STEP[1], OTHER[1]],  # not nested, but named
        [STEP[1], OTHER[1], OTHER[0], STEP[0]],  # not in the order of their times
        bounds("ProfilerStep#0", 0, 5e5, named=False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_begins_and_ends_pair_by_time_and_name(tmp_path, events, encoding):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(events), encoding=encoding)
    assert chrome_steps([path])["seconds"].tolist() == [0.5]


HUGE = f"1{400 * '0'}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 200_000, "a.json: expected a Chrome trace in JSON: "),
        (profiled([0.5]).replace("500000.0", HUGE), "ProfilerStep#0: expected microseconds > 0"),
    ],
    ids=["deep", "huge"],
)
def test_trace_of_extremes_gives_one_line_error(content, message, tmp_path, refusal):
    """`mistakes.yaml` has the other broken traces."""
    assert message in refusal("chrome", write(tmp_path / "a.json", content))


def test_files_of_different_runs_are_refused(tmp_path, refusal):
    def refused(*traces):
        paths = [
            str(write(tmp_path / f"{name}.json.gz", trace))
            for name, trace in zip("ab", traces, strict=False)
        ]
        return refusal("chrome", *paths)

    assert "b.json.gz: distributedInfo.rank: expected " in refused(chrome(0), chrome(1, rank=False))
    assert "a.json.gz: distributedInfo.rank: expected " in refused(chrome(0), chrome(0))
    assert "step: expected a step that all workers have, got none" in refused(
        chrome(0), chrome(1, first=7)
    )
    (tmp_path / "a.json.gz").write_bytes((tmp_path / "a.json.gz").read_bytes()[:-20])
    truncated = refusal("chrome", tmp_path / "a.json.gz")
    assert "a.json.gz: cannot be read: a damaged archive" in truncated
    missing = refusal("chrome", tmp_path / "none.json")
    assert missing == f"{tmp_path}/none.json: cannot be read: No such file or directory\n"
    two = refusal("straggler-analysis", "a", "b")
    assert two == "laggard import straggler-analysis: expected one file, got 2\n"


@pytest.mark.parametrize(("changes", "message"), BROKEN["stragglers"])
def test_broken_table_gives_one_line_error(changes, message, tmp_path, refusal):
    lacking = [name for name, value in changes.items() if value is None]
    table = straggler_analysis(**changes).drop(columns=lacking)
    path = write(tmp_path / "trace.parquet", table)
    assert refusal("straggler-analysis", path).startswith(f"{path}: {message}")


def test_truncated_table_gives_one_line_error(tmp_path, refusal):
    path = write(tmp_path / "trace.parquet", straggler_analysis())
    path.write_bytes(path.read_bytes()[:-30])
    line = refusal("straggler-analysis", path)
    assert line.startswith(f"{path}: expected a Parquet table: ")
