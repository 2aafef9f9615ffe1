"""What is learnt along the way: losses of the applied gradients, evaluations, members that diverged."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simulator.gradients import Gradient
from simulator.milestones import Mileage
from simulator.promises import together
from simulator.spread import Holder, Spread
from simulator.task import Task
from simulator.trace import Columns

FOLD = 1024  # losses kept one by one before they are added up: enough to name the update at which one diverged
FOLD_AFAR = 64 * FOLD  # where they lie on a GPU, for which the program must wait


class Divergence(NamedTuple):
    """Where a member's loss or weights ceased to be finite."""

    updates: float
    time: float


class Learning:
    """The record of an ensemble: `train_loss` since the last evaluation, the task's measures, and divergence.

    Attributes:
        spread: the record of what lies between several nodes' models.
        learns: whether there is anything to learn; without parameters only the clock runs.
    """

    def __init__(self, task: Task, start: Tensor, every_node: bool = False, keep_models: bool = False) -> None:
        self.spread, self._every_node = Spread(), every_node
        self._models: list[Tensor] | None = [] if keep_models else None
        self._task, self._ensemble, self.learns = task, start.shape[0], start.shape[1] > 0
        self._losses: list[Tensor] = []
        self._most = FOLD if start.device.type == "cpu" else FOLD_AFAR
        self._moments: list[tuple[float, float]] = []
        self._total, self._count = torch.zeros(self._ensemble, dtype=torch.float64), 0
        self._rows: list[Mileage] = []
        self._measures: list[dict[str, Tensor]] = []
        self.diverged: list[Divergence | None] = [None] * self._ensemble

    @property
    def accuracy(self) -> float:
        """The best member's at the last evaluation; 0 where the task measures none."""
        measured = self._measures[-1].get("test_accuracy")
        return 0.0 if measured is None else float(measured.nan_to_num().max())

    @property
    def hopeless(self) -> bool:
        """Whether every member has diverged."""
        return all(self.diverged)

    def applied(self, gradients: Sequence[Gradient], updates: float, time: float) -> None:
        """Note the mini-batch losses of gradients that an update applied."""
        together(gradients)
        for gradient in gradients:
            self._losses.append(gradient.losses)
            self._moments.append((updates, time))
        if len(self._losses) >= self._most:
            self._fold()

    def evaluate(self, weights: Tensor, mileage: Mileage, nodes: Sequence[Holder] = ()) -> None:
        """Add a row for the models `weights` `(ensemble, params)`, unless the last row is of this very moment.

        Where they are the mean of several `nodes`' models, also what lies between those.
        """
        if self._rows and self._rows[-1] == mileage:
            return
        self._fold()
        losses = self._total / self._count if self._count else torch.full_like(self._total, math.nan)
        self._total, self._count = torch.zeros_like(self._total), 0
        self._mark(weights.isfinite().all(1).cpu(), mileage.updates, mileage.time)
        self._rows.append(mileage)
        self._measures.append({"train_loss": losses, **self._task.evaluate(weights)})
        if self._models is not None:
            self._models.append(weights.detach().cpu())
        if nodes and self.learns:
            each = [self._task.evaluate(node.weights) for node in nodes] if self._every_node else []
            self._measures[-1]["consensus"] = self.spread.note(mileage, nodes, weights, each)

    @property
    def models(self) -> Tensor | None:
        """The models evaluated `(evaluations, ensemble, params)`, a row a row of `columns`; None unless kept."""
        return None if self._models is None else torch.stack(self._models)

    def columns(self) -> Columns:
        """`time` (s), `updates`, `samples`, `epoch`, `member`, `train_loss` and the task's measures.

        Where several nodes have models of their own also `consensus`, the root mean square of their distances to the
        mean.
        """
        rows, members = len(self._rows), np.arange(self._ensemble)
        shared = {"time": "time", "updates": "updates", "samples": "samples", "epoch": "epochs"}
        columns = {
            name: np.repeat(np.array([getattr(row, axis) for row in self._rows]), self._ensemble)
            for name, axis in shared.items()
        }
        columns["member"] = np.tile(members, rows)
        for name in self._measures[-1] if self._measures else ():
            columns[name] = torch.stack([measure[name].detach().cpu() for measure in self._measures]).flatten().numpy()
        return columns

    def _fold(self) -> None:
        """Add up the losses noted, and mark the members among them that are no longer finite."""
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
            self.diverged[member] = self.diverged[member] or Divergence(updates, time)
