"""Measures of a run: losses, evaluations, divergence, consensus distance."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.learning.gradients import Gradient, losses_of
from laggard.simulator.learning.task import ACCURACY_ROUNDING, Task
from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.outcome import Divergence
from laggard.simulator.recording.trace import Columns


class Replica(Protocol):
    """A node whose model is measured.

    Attributes:
        weight: push-sum's weight of the node.
    """

    rank: int
    weight: float

    @property
    def weights(self) -> Tensor:
        """The node's model `(ensemble, params)`."""
        ...


class Spread:
    """A row per evaluation, node and member: the distance of the node's model to the mean.

    `distance` is |x_i - x_mean|, `weight` push-sum's w_i (1 elsewhere); further columns are the
    task's measures of each node's model, with `Evaluate(nodes=True)`.
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
        """Record the nodes' models.

        Returns:
            The consensus distance `(ensemble,)`: the root mean square of the distances.
        """
        distances = torch.stack([(node.weights - mean).double().norm(dim=1) for node in nodes])
        members = len(mean)
        rows = len(nodes) * members
        columns: dict[str, Any] = {
            "time": np.full(rows, progress.time),
            "updates": np.full(rows, progress.updates),
            "node": np.repeat([node.rank for node in nodes], members),
            "member": np.tile(np.arange(members), len(nodes)),
            "distance": distances.flatten().cpu(),
            "weight": np.repeat([float(node.weight) for node in nodes], members),
        }
        if measures:
            for name in measures[0]:
                values = torch.stack([measure[name] for measure in measures])
                columns[name] = values.flatten().cpu()
        self._rows.append(columns)
        return distances.square().mean(0).sqrt()

    def columns(self) -> Columns:
        """`time` (s), `updates`, `node`, `member`, `distance`, `weight`, and measures, if any."""
        if not self._rows:
            return {}
        names = self._rows[0]
        return {name: np.concatenate([row[name] for row in self._rows]) for name in names}


# Losses are buffered, since reading each would make a GPU's caller wait. A full buffer is summed;
# it has the moment of each loss, so that a divergence has its update. The limits count losses.
FOLD = 1024
FOLD_ON_GPU = 64 * FOLD
STACKED = 32
"""Losses that become one tensor. Each of 1,024 small tensors may lie behind a block that a larger
one has left, and glibc uses no such block again for a tensor of that size: an ensemble of 64
LeNet-5 grew by 10 MB with each update.
"""


class Learning:
    """The record of an ensemble: training losses, the task's measures, and divergence.

    Attributes:
        spread: the distances between nodes' models.
        learns: whether the task has parameters; without any, only the clock runs.
    """

    def __init__(
        self, task: Task, start: Tensor, every_node: bool = False, keep_models: bool = False
    ) -> None:
        self.spread = Spread()
        self._every_node = every_node
        self._models: list[Tensor] | None = [] if keep_models else None
        self.task = task
        self._ensemble = start.shape[0]
        self.learns = start.shape[1] > 0
        self._losses: list[Tensor] = []  # not stacked yet, `(ensemble,)`
        self._stacks: list[Tensor] = []  # the losses before, `(STACKED, ensemble)`
        self._moments: list[tuple[float, float]] = []  # updates and time of each loss
        self._max_losses = FOLD if start.device.type == "cpu" else FOLD_ON_GPU
        self._total = torch.zeros(self._ensemble, dtype=torch.float64)
        self._count = 0
        self._rows: list[RunProgress] = []
        self._bytes_sent: list[float] = []  # up to each row
        self._measures: list[dict[str, Tensor]] = []
        self._highest = torch.zeros(self._ensemble, dtype=torch.float64)  # accuracy of each member
        # updates and time of each member's divergence, NaN before
        self._diverged = torch.full((self._ensemble, 2), math.nan, dtype=torch.float64)

    def all_reached(self, accuracy: float) -> bool:
        """Whether each member had this accuracy at an evaluation, but for rounding, or diverged."""
        ended = ~self._diverged.isnan().any(1)
        reached = self._highest >= accuracy - ACCURACY_ROUNDING
        return bool((reached | ended).all())

    @property
    def diverged(self) -> list[Divergence | None]:
        """For each member, the moment at which it ceased to be finite, or None."""
        divergences: list[Divergence | None] = []
        for updates, time in self._diverged.tolist():
            if math.isnan(updates):
                divergences.append(None)
            else:
                divergences.append(Divergence(updates, time))
        return divergences

    @property
    def all_diverged(self) -> bool:
        """Whether every member has diverged."""
        return not self._diverged.isnan().any()

    def applied(self, gradients: Sequence[Gradient], updates: float, time: float) -> None:
        """Record the mini-batch losses of gradients that an update applied."""
        for losses in losses_of(gradients):
            self._losses.append(losses)
            self._moments.append((updates, time))
            if len(self._losses) == STACKED:
                self._stack()
        if len(self._moments) >= self._max_losses:
            self._fold()

    def evaluate(
        self,
        weights: Tensor,
        progress: RunProgress,
        bytes_sent: float,
        nodes: Sequence[Replica] = (),
    ) -> None:
        """Add a row for the models `weights` `(ensemble, params)`.

        Where they are the mean of several `nodes`' models, record their distances too.

        Args:
            bytes_sent: the bytes of all messages up to now.
        """
        if self._rows and self._rows[-1] == progress:
            return  # the end of the run, or its start, at an evaluation
        self._fold()
        losses = torch.full_like(self._total, math.nan)
        if self._count:
            losses = self._total / self._count
        # `train_loss` is a mean since the last evaluation.
        self._total = torch.zeros_like(self._total)
        self._count = 0
        self._mark(weights.isfinite().all(1).cpu(), progress.updates, progress.time)
        self._rows.append(progress)
        self._bytes_sent.append(bytes_sent)
        measures = self.task.evaluate(weights)
        self._measures.append({"train_loss": losses, **measures})
        if "test_accuracy" in measures:
            accuracy = measures["test_accuracy"].detach().cpu().double().nan_to_num()
            self._highest = torch.maximum(self._highest, accuracy)
        if self._models is not None:
            self._models.append(weights.detach().cpu())
        if nodes and self.learns:
            of_nodes = []
            if self._every_node:
                of_nodes = [self.task.evaluate(node.weights) for node in nodes]
            self._measures[-1]["consensus"] = self.spread.note(progress, nodes, weights, of_nodes)

    @property
    def models(self) -> Tensor | None:
        """The evaluated models `(evaluations, ensemble, params)`, in the order of `columns`."""
        if self._models is None:
            return None
        return torch.stack(self._models)

    def columns(self) -> Columns:
        """`time` (s), `updates`, `samples`, `epoch`, `bytes`, `member`, `train_loss` and the task's
        measures.

        Where several nodes have models of their own also `consensus`, the root mean square of their
        distances to the mean.
        """
        columns = {}
        axes = {"time": "time", "updates": "updates", "samples": "samples", "epoch": "epochs"}
        for name, axis in axes.items():
            values = np.array([getattr(row, axis) for row in self._rows])
            columns[name] = np.repeat(values, self._ensemble)
        columns["bytes"] = np.repeat(self._bytes_sent, self._ensemble)
        columns["member"] = np.tile(np.arange(self._ensemble), len(self._rows))
        if self._measures:
            for name in self._measures[-1]:
                measured = [measures[name].detach().cpu() for measures in self._measures]
                columns[name] = torch.stack(measured).flatten().numpy()
        return columns

    def _stack(self) -> None:
        """Make one tensor of the last losses."""
        if self._losses:
            self._stacks.append(torch.stack(self._losses))
            self._losses = []

    def _fold(self) -> None:
        """Sum the buffered losses, and mark the members whose loss is not finite."""
        self._stack()
        if not self._stacks:
            return
        losses = torch.cat(self._stacks).double().cpu()
        finite = losses.isfinite()
        for row in (~finite.all(1)).nonzero().flatten().tolist():
            self._mark(finite[row], *self._moments[row])
        self._total = self._total + losses.sum(0)
        self._count += len(losses)
        self._stacks, self._moments = [], []

    def _mark(self, finite: Tensor, updates: float, time: float) -> None:
        """Record the first divergence of members that are not `finite` `(ensemble,)`."""
        for member in (~finite).nonzero().flatten().tolist():
            if self._diverged[member].isnan().any():
                self._diverged[member] = torch.tensor([updates, time], dtype=torch.float64)
