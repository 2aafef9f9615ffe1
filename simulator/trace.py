"""What happened when: one row per gradient whose fate is known, in columns that grow cheaply."""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.gradients import FATES, Gradient

BUSY, SENDING, WAITING = range(3)
"""A node's states: it computes; else one of its messages is under way; else it waits."""

Columns = dict[str, NDArray[Any]]


class Trace:
    """The fates of gradients: about 50 bytes each."""

    def __init__(self) -> None:
        self._time, self._started, self._computed = array("d"), array("d"), array("d")
        self._worker, self._read, self._version = array("i"), array("q"), array("q")
        self._status = array("b")
        self.counts = dict.fromkeys(FATES, 0)

    def settled(self, time: float, gradient: Gradient) -> None:
        """Record that the fate of `gradient` became known at `time` (s)."""
        self._time.append(time)
        self._worker.append(gradient.worker)
        self._started.append(gradient.started)
        self._computed.append(gradient.computed)
        self._read.append(gradient.version_read)
        self._version.append(gradient.version)
        self._status.append(FATES.index(gradient.status))
        self.counts[gradient.status] += 1

    def columns(self) -> Columns:
        """Rows of `time`, `worker`, `started`, `computed`, `version_read`, `version`, `staleness`, `status`."""
        read, version = np.array(self._read), np.array(self._version)
        return {
            "time": np.array(self._time),
            "worker": np.array(self._worker),
            "started": np.array(self._started),
            "computed": np.array(self._computed),
            "version_read": read,
            "version": version,
            "staleness": version - read,
            "status": np.array(FATES)[np.array(self._status, dtype=np.int8)],
        }
