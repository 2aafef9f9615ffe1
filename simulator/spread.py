"""How far the models of several nodes lie apart."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from simulator.milestones import Mileage
from simulator.trace import Columns


class Holder(Protocol):
    """A node that has a model of its own."""

    rank: int
    weight: float

    @property
    def weights(self) -> Tensor:
        """Its model `(ensemble, params)`."""
        ...


class Spread:
    """A row per evaluation, node and member: how far the node's model lies from the mean of all.

    `distance` is |x_i - x_mean|, `weight` push-sum's w_i (1 elsewhere); the task's measures of each node's model
    stand beside them where they were asked for.
    """

    def __init__(self) -> None:
        self._rows: list[Columns] = []

    def note(
        self, mileage: Mileage, nodes: Sequence[Holder], mean: Tensor, measures: Sequence[Mapping[str, Tensor]]
    ) -> Tensor:
        """Note the nodes' models; answer the consensus distance `(ensemble,)`, the root mean square of theirs."""
        distances = torch.stack([(node.weights - mean).double().norm(dim=1) for node in nodes])
        members = np.arange(len(mean))
        rows = len(nodes) * len(members)
        self._rows.append(
            {
                "time": np.full(rows, mileage.time),
                "updates": np.full(rows, mileage.updates),
                "node": np.repeat([node.rank for node in nodes], len(members)),
                "member": np.tile(members, len(nodes)),
                "distance": distances.flatten().cpu().numpy(),
                "weight": np.repeat([float(node.weight) for node in nodes], len(members)),
            }
            | {
                name: torch.stack([measure[name] for measure in measures]).flatten().cpu().numpy()
                for name in (measures[0] if measures else ())
            }
        )
        return distances.square().mean(0).sqrt()

    def columns(self) -> Columns:
        """`time` (s), `updates`, `node`, `member`, `distance`, `weight`, and measures; no columns without rows."""
        return {name: np.concatenate([row[name] for row in self._rows]) for name in (self._rows or [{}])[0]}
