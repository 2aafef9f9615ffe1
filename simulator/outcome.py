"""What a simulation leaves behind."""

from dataclasses import dataclass

from torch import Tensor

from simulator.learning import Divergence
from simulator.milestones import Mileage
from simulator.trace import Columns


@dataclass(frozen=True)
class Outcome:
    """What a simulation leaves behind.

    Attributes:
        metrics: columns, a row per evaluation and member: `time` (s), `updates`, `samples`, `epoch`, `member`,
            `train_loss`, and the task's measures.
        updates: columns, a row per gradient whose fate is known; see `Trace.columns`. `arrived` (s) is when it first
            got to another node, NaN where it did not or the messages were not recorded.
        workers: columns `worker`, `computing`, `sending`, `waiting`, `down` (s).
        nodes: columns, a row per evaluation, node and member, where nodes have models of their own: `time` (s),
            `updates`, `node`, `member`, `distance` to the mean, push-sum `weight`, measures if asked for.
        weights: the final models `(ensemble, params)`.
        gradients: counts `started`, `applied`, `dropped`, `cancelled`, `in flight`.
        messages: counts `sent`, `delivered`, `lost`, `in flight`.
        evaluated: gradients whose arithmetic was done.
        reached: the limit that ended it, `returned` where every worker's roles did, `diverged`, or `stalled`.
        mileage: how far it came on each axis.
        diverged: per member, where its loss ceased to be finite, or None.
        stalled: who waits for what since when, where a crash left nothing to happen any more, or None.
        models: those evaluated `(evaluations, ensemble, params)`, under `Evaluate.keep_models`, or None.
        message_log: columns, a row per message, see `MessageLog.columns`; None where they were not recorded.
    """

    metrics: Columns
    updates: Columns
    workers: Columns
    nodes: Columns
    weights: Tensor
    gradients: dict[str, int]
    messages: dict[str, int]
    evaluated: int
    reached: str
    mileage: Mileage
    diverged: list[Divergence | None]
    stalled: str | None = None
    models: Tensor | None = None
    message_log: Columns | None = None
