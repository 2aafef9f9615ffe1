"""Kills a sweep at random moments, again and again, and holds what is left against a sweep that
nobody disturbed.

Each kill is a SIGKILL to the parent or to one of its workers, or Ctrl-C. After the last, the sweep
is called until it has ended. Then every run is to be there, none that had been finished was begun
again (the manifest is the same file, written at the same moment), and updates, metrics and weights
are byte for byte those of a sweep in one process.
"""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

ROOT = Path(__file__).parents[2]
CONFIG = """\
cluster: {workers: 4, compute: {law: gamma, mean: 0.01, cv: 0.3}}
algorithm: async_ps
task: {model: quadratic, dim: 3, condition: 10, noise: 0.2, jitter: 0.5, epoch: 20}
learning: {lr: 0.1}
stop: {updates: %d}
sweep: {seeds: %d}
"""
COMPARED = (
    "updates.parquet",
    "metrics.parquet",
    "workers.parquet",
    "nodes.parquet",
    "weights.safetensors",
)


Kill = Callable[[subprocess.Popen[str], random.Random], str]


def disturbed(config, out, kills, within, rng, kill):
    """Sweep until all is done, with so many kills, each within so many seconds of the last; counts
    what was killed.

    Where all is done too soon, they are fewer.
    """
    results, count = out / config.stem, {"parent": 0, "worker": 0, "interrupt": 0, "calls": 0}
    finished = {}
    while True:
        process = start(config, out, "--jobs", "2")
        count["calls"] += 1
        while process.poll() is None:
            wait(
                process,
                rng.uniform(0, within) if sum(count.values()) - count["calls"] < kills else 1e9,
            )
            check_kept(results, finished)
            if process.poll() is None:
                count[kill(process, rng)] += 1
                check_kept(results, finished)
        _, err = process.communicate(timeout=20)
        check_kept(results, finished)
        if process.returncode == 130:
            check_report(err, results)
        if process.returncode == 0:
            return count


def start(config, out, *words):
    """A sweep in a process of its own."""
    command = [sys.executable, "-m", "experiments", "sweep", str(config), "--out", str(out), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def wait(process, seconds):
    """Until so much time has passed after the first worker was there, or the process has ended."""
    while process.poll() is None and not workers(process.pid):
        sleep(0.01)
    until = monotonic() + seconds
    while process.poll() is None and monotonic() < until:
        sleep(min(0.01, max(0.0, until - monotonic())))


def kill(process, rng):
    """Kill the parent, one time in three, or else one of its workers; which it was."""
    chosen = workers(process.pid)
    if not chosen or rng.random() < 1 / 3:
        process.kill()
        process.wait()
        return "parent"
    with suppress(ProcessLookupError):
        os.kill(rng.choice(chosen), signal.SIGKILL)
    return "worker"


def interrupt(process, rng):
    """Press Ctrl-C, of which the workers hear too, or send the signal to the parent alone, as
    `timeout` does.
    """
    if rng.random() < 1 / 2:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    return "interrupt"


def check_report(err, results):
    """Hold what an interrupted sweep has printed against the runs that there are, and look for what
    it has left.
    """
    assert "Traceback" not in err, err
    assert "Warning" not in err, err
    last = err.splitlines()[-1]
    saved = re.fullmatch(r"interrupted(?:: (\d+) of \d+ runs saved in .*)?", last)
    assert saved, err
    if saved[1]:
        assert int(saved[1]) == len(list(results.glob("[!.]*/manifest.json"))), err
    assert not list(results.glob(".*"))


def workers(parent):
    """The processes of loky that `parent` has started, by what Linux says of every process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended meanwhile
            after = status.read_text().rpartition(")")[2].split()
            words = (status.parent / "cmdline").read_bytes()
            if int(after[1]) == parent and after[0] != "Z" and b"popen_loky" in words:
                found.append(int(status.parent.name))
    return found


def check_kept(results, finished):
    """Hold the manifests against those that were there before, and note the new ones."""
    for path, before in finished.items():
        status = path.stat()
        assert (status.st_ino, status.st_mtime_ns) == before, f"{path} was written again"
    for path in results.glob("[!.]*/manifest.json"):
        status = path.stat()
        finished.setdefault(path, (status.st_ino, status.st_mtime_ns))


def wait_for(found, seconds=120.0):
    """The first true value of `found`, within some seconds."""
    end = monotonic() + seconds
    while monotonic() < end:
        value = found()
        if value:
            return value
        sleep(0.02)
    raise TimeoutError(f"nothing within {seconds:g} s")


def contents(results):
    """The tables and the weights of every run, by folder and name."""
    files = [file for name in COMPARED for file in results.glob(f"[!.]*/{name}")]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


def hold(kills, runs, updates, within, seed, folder, kill=kill):
    """Carry out both sweeps and compare them; counts what was killed."""
    config = folder / "killed.yaml"
    config.write_text(CONFIG % (updates, runs), encoding="utf-8")
    with start(config, folder / "undisturbed", "--jobs", "1") as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    count = disturbed(config, folder / "disturbed", kills, within, random.Random(seed), kill)
    expected, got = (contents(folder / each / "killed") for each in ("undisturbed", "disturbed"))
    assert len(expected) == len(COMPARED) * runs
    assert got.keys() == expected.keys(), sorted(got.keys() ^ expected.keys())
    different = [name for name in got if got[name] != expected[name]]
    assert not different, f"not as in a sweep that nobody disturbed: {different}"
    return count
