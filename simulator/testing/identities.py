"""The identities, a check each."""

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.engine.stopping import Evaluate
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.network.config import Network
from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.testing.fingerprint import fingerprint, fingerprints_elsewhere
from laggard.simulator.testing.trial import Handed, Trial, watch_nodes
from laggard.simulator.timing.distributions import Constant


class Broken(Exception):
    """An identity that does not hold; the message says how."""


Check = Callable[[Trial], bool | None]
IDENTITIES: dict[str, Check] = {}
"""What `check_algorithm` checks, by name; a check returns False where it could not be made."""


def identity(name: str, look_for: str) -> Callable[[Check], Check]:
    """Register a check under the name of its identity, and let it fail with what to look for."""

    def named(check: Check) -> Check:
        @wraps(check)
        def checked(trial: Trial) -> bool | None:
            try:
                return check(trial)
            except Exception as error:
                if isinstance(error, Broken):
                    how = str(error)
                else:
                    how = f"the run raised {type(error).__name__}: {error}"
                raise AssertionError(f"{name}: {how}. Look for {look_for}.") from error

        IDENTITIES[name] = checked
        return checked

    return named


@identity(
    "it gets on",
    "a message that is never sent, a receive with another tag, or what the engine's message names",
)
def check_progress(trial: Trial) -> None:
    """The run ends by its updates or because its workers are done: no deadlock, no error of the
    engine.
    """
    outcome = trial.run()
    if not outcome.gradients["applied"]:
        raise Broken(f"{outcome.gradients['started']} gradients were started and none was applied")
    if outcome.reached not in ("updates", "returned"):
        raise Broken(
            f"it ended by {outcome.reached} after {outcome.progress.updates:g} of "
            f"{trial.updates:g} updates"
        )


@identity(
    "the same seed is the same run",
    "`random`, `torch.rand` and other global streams (use `node.rng`), the wall clock, "
    "and state that survives from one run to the next",
)
def check_determinism(trial: Trial) -> None:
    """Two runs are bit for bit the same, and leave Python's, numpy's and torch's global streams
    where they were.
    """
    with _global_streams_untouched():
        _expect_equal(trial.run(), trial.run(), "two runs with the same seed")


@identity(
    "ensemble = single runs",
    (
        "`if`, `float()` or `max()` of a tensor, and means or norms over all members instead "
        "of `dim=-1`"
    ),
)
def check_ensemble(trial: Trial) -> None:
    """Members with learning rates and seeds of their own are, bit for bit, runs of their own."""
    rates, seeds = (0.3, 1.0, 3.0), [trial.seed, trial.seed + 1, trial.seed + 2]
    together = trial.run(trial.with_rates(*rates), learning_seeds=seeds)
    for member, (rate, seed) in enumerate(zip(rates, seeds, strict=True)):
        alone = trial.run(trial.with_rates(rate), learning_seeds=[seed])
        _expect_equal(together, alone, f"member {member} of the ensemble and its own run", member)


@identity(
    "a diverged member leaves the others as they are",
    "arithmetic across members, and ends that one member's NaN brings about",
)
def check_divergence(trial: Trial) -> None:
    """Members beside one that diverges are bit for bit what they are beside one that does not."""
    seeds = [trial.seed, trial.seed + 1, trial.seed + 2]
    runs = [
        trial.run(trial.with_rates(1.0, rate, 0.5), learning_seeds=seeds) for rate in (1.0, 1e200)
    ]
    for member in (0, 2):
        who = f"member {member} beside a sound member and beside a diverging one"
        _expect_equal(runs[0], runs[1], who, member, member)


@identity(
    "deferred = immediate evaluation",
    (
        "weights or mini-batches that are written to after a gradient was asked at them, as "
        "through `.data` or `.numpy()`"
    ),
)
def check_deferral(trial: Trial) -> None:
    """Gradients are the same evaluated when first needed, when they start, or one by one since
    memory is short.
    """
    deferred = trial.run()
    _expect_equal(
        deferred,
        trial.run(defer=False),
        "evaluation when a value is needed and when a gradient starts",
    )
    _expect_equal(deferred, trial.run(memory=1.0), "evaluation in groups and one by one")


@identity(
    "every gradient and message is accounted for",
    (
        "a gradient that is applied before `yield node.compute(...)` has fired, or at weights "
        "of the future"
    ),
)
def check_counts(trial: Trial) -> None:
    """Gradients and messages have one final status each; time never runs backwards, no staleness is
    negative.
    """
    outcome = trial.run()
    rows, counts, messages = outcome.updates, outcome.gradients, outcome.messages
    statuses = [status for status in counts if status not in ("started", "in flight")]
    for status in statuses:
        found = (rows["status"] == status).sum()
        _expect(
            counts[status] <= found <= trial.slices * counts[status],
            f"{found} rows of {counts[status]} {status} gradients",
        )
    _expect(
        sum(counts[status] for status in statuses) + counts["in flight"] == counts["started"],
        f"gradients: {counts}",
    )
    _expect(sum(messages.values()) == 2 * messages["sent"], f"messages: {messages}")
    _expect(
        min(*counts.values(), *messages.values()) >= 0, f"gradients: {counts}, messages: {messages}"
    )
    _expect(
        (np.diff(rows["time"]) >= 0).all(),
        "a gradient was resolved before one that was resolved earlier",
    )
    _expect(
        (rows["staleness"] >= 0).all(), "a gradient was taken at weights that did not exist yet"
    )
    applied = rows["status"] == "applied"
    _expect(
        not np.isnan(rows["computed"][applied]).any(),
        "a gradient was applied before it was computed",
    )
    ended = ~np.isnan(rows["computed"])
    _expect(
        (rows["started"] <= rows["time"]).all(), "a gradient was resolved before it was started"
    )
    _expect(
        (rows["started"][ended] <= rows["computed"][ended]).all(),
        "a gradient ended before it was started",
    )
    _expect(
        (rows["computed"][ended] <= rows["time"][ended]).all(),
        "a gradient was resolved before it was computed",
    )


@identity(
    "ties fall in the order of scheduling",
    (
        "sets of gradients or nodes, sorting by `id()`, and polling for what arrived in this "
        "very instant"
    ),
)
def check_ties(trial: Trial) -> None:
    """Where all workers end at once, a run is the same wherever its objects lie in memory, and
    however often evaluated.

    Which worker comes first in a tie is no part of it: neither ranks nor an exchange of two workers
    need leave a run as it is, since a ring has neighbours and a warm start has a first replica.
    """
    network = Network(topology=trial.cluster.network.topology)
    at_once = replace(trial.cluster, apply_seconds=0.0, receive_seconds=0.0, reply_seconds=0.0)
    cluster = replace(at_once, compute=Constant(1.0), slowdowns=(), network=network)
    tied = replace(trial, cluster=cluster)
    first, apart = tied.run(), [object() for _ in range(1001)]
    for _ in range(4):
        _expect_equal(first, tied.run(), "two runs with the same ties")
        apart += [object() for _ in range(1001)]
    evaluated = tied.run(evaluate=Evaluate(every_seconds=1.0))
    _expect_equal(
        first, evaluated, "a run that is evaluated at its ends and one that is at every second"
    )


@identity(
    "weights are values",
    "`+=`, `mul_` and other arithmetic in place on what was sent, computed at or set as a model; "
    "write `weights = weights + step`",
)
def check_in_place(trial: Trial) -> None:
    """What a node has sent, computed at or stood for is the same ever after, and so is a gradient's
    value.
    """
    handed: list[Handed] = []
    gradients: list[Gradient] = []
    trial.run(observe=partial(watch_nodes, handed, gradients))
    for thing in handed:
        _expect(thing.unchanged(), f"{thing.what} was changed in place later")
    for gradient in gradients if handed and handed[0].tensor.numel() else ():
        fresh, _ = trial.task.gradients(gradient.weights.unsqueeze(0), [gradient.batch])
        same = torch.allclose(gradient.value, fresh[0], equal_nan=True)
        _expect(same, f"the value of a gradient of worker {gradient.worker} was changed in place")


@identity(
    "the seed of Python's hashes changes nothing",
    "the order of a set of texts or objects, and `hash()`; dicts and lists keep their order",
)
def check_hash_seed(trial: Trial) -> bool | None:
    """Another process, with another PYTHONHASHSEED, gets bit for bit the same run; False where it
    cannot be asked.
    """
    there = fingerprints_elsewhere([trial])
    if there is None:
        return False
    _expect(
        there == [fingerprint(trial.run())],
        "another process with another PYTHONHASHSEED gets another run",
    )
    return True


@contextmanager
def _global_streams_untouched() -> Iterator[None]:
    """Raise `Broken` if a global stream is moved or seeded; each starts from a seed drawn at
    random.
    """
    before = _global_streams()
    unusual = secrets.randbits(31)
    random.seed(unusual)
    np.random.seed(unusual)  # noqa: NPY002  # the check is whether it is used
    torch.default_generator.manual_seed(unusual)
    try:
        start = _plain_outcome(_global_streams())
        yield
        _expect(
            _plain_outcome(_global_streams()) == start,
            "it draws from a global random stream, or seeds one",
        )
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.default_generator.set_state(before[2])


def _plain_outcome(streams: tuple[Any, Any, Tensor]) -> list[Any]:
    """The states of streams as what `==` compares."""
    pythons, numpys, torchs = streams
    return [pythons, [np.asarray(part).tolist() for part in numpys], torchs.tolist()]


def _global_streams() -> tuple[Any, Any, Tensor]:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002


def _expect(holds: bool | np.bool_, how: str) -> None:
    if not holds:
        raise Broken(how)


def _expect_equal(
    one: Outcome, other: Outcome, who: str, row: int | None = None, other_row: int = 0
) -> None:
    """Raise `Broken` unless two runs have one timeline and, bit for bit, one model; or one row of
    it each.
    """
    for name, values in one.updates.items():
        others = other.updates[name]
        if not np.array_equal(values, others, equal_nan=values.dtype.kind == "f"):
            common = min(len(values), len(others))
            at = next(
                (i for i in range(common) if values[i] != others[i] and values[i] == values[i]),
                common,
            )
            raise Broken(f"{who} differ in the {name} of gradient {at}, in order of resolution")
    if row is None:
        weights = (one.weights, other.weights)
    else:
        weights = (one.weights[row], other.weights[other_row])
    if weights[0].shape != weights[1].shape:
        raise Broken(f"{who} differ: their final weights have different shapes")
    if not torch.allclose(*weights, rtol=0, atol=0, equal_nan=True):
        apart = (weights[0] - weights[1]).abs().max()
        raise Broken(f"{who} differ: their final weights by {apart:g}")
