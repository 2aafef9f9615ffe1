"""The outcome of a simulation."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.trace import Columns

if TYPE_CHECKING:
    from torch import Tensor

RESTORE_COLUMNS = {"time": "f8", "back": "f8", "server": "i8", "version": "i8", "lost": "i8"}
"""The columns of `Outcome.restores`, and their types in numpy."""
NOTE_COLUMNS = ("time", "updates", "node", "name", "member", "value")
"""The columns of `Outcome.notes`."""


class Divergence(NamedTuple):
    """The moment at which a member's loss or weights ceased to be finite."""

    updates: float
    time: float


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation.

    Attributes:
        metrics: columns, a row per evaluation and member: `time` (s), `updates`, `samples`,
            `epoch`, `bytes` of the messages sent so far, `member`, `train_loss`, and the task's
            measures.
        updates: columns, a row per gradient with a final status; see `Trace.columns`. `arrived` (s)
            is when it first arrived at another node, NaN where it did not or messages were not
            recorded.
        workers: columns `worker`, `computing`, `sending`, `waiting`, `down` (s).
        nodes: columns, a row per evaluation, node and member, where nodes have models of their own:
            `time` (s), `updates`, `node`, `member`, `distance` to the mean, push-sum `weight`,
            measures if asked for.
        weights: the final models `(ensemble, params)`.
        gradients: counts `started`, `applied`, `dropped`, `cancelled`, `in flight`.
        messages: counts `sent`, `delivered`, `lost`, `in flight`.
        unanswered: messages of servers to which a worker sent nothing back since it crashed.
        evaluated: gradients that were evaluated.
        reached: the limit that ended it, `returned` where every worker's roles did, `diverged`, or
            `stalled`.
        progress: the progress on each axis.
        diverged: for each member the moment at which its loss ceased to be finite, or None.
        stalled: why nothing could lead to an update, or None; after a crash that left no event,
            what each node waits for and since when.
        models: the evaluated models `(evaluations, ensemble, params)` under `Evaluate.keep_models`,
            else None.
        message_log: columns, a row per message, see `MessageLog.columns`; None where they were not
            recorded.
        restores: columns, a row per crash of a server: `time` and `back` (s; NaN where the run
            ended before), `server` (its rank), `version` (the updates that it had made), `lost`
            (the number of these that are lost). The lost updates are the rows of `updates` with
            this server as `target` and with a `version` from version - lost to version - 1: the
            version goes on after a restore, and the status of lost gradients stays applied. No
            columns if no server crashes.
        notes: columns, a row per number that the method noted and member: `time` (s), `updates` as
            in `metrics`, `node` (its rank), `name`, `member`, `value`. No columns if it noted none.
    """

    metrics: Columns
    updates: Columns
    workers: Columns
    nodes: Columns
    weights: "Tensor"
    gradients: dict[str, int]
    messages: dict[str, int]
    evaluated: int
    reached: str
    progress: RunProgress
    diverged: list[Divergence | None]
    stalled: str | None = None
    unanswered: int = 0
    models: "Tensor | None" = None
    message_log: Columns | None = None
    restores: Columns = field(default_factory=dict)
    notes: Columns = field(default_factory=dict)
