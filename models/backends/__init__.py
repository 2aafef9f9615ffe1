"""Ways to take the gradients of many models at once, with the same result: threads, and batched calls for a GPU."""

from models.backends.backend import Backend, Loss
from models.backends.batched import Batched
from models.backends.choice import NAMES, choose
from models.backends.chunked import Chunked
from models.backends.devices import describe, find_device, moved
from models.backends.graphs import Graphs
from models.backends.threads import Threads
from models.backends.unfolded import Unfolded, unfoldable

__all__ = [
    "NAMES",
    "Backend",
    "Batched",
    "Chunked",
    "Graphs",
    "Loss",
    "Threads",
    "Unfolded",
    "choose",
    "describe",
    "find_device",
    "moved",
    "unfoldable",
]
