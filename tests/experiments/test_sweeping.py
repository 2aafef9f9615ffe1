"""Sweeps in several processes: the same results, whatever dies meanwhile."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

import pytest

from experiments import ConfigError, load, sweep
from experiments.grid import runs
from experiments.sweeps import Ended, SweepError, jobs_for

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "experiments", "sweep"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def contents(results: Path) -> dict[str, bytes]:
    """The updates and the weights of every run, by its folder."""
    names = ("updates.parquet", "metrics.parquet", "weights.safetensors")
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes() for name in names for file in results.glob(f"*/{name}")
    }


def processes_of(parent: int) -> list[int]:
    """The workers that the process `parent` has started, by what Linux says of every process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
            words = (status.parent / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent and b"popen_loky" in words:
            found.append(int(status.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "it did not happen in time"
        sleep(0.02)


# ------------------------------------------------------------------------------------------------ the same results


def test_two_processes_leave_what_one_leaves_and_redo_nothing(toy: Callable[..., Path], tmp_path: Path) -> None:
    config = load(toy("sweep: {seed: [0, 1, 2], learning.lr: [0.1, 0.2]}"))
    alone = sweep(config, tmp_path / "alone", jobs=1)
    told: list[Ended] = []
    together = sweep(config, tmp_path / "together", jobs=2, tell=told.append)
    assert [result.labels for result in together] == [result.labels for result in alone]
    assert contents(tmp_path / "together/toy") == contents(tmp_path / "alone/toy")
    assert sorted(ended.run.labels["seed"] for ended in told) == [0, 1, 2]
    assert not list((tmp_path / "together/toy").glob(".*"))
    again: list[Ended] = []
    sweep(config, tmp_path / "together", jobs=2, tell=again.append)
    assert [ended.seconds for ended in again] == [None] * 3


def test_a_failure_elsewhere_is_one_line_and_stops_nothing(module: Callable[[str, str], Path], tmp_path: Path) -> None:
    """The run that fails has an algorithm of its own, which a worker process has to find beside the config."""
    module("sulky", SULKY)
    path = tmp_path / "toy.yaml"
    path.write_text("{task: {model: timing}, stop: {updates: 30}, sweep: {algorithm: [async_ps, sulky:Sulky]}}")
    with pytest.raises(SweepError) as caught:
        sweep(load(path), tmp_path / "out", jobs=2)
    (line,) = caught.value.failures
    assert re.fullmatch(r"run \w{12} \(algorithm = sulky:Sulky\): RuntimeError: I will not, and that is that", line)
    assert [result.labels for result in caught.value.results] == [{"algorithm": "async_ps"}]


SULKY = '''
from dataclasses import dataclass
from simulator import Algorithm

@dataclass(frozen=True)
class Sulky(Algorithm):
    """Does nothing, and says so."""

    def worker(self, node):
        raise RuntimeError("I will not,\\nand that is that")
        yield
'''


# ------------------------------------------------------------------------------------------------------- how many


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
def test_as_many_at_once_as_pays(
    toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, overrides: list[str], cores: int, jobs: int
) -> None:
    monkeypatch.setattr("experiments.processes.cores", lambda: cores)
    config = load(toy("sweep: {seeds: 4}\n"), *overrides)
    assert jobs_for(config, [run.config for run in runs(config)]) == jobs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jobs": 0}, "jobs: expected at least 1, got 0"),
        ({"backend": "slurm"}, "backend: expected one of loky, ray, dask, got 'slurm'"),
    ],
)
def test_what_cannot_be_is_said(toy: Callable[..., Path], tmp_path: Path, given: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        sweep(load(toy()), tmp_path, **given)
    assert not (tmp_path / "toy").exists()


def test_a_backend_that_is_not_installed_says_what_to_install(
    toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.processes.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"backend: dask is not installed: pip install laggard\[dask\]"):
        sweep(load(toy()), tmp_path, backend="dask")


# ------------------------------------------------------------------------------------------------- what may happen


@pytest.fixture
def endless(toy: Callable[..., Path], tmp_path: Path):
    """A sweep of two short runs and two that never end, in a process of its own, once both endless ones are begun."""
    path = toy("sweep: {m: {a: {seed: 1}, b: {seed: 2}, c: {stop.updates: 1000000000}, d: {stop.updates: 900000000}}}")
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*COMMAND, str(path), "--out", str(out), "--jobs", "3"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: len(list(out.glob("toy/.*/config.yaml"))) >= 2 and len(list(out.glob("toy/*/manifest.json"))) == 2)
    yield process, out
    if process.poll() is None:
        process.kill()
    process.communicate()


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_is_back_within_two_seconds_and_leaves_no_process(endless) -> None:
    process, out = endless
    workers = processes_of(process.pid)
    assert len(workers) == 3
    start = monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    _, err = process.communicate(timeout=20)
    assert monotonic() - start < 2
    assert process.returncode == 130
    *done, last = err.splitlines()
    assert last == f"interrupted: 2 of 4 runs saved in {out}/toy"
    assert all(re.fullmatch(r"\d of 4: run \w{12} \(m = [ab]\) finished in .* s", line) for line in done), err
    wait_for(lambda: not any(map(alive, workers)), 2)
    assert not list(out.glob("toy/.*"))


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_with_a_parent_that_was_killed(endless) -> None:
    process, _ = endless
    workers = processes_of(process.pid)
    process.kill()
    wait_for(lambda: not any(map(alive, workers)), 3)


@posix
def test_a_run_that_kills_its_worker_is_given_up_and_the_others_are_not(
    module: Callable[[str, str], Path], tmp_path: Path
) -> None:
    module("deadly", DEADLY)
    path = tmp_path / "toy.yaml"
    kinds = "[async_ps, deadly:Deadly, sync_ps, all_reduce]"
    path.write_text(f"{{task: {{model: timing}}, stop: {{updates: 30}}, sweep: {{algorithm: {kinds}}}}}")
    with pytest.raises(SweepError) as caught:
        sweep(load(path), tmp_path / "out", jobs=2)
    (line,) = caught.value.failures
    assert "(algorithm = deadly:Deadly): its worker was killed 3 times: " in line
    assert len(caught.value.results) == 3


DEADLY = '''
import os, signal
from dataclasses import dataclass
from simulator import Algorithm

@dataclass(frozen=True)
class Deadly(Algorithm):
    """Kills the process in which it runs."""

    def worker(self, node):
        os.kill(os.getpid(), signal.SIGKILL)
        yield
'''


# ------------------------------------------------------------------------------------------------ cluster engines


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_engine_leaves_the_same_results(
    toy: Callable[..., Path], tmp_path: Path, backend: str, package: str
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{backend} is not installed: pip install laggard[{backend}]")
    path = toy("sweep: {seed: [0, 1, 2, 3]}")
    sweep(load(path), tmp_path / "alone", jobs=1)
    words = [*COMMAND, str(path), "--out", str(tmp_path / "there"), "--jobs", "2", "--backend", backend]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there/toy") == contents(tmp_path / "alone/toy")
