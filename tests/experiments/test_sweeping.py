"""Sweeps in several processes: the same results, whatever dies meanwhile."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from laggard import ConfigError, load, sweep
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.running import estimate
from laggard.experiments.running.estimate import RunCost, jobs_for, plan, rough_seconds, try_run
from laggard.experiments.running.sweep import SweepError
from laggard.simulator import RunProgress
from tests.cases import ROOT
from tests.experiments.killing import contents, hold, interrupt, wait_for
from tests.experiments.killing import workers as workers_of

COMMAND = [sys.executable, "-m", "experiments", "sweep"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


# -------------------------------------------------------------------------------------------------------
# how many


@pytest.mark.parametrize(
    ("overrides", "cores", "jobs"),
    [
        (["stop={updates: 5}"], 8, 1),  # over before a process has started
        (["stop={updates: 100000000}"], 8, 4),  # no more than there are runs
        (["stop={updates: 100000000}"], 2, 2),
        (["stop={updates: 100000000}", "threads=3"], 8, 2),
        (["stop={updates: 100000000}", "threads=9"], 8, 1),
        (["stop={updates: 100000000}", "sweep={}"], 8, 1),
    ],
)
def test_number_of_jobs_follows_work_and_cores(
    toy,
    monkeypatch,
    overrides,
    cores,
    jobs,
):
    monkeypatch.setattr("laggard.models.backends.threads.cores", lambda: cores)
    config = load(toy("sweep: {seeds: 4}\n"), *overrides)
    assert jobs_for(runs(config)) == jobs


@pytest.mark.parametrize("given", [{"jobs": 0}, {"backend": "slurm"}, {"backend": "dask"}])
def test_invalid_jobs_and_backends_are_refused(toy, tmp_path, monkeypatch, given):
    monkeypatch.setattr("laggard.experiments.running.jobs.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        sweep(load(toy()), tmp_path, **given)
    assert caught.value.key == next(iter(given))
    assert not (tmp_path / "toy").exists()


# -------------------------------------------------------------------------------------------------
# what may happen


@pytest.fixture
def endless(toy, tmp_path, ctrl_c):
    """A sweep of two short runs and one that never ends, in a process of its own, once it alone
    goes on.
    """
    path = toy("sweep: {m: {a: {seed: 1}, b: {seed: 2}, c: {stop.updates: 1000000000}}}")
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*COMMAND, str(path), "--out", str(out), "--jobs", "2"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(
        lambda: (
            list(out.glob("toy/.*/config.yaml"))
            and len(list(out.glob("toy/[!.]*/manifest.json"))) == 2
        )
    )
    yield process, out
    if process.poll() is None:
        process.kill()
    process.communicate()


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
def test_signal_ends_a_sweep_and_its_workers(endless, number, code, message):
    process, out = endless
    workers = workers_of(process.pid)
    assert len(workers) == 2
    start = monotonic()
    os.killpg(process.pid, number)  # as a terminal does: the workers get it too
    _, err = process.communicate(timeout=20)
    assert monotonic() - start < 2
    assert process.returncode == code
    _, *done, last = err.splitlines()
    assert last == f"{message}: 2 of 3 runs saved in {out}/toy; run the same command to complete it"
    assert all(
        re.fullmatch(r"\d of 3: run \w{12} \(m = [ab]\) finished in .* s", line) for line in done
    ), err
    wait_for(lambda: not any(map(alive, workers)), 2)
    assert not list(out.glob("toy/.*"))


ORPHAN = """
import os, time
from laggard.__main__ import start_worker
start_worker(os.getppid())
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_worker_ends_with_a_parent_that_was_killed():
    """The child of a process that does nothing else: it starts much sooner than a sweep."""
    command = [sys.executable, "-c", PARENT, ORPHAN]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
        wait_for(lambda: not alive(worker), 3)


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_workers_of_sweep_end_with_killed_parent(endless):
    process, _ = endless
    workers = workers_of(process.pid)
    process.kill()
    wait_for(lambda: not any(map(alive, workers)), 3)


@posix
@pytest.mark.slow
def test_run_that_kills_its_worker_is_given_up(module, tmp_path):
    module("deadly", DEADLY)
    path = tmp_path / "toy.yaml"
    kinds = "[async_ps, deadly:Deadly, sync_ps, all_reduce]"
    path.write_text(
        f"{{task: {{model: timing}}, stop: {{updates: 30}}, sweep: {{algorithm: {kinds}}}}}"
    )
    with pytest.raises(SweepError) as caught:
        sweep(load(path), tmp_path / "out", jobs=2)
    (line,) = caught.value.failures
    assert "(algorithm = deadly:Deadly): its worker was killed 3 times: " in line
    assert len(caught.value.results) == 3


DEADLY = '''
import os, signal
from dataclasses import dataclass
from laggard.simulator import Algorithm

@dataclass(frozen=True)
class Deadly(Algorithm):
    """Kills the process in which it runs."""

    def worker(self, node):
        os.kill(os.getpid(), signal.SIGKILL)
        yield
'''


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_random_kills_lose_no_finished_run(tmp_path):
    killed = hold(kills=50, runs=24, updates=6000, within=4.0, seed=0, folder=tmp_path)
    assert killed["parent"] + killed["worker"] == 50


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_random_interrupts_lose_no_finished_run(tmp_path, ctrl_c):
    """Interrupts come from the start of the first worker on, where a sweep once hung."""
    killed = hold(
        kills=50, runs=24, updates=6000, within=4.0, seed=1, folder=tmp_path, kill=interrupt
    )
    assert killed["interrupt"] == 50


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /dev/shm")
@pytest.mark.slow
def test_shared_memory_of_killed_sweeps_is_removed(endless, tmp_path, toy):
    process, _ = endless
    left = f"sem.loky-{process.pid}-*"
    assert list(Path("/dev/shm").glob(left))
    assert not list(Path("/dev/shm").glob(f"joblib*_{process.pid}_*"))
    os.killpg(process.pid, signal.SIGKILL)  # and loky's own process that clears up
    process.wait()
    sweep(load(toy("sweep: {seeds: 4}")), tmp_path / "out", jobs=2)
    assert not list(Path("/dev/shm").glob(left))


# -------------------------------------------------------------------------------------------------------
# forecasts


def test_trial_measures_speed_after_warm_up(toy, monkeypatch):
    """Ten of 100 updates take 5 s at first and 1 s from then on: after 20, there are 8 s to go."""
    now = [0.0]
    monkeypatch.setattr(estimate, "perf_counter", lambda: now[0])
    monkeypatch.setattr(estimate, "repeat", lambda *_, **__: [0.25, 0.5])  # of one model

    def simulate(watch, **_):
        for moment, updates in [(1.0, 0), (6.0, 10), (6.9, 19), (7.0, 20)]:
            now[0] = moment
            watch(RunProgress(updates / 2, updates, 0, updates / 10, 3 * updates))

    monkeypatch.setattr(estimate, "simulate", simulate)
    spec = RunSpec(load(toy(), "stop.updates=100", "sweep.learning.lr=[0.1, 0.2]"))
    # twice 0.25 s for both models at the start and after each of 10 epochs
    expected = 7 + 8 + 11 * 0.5 + estimate.WRITING_SECONDS
    assert try_run(spec, seconds=6.0).seconds == pytest.approx(expected)


def test_trial_lasts_until_second_mark(toy):
    cost = try_run(RunSpec(load(toy(), "stop.updates=1000")), seconds=0.0)
    assert 0 < cost.seconds < 60


def test_runs_of_one_kind_are_tried_once(toy, tmp_path, monkeypatch):
    tried = []

    def trial(spec, seconds):
        tried.append(spec)
        return RunCost(2.0, 1e9)

    monkeypatch.setattr(estimate, "try_run", trial)
    grid = "sweep: {cluster.compute.cv: [0.1, 0.2, 0.3], task.batch: [1, 2]}"
    planned = plan(load(toy(grid)), tmp_path, jobs=2)
    assert planned.missing == len(planned.runs) == 6
    assert [spec.config.task.batch for spec in tried] == [1, 2]
    assert [spec.threads for spec in tried] == [1, 1]
    assert planned.seconds == 6 * 2.0 / 2 + estimate.START_UP_SECONDS
    assert planned.memory == 2e9
    longer = plan(load(toy("sweep: {stop.updates: [40, 400]}")), tmp_path, jobs=1)
    first, second = (cost.seconds for _, cost in longer.runs)
    assert second == 10 * first


def test_rough_seconds_order_runs_by_length(toy):
    lenet = "task={model: lenet5, dataset: mnist, batch: 32}"
    base = ["stop={updates: 100}"]
    seconds = [
        rough_seconds(RunSpec(load(toy(), *base))),
        rough_seconds(RunSpec(load(toy(), "stop={updates: 1000}"))),
        rough_seconds(RunSpec(load(toy(), lenet, "stop={updates: 1000}"))),
        rough_seconds(
            runs(load(toy(), lenet, "stop={updates: 1000}", "sweep.learning.lr=[0.1, 0.2, 0.3]"))[0]
        ),
        rough_seconds(RunSpec(load(toy(), lenet, "stop={epochs: 10}"))),
    ]
    assert seconds == sorted(seconds)
    assert seconds[3] == pytest.approx(3 * seconds[2], rel=0.2)


# ------------------------------------------------------------------------------------------------
# cluster engines


ONCE = """
import os, pathlib, signal
from dataclasses import dataclass
from laggard import AsyncPS

@dataclass(frozen=True)
class Once(AsyncPS):
    def server(self, node):
        flag = pathlib.Path(FLAG)
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().server(node)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
for variable in ("RAY_ADDRESS", "DASK_SCHEDULER_ADDRESS"):
    ENVIRONMENT.pop(variable, None)


def sweep_on(backend, path, out, **environment):
    """Sweep on a cluster engine of this machine, as `make slow` installs them."""
    words = [*COMMAND, str(path), "--out", str(out), "--jobs", "2", "--backend", backend]
    return subprocess.run(
        words,
        cwd=path.parent,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_engine_sweeps_resumes_and_loses_a_worker(backend, toy, module, tmp_path):
    """One of its runs kills its worker; the bytes are those of this process."""
    flag = tmp_path / "flag"
    module("once", ONCE.replace("FLAG", repr(str(flag))))
    path = toy("sweep: {seed: [0, 1], algorithm: [async_ps, 'once:Once']}")
    flag.touch()
    sweep(load(path), tmp_path / "alone", jobs=1)
    flag.unlink()
    done = sweep_on(backend, path, tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert flag.exists()
    assert contents(tmp_path / "there/toy") == contents(tmp_path / "alone/toy")
    assert "still alive" not in done.stderr
    assert done.stderr.count(" of 4: run ") == 4, done.stderr
    lost = sorted((tmp_path / "there/toy").glob("*/manifest.json"))[0].parent
    shutil.rmtree(lost)
    again = sweep_on(backend, path, tmp_path / "there")
    assert again.returncode == 0, again.stderr
    ended = [line for line in again.stderr.splitlines() if " of 4: run " in line]
    assert len(ended) == 1, again.stderr
    assert lost.name in ended[0]
    assert contents(tmp_path / "there/toy") == contents(tmp_path / "alone/toy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "variable", "address"),
    [
        ("dask", "DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:9"),
        ("ray", "RAY_ADDRESS", "127.0.0.1:9"),
        ("ray", "RAY_TMPDIR", "/proc/nowhere"),
    ],
)
def test_engine_that_fails_gives_one_line_error(backend, variable, address, toy, tmp_path):
    path = toy("sweep: {seed: [0, 1]}")
    done = sweep_on(backend, path, tmp_path / "out", **{variable: address})
    assert done.returncode == 2
    _, line = done.stderr.splitlines()  # below the number of runs
    assert line.startswith(f"{path}: backend: {backend} does not start: ")
    assert address in line
    assert "unset it" in line
