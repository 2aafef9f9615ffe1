"""Two ways to take the gradients of many models at once, with the same result: threads, and one batched call."""

from models.backends.backend import Backend, Loss
from models.backends.batched import Batched
from models.backends.devices import find_device
from models.backends.threads import Threads

__all__ = ["Backend", "Batched", "Loss", "Threads", "find_device"]
