"""The identities, a check each."""

import math
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
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.network.config import Network
from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.testing.fingerprint import fingerprint, fingerprints_elsewhere
from laggard.simulator.testing.trial import MEMBER_RATES, Handed, Trial, watch_nodes
from laggard.simulator.timing.distributions import Constant


class Broken(Exception):
    """An identity that does not hold; the message describes the difference."""


Check = Callable[[Trial], bool | None]
IDENTITIES: dict[str, Check] = {}
"""The checks of `check_algorithm` by name; a check returns False where it is impossible."""


def identity(name: str, look_for: str) -> Callable[[Check], Check]:
    """Register a check under the name of its identity, with the likely causes of a failure."""

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
    "it makes progress",
    "a message that is never sent, a receive with another tag, or what the engine's message names",
)
def check_progress(trial: Trial) -> None:
    """The run ends by its updates or because its workers return, without deadlock or error."""
    outcome = trial.outcome
    if not outcome.gradients["applied"]:
        raise Broken(f"{outcome.gradients['started']} gradients were started and none was applied")
    if outcome.reached not in ("updates", "returned"):
        updates = f"{outcome.progress.updates:g} of {trial.updates:g} updates"
        raise Broken(f"it ended by {outcome.reached} after {updates}")


@identity(
    "the same seed is the same run",
    "`random`, `torch.rand` and other global streams (use `node.rng`), the wall clock, "
    "and state that survives from one run to the next",
)
def check_determinism(trial: Trial) -> None:
    """Two runs are equal bit for bit, and leave the global streams of random numbers alone."""
    with _global_streams_untouched():
        _expect_equal(trial.outcome, trial.run(), "two runs with the same seed")


@identity(
    "ensemble = single runs",
    (
        "`if`, `float()` or `max()` of a tensor, and means or norms over all members instead "
        "of `dim=-1`"
    ),
)
def check_ensemble(trial: Trial) -> None:
    """Members with different learning rates and seeds equal single runs, bit for bit."""
    for member, (rate, seed) in enumerate(zip(MEMBER_RATES, trial.learning_seeds, strict=True)):
        alone = trial.run(trial.with_rates(rate), learning_seeds=[seed])
        who = f"member {member} of the ensemble and its own run"
        _expect_equal(trial.ensemble, alone, who, member)


@identity(
    "a diverged member leaves the others as they are",
    "arithmetic across members, and ends that one member's NaN brings about",
)
def check_divergence(trial: Trial) -> None:
    """A member that diverges changes no bit of the other members."""
    first, _, last = MEMBER_RATES
    rates = trial.with_rates(first, 1e200, last)
    diverging = trial.run(rates, learning_seeds=trial.learning_seeds)
    for member in (0, 2):
        who = f"member {member} beside a sound member and beside a diverging one"
        _expect_equal(trial.ensemble, diverging, who, member, member)


@identity(
    "deferred = immediate evaluation",
    (
        "weights or mini-batches that are written to after a gradient was asked at them, as "
        "through `.data` or `.numpy()`"
    ),
)
def check_deferral(trial: Trial) -> None:
    """Gradients are equal whether they are evaluated when first needed, at their start or one by
    one.
    """
    deferred = trial.outcome
    who = "evaluation when a value is needed and when a gradient starts"
    _expect_equal(deferred, trial.run(defer=False), who)
    # with almost no memory, a promise is evaluated before the next one is made
    _expect_equal(deferred, trial.run(memory=1.0), "evaluation in groups and one by one")


@identity(
    "every gradient and message is accounted for",
    (
        "a gradient that is applied before `yield node.compute(...)` has fired, or at weights "
        "of the future"
    ),
)
def check_counts(trial: Trial) -> None:
    """Each gradient and message has one final status; no time runs backwards, no staleness < 0."""
    outcome = trial.outcome
    rows = outcome.updates
    counts = outcome.gradients
    messages = outcome.messages
    ended_counts = {
        status: count for status, count in counts.items() if status not in ("started", "in flight")
    }
    for status, count in ended_counts.items():
        status_rows = (rows["status"] == status).sum()
        # A gradient in slices has up to a row for each. One of which a slice was applied counts as
        # applied; a crash may have dropped its other slices.
        fits = status_rows == count
        if trial.slices > 1:
            fits = status_rows >= count
        _expect(fits, f"{status_rows} rows of {count} {status} gradients")
    resolved = sum(ended_counts.values())
    _expect(len(rows["status"]) <= trial.slices * resolved, f"more rows than slices: {counts}")
    total = resolved + counts["in flight"]
    _expect(total == counts["started"], f"gradients: {counts}")
    _expect(sum(messages.values()) == 2 * messages["sent"], f"messages: {messages}")
    smallest = min(*counts.values(), *messages.values())
    _expect(smallest >= 0, f"gradients: {counts}, messages: {messages}")
    time = rows["time"]
    started = rows["started"]
    computed = rows["computed"]
    in_order = (np.diff(time) >= 0).all()
    _expect(in_order, "a gradient was resolved before one that was resolved earlier")
    existed = (rows["staleness"] >= 0).all()
    _expect(existed, "a gradient was taken at weights that did not exist yet")
    ended = ~np.isnan(computed)
    applied = rows["status"] == "applied"
    _expect(ended[applied].all(), "a gradient was applied before it was computed")
    _expect((started <= time).all(), "a gradient was resolved before it was started")
    positive = (started[ended] <= computed[ended]).all()
    _expect(positive, "a gradient ended before it was started")
    resolved_later = (computed[ended] <= time[ended]).all()
    _expect(resolved_later, "a gradient was resolved before it was computed")


@identity(
    "staleness counts the updates of a model",
    (
        "arithmetic on weights before they are sent: send them too, and "
        "`node.compute(weights, read=read)`"
    ),
)
def check_reads(trial: Trial) -> None:
    """No gradients are applied whose staleness counts the updates of a node that makes none."""
    rows = trial.outcome.updates
    applied = rows["status"] == "applied"
    for node in np.unique(rows["target"][applied]):
        versions = rows["version"][applied & (rows["target"] == node)]
        updated = len(versions) < 2 or versions.any()  # the version before the first update is 0
        how = "were taken at weights that are not a node's model, and count as fresh"
        _expect(updated, f"gradients of worker {node} {how}")


@identity(
    "ties fall in the order of scheduling",
    (
        "sets of gradients or nodes, sorting by `id()`, and polling for what arrived in this "
        "very instant"
    ),
)
def check_ties(trial: Trial) -> bool | None:
    """Where all workers end together, memory addresses and evaluations do not change a run.

    False where the method refuses such workers, for example because it was given another law.

    The order of workers in a tie is not part of the identity: an exchange of two workers may change
    a run, since a ring has neighbours and a warm start has a first replica.
    """
    given = trial.cluster.network
    network = Network(topology=given.topology, sharing=given.sharing)
    at_once = replace(trial.cluster, apply_seconds=0.0, receive_seconds=0.0, reply_seconds=0.0)
    # the cluster's own mean, since settings of a method may be times that suit the cluster
    mean = trial.cluster.compute.mean
    seconds = 1.0
    if math.isfinite(mean):
        seconds = mean
    cluster = replace(at_once, compute=Constant(seconds), slowdowns=(), network=network)
    tied = replace(trial, cluster=cluster)
    try:
        first = tied.run()
    except InvalidSettingError:
        return False
    spacers = [object() for _ in range(1001)]  # move the next run's objects in memory
    # A server that serves a set of gradients in its order is found by 98 % of such pairs of runs.
    for _ in range(2):
        _expect_equal(first, tied.run(), "two runs with the same ties")
        spacers += [object() for _ in range(1001)]
    evaluated = tied.run(evaluate=Evaluate(every_seconds=seconds))
    who = "a run that is evaluated at its ends and one that is at every mini-batch's end"
    _expect_equal(first, evaluated, who)
    return True


@identity(
    "weights are values",
    "`+=`, `mul_` and other arithmetic in place on what was sent, computed at or set as a model; "
    "write `weights = weights + step`",
)
def check_in_place(trial: Trial) -> None:
    """Weights that a node has sent, computed at or set do not change, nor do gradients' values."""
    handed: list[Handed] = []
    gradients: list[Gradient] = []
    trial.run(observe=partial(watch_nodes, handed, gradients))
    for record in handed:
        _expect(record.unchanged(), f"{record.what} was changed in place later")
    if not handed or not handed[0].tensor.numel():  # a run of the clock alone
        return
    for gradient in gradients:
        fresh, _ = trial.task.gradients(gradient.weights.unsqueeze(0), [gradient.batch])
        same = torch.allclose(gradient.value, fresh[0], equal_nan=True)
        _expect(same, f"the value of a gradient of worker {gradient.worker} was changed in place")


@identity(
    "the seed of Python's hashes changes nothing",
    "the order of a set of texts or objects, and `hash()`; dicts and lists keep their order",
)
def check_hash_seed(trial: Trial) -> bool | None:
    """A process with another PYTHONHASHSEED has the same run; False where it cannot import it."""
    elsewhere = fingerprints_elsewhere([trial])
    if elsewhere is None:
        return False
    same = elsewhere == [fingerprint(trial.outcome)]
    _expect(same, "another process with another PYTHONHASHSEED gets another run")
    return True


@contextmanager
def _global_streams_untouched() -> Iterator[None]:
    """Raise `Broken` if a global stream is used or seeded; each starts from a random seed."""
    before = _global_streams()
    unusual = secrets.randbits(31)
    random.seed(unusual)
    np.random.seed(unusual)  # noqa: NPY002  # the check is whether it is used
    torch.default_generator.manual_seed(unusual)
    try:
        start = _comparable(_global_streams())
        yield
        untouched = _comparable(_global_streams()) == start
        _expect(untouched, "it draws from a global random stream, or seeds one")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.default_generator.set_state(before[2])


def _comparable(streams: tuple[Any, Any, Tensor]) -> list[Any]:
    """The states of streams without arrays, for `==`."""
    of_python, of_numpy, of_torch = streams
    return [of_python, [np.asarray(part).tolist() for part in of_numpy], of_torch.tolist()]


def _global_streams() -> tuple[Any, Any, Tensor]:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002


def _expect(holds: bool | np.bool_, how: str) -> None:
    if not holds:
        raise Broken(how)


def _expect_equal(
    one: Outcome, other: Outcome, who: str, row: int | None = None, other_row: int = 0
) -> None:
    """Raise `Broken` unless the timelines and the models of two runs are equal, bit for bit.

    With `row`, this row of the first model is compared with `other_row` of the second.
    """
    for name, values in one.updates.items():
        others = other.updates[name]
        if np.array_equal(values, others, equal_nan=values.dtype.kind == "f"):
            continue
        place = common = min(len(values), len(others))
        for index in range(common):
            is_nan = values[index] != values[index]
            if values[index] != others[index] and not is_nan:
                place = index
                break
        raise Broken(f"{who} differ in the {name} of gradient {place}, in order of resolution")
    weights, other_weights = one.weights, other.weights
    if row is not None:
        weights = weights[row]
        other_weights = other_weights[other_row]
    if weights.shape != other_weights.shape:
        raise Broken(f"{who} differ: their final weights have different shapes")
    if not torch.allclose(weights, other_weights, rtol=0, atol=0, equal_nan=True):
        difference = (weights - other_weights).abs().max()
        raise Broken(f"{who} differ: their final weights by {difference:g}")
