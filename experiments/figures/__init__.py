"""Figures of results: pictures for a README or a paper, drawn without a display.

Every figure is a function of results; given a path it is saved there, as PNG, SVG or PDF. A new one is a function in a
module of this folder and its row in `ENTRIES`.
"""

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure

from laggard.experiments.figures.evaluations import comparison, consensus, curves, learning
from laggard.experiments.figures.grids import heat, lr_batch, lr_delay
from laggard.experiments.figures.landscapes import landscape
from laggard.experiments.figures.network import topology, utilisation
from laggard.experiments.figures.staleness import histograms, split, staleness
from laggard.experiments.figures.style import save
from laggard.experiments.figures.sweeps import cliff, scaling
from laggard.experiments.figures.timelines import occupation, timeline


class Entry(NamedTuple):
    """A figure, and how reports show it: below which title, with which caption, of one run and of several.

    Attributes:
        one, several: whether reports of one run, and of several, have it; where it does not apply they leave it out.
    """

    function: Callable[..., Figure]
    title: str = ""
    caption: str = ""
    one: bool = False
    several: bool = False


ENTRIES = (
    Entry(comparison, "Learning and staleness", "What was learnt against virtual time and against updates, and the "
          "distribution of the staleness of the applied gradients.", several=True),
    Entry(learning),
    Entry(curves, "Learning", "What was learnt against virtual time, updates, samples and epochs.", one=True),
    Entry(histograms),
    Entry(staleness, "Staleness", "How stale applied gradients were: their distribution, and each worker's over time.",
          one=True),
    Entry(split, "Where staleness comes from", "The updates that fell into each phase of a gradient's life: network, "
          "compute, barrier, queue.", one=True, several=True),
    Entry(timeline, "Who computed when", "A row a worker: bars compute, coloured by staleness; what is blank waits.",
          one=True),
    Entry(occupation),
    Entry(utilisation, "Links", "How busy each direction of each card was.", one=True),
    Entry(lr_delay, "Learning rate and delay", "The outcome over a grid of learning rates and delays.", several=True),
    Entry(lr_batch, "Learning rate and batch", "The outcome over a grid of learning rates and batch sizes.",
          several=True),
    Entry(cliff, "The learning rate's cliff", "The outcome against the learning rate, a line a delay.", several=True),
    Entry(scaling, "Scaling", "Seconds an iteration against the number of workers.", several=True),
    Entry(consensus, "Consensus", "How far the nodes' models lay apart.", one=True, several=True),
    Entry(topology),
    Entry(landscape),
)  # fmt: skip
FIGURES = {entry.function.__name__: entry.function for entry in ENTRIES}
"""The figures by name, as `laggard plot --figure` knows them."""

__all__ = [
    "ENTRIES", "FIGURES", "cliff", "comparison", "consensus", "curves", "heat", "histograms", "landscape", "learning",
    "lr_batch", "lr_delay", "occupation", "save", "scaling", "split", "staleness", "timeline", "topology",
    "utilisation",
]  # fmt: skip
