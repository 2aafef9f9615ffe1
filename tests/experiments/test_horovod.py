"""Horovod's timelines with known times are read back; broken ones are one line."""

import json
import random
import warnings

import numpy as np
import pandas as pd
import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.real.horovod import fit_network, read_timeline

SECONDS = np.array([[0.25, 0.5, 0.125], [0.375, 0.25, 0.75], [0.5, 0.5, 0.5]])
"""Of three workers at three steps."""
ALPHA, BETA = 2**-7, 2**-20
LAYERS = {"conv": [8, 512], "dense": [3, 1024]}
"""Shapes of tensors of four bytes, the first ready last."""


def ring_seconds(workers, size):
    return 2 * (workers - 1) * (ALPHA + size / workers * BETA)


def timeline(seconds=SECONDS, layers=LAYERS, fused=True, sizes=True, extra=()):
    """The events of a training whose first step, of unknown start, is one of a second."""
    events = [{"name": "process_name", "ph": "M", "pid": 9, "args": {"name": "rank 0"}}]
    for track, name in enumerate([*layers, *extra]):
        metadata = {"name": "process_name", "ph": "M", "pid": track, "args": {"name": name}}
        events.append(metadata)
    workers, now = len(seconds), 0.0
    names = [*layers]
    bytes_of = [4 * int(np.prod(shape)) for shape in layers.values()]
    for step in [np.ones(workers), *seconds.T]:
        ready = {track: now + step for track in range(len(names))}
        for track, moments in ready.items():
            events.append(event("B", track, moments.min(), "NEGOTIATE_ALLREDUCE"))
            for rank in np.argsort(moments, kind="stable"):
                events.append({**event("X", track, moments[rank], str(rank)), "dur": 0})
            events.append(event("E", track, moments.max()))
        now = max(moments.max() for moments in ready.values())
        groups = [range(len(names))] if fused else [[track] for track in range(len(names))]
        for group in groups:
            end = now + ring_seconds(workers, sum(bytes_of[track] for track in group))
            for track in group:
                events += [event("B", track, now, "ALLREDUCE"), event("B", track, now, "QUEUE")]
                events += [event("E", track, now), event("B", track, now, "NCCL_ALLREDUCE")]
                shape = str(layers[names[track]]) if sizes else ""
                end_event = event("E", track, end)
                end_event["args"] = {"dtype": "float32", "shape": shape}
                events += [event("E", track, end), end_event]
            now = end
    for track, _ in enumerate(extra, len(names)):
        events += [event("B", track, 0, "NEGOTIATE_ALLREDUCE"), event("E", track, 1)]
        events += [event("B", track, 1, "ALLREDUCE"), event("E", track, 2)]
    return events


def event(phase, track, seconds, name=None):
    result = {"ph": phase, "pid": track, "ts": seconds * 1e6}
    if name is not None:
        result["name"] = name
    return result


def write(path, events):
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + ",\n")  # Horovod closes no array
    return path


pytestmark = pytest.mark.filterwarnings("ignore:.*repaired")


@pytest.mark.parametrize("fused", [True, False])
def test_compute_times_and_sums_are_read_back(tmp_path, fused):
    read = read_timeline(write(tmp_path / "t.json", timeline(fused=fused)))
    table = read.steps.pivot(index="worker", columns="step", values="seconds")
    np.testing.assert_allclose(table.to_numpy(), SECONDS, rtol=1e-9)
    sizes = [4 * int(np.prod(shape)) for shape in LAYERS.values()]
    assert read.step_bytes == sum(sizes)
    expected = [sum(sizes)] if fused else sizes
    assert read.reductions["bytes"].tolist() == expected * 3
    times = [ring_seconds(3, size) for size in expected] * 3
    np.testing.assert_allclose(read.reductions["seconds"], times, rtol=1e-6)


def test_ring_is_fitted_to_sums_of_several_sizes(tmp_path):
    network = fit_network(read_timeline(write(tmp_path / "t.json", timeline(fused=False))))
    assert network["latency"] == pytest.approx(ALPHA, rel=1e-4)
    assert network["bandwidth"] == pytest.approx(1 / BETA, rel=1e-4)


def test_timeline_without_sizes_gives_only_compute_times(tmp_path):
    read = read_timeline(write(tmp_path / "t.json", timeline(sizes=False)))
    assert (read.step_bytes, fit_network(read)) == (None, {})


def test_imported_timeline_is_replayed(tmp_path, capsys):
    """Steps of one sum of all tensors: they end when they did."""
    path = write(tmp_path / "t.json", timeline())
    out = tmp_path / "imported"
    assert main(["import", "horovod", str(path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("3 workers, 3 steps ")
    result = run(load(out / "cluster.yaml"), tmp_path / "results")
    steps = np.unique(result.updates["time"].round(9))
    size = sum(4 * int(np.prod(shape)) for shape in LAYERS.values())
    expected = np.cumsum(SECONDS.max(0) + ring_seconds(3, size))
    np.testing.assert_allclose(steps, expected, rtol=1e-6)
    assert len(pd.read_csv(out / "compute.csv")) == SECONDS.size


def test_tensor_outside_of_steps_is_reported(tmp_path):
    path = write(tmp_path / "t.json", timeline(extra=["metric"]))
    with pytest.warns(UserWarning, match="not summed in each step, and left out: metric"):
        read = read_timeline(path)
    assert len(read.steps) == SECONDS.size


@pytest.mark.parametrize("summed", [1, 2, 3, 4])
def test_timeline_omits_only_its_unfinished_step(tmp_path, summed):
    layers = {f"layer {number}": [8, 64] for number in range(5)}
    events = timeline(layers=layers, fused=False)
    ends = [place for place, item in enumerate(events) if item["ph"] == "E" and "args" in item]
    cut = events[: ends[summed - 1 - len(layers)] + 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*repaired")
        read = read_timeline(write(tmp_path / "t.json", cut))
    table = read.steps.pivot(index="worker", columns="step", values="seconds")
    np.testing.assert_allclose(table.to_numpy(), SECONDS[:, :2], rtol=1e-9)
    assert read.step_bytes == 5 * 4 * 8 * 64


def without_rank(events):
    """Rank 2's tick of the last step is missing."""
    last = max(place for place, item in enumerate(events) if item.get("name") == "2")
    return events[:last] + events[last + 1 :]


def late(events):
    """The second step is ready before the first is summed."""
    return [{**item, "ts": 0.0} if item["ph"] == "X" else item for item in events]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "not a timeline of Horovod"),
        ([{"ph": "X", "name": "ProfilerStep#1", "ts": 0, "dur": 1}], "not a timeline of Horovod"),
        (timeline(SECONDS[:, :0]), "at least two steps"),
        (without_rank(timeline()), r"ranks \[0, 1, 2\] in step 3, got \[0, 1\]"),
        (late(timeline()), "ready after step"),
        ([{**item, "ts": "soon"} for item in timeline()], "microseconds >= 0 as ts"),
    ],
)
def test_broken_timeline_gives_one_line_error(tmp_path, events, reason):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events))
    with pytest.raises(ConfigError, match=reason) as refused:
        read_timeline(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def read_or_refuse(path):
    try:
        return read_timeline(path).steps
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return None


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(1000, 3000), marks=pytest.mark.slow)], ids=len
)
def test_truncated_timelines_give_steps_or_one_line(tmp_path, seeds):
    """A timeline that was cut anywhere gives its first steps, or one line."""
    for seed in seeds:
        rng = random.Random(seed)
        shape = rng.randrange(1, 4), rng.randrange(1, 5)
        seconds = np.array([rng.randrange(1, 64) / 64 for _ in range(shape[0] * shape[1])])
        seconds = seconds.reshape(shape)
        path = write(tmp_path / f"{seed}.json", timeline(seconds, fused=rng.random() < 0.5))
        if seed % 2:
            text = path.read_text()
            path.write_text(text[: rng.randrange(len(text))])
        table = read_or_refuse(path)
        if table is None:
            assert seed % 2
            continue
        found = table.pivot(index="worker", columns="step", values="seconds").to_numpy()
        np.testing.assert_allclose(found, seconds[: len(found), : found.shape[1]], rtol=1e-6)
        assert seed % 2 or found.shape == shape
