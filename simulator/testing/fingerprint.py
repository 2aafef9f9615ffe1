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
    made = hashlib.sha256(repr(columns).encode())
    made.update(outcome.weights.detach().cpu().contiguous().numpy().tobytes())
    return made.hexdigest()


def fingerprints_elsewhere(trials: Sequence[Trial]) -> list[str] | None:
    """The fingerprints of runs in another process with another hash seed; None where it cannot
    import them.
    """
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    script = "from laggard.simulator.testing.fingerprint import answer; answer()"
    try:
        asked = pickle.dumps(
            [
                (each.make(each.rule), each.cluster, each.task, each.updates, each.seed)
                for each in trials
            ]
        )
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=asked,
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"another process fails: {done.stderr.decode().strip().splitlines()[-1]}"
        )
    return cast("list[str] | None", pickle.loads(done.stdout))


def answer() -> None:
    """Read trials from standard input, run them, and write their fingerprints to standard
    output.
    """
    try:
        asked = pickle.load(sys.stdin.buffer)
    except (ImportError, AttributeError):
        made = None
    else:
        made = [
            fingerprint(
                trial_of(algorithm, cluster=cluster, task=task, updates=updates, seed=seed).run()
            )
            for algorithm, cluster, task, updates, seed in asked
        ]
    sys.stdout.buffer.write(pickle.dumps(made))
