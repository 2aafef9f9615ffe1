"""A row per message, for runs that record messages: times, ends, bytes, gradients."""

import math
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from laggard.simulator.learning.promises import Promise
from laggard.simulator.recording.counters import gradients_in
from laggard.simulator.recording.trace import Columns
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Message

FLYING, DELIVERED, LOST = range(3)
MESSAGE_STATES = ("in flight", "delivered", "lost")
CONTENTS = ("token", "weights", "gradient", "sum", "other")
MESSAGE_TYPES = {
    "sent": "d",
    "arrived": "d",
    "sender": "i",
    "receiver": "i",
    "bytes": "d",
    "status": "b",
    "content": "b",
}
MESSAGE_COLUMNS = (*MESSAGE_TYPES, "gradients", "gradient")
NONE = -1
"""The row of no gradient."""


@dataclass(frozen=True)
class Record:
    """Optional records of a run, which change no event.

    Attributes:
        messages: whether every message gets a row, about 60 bytes in memory until the run ends.
    """

    messages: bool = False


class MessageLog:
    """Every message: its times, sender and receiver, bytes, status and content."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._columns: dict[str, array[Any]] = {
            name: array(code) for name, code in MESSAGE_TYPES.items()
        }
        self._under_way: dict[Message, int] = {}
        # for each gradient that a message carries, the row of the message and the gradient's key
        self._carrier = array("q")
        self._worker = array("i")
        self._target = array("i")
        self._started = array("d")

    def sent(self, message: Message, size: float) -> None:
        """Record that `message`, of `size` bytes, is sent now."""
        row = self._under_way[message] = len(self._columns["sent"])
        carried = list(gradients_in(message.content))
        content = "gradient"
        if not carried:
            content = kind(message.content, size)
        ends = message.sender.rank, message.receiver.rank
        values = (self._env.now, math.nan, *ends, size, FLYING, CONTENTS.index(content))
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        for gradient in carried:
            self._carrier.append(row)
            self._worker.append(gradient.worker)
            self._target.append(gradient.target)
            self._started.append(gradient.whole.started)

    def delivered(self, message: Message) -> None:
        """Record that `message` arrives now."""
        row = self._under_way.pop(message)
        self._columns["status"][row] = DELIVERED
        self._columns["arrived"][row] = self._env.now

    def record_loss(self, message: Message) -> None:
        """Record that `message` is lost."""
        self._columns["status"][self._under_way.pop(message)] = LOST

    def columns(self, updates: Columns) -> Columns:
        """A row per message, in the order in which they were sent.

        `sent`, `arrived` (s; NaN where it was lost or is in flight), `sender`, `receiver` (ranks),
        `bytes`, `status` (delivered, lost, in flight), `content` (token, weights, gradient, sum of
        gradients, other), `gradients` (their number), `gradient` (the row in `updates` of the first
        one, -1 without a gradient or with one that has no final status).
        """
        rows = self._rows(updates)
        carriers = np.array(self._carrier, dtype=np.int64)
        with_gradients, first = np.unique(carriers, return_index=True)
        columns = {name: np.array(column) for name, column in self._columns.items()}
        columns["status"] = np.array(MESSAGE_STATES)[columns["status"]]
        columns["content"] = np.array(CONTENTS)[columns["content"]]
        messages = len(columns["sent"])
        columns["gradients"] = np.bincount(carriers, minlength=messages)
        columns["gradient"] = np.full(messages, NONE, dtype=np.int64)
        columns["gradient"][with_gradients] = rows[first]
        return columns

    def arrivals(self, updates: Columns) -> np.ndarray:
        """The moment (s) at which each gradient of `updates` first arrived at a node, or NaN."""
        arrived = np.full(len(updates["time"]), math.inf)
        rows = self._rows(updates)
        carriers = np.array(self._carrier, dtype=np.int64)
        moments = np.array(self._columns["arrived"])[carriers]
        has_arrived = (rows != NONE) & ~np.isnan(moments)
        np.minimum.at(arrived, rows[has_arrived], moments[has_arrived])
        return np.where(np.isinf(arrived), math.nan, arrived)

    def _rows(self, updates: Columns) -> np.ndarray:
        """The row in `updates` of every gradient that was carried.

        The key of a gradient is its worker, target and start: a worker starts one at a time. Where
        several start in one instant, since the first were cancelled at once, the last one counts.
        """
        columns = [updates[name].tolist() for name in ("worker", "target", "started")]
        row_by_key = {key: row for row, key in enumerate(zip(*columns, strict=True))}
        carried = zip(self._worker, self._target, self._started, strict=True)
        return np.array([row_by_key.get(key, NONE) for key in carried], dtype=np.int64)


def kind(content: Any, size: float) -> str:
    """The kind of content of a message of `size` bytes without a gradient."""
    if size == 0:
        return "token"
    from torch import Tensor

    from laggard.simulator.learning.empty import EmptyWeights

    if isinstance(content, list | tuple):
        parts = content
    else:
        parts = [content]
    if any(isinstance(part, Promise) for part in parts):
        return "sum"
    if any(isinstance(part, Tensor | EmptyWeights) for part in parts):
        return "weights"
    return "other"
