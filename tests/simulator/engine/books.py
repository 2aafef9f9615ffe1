"""What holds for the books of every run."""

from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor

from laggard.simulator import Outcome


def check_books(outcome):
    """Every gradient, message, version and second is counted once, and no time runs backwards."""
    for started, *counts in (outcome.gradients.values(), outcome.messages.values()):
        assert started == sum(counts)
        assert min(started, *counts) >= 0
    rows = outcome.updates
    assert (np.diff(rows["time"]) >= 0).all()
    assert (np.diff(outcome.metrics["time"]) >= 0).all()
    assert (rows["staleness"] >= 0).all()
    assert (rows["mixings"] >= 0).all()
    assert (rows["started"] <= rows["time"] + 1e-9).all()
    applied = rows["status"] == "applied"
    assert (rows["computed"][applied] <= rows["time"][applied] + 1e-9).all()
    spent = np.stack(
        [outcome.workers[state] for state in ("computing", "sending", "waiting", "down")]
    )
    assert (spent >= -1e-9).all()
    np.testing.assert_allclose(spent.sum(0), outcome.progress.time, rtol=1e-9, atol=1e-9)
    for server in set(outcome.restores.get("server", ())):
        check_restores(outcome, server)


def check_restores(outcome, server):
    """Versions go on after a restore, and none before it is of a later update."""
    rows, crashes = outcome.updates, outcome.restores["server"] == server
    updates = (rows["status"] == "applied") & (rows["target"] == server)
    versions = np.unique(rows["version"][updates])
    assert versions.tolist() == list(range(len(versions)))
    crashed, before, lost = (
        outcome.restores[name][crashes] for name in ("time", "version", "lost")
    )
    assert (np.diff(before, append=len(versions)) >= 0).all()
    assert (np.diff(before, prepend=0) >= lost).all()
    assert (lost >= 0).all()
    for time, version in zip(crashed, before, strict=True):
        assert (rows["time"][updates & (rows["version"] < version)] <= time).all()


def differences(one: Outcome, other: Outcome) -> list[str]:
    """The fields in which two outcomes differ, to the bit."""
    return [
        field.name
        for field in fields(Outcome)
        if bits(getattr(one, field.name)) != bits(getattr(other, field.name))
    ]


def bits(value: Any) -> Any:
    """A value that is equal to another one's if both are the same bits."""
    if isinstance(value, dict):
        return [(name, bits(part)) for name, part in value.items()]
    if isinstance(value, Tensor | np.ndarray):
        array = np.asarray(value)
        return array.dtype, array.shape, array.tobytes()
    return value
