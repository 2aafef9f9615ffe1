"""The timeline: a packed row per gradient with a final status, read as columns."""

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.learning.gradients import STATUSES, Gradient, GradientPiece
from laggard.simulator.timing.clock import Clock

BUSY, SENDING, WAITING, DOWN = range(4)
"""A node's states: computing; else sending, with a message under way; else waiting; or down."""

Columns = Mapping[str, NDArray[Any]]

TYPES = {
    "time": "d",
    "worker": "i",
    "target": "i",
    "started": "d",
    "computed": "d",
    "version_read": "q",
    "staleness": "i",
    "mixings": "i",
    "status": "b",
}
pack = Struct("=" + "".join(TYPES.values())).pack
CODES = {status: code for code, status in enumerate(STATUSES)}


class Trace:
    """The final statuses of gradients: a row of 49 bytes each."""

    def __init__(self, env: Clock) -> None:
        self._env, self._rows = env, bytearray()
        self.counts = dict.fromkeys(STATUSES, 0)

    def record(self, gradient: Gradient | GradientPiece, whole: Gradient, is_final: bool) -> None:
        """Record that the status of `gradient`, `whole` or a piece of it, is final now.

        Args:
            is_final: whether the status of `whole` became final by this. Each piece of a gradient
                has a row, and the gradient is counted once.
        """
        status = gradient.status
        self._rows += pack(
            self._env._now,
            whole.worker,
            gradient._owner.rank,
            whole.started,
            whole.computed,
            gradient.version_read,
            gradient._staleness,
            gradient._mixings,
            CODES[status],
        )
        if is_final:
            self.counts[status] += 1

    def columns(self) -> "TraceColumns":
        """The record up to now.

        The columns share its memory: nothing can be recorded while a reference to one exists.
        """
        rows = np.frombuffer(self._rows, [(name, f"={code}") for name, code in TYPES.items()])
        return TraceColumns({name: rows[name] for name in TYPES})


class TraceColumns(dict[str, NDArray[Any]]):
    """A row per gradient or piece with a final status, in columns that share the record's memory.

    `time`, `worker`, `target` (the node whose model was read), `started`, `computed`,
    `version_read`, `version`, `staleness`, `mixings` (of that model since the read), `status`,
    `arrived` (s; NaN where that was not recorded). Three are computed on access: `version`,
    `arrived`, and `status` as strings, which take as much memory as all others. It is a dict
    because pandas requires one, and stores no items itself.
    """

    NAMES = (
        "time",
        "worker",
        "target",
        "started",
        "computed",
        "version_read",
        "version",
        "staleness",
        "mixings",
        "status",
        "arrived",
    )

    def __init__(self, columns: Columns, arrived: NDArray[np.float64] | None = None) -> None:
        self._columns = columns
        self._arrived = arrived

    def arriving(self, arrived: NDArray[np.float64]) -> "TraceColumns":
        """A copy of these columns with the moments (s) at which the gradients arrived."""
        return TraceColumns(self._columns, arrived)

    def parts(self, rows: int) -> Iterator["TraceColumns"]:
        """Parts of at most `rows` rows each; at least one part."""
        for start in range(0, max(1, len(self._columns["time"])), rows):
            part = slice(start, start + rows)
            if self._arrived is None:
                arrived = None
            else:
                arrived = self._arrived[part]
            yield TraceColumns(
                {name: column[part] for name, column in self._columns.items()}, arrived
            )

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name == "version":
            version: NDArray[np.int64] = self._columns["version_read"] + self._columns["staleness"]
            return version
        if name == "status":
            return np.array(STATUSES)[self._columns["status"]]
        if name == "arrived":
            if self._arrived is None:
                return np.full(len(self._columns["time"]), np.nan)
            return self._arrived
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)

    def __contains__(self, name: object) -> bool:
        return name in self.NAMES

    # Those of `dict` would read its own items, of which there are none.
    keys, values, items, get = Mapping.keys, Mapping.values, Mapping.items, Mapping.get  # type: ignore[assignment]
