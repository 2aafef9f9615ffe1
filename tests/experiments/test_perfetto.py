"""Traces: they keep the format's rules, whatever the method, and say what happened when."""

import gzip
import json

import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config.grid import runs
from laggard.experiments.perfetto import WHOLE_RUN, events, write_trace
from laggard.experiments.results.result import TimeWindow
from tests.cases import ROOT
from tests.experiments.trace_format import broken

SERVERS = ("async_ps", "downpour", "sync_ps_shards", "k_sync_crash", "local_sgd")
METHODS = (*SERVERS, "gpipe", "async_pipelines", "pipedream", "adpsgd", "all_reduce_ring")
LINE = """\
# One worker, a second a gradient, a model in 0.75 s.
cluster: {workers: 1, compute: {law: constant, mean: 1.0}, network: {bandwidth: 100, latency: 0.25, message_bytes: 50}}
task: {model: quadratic, dim: 2}
stop: {updates: 2}
record: {messages: true}
"""


def traced(result, window=WHOLE_RUN):
    return list(events(result, window))


def tracks(found):
    """Process and thread by the names of both."""
    process = {
        event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"
    }
    threads = [event for event in found if event["name"] == "thread_name"]
    return {
        (process[event["pid"]], event["args"]["name"]): (event["pid"], event["tid"])
        for event in threads
    }


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    (folder / "line.yaml").write_text(LINE, encoding="utf-8")
    return run(load(folder / "line.yaml"), folder)


def test_one_workers_trace_follows_arithmetic(line):
    """Weights arrive at 1 s, a gradient is done at 2 and there at 2.75; the next 1.75 s after the
    weights at 3.5.
    """
    found = traced(line)
    assert broken(json.dumps({"traceEvents": found})) == []
    where = tracks(found)
    slices = [event for event in found if event["ph"] == "X"]

    def on(process, thread):
        own = [event for event in slices if (event["pid"], event["tid"]) == where[process, thread]]
        return [(event["name"], event["ts"] / 1e6, event["dur"] / 1e6) for event in own]

    to, back = "gradient to server", "gradient from worker 0"
    assert on("worker 0", "computing") == [
        ("gradient, staleness 0", 1.0, 1.0),
        ("gradient, staleness 0", 3.5, 1.0),
    ]
    assert on("worker 0", "up link") == [
        ("token to server", 0.0, 0.25),
        (to, 2.0, 0.75),
        (to, 4.5, 0.75),
    ]
    assert on("server", "down link") == [
        ("token from worker 0", 0.0, 0.25),
        (back, 2.0, 0.75),
        (back, 4.5, 0.75),
    ]
    assert on("worker 0", "down link") == [
        ("weights from server", 0.25, 0.75),
        ("weights from server", 2.75, 0.75),
        ("weights from server", 5.25, 0.0),
    ]  # on its way when the run ends
    assert on("server", "updates") == [("update 1", 2.75, 0.0), ("update 2", 5.25, 0.0)]
    (update,) = [event for event in slices if event["name"] == "update 2"]
    assert update["args"] == {
        "version": 2,
        "gradients": 1,
        "workers": 1,
        "mean_staleness": 0.0,
        "max_staleness": 0,
    }
    names = {track: name for name, track in where.items()}
    first = [
        (event["ph"], *names[event["pid"], event["tid"]]) for event in found if event.get("id") == 1
    ]
    way = [
        ("worker 0", "computing"),
        ("worker 0", "up link"),
        ("server", "down link"),
        ("server", "updates"),
    ]
    assert first == [(phase, *stop) for phase, stop in zip("sttf", way, strict=True)]


@pytest.mark.parametrize(
    ("method", "recorded"),
    [
        *((method, True) for method in METHODS),
        *((method, False) for method in ("local_sgd", "pipedream")),
    ],
)
def test_trace_of_any_method_has_valid_format(method, recorded, tmp_path):
    """The methods have shards, stages, crashes, grouped gradients, or models without a server."""
    settings = ["stop={updates: 12, gradients: 100}", f"record.messages={str(recorded).lower()}"]
    config = runs(load(ROOT / "configs" / "methods" / f"{method}.yaml", *settings))[-1].config
    result = run(config, tmp_path)
    write_trace(result, tmp_path / "trace.json")
    assert broken((tmp_path / "trace.json").read_text()) == []
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = [event["cat"] for event in found if event["ph"] == "X"]
    gradients = result.updates.drop_duplicates(["worker", "started", "computed"])
    assert kinds.count("computing") == len(gradients)
    assert kinds.count("up link") == kinds.count("down link") == len(result.messages)
    applied = result.updates[result.updates["status"] == "applied"]
    assert {event["id"] - 1 for event in found if event["ph"] == "f"} >= set(applied.index)
    assert sum(
        event["args"]["gradients"] for event in found if event.get("cat") == "updates"
    ) == len(applied)


def test_window_keeps_events_that_overlap_it(line):
    found = traced(line, TimeWindow(1.5, 3.0))
    assert broken(json.dumps({"traceEvents": found})) == []
    slices = {(event["name"], event["ts"] / 1e6) for event in found if event["ph"] == "X"}
    gradient, weights = (
        ("gradient, staleness 0", 1.0),
        {("weights to worker 0", 2.75), ("weights from server", 2.75)},
    )
    sent = {("gradient to server", 2.0), ("gradient from worker 0", 2.0)}
    assert slices == {gradient, ("update 1", 2.75)} | weights | sent
    assert {event["id"] for event in found if event["ph"] in "stf"} == {1}


def test_recorded_run_without_messages_has_a_trace(toy, tmp_path):
    alone = toy(text=LINE.replace("record", "algorithm: all_reduce\nrecord"))
    result = run(load(alone), tmp_path)
    found = traced(result)
    assert len(result.messages) == 0
    assert broken(json.dumps({"traceEvents": found})) == []
    assert sum(event.get("cat") == "computing" for event in found) == 2


def damage(event, **changes):
    return {key: value for key, value in {**event, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    ("phase", "changes"),
    [
        ("X", {"ts": float("nan")}), ("X", {"ts": -1.0}), ("X", {"dur": ...}), ("X", {"tid": "worker 0"}),
        ("X", {"pid": 2**40}), ("X", {"tid": 99}), ("X", {"name": ""}), ("X", {"dur": 2.2e6}), ("X", {"ph": "Z"}),
        ("M", {"ts": 0}), ("M", {"args": {}}), ("f", {"bp": ...}), ("f", {"id": 77}), ("f", {"ts": 0.0}),
        ("s", {"ph": "t"}), ("t", {"ph": "f", "bp": "e"}), ("s", {"tid": 5}), ("C", {"args": {"loss": "high"}}),
    ],
)  # fmt: skip
def test_checker_finds_planted_faults(line, phase, changes):
    found = traced(line)
    place = next(index for index, event in enumerate(found) if event["ph"] == phase)
    found[place] = damage(found[place], **changes)
    assert broken(json.dumps({"traceEvents": found}))


def test_export_writes_trace_and_warns_without_messages(
    ran,
    tmp_path,
    mistake,
    capsys,
):
    result = ran()
    command = ["export", str(result.path), "--to", "perfetto"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "record.messages=true" in printed.err
    assert printed.out.startswith(f"{result.path / 'trace.json'}: ")
    assert broken((result.path / "trace.json").read_text()) == []
    zipped = tmp_path / "trace.json.gz"
    assert main([*command, str(zipped), "--until", "0.1"]) == 0
    assert broken(gzip.decompress(zipped.read_bytes()).decode()) == []
    capsys.readouterr()
    assert "expected 0 <= --from < --until, got 3 and 2" in mistake(
        *command, "--from", "3", "--until", "2"
    )
