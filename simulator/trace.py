"""What happened when: one row per gradient whose fate is known, in columns that grow cheaply."""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.gradients import FATES, Settled

BUSY, SENDING, WAITING, DOWN = range(4)
"""A node's states: it computes; else one of its messages is under way; else it waits, or has crashed."""

Columns = dict[str, NDArray[Any]]


class Trace:
    """The fates of gradients: about 50 bytes each."""

    def __init__(self) -> None:
        self._time, self._started, self._computed = array("d"), array("d"), array("d")
        self._worker, self._target = array("i"), array("i")
        self._read, self._version, self._mixings = array("q"), array("q"), array("q")
        self._status = array("b")
        self.counts = dict.fromkeys(FATES, 0)

    def settled(self, time: float, gradient: Settled, counts: bool = True) -> None:
        """Record that the fate of `gradient` became known at `time` (s).

        A piece of a gradient has a row of its own, and `counts` where it makes the fate of its gradient.
        """
        self._time.append(time)
        self._worker.append(gradient.worker)
        self._target.append(gradient.target)
        self._started.append(gradient.whole.started)
        self._computed.append(gradient.whole.computed)
        self._read.append(gradient.version_read)
        self._version.append(gradient.version)
        self._mixings.append(gradient.mixings)
        self._status.append(FATES.index(gradient.status))
        self.counts[gradient.status] += counts

    def columns(self) -> Columns:
        """A row a gradient, or a piece of one, with a fate.

        `time`, `worker`, `target` (whose model it was taken at), `started`, `computed`, `version_read`, `version`,
        `staleness`, `mixings` (of that model between read and fate), `status`.
        """
        read, version = np.array(self._read), np.array(self._version)
        return {
            "time": np.array(self._time),
            "worker": np.array(self._worker),
            "target": np.array(self._target),
            "started": np.array(self._started),
            "computed": np.array(self._computed),
            "version_read": read,
            "version": version,
            "staleness": version - read,
            "mixings": np.array(self._mixings),
            "status": np.array(FATES)[np.array(self._status, dtype=np.int8)],
        }
