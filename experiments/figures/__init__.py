"""Figures of results: pictures for a README or a paper, drawn without a display.

Every figure is a function of results; given a path it is saved there, as PNG, SVG or PDF.
"""

from collections.abc import Callable

from matplotlib.figure import Figure

from experiments.figures.cliffs import cliff
from experiments.figures.evaluations import comparison, consensus, curves, learning
from experiments.figures.graphs import topology
from experiments.figures.grids import heat, lr_batch, lr_delay
from experiments.figures.iterations import scaling
from experiments.figures.landscapes import landscape
from experiments.figures.lateness import histograms, staleness
from experiments.figures.links import utilisation
from experiments.figures.look import save
from experiments.figures.occupations import occupation
from experiments.figures.phases import split
from experiments.figures.timelines import timeline

FIGURES: dict[str, Callable[..., Figure]] = {
    "comparison": comparison,
    "learning": learning,
    "curves": curves,
    "histograms": histograms,
    "staleness": staleness,
    "split": split,
    "timeline": timeline,
    "occupation": occupation,
    "utilisation": utilisation,
    "lr_delay": lr_delay,
    "lr_batch": lr_batch,
    "cliff": cliff,
    "scaling": scaling,
    "consensus": consensus,
    "topology": topology,
    "landscape": landscape,
}
"""The figures by name, as `laggard plot --figure` knows them."""

__all__ = [*FIGURES, "FIGURES", "heat", "save"]
