"""What happened when: one row per gradient whose fate is known, in columns that grow cheaply."""

from array import array
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.gradients import FATES, Gradient, Settled

BUSY, SENDING, WAITING, DOWN = range(4)
"""A node's states: it computes; else one of its messages is under way; else it waits, or has crashed."""

Columns = Mapping[str, NDArray[Any]]

TYPES = {
    "time": "d", "worker": "i", "target": "i", "started": "d", "computed": "d",
    "version_read": "q", "staleness": "i", "mixings": "i", "status": "b",
}  # fmt: skip
CODES = {status: code for code, status in enumerate(FATES)}


class Trace:
    """The fates of gradients: 49 bytes each."""

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in TYPES.items()}
        self._appends = tuple(column.append for column in self._columns.values())
        self.counts = dict.fromkeys(FATES, 0)

    def settled(self, time: float, gradient: Settled, whole: Gradient, counts: bool) -> None:
        """Record that the fate of `gradient`, all of `whole` or a piece of it, became known at `time` (s).

        A piece of a gradient has a row of its own, and `counts` where it makes the fate of its gradient.
        """
        at, worker, target, started, computed, read, staleness, mixings, status = self._appends
        fate = gradient.status
        at(time)
        worker(whole.worker)
        target(gradient._owner.rank)
        started(whole.started)
        computed(whole.computed)
        read(gradient.version_read)
        staleness(gradient._staleness)
        mixings(gradient._mixings)
        status(CODES[fate])
        if counts:
            self.counts[fate] += 1

    def columns(self) -> "Fates":
        """The record as it stands; nothing can be added while somebody holds a column of it."""
        return Fates({name: np.frombuffer(column, column.typecode) for name, column in self._columns.items()})


class Fates(dict[str, NDArray[Any]]):
    """A row a gradient, or a piece of one, with a fate, in columns that share the record's memory.

    `time`, `worker`, `target` (whose model it was taken at), `started`, `computed`, `version_read`, `version`,
    `staleness`, `mixings` (of that model between read and fate), `status`, `arrived` (s; NaN where that was not
    recorded). Three are made when they are asked for: `version`, `arrived`, and `status` as text, which takes as much
    memory as all others. It is a dict for pandas, which takes columns from nothing else, and holds nothing as such.
    """

    NAMES = (
        "time", "worker", "target", "started", "computed", "version_read", "version", "staleness", "mixings", "status",
        "arrived",
    )  # fmt: skip

    def __init__(self, columns: Columns, arrived: NDArray[np.float64] | None = None) -> None:
        self._columns, self._arrived = columns, arrived

    def arriving(self, arrived: NDArray[np.float64]) -> "Fates":
        """The same with the moments (s) at which the gradients arrived."""
        return Fates(self._columns, arrived)

    def parts(self, rows: int) -> Iterator["Fates"]:
        """So many rows at a time, at least one part."""
        for start in range(0, max(1, len(self._columns["time"])), rows):
            part = slice(start, start + rows)
            arrived = None if self._arrived is None else self._arrived[part]
            yield Fates({name: column[part] for name, column in self._columns.items()}, arrived)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name == "version":
            version: NDArray[np.int64] = self._columns["version_read"] + self._columns["staleness"]
            return version
        if name == "status":
            return np.array(FATES)[self._columns["status"]]
        if name == "arrived":
            return np.full(len(self._columns["time"]), np.nan) if self._arrived is None else self._arrived
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)

    def __contains__(self, name: object) -> bool:
        return name in self.NAMES

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def values(self) -> ValuesView[NDArray[Any]]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[str, NDArray[Any]]:  # type: ignore[override]
        return ItemsView(self)

    def get(self, name: str, default: Any = None) -> Any:
        return Mapping.get(self, name, default)
