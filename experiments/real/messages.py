"""Messages between the processes of a real run, over the machine's loopback interface."""

import math
import os
import socket
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


class Channel:
    """Messages of one model `(1, params)`, padded to a size in bytes.

    The last number of a message is a flag: whether the run continues.
    """

    def __init__(self, start: Tensor, size: float) -> None:
        self._shape = start.shape
        self._params = start.numel()
        numbers = max(self._params, math.ceil(size / start.element_size()))
        self.message = torch.zeros(numbers + 1, dtype=start.dtype)

    def pack(self, model: Tensor, more: bool) -> Tensor:
        """The message that carries `model`, in a buffer that the next message overwrites."""
        self.message[: self._params] = model.flatten()
        self.message[-1] = more
        return self.message

    def unpack(self) -> tuple[Tensor, bool]:
        """The model in the current message, and whether the run continues."""
        model = self.message[: self._params].clone().view(self._shape)
        return model, bool(self.message[-1])

    def send(self, rank: int, model: Tensor, more: bool = True) -> None:
        """Send `model` to process `rank`; returns once it is received."""
        dist.send(self.pack(model, more), rank)

    def receive(self, rank: int | None = None) -> tuple[int, Tensor, bool]:
        """Receive from process `rank`, or any: the sender, its model, whether the run continues."""
        sender: int = dist.recv(self.message, rank)
        return sender, *self.unpack()


STARTUP = timedelta(seconds=180)
"""The longest start of a process, on a machine that may be busy."""


def join(folder: Path, rank: int, members: int, patience: float) -> None:
    """Join the other processes, over the loopback interface only."""
    interfaces = [name for _, name in socket.if_nameindex()]
    os.environ["GLOO_SOCKET_IFNAME"] = next(name for name in interfaces if name.startswith("lo"))
    store = dist.FileStore(str(folder / "store"), members)  # type: ignore[attr-defined]
    # First wait until all have started: a slow start must not use up `patience`.
    store.set_timeout(STARTUP)
    if store.add("started", 1) == members:
        store.set("all", "started")
    store.wait(["all"])
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=members, timeout=timedelta(seconds=patience)
    )
