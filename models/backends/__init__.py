"""Ways to take the gradients of many models at once, with the same result: threads, and batched calls for a GPU."""

from laggard.models.backends.batched import Backend, Batched, Loss, describe, find_device, to_device
from laggard.models.backends.choice import BACKEND_NAMES, choose
from laggard.models.backends.chunked import Chunked
from laggard.models.backends.graphs import Graphs
from laggard.models.backends.threads import Threads
from laggard.models.backends.unfolded import Unfolded, unfoldable

__all__ = [
    "BACKEND_NAMES",
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
    "to_device",
    "unfoldable",
]
