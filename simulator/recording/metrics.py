"""What is measured during a run: losses, evaluations, divergence, consensus distance."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.promises import evaluate
from laggard.simulator.learning.task import ACCURACY_ROUNDING, Task
from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.outcome import Divergence
from laggard.simulator.recording.trace import Columns


class Replica(Protocol):
    """A node of which the model is measured.

    Attributes:
        weight: push-sum's weight of the node.
    """

    rank: int
    weight: float

    @property
    def weights(self) -> Tensor:
        """Its model `(ensemble, params)`."""
        ...


class Spread:
    """A row per evaluation, node and member: the distance of the node's model from the mean of all.

    `distance` is |x_i - x_mean|, `weight` push-sum's w_i (1 elsewhere); the task's measures of each
    node's model are added where they were asked for.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []  # tensors where values are learnt

    def note(
        self,
        progress: RunProgress,
        nodes: Sequence[Replica],
        mean: Tensor,
        measures: Sequence[Mapping[str, Tensor]],
    ) -> Tensor:
        """Record the nodes' models; return the consensus distance `(ensemble,)`, their root mean
        square.
        """
        distances = torch.stack([(node.weights - mean).double().norm(dim=1) for node in nodes])
        members = np.arange(len(mean))
        rows = len(nodes) * len(members)
        self._rows.append(
            {
                "time": np.full(rows, progress.time),
                "updates": np.full(rows, progress.updates),
                "node": np.repeat([node.rank for node in nodes], len(members)),
                "member": np.tile(members, len(nodes)),
                "distance": distances.flatten().cpu(),
                "weight": np.repeat([float(node.weight) for node in nodes], len(members)),
            }
            | {
                name: torch.stack([measure[name] for measure in measures]).flatten().cpu()
                for name in (measures[0] if measures else ())
            }
        )
        return distances.square().mean(0).sqrt()

    def columns(self) -> Columns:
        """`time` (s), `updates`, `node`, `member`, `distance`, `weight`, and measures; no columns
        without rows.
        """
        return {
            name: np.concatenate([row[name] for row in self._rows])
            for name in (self._rows or [{}])[0]
        }


# losses buffered before they are summed, so that the update of a divergence can be named
FOLD = 1024
FOLD_AFAR = 64 * FOLD  # on a GPU, where reading them makes the program wait


class Learning:
    """The record of an ensemble: `train_loss` since the last evaluation, the task's measures, and
    divergence.

    Attributes:
        spread: the distances between nodes' models.
        learns: whether there is anything to learn; without parameters only the clock runs.
    """

    def __init__(
        self, task: Task, start: Tensor, every_node: bool = False, keep_models: bool = False
    ) -> None:
        self.spread, self._every_node = Spread(), every_node
        self._models: list[Tensor] | None = [] if keep_models else None
        self.task, self._ensemble, self.learns = task, start.shape[0], start.shape[1] > 0
        self._losses: list[Tensor] = []
        self._most = FOLD if start.device.type == "cpu" else FOLD_AFAR
        self._moments: list[tuple[float, float]] = []
        self._total, self._count = torch.zeros(self._ensemble, dtype=torch.float64), 0
        self._rows: list[RunProgress] = []
        self._measures: list[dict[str, Tensor]] = []
        # a `Divergence` each
        self._diverged = torch.full((self._ensemble, 2), math.nan, dtype=torch.float64)

    @property
    def accuracy(self) -> float:
        """The best member's at the last evaluation; 0 where the task measures none."""
        measured = self._measures[-1].get("test_accuracy")
        if measured is None:
            return 0.0
        return float(measured.nan_to_num().max())

    def reaches(self, accuracy: float) -> bool:
        """Whether the best member had this accuracy at the last evaluation, up to the rounding of
        its type.
        """
        return self.accuracy >= accuracy - ACCURACY_ROUNDING

    @property
    def diverged(self) -> list[Divergence | None]:
        """Per member, where it ceased to be finite, or None."""
        return [None if math.isnan(row[0]) else Divergence(*row) for row in self._diverged.tolist()]

    @property
    def all_diverged(self) -> bool:
        """Whether every member has diverged."""
        return not self._diverged.isnan().any()

    def applied(self, gradients: Sequence[Gradient], updates: float, time: float) -> None:
        """Record the mini-batch losses of gradients that an update applied."""
        evaluate(gradients)
        for gradient in gradients:
            self._losses.append(gradient.losses)
            self._moments.append((updates, time))
        if len(self._losses) >= self._most:
            self._fold()

    def evaluate(
        self, weights: Tensor, progress: RunProgress, nodes: Sequence[Replica] = ()
    ) -> None:
        """Add a row for the models `weights` `(ensemble, params)`, unless the last row has the same
        progress.

        Where they are the mean of several `nodes`' models, record their distances too.
        """
        if self._rows and self._rows[-1] == progress:
            return
        self._fold()
        if self._count:
            losses = self._total / self._count
        else:
            losses = torch.full_like(self._total, math.nan)
        self._total, self._count = torch.zeros_like(self._total), 0
        self._mark(weights.isfinite().all(1).cpu(), progress.updates, progress.time)
        self._rows.append(progress)
        self._measures.append({"train_loss": losses, **self.task.evaluate(weights)})
        if self._models is not None:
            self._models.append(weights.detach().cpu())
        if nodes and self.learns:
            if self._every_node:
                each = [self.task.evaluate(node.weights) for node in nodes]
            else:
                each = []
            self._measures[-1]["consensus"] = self.spread.note(progress, nodes, weights, each)

    @property
    def models(self) -> Tensor | None:
        """The models evaluated `(evaluations, ensemble, params)`, in the order of `columns`; None
        unless kept.
        """
        if self._models is None:
            return None
        return torch.stack(self._models)

    def columns(self) -> Columns:
        """`time` (s), `updates`, `samples`, `epoch`, `member`, `train_loss` and the task's
        measures.

        Where several nodes have models of their own also `consensus`, the root mean square of their
        distances to the mean.
        """
        rows, members = len(self._rows), np.arange(self._ensemble)
        shared = {"time": "time", "updates": "updates", "samples": "samples", "epoch": "epochs"}
        columns = {
            name: np.repeat(np.array([getattr(row, axis) for row in self._rows]), self._ensemble)
            for name, axis in shared.items()
        }
        columns["member"] = np.tile(members, rows)
        for name in self._measures[-1] if self._measures else ():
            columns[name] = (
                torch.stack([measure[name].detach().cpu() for measure in self._measures])
                .flatten()
                .numpy()
            )
        return columns

    def _fold(self) -> None:
        """Sum the buffered losses, and mark the members whose loss is not finite."""
        if not self._losses:
            return
        losses = torch.stack(self._losses).double().cpu()
        finite = losses.isfinite()
        for row in (~finite.all(1)).nonzero().flatten().tolist():
            self._mark(finite[row], *self._moments[row])
        self._total, self._count = self._total + losses.sum(0), self._count + len(losses)
        self._losses, self._moments = [], []

    def _mark(self, finite: Tensor, updates: float, time: float) -> None:
        for member in (~finite).nonzero().flatten().tolist():
            if self._diverged[member].isnan().any():
                self._diverged[member] = torch.tensor([updates, time], dtype=torch.float64)
