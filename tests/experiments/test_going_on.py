"""Runs that were killed go on from their last snapshot, and leave the bytes of one that nobody
disturbed.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
import torch

from laggard import load, run, sweep
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.experiments.results import snapshots as files
from laggard.experiments.results import store
from laggard.experiments.results.store import SNAPSHOT
from laggard.experiments.running import jobs as running_jobs
from laggard.experiments.running.run import run_spec
from laggard.simulator.engine import snapshots
from tests.experiments.killing import ROOT

CIRCUMSTANCES = {"wall_seconds", "ended", "resumed", "self"}
posix = pytest.mark.skipif(os.name != "posix", reason="kills")


@pytest.fixture
def spec(toy):
    return runs(load(toy(), "learning.optimizer=adam", "sweep={learning.lr: [0.1, 0.05]}"))[0]


@pytest.fixture
def seconds(monkeypatch):
    """One second of wall time passes from one update to the next."""
    ticks = count()
    monkeypatch.setattr(snapshots, "monotonic", lambda: next(ticks))


@pytest.fixture
def interrupted(monkeypatch, seconds):
    """Simulates a run up to its first snapshot after so many updates, at which it is interrupted;
    the snapshot.
    """

    def interrupt(spec, out, after=28):
        def write(*given):
            files_write(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            files_write = files.write_snapshot
            patch.setattr(files, "write_snapshot", write)
            with pytest.raises(KeyboardInterrupt):
                run_spec(spec, out, snapshots=after)
        return store.private_folder(spec, out) / SNAPSHOT

    return interrupt


def contents(result):
    """The bytes of every file of a result; of the manifest what does not tell of the wall clock."""
    manifest = json.loads((result.path / "manifest.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in manifest.items() if key not in CIRCUMSTANCES}
    others = {
        file.name: file.read_bytes()
        for file in result.path.iterdir()
        if file.name != "manifest.json"
    }
    return {"manifest.json": kept, **others}


def leave(own, spec, pid=2**22 + 1):
    """Give the folder of this process to one that has died."""
    left = own.with_name(f"{own.name.rpartition('.')[0]}.{pid}")
    own.rename(left)
    return left / SNAPSHOT


def test_interrupted_run_resumes(spec, tmp_path, interrupted):
    """It resumes in the interrupted process or in another."""
    whole = contents(run_spec(spec, tmp_path / "whole"))
    for number in (0, 1):
        out = tmp_path / str(number)
        file = interrupted(spec, out)
        if number:
            leave(file.parent, spec)
        result = run_spec(spec, out)
        assert contents(result) == whole
        assert 27 <= result.manifest["resumed"] < 40
        assert not list((out / "toy").glob(".*"))


def test_snapshot_stays_until_its_run_is_finished(spec, tmp_path, interrupted):
    """Other runs in the folder do not remove it; `force` starts the run from its beginning."""
    out = tmp_path / "out"
    left = leave(interrupted(spec, out).parent, spec)
    another = runs(load(tmp_path / "toy.yaml", "seed=1"))[0]
    run_spec(another, out)
    assert left.is_file()
    result = run_spec(spec, out, force=True)
    assert "resumed" not in result.manifest
    run_spec(another, out, force=True)
    assert not left.parent.exists()


def take_snapshot(path, own):
    store._prepare_folder(own, fresh=False)
    store._take_snapshot(path, own)


def test_only_one_process_takes_a_snapshot(spec, tmp_path, interrupted):
    path = spec.folder(tmp_path)
    for _ in range(5):
        leave(interrupted(spec, tmp_path, 5).parent, spec)
        owns = [path.with_name(f"own{number}") for number in range(8)]
        with ThreadPoolExecutor(len(owns)) as pool:
            list(pool.map(lambda own: take_snapshot(path, own), owns))
        (taken,) = path.parent.glob(f"*/{SNAPSHOT}")
        assert taken.parent in owns
        taken.unlink()
        store.remove_stale(path.parent)
        assert not list(path.parent.glob(".*"))


def flip(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def after(tens):
    """Lets a snapshot after 2x updates be one after as many tens as given."""
    return lambda content: content.replace(b'"updates":"2', b'"updates":"' + tens)


DAMAGED = {
    "flipped": (flip, "it was changed: its SHA-256 differs"),
    "truncated": (lambda content: content[: len(content) // 2], "it cannot be read (.*)"),
    "a header": (lambda content: content[:20], "it cannot be read (.*)"),
    "empty": (lambda content: b"", "it cannot be read (.*)"),
    "another version": (
        lambda content: content.replace(b"simpy", b"simpI"),
        "it was taken under .*, and this is .*",
    ),
    "another run": (after(b"1"), "after 1. updates the run differs from that of the snapshot"),
    "too late": (after(b"9"), "the run ends before it"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_snapshot_gives_one_line_error(name, spec, tmp_path, interrupted):
    damage, why = DAMAGED[name]
    file = interrupted(spec, tmp_path / "out")
    before = file.read_bytes()
    file.write_bytes(damage(before))
    assert file.read_bytes() != before
    line = f"^run {spec.id} is simulated from its start, not from its snapshot: {why}$"
    with pytest.warns(UserWarning, match=line) as caught:
        result = run_spec(spec, tmp_path / "out")
    assert "\n" not in str(caught[0].message)
    assert contents(result) == contents(run_spec(spec, tmp_path / "whole"))
    assert "resumed" not in result.manifest


def test_finished_run_continues_to_a_longer_stop(toy, tmp_path, seconds):
    """It continues from its last snapshot, taken before its end."""
    out = tmp_path / "out"
    short, long = (load(toy(), f"stop={{updates: {updates}}}") for updates in (30, 60))
    kept = run(short, out, snapshots=6.0, keep_snapshot=True)
    files_of = contents(kept)
    assert files_of.pop(SNAPSHOT)
    assert files_of == contents(run(short, tmp_path / "short"))
    result = run(long, out, continues=True)
    assert 0 < result.manifest["resumed"] < kept.manifest["mileage"]["updates"]
    assert contents(result) == contents(run(long, tmp_path / "long"))
    assert not (run(short, out, force=True).path / SNAPSHOT).exists()


def test_continue_needs_a_shorter_run(ran, tmp_path, seconds):
    """That run needs a snapshot and may differ in `stop` only."""
    ran()
    ran("seed=1", snapshots=6.0, keep_snapshot=True)
    ran("stop={updates: 90}", snapshots=6.0, keep_snapshot=True)
    ran("stop={time: 0.1}", snapshots=6.0, keep_snapshot=True)
    with pytest.raises(
        ConfigError, match=r"^`continues`: expected a finished run .* alone, got none in .*toy$"
    ):
        ran("stop={updates: 80}", continues=True)
    assert not list((tmp_path / "toy").glob(".*"))


KILLED = """
import os, signal, sys
from laggard import load, run
from laggard.experiments.results import snapshots

def kill(*given):
    write(*given)
    os.kill(os.getpid(), signal.SIGKILL)

write, snapshots.write_snapshot = snapshots.write_snapshot, kill
run(load(sys.argv[1]), sys.argv[2], snapshots=0.0)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@posix
def test_killed_process_resumes_bit_for_bit(toy, tmp_path):
    """The process is killed right after it has written a snapshot."""
    path, out = toy(), tmp_path / "out"
    whole = contents(run(load(path), tmp_path / "whole"))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(out)], env=ENVIRONMENT, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    result = run(load(path), out)
    assert result.manifest["resumed"] == 1
    assert contents(result) == whole


def test_sweep_resumes_and_removes_remains(toy, tmp_path, interrupted):
    """The snapshots are of processes that died before the sweep began."""
    config = load(toy("sweep: {seed: [0, 1, 2]}"))
    out = tmp_path / "out"
    planned = runs(config)
    for spec in planned[:2]:
        leave(interrupted(spec, out).parent, spec)
    results = sweep(config, out)
    assert ["resumed" in result.manifest for result in results] == [True, True, False]
    assert not list(out.glob("toy/.*"))


def test_run_of_a_dead_worker_resumes(toy, tmp_path, interrupted, monkeypatch):
    """The worker dies in the sweep, after its snapshot; the sweep then runs it again."""
    config = load(toy("sweep: {seed: [0, 1]}"))
    out = tmp_path / "out"
    spec = runs(config)[0]
    deaths = iter([True, False])

    def dies_once(work, jobs, parallel, started):
        started += [job.run for job in jobs]
        if next(deaths):
            leave(interrupted(spec, out).parent, spec)
            raise RuntimeError("a worker has died")
        yield from map(work, jobs)

    monkeypatch.setitem(running_jobs.ENGINES, "loky", lambda *_: dies_once)
    results = sweep(config, out, jobs=2)
    assert ["resumed" in result.manifest for result in results] == [True, False]


def test_more_runs_cause_no_more_reads_of_folder(toy, tmp_path, monkeypatch):
    reads = []
    for function in (os.listdir, os.scandir):

        def read(path=".", function=function):
            reads.append(str(path))
            return function(path)

        monkeypatch.setattr(os, function.__name__, read)
    counts = []
    for number in (1, 5):
        folder = tmp_path / str(number) / "toy"
        sweep(load(toy(f"sweep: {{seed: {list(range(number))}}}")), folder.parent)
        counts.append(reads.count(str(folder)))
    assert 0 < counts[0] == counts[1]


def test_snapshot_copies_only_what_shares_memory(tmp_path):
    """Copies of all tensors would double the memory of a large run."""
    base = torch.rand(100)
    alone = torch.rand(3, 4)
    shared = [base, base[5:100], base[5:100].view(5, 19)]
    tensors = [*shared, alone, torch.rand(2, 3).t(), torch.empty(0), torch.empty(2, 0)]
    own = files._without_sharing(tensors)
    assert own[0].data_ptr() == base.data_ptr()
    assert own[3].data_ptr() == alone.data_ptr()
    files.write_snapshot(tmp_path / "toy", snapshots.Snapshot(3, "toy", tensors), {})
    back = files.read_snapshot(tmp_path / "toy", {})
    for stored, tensor in zip(back.tensors, tensors, strict=True):
        assert torch.equal(stored, tensor)
    (tmp_path / "other").touch()
    assert (tmp_path / "toy").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_unwritable_snapshot_is_a_disk_error(tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    snapshot = snapshots.Snapshot(3, "toy", [torch.rand(10_000)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="toy"):
            files.write_snapshot(tmp_path / "toy", snapshot, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
