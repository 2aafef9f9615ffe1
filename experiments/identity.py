"""Which run a config stands for: a digest of what decides its outcome."""

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.config import Config

IGNORED = ("name", "question", "device", "backend", "threads", "evaluate.target_accuracy", "record")
"""Keys that change no run: they name it, carry it out, judge it and say what else is written down."""


def digest(config: "Config") -> str:
    """SHA-256 of what decides a run's outcome: its resolved config as canonical JSON.

    Left out are `name`, `question`, `device`, `backend`, `threads`, `evaluate.target_accuracy` and `record`, which name
    it, carry it out, judge it and say what else is written down.
    """
    document = config.resolved()
    for key in IGNORED:
        owner, _, name = key.rpartition(".")
        del (document[owner] if owner else document)[name]
    document["sweep"] = list(document["sweep"].items())  # their order is the order of the members
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def run_id(config: "Config") -> str:
    """The name of the run's folder: the first twelve hexadecimal digits of its digest."""
    return digest(config)[:12]
