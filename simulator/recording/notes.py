"""Numbers that a method notes while it runs, such as a threshold that it adapts."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.recording.trace import Columns


class Note(NamedTuple):
    """A number that a node has noted: a tensor `(ensemble,)`, or one number of all members."""

    time: float
    updates: float
    node: int
    name: str
    value: float | Tensor


class Notes:
    """The numbers that nodes have noted.

    Args:
        ensemble: the number of members.
    """

    def __init__(self, ensemble: int) -> None:
        self._ensemble = ensemble
        self._rows: list[Note] = []

    def add(self, time: float, updates: float, node: int, name: str, value: Any) -> None:
        """Note `value`: a number, or a tensor with one entry, `(ensemble,)` or `(ensemble, 1)`.

        Raises:
            ValueError: the tensor has another shape.
            TypeError: the value is neither, or the name is no text.
        """
        if not isinstance(name, str):
            raise TypeError(f"node.note(name, value): expected a text as the name, got {name!r}")
        if isinstance(value, Tensor):
            per_member = ((self._ensemble,), (self._ensemble, 1))
            if value.numel() != 1 and value.shape not in per_member:
                raise ValueError(
                    f"node.note({name!r}, ...): expected a number for each member, "
                    f"(ensemble,) = ({self._ensemble},), got a tensor {tuple(value.shape)}"
                )
            # A view would keep all of its memory, and what it is a view of may change.
            value = value.detach().flatten().clone()
        elif isinstance(value, Real):
            value = float(value)
        else:
            raise TypeError(
                f"node.note({name!r}, ...): expected a number or a tensor, got {value!r}"
            )
        self._rows.append(Note(time, updates, node, name, value))

    def columns(self) -> Columns:
        """A row per note and member, as `Outcome.notes` has them; no columns without a note."""
        if not self._rows:
            return {}
        members = self._ensemble
        values = []
        for row in self._rows:
            value = torch.as_tensor(row.value, dtype=torch.float64).cpu()
            values.append(value.expand(members))
        return {
            "time": np.repeat([row.time for row in self._rows], members),
            "updates": np.repeat([row.updates for row in self._rows], members),
            "node": np.repeat([row.node for row in self._rows], members),
            "name": np.repeat([row.name for row in self._rows], members),
            "member": np.tile(np.arange(members), len(self._rows)),
            "value": torch.cat(values).numpy(),
        }
