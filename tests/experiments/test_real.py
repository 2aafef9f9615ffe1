"""Real runs: processes of this machine, what their rows say, and how simulations are held against
them.
"""

import heapq
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from laggard import load
from laggard.experiments.cli import main
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.experiments.figures.delays import agreement
from laggard.experiments.real import RealRunError, processes
from laggard.experiments.real.calibration import (
    CLUSTER,
    calibrate_cluster,
    fit_sizes,
    measured_times,
)
from laggard.experiments.real.comparison import (
    compare_real,
    figures,
    imposed_order,
    simulate_times,
    total_variation,
    what_is_missing,
)
from laggard.experiments.real.processes import RealRun, run_real
from tests.cases import ROOT

QUADRATIC = """
cluster: {workers: 2, compute: {law: gamma, mean: 0.01, cv: 0.5}}
task: {model: quadratic, dim: 4, noise: 0.1, dtype: float64}
learning: {lr: 0.05, momentum: 0.5}
stop: {updates: 30}
"""
CONFIGS = sorted((ROOT / "configs/real").glob("*.yaml"))
RATE, WAITING = "updates/s", "waiting"
STALENESS, WEIGHTS = "staleness, total variation", "weights in the order of arrival"
TIMES = {"up": 0.003, "down": 0.002, "receive": 0.004, "apply": 0.005, "reply": 0.0025}


def spec_of(folder, *overrides, text=QUADRATIC):
    config = folder / "real.yaml"
    config.write_text(text)
    return runs(load(config, *overrides))[0]


def timing_spec(folder, *overrides):
    """A server of four workers that learn nothing, as in `known_run`."""
    own = "cluster.workers=4", "algorithm=async_ps", "task={model: timing}", "stop.updates=400"
    return spec_of(folder, *own, *overrides)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "method",
    ["async_ps", pytest.param("sync_ps", marks=SLOW), pytest.param("all_reduce", marks=SLOW)],
)
def test_real_processes_give_weights_of_replayed_simulation(tmp_path, method):
    spec = spec_of(tmp_path, f"algorithm={method}")
    run = run_real(spec)
    rows = run.rows
    assert rows["version"].iloc[-1] + 1 == 30
    assert len(rows) == 30 * (1 if method == "async_ps" else 2)
    order = ["started", "computed", "arrived", "applied", "replied"]
    assert (rows[order].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert (rows["read"] > rows["sent"] - 1e-9).all()
    for _, own in rows.groupby("worker"):  # a server answers with the weights that it has just made
        assert own["version_read"].tolist() == [0, *(own["version"] + 1)][:-1]
    assert np.abs(run.weights).max() > 0.01
    assert imposed_order(run, spec) == pytest.approx(run.weights, abs=1e-12)


@SLOW
def test_worker_sleeps_for_rest_of_drawn_time(tmp_path):
    """Each gradient takes at least its simulated time: the system may wake a process late."""
    from laggard.simulator import simulate

    spec = spec_of(
        tmp_path, "cluster.slowdowns=[{worker: 1, factor: 3.0}]", "cluster.apply_seconds=0.004"
    )
    rows, outcome = run_real(spec).rows, simulate(**spec.arguments())
    for worker in (0, 1):
        simulated = outcome.updates["computed"] - outcome.updates["started"]
        drawn = simulated[outcome.updates["worker"] == worker]
        took = (rows["computed"] - rows["read"])[rows["worker"] == worker].to_numpy()
        known = min(len(drawn), len(took))
        assert known >= 5
        assert (took[:known] >= drawn[:known] - 1e-6).all()
        assert took[:known].sum() < 2 * drawn[:known].sum() + 0.5
    assert (rows["applied"] - rows["arrived"] >= 0.004 - 1e-6).all()


DYING = """
import os, time
from dataclasses import dataclass

@dataclass(frozen=True)
class Ends:
    how: str
    mean = 0.01
    std = 0.0

    def draw(self, rng, n):
        os.kill(os.getpid(), 9) if self.how == "dies" else time.sleep(1000)
"""


@SLOW
@pytest.mark.parametrize(
    ("how", "patience", "said"),
    [("dies", 60.0, "was killed by signal 9"), ("hangs", 15.0, "Timed out")],
)
def test_dead_or_hung_process_ends_run(tmp_path, monkeypatch, how, patience, said):
    # other tests may run processes at the same time
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"ending_{how}.py").write_text(DYING)
    spec = spec_of(tmp_path, f'cluster.compute={{law: "ending_{how}:Ends", how: {how}}}')
    with pytest.raises(RealRunError, match=rf"^a real run: process \d of 3.*{said}[^\n]*$"):
        run_real(spec, patience=patience)
    assert not members_of(str(tmp_path))


def members_of(text):
    """The processes of real runs whose command lines contain `text`."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # the process has ended meanwhile
            continue
        if "laggard.experiments.real.member" in command and text in command:
            found.append(command)
    return found


@SLOW
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="tells processes by /proc")
def test_no_process_outlives_a_killed_command(tmp_path):
    config = tmp_path / "long.yaml"
    config.write_text(QUADRATIC + "algorithm: async_ps\n")
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "laggard",
        "real",
        "calibrate",
        str(config),
        "stop.updates=100000",
        "--out",
        str(tmp_path),
    ]
    parent = subprocess.Popen(command, env=place, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(members_of(str(tmp_path))) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(members_of(str(tmp_path))) == 3
    time.sleep(3)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 30
    while members_of(str(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not members_of(str(tmp_path))


COLUMNS = ["worker", "number", "version_read", "version", "staleness", "sent", "read", "computed",
           "asked", "arrived", "applied", "replied"]  # fmt: skip


def frame_of(rows):
    """The rows of a real run, of which the first tenth is its warm-up."""
    frame = pd.DataFrame(rows, columns=COLUMNS)
    warm_up = frame.index < 0.1 * len(frame)
    return frame.assign(time=frame["applied"], started=frame["read"], warm_up=warm_up)


def timeline(compute, updates, jitter=0.0):
    """The rows of an asynchronous server by its recurrence: one thread takes in, applies and
    replies.
    """
    free, version, coming, reads, draws = 0.0, 0, [], {}, np.random.default_rng(0)

    def read(worker, sent):
        seconds = compute[worker] * (1 + jitter * draws.random())
        started = sent + TIMES["down"]
        reads[worker] = (version, sent, started, started + seconds)
        heapq.heappush(coming, (started + seconds + TIMES["up"], worker))

    for worker in range(len(compute)):
        sent, free = free, free + TIMES["reply"]
        read(worker, sent)
    rows, numbers = [], [0] * len(compute)
    while version < updates:
        arrival, worker = heapq.heappop(coming)
        version_read, *moments = reads[worker]
        asked, arrived = free, max(free, arrival) + TIMES["receive"]
        applied = arrived + TIMES["apply"]
        free = applied + TIMES["reply"]
        versions = (version_read, version, version - version_read)
        rows.append((worker, numbers[worker], *versions, *moments, asked, arrived, applied, free))
        numbers[worker] += 1
        version += 1
        read(worker, applied)
    return frame_of(rows)


def known_run(compute=(0.0231, 0.0317, 0.0412, 0.0293), updates=400, jitter=0.0):
    return real_run(timeline(compute, updates, jitter))


def real_run(rows, load=0.0):
    return RealRun(rows, np.zeros((1, 0)), load=load, cores=2)


def test_calibration_recovers_times_of_known_server(tmp_path):
    """The simulation with the calibrated cluster reproduces the times of the known server."""
    spec = timing_spec(tmp_path)
    run = known_run()
    found = {one.key: one.seconds for one in measured_times(run, spec)}
    expected = {"network.latency": "up", "network.server_latency": "down"}
    assert found == pytest.approx(
        {key: TIMES[expected.get(key, key.removesuffix("_seconds"))] for key in found}, rel=1e-9
    )
    calibrate_cluster(run, spec, tmp_path / "out")
    table = compare_real(run, spec, tmp_path / "out").set_index("quantity")
    assert table["difference"].abs().max() < 1e-9
    assert set(table["agrees"]) == {"yes", ""}


SIZES, WAY = (1e5, 4e6), (0.0011, 1e-9)
"""Bytes of two calibrations; seconds of a message to the server, and a byte."""


def times_at(size):
    """The times of a server whose messages have so many bytes."""
    up = WAY[0] + WAY[1] * size
    return {
        "up": up,
        "down": 0.002 + WAY[1] * size,
        "receive": 0.001 + 2e-9 * size,
        "apply": 0.005,
        "reply": 1e-9 * size,
    }


# in CI a size between those of the calibrations
@pytest.mark.parametrize(
    "size", [pytest.param(2e5, marks=SLOW), 1e6, pytest.param(8e6, marks=SLOW)]
)
def test_two_message_sizes_predict_times_of_third(tmp_path, monkeypatch, size):
    """Latency, bandwidth and server time are fitted; the simulation then has the real times."""
    spec = timing_spec(tmp_path, f"cluster.network.message_bytes={size}")
    runs_at = {}
    for each in (*SIZES, size):
        monkeypatch.setattr(sys.modules[__name__], "TIMES", times_at(each))
        runs_at[each] = known_run((0.0531, 0.0617, 0.0712, 0.0593))
    found = fit_sizes([measured_times(runs_at[each], spec) for each in SIZES], SIZES, spec)
    expected = times_at(size)
    assert {one.key: one.setting for one in found} == pytest.approx(
        {
            "network.latency": WAY[0],
            "network.bandwidth": 1 / WAY[1],
            "network.server_latency": 0.002,
        }
        | {f"{key}_seconds": expected[key] for key in ("receive", "apply", "reply")},
        rel=1e-6,
    )
    assert (
        fit_sizes([measured_times(runs_at[each], spec) for each in SIZES[::-1]], SIZES[::-1], spec)
        == found
    )
    calibrate_cluster(runs_at[SIZES[0]], spec, tmp_path / "out", found)
    table = compare_real(runs_at[size], spec, tmp_path / "out").set_index("quantity")
    assert table["difference"].abs().max() < 1e-6
    assert what_is_missing(runs_at[size], spec, tmp_path / "out")["error"].iloc[0] == pytest.approx(
        0, abs=1e-6
    )


def test_equal_times_of_two_sizes_give_no_bandwidth(tmp_path):
    spec = timing_spec(tmp_path)
    times = measured_times(known_run(), spec)
    assert [(one.key, one.seconds) for one in fit_sizes([times, times], SIZES, spec)] == [
        (one.key, pytest.approx(one.seconds)) for one in times
    ]
    with pytest.raises(ConfigError, match="`message_bytes`: expected two sizes, got 100000 twice"):
        fit_sizes([times, times], (1e5, 1e5), spec)


def test_two_sizes_give_latency_and_bandwidth_of_collective(tmp_path):
    spec = timing_spec(tmp_path, "algorithm=all_reduce")
    alpha, beta = 2e-4, 3e-9
    seconds = {size: 2 * 3 * alpha + 2 * 3 / 4 * size * beta for size in SIZES}
    made = [collective_timeline([0.02] * 4, 60, seconds[size]) for size in SIZES]
    found = [measured_times(real_run(rows), spec) for rows in made]
    fitted = {one.key: one.setting for one in fit_sizes(found, SIZES, spec)}
    assert fitted == pytest.approx({"network.latency": alpha, "network.bandwidth": 1 / beta})


def test_warm_up_is_not_counted(tmp_path):
    spec = timing_spec(tmp_path)
    run = known_run()
    times = ["arrived", "applied", "replied", "time"]
    late = run.rows.assign(**{name: run.rows[name] - 5.0 * run.rows["warm_up"] for name in times})
    assert measured_times(replace(run, rows=late), spec) == measured_times(run, spec)
    for one, other in zip(figures(late, 4), figures(run.rows, 4), strict=True):
        np.testing.assert_array_equal(one, other)


def test_waiting_is_share_of_time_without_computing():
    """With n rounds of c seconds and s between them it is 1 - n c / (n c + (n - 1) s)."""
    n, c, s = 45, 0.03, 0.012
    rows = collective_timeline([c] * 4, 50, s)
    assert figures(rows, 4).waiting == pytest.approx(1 - n * c / (n * c + (n - 1) * s))


def synchronous_timeline(compute, updates):
    """The rows of a synchronous server by its recurrence: reply k of P departs at the update + (k -
    1) replies.
    """
    order, rows = list(range(len(compute))), []
    sent, free = {rank: rank * TIMES["reply"] for rank in order}, len(order) * TIMES["reply"]
    for version in range(updates):
        read = {rank: sent[rank] + TIMES["down"] for rank in order}
        coming = sorted((read[rank] + compute[rank] + TIMES["up"], rank) for rank in order)
        taken = []
        for arrival, rank in coming:
            asked, free = free, max(free, arrival) + TIMES["receive"]
            moments = (sent[rank], read[rank], read[rank] + compute[rank], asked, free)
            taken.append((rank, version, version, version, 0, *moments))
        applied = free = free + TIMES["apply"]
        for row in taken:
            sent[row[0]], free = free, free + TIMES["reply"]
            rows.append((*row, applied, free))
    return frame_of(rows)


def collective_timeline(compute, updates, seconds):
    """The rows of peers whose sum takes so many seconds after the slowest of them."""
    rows, start = [], 0.0
    for version in range(updates):
        end = start + max(compute) + seconds
        for rank, own in enumerate(compute):
            moments = (start, start, start + own, start + own, end, end, end)
            rows.append((rank, version, version, version, 0, *moments))
        start = end
    return frame_of(rows)


@pytest.mark.parametrize("method", ["sync_ps", "all_reduce"])
def test_calibration_simulates_known_rounds(tmp_path, method):
    compute = (0.0231, 0.0317, 0.0512, 0.0293)
    made = (
        synchronous_timeline(compute, 60)
        if method == "sync_ps"
        else collective_timeline(compute, 60, 0.012)
    )
    spec = timing_spec(tmp_path, f"algorithm={method}", "stop.updates=60")
    run = real_run(made)
    found = {one.key: one.seconds for one in measured_times(run, spec)}
    if method == "all_reduce":
        assert found == pytest.approx({"network.latency": 0.012 / (2 * 3)})
    else:
        assert found["apply_seconds"] == pytest.approx(TIMES["apply"])
        assert found["reply_seconds"] == pytest.approx(TIMES["reply"])
        assert found["network.server_latency"] == pytest.approx(TIMES["down"])
        assert found["network.latency"] + found["receive_seconds"] == pytest.approx(
            TIMES["up"] + TIMES["receive"]
        )
    calibrate_cluster(run, spec, tmp_path / "out")
    table = compare_real(run, spec, tmp_path / "out").set_index("quantity")
    assert table["difference"].abs().max() < 1e-9


def test_simulation_is_faster_without_any_one_time(tmp_path):
    """Without all of them workers never wait: compute times alone give the number of updates."""
    compute = (0.0231, 0.0317, 0.0412, 0.0293)
    spec = timing_spec(tmp_path)
    run = known_run(compute)
    calibrate_cluster(run, spec, tmp_path / "out")
    missing = what_is_missing(run, spec, tmp_path / "out")
    errors = dict(zip(missing["missing"], missing["error"], strict=True))
    measured = figures(run.rows, 4)
    assert errors["nothing"] == pytest.approx(0, abs=1e-9)
    assert 1 + errors["all of them"] == pytest.approx(
        sum(1 / one for one in compute) / measured.rate, rel=0.02
    )
    assert min(errors[key] for key in ("receive_seconds", "apply_seconds", "reply_seconds")) > 0.03
    left, right = agreement(measured, measured, missing).axes
    heights = [bar.get_height() for bar in left.patches]
    assert heights == pytest.approx([*measured.staleness, *measured.staleness])
    assert [bar.get_width() for bar in right.patches] == pytest.approx(missing["error"].tolist())
    assert [tick.get_text() for tick in right.get_yticklabels()] == missing["missing"].tolist()


def test_cluster_without_measured_time_does_not_agree(tmp_path):
    spec = timing_spec(tmp_path)
    calibrate_cluster(known_run(), spec, tmp_path)
    text = (tmp_path / CLUSTER).read_text()
    without, count = re.subn(r"apply_seconds: 0\.\d+", "apply_seconds: 0.0", text)
    assert count == 1
    (tmp_path / CLUSTER).write_text(without)
    table = compare_real(known_run(), spec, tmp_path).set_index("quantity")
    assert table.loc["updates/s", "agrees"] == "no"
    assert table.loc["updates/s", "difference"] > 0.03


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster.workers=2", "cluster.workers: expected 4, as calibrated in"),
        ("algorithm=sync_ps", "algorithm.name: expected async_ps, as calibrated in"),
        (
            "cluster.network.message_bytes=4000",
            "cluster.network.message_bytes: expected None, as calibrated in",
        ),
    ],
)
def test_calibration_of_another_cluster_is_refused(tmp_path, override, message):
    own = "cluster.workers=4", "algorithm=async_ps"
    calibrate_cluster(known_run(), spec_of(tmp_path, *own), tmp_path)
    with pytest.raises(ConfigError, match=message):
        compare_real(known_run(), spec_of(tmp_path, *own, override), tmp_path)


@SLOW
def test_run_ends_after_its_seconds(tmp_path):
    rows = run_real(spec_of(tmp_path, "stop.updates=1000000"), seconds=5.0).rows
    assert rows["arrived"].max() < 5.0
    assert rows["computed"].max() > 3.0


@SLOW
def test_run_of_a_few_gradients_is_refused(tmp_path):
    with pytest.raises(RealRunError, match="expected 20 applied gradients, got 10"):
        run_real(spec_of(tmp_path, "stop.updates=10"))


def test_load_above_cores_gives_no_verdict(tmp_path):
    spec = timing_spec(tmp_path)
    calibrate_cluster(known_run(), spec, tmp_path)
    busy = real_run(known_run().rows, load=2.5)
    assert set(compare_real(busy, spec, tmp_path)["agrees"]) == {""}


def test_total_variation_is_half_of_absolute_difference():
    assert total_variation(np.array([0.5, 0.5]), np.array([0.0, 0.5, 0.5])) == 0.5
    assert total_variation(np.array([1.0]), np.array([0.0, 1.0])) == 1.0


def commands_calibrate_and_compare(capsys):
    """The table of `real compare` after a `real calibrate` of three workers, and after the simulation of
    what that found.
    """
    Path("small.yaml").write_text(QUADRATIC + "algorithm: async_ps\n")
    assert main(["real", "calibrate", "small.yaml", "--workers", "3"]) == 0
    assert "reply_seconds" in capsys.readouterr().out
    assert load("real/small/cluster.yaml").cluster.workers == 3
    assert main(["run", "real/small/cluster.yaml", "--quiet"]) == 0
    assert main(
        ["real", "compare", "small.yaml", "cluster.workers=3", "--calibration", "real/small"]
    ) in (0, 1)
    table = pd.read_csv("real/comparison.csv").set_index("quantity")
    assert table.loc["staleness, total variation", "at most"] > 0, (
        "other draws of the times have other histograms"
    )
    return table


@SLOW
def test_commands_calibrate_and_compare(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        commands_calibrate_and_compare(capsys).loc["weights in the order of arrival", "agrees"]
        == "yes"
    )


def test_commands_calibrate_and_compare_known_times(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        processes, "run_real", lambda spec, seconds: known_run((0.02, 0.03, 0.05), jitter=0.5)
    )
    assert set(commands_calibrate_and_compare(capsys)["agrees"].dropna()) == {"yes"}


def test_page_has_errors_at_other_message_sizes():
    stored = pd.read_csv(ROOT / "results/real/other_sizes.csv").set_index(["quantity", "config"])[
        "difference"
    ]
    text = " ".join((ROOT / "docs/measurements.md").read_text().split())
    rates, waiting = 100 * stored[RATE], 100 * stored[WAITING]
    names = ["large_messages", "all_reduce_4"]
    said = re.search(
        r"off by (\S+) %, of four workers .*? by (\S+) %.* off by (\S+) and (\S+) points", text
    )
    assert said is not None
    assert [f"{rates[name]:+.1f}" for name in names] + [
        f"{waiting[name]:.1f}" for name in names
    ] == list(said.groups())


def test_measurements_page_has_stored_numbers():
    """The page also has the error of the distribution alone, which is simulated here."""
    stored = pd.read_csv(ROOT / "results/real/comparison.csv").set_index(["config", "quantity"])
    page = (ROOT / "docs/measurements.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\] \| (.*) \|$", page, flags=re.MULTILINE)
    assert (
        {name for name, _ in rows}
        == set(stored.index.get_level_values("config"))
        == {path.stem for path in CONFIGS}
    )
    for name, text in rows:
        cells = [float(cell.strip(" %")) for cell in re.sub(r"\(.*?\)", "", text).split("|")]
        own, spec = stored.loc[name], runs(load(ROOT / f"configs/real/{name}.yaml"))[0]
        alone = (
            simulate_times(spec, spec.config.stop.updates).rate / own.loc["updates/s", "real"] - 1
        )
        differences = (
            own["difference"].reindex([RATE, WAITING, STALENESS, WEIGHTS]).fillna(0.0).tolist()
        )
        known = [
            own.loc[RATE, "real"],
            100 * differences[0],
            100 * alone,
            100 * own.loc[WAITING, "real"],
        ]
        known += [100 * differences[1], *differences[2:], own["load"].iloc[0]]
        digits = [0.006, 0.051, 0.051, 0.051, 0.051, 6e-4, 1e-15, 0.051]
        assert (np.abs(np.subtract(cells, known)) <= digits).all(), name
    assert not (stored["agrees"] == "no").any()
