"""Two ways in which the messages under way share the links they cross: queues, and max-min fairness."""

from simulator.sharing.fair import FairSharing
from simulator.sharing.fifo import FifoSharing
from simulator.sharing.link import Flow, Link

__all__ = ["FairSharing", "FifoSharing", "Flow", "Link"]
