"""Hashes of tiny runs: what a commit changes in them is a decision, never an accident.

`python -m tests.experiments.test_run_hashes` rewrites the hashes; the commit says why. A rule
whose numbers change also needs an entry in `experiments/config/revisions.py`.
"""

import hashlib
import json
from pathlib import Path

import pytest

from laggard import load
from laggard.experiments.config.grid import runs
from laggard.simulator import simulate
from tests.experiments.killing import ROOT

HASHES = Path(__file__).with_name("run_hashes.json")
CONFIGS = {path.stem: path for path in sorted((ROOT / "configs" / "methods").glob("*.yaml"))}
COLUMNS = ("worker", "target", "version_read", "version", "staleness", "mixings", "status")


def hash_of_run(path):
    """Order, versions and status of all gradients of the first run, with times to six digits.

    Further digits, and weights, depend on the CPU and on versions of libraries.
    """
    (spec, *_) = runs(load(path, "stop={gradients: 60}"))
    outcome = simulate(**spec.arguments())
    updates = outcome.updates
    times = [f"{time:.6g}" for time in updates["time"]]
    rows = zip(times, *(list(map(str, updates[name])) for name in COLUMNS), strict=True)
    lines = [" ".join(row) for row in rows]
    messages = " ".join(f"{status} {count}" for status, count in sorted(outcome.messages.items()))
    text = "\n".join([*lines, messages, outcome.reached])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


STORED = json.loads(HASHES.read_text())
"""By config. One whose config is gone is of no account, and goes when the hashes are written."""


@pytest.mark.parametrize("name", CONFIGS)
def test_run_has_its_stored_hash(name):
    assert name in STORED, "no stored hash: write it with this module's command"
    assert hash_of_run(CONFIGS[name]) == STORED[name]


if __name__ == "__main__":
    fresh = {name: hash_of_run(path) for name, path in CONFIGS.items()}
    HASHES.write_text(json.dumps(fresh, indent=1) + "\n")
