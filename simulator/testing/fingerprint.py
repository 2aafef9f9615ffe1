"""The fingerprint of a run, here and in another process with other hash seeds."""

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.testing.trial import Trial, trial_of


def fingerprint(outcome: Outcome) -> str:
    """SHA-256 of a run's timeline and weights."""
    columns = [column.tolist() for column in outcome.updates.values()]
    digest = hashlib.sha256(repr(columns).encode())
    digest.update(outcome.weights.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def fingerprints_elsewhere(trials: Sequence[Trial]) -> list[str] | None:
    """The fingerprints of runs in another process with another hash seed.

    None where that process cannot import the algorithms.
    """
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    script = "from laggard.simulator.testing.fingerprint import answer; answer()"
    settings = []
    for trial in trials:
        algorithm = trial.make(trial.rule)
        settings.append((algorithm, trial.cluster, trial.task, trial.updates, trial.seed))
    try:
        stdin = pickle.dumps(settings)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)
    if done.returncode:
        *_, last_line = done.stderr.decode().strip().splitlines()
        raise RuntimeError(f"another process fails: {last_line}")
    return cast("list[str] | None", pickle.loads(done.stdout))


def answer() -> None:
    """Read trials from standard input, and write their fingerprints to standard output."""
    fingerprints: list[str] | None = None
    try:
        settings = pickle.load(sys.stdin.buffer)
    except (ImportError, AttributeError):
        settings = None
    if settings is not None:
        fingerprints = []
        for algorithm, cluster, task, updates, seed in settings:
            trial = trial_of(algorithm, cluster=cluster, task=task, updates=updates, seed=seed)
            fingerprints.append(fingerprint(trial.run()))
    sys.stdout.buffer.write(pickle.dumps(fingerprints))
