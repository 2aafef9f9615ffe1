"""Figures of results: pictures for a README or a paper, drawn without a display.

Every figure is a function of results; given a path it is saved there, as PNG, SVG or PDF. A new one
is a function in a module of this folder, its family, and its row in `ENTRIES`. A family is imported
when one of its figures is needed.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from laggard.experiments.figures.style import File, Runs


class Entry(NamedTuple):
    """A figure, and how reports show it: below which title, with which caption, of one run and of
    several.

    Attributes:
        name: of its function.
        family: the module that has it.
        one, several: whether reports of one run, and of several, have it; where it does not apply
            they leave it out.
    """

    name: str
    family: str
    title: str = ""
    caption: str = ""
    one: bool = False
    several: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """Draws it: a function of results."""
        found: Callable[..., Any] = getattr(sys.modules[__name__], self.name)
        return found

    def draw(self, results: "Runs", path: "File" = None, **options: Any) -> "Figure":
        """Draw it, with the target of the first run and a name for each run where `options` say
        nothing of them.
        """
        from laggard.experiments.figures.lines import by_method
        from laggard.experiments.figures.style import as_sequence

        results = as_sequence(results)
        standard = {
            "target": results[0].config.evaluate.target_accuracy,
            "label": by_method(results),
        }
        taken = signature(self.function).parameters
        given = {key: value for key, value in standard.items() if key in taken} | options
        figure: Figure = self.function(results, path, **given)
        return figure


ENTRIES = (
    Entry("comparison", "evaluations", "Learning and staleness", "What was learnt against virtual time and against "
          "updates, and the distribution of the staleness of the applied gradients.", several=True),
    Entry("learning", "evaluations"),
    Entry("curves", "evaluations", "Learning", "What was learnt against virtual time, updates, samples and epochs.",
          one=True),
    Entry("histograms", "delays"),
    Entry("staleness", "delays", "Staleness", "How stale applied gradients were: their distribution, and each worker's "
          "over time.", one=True),
    Entry("split", "delays", "Where staleness comes from", "The updates that fell into each phase of a gradient's "
          "life: network, compute, barrier, queue.", one=True, several=True),
    Entry("timeline", "timelines", "Who computed when", "A row a worker: bars compute, coloured by staleness; what is "
          "blank waits.", one=True),
    Entry("occupation", "timelines"),
    Entry("utilisation", "network", "Links", "How busy each direction of each card was.", one=True),
    Entry("lr_delay", "grids", "Learning rate and delay", "The outcome over a grid of learning rates and delays.",
          several=True),
    Entry("lr_batch", "grids", "Learning rate and batch", "The outcome over a grid of learning rates and batch sizes.",
          several=True),
    Entry("cliff", "sweeps", "The learning rate's cliff", "The outcome against the learning rate, a line a delay.",
          several=True),
    Entry("scaling", "sweeps", "Scaling", "Seconds an iteration against the number of workers.", several=True),
    Entry("consensus", "evaluations", "Consensus", "How far the nodes' models lay apart.", one=True, several=True),
    Entry("topology", "network"),
)  # fmt: skip
FIGURES = {entry.name: entry for entry in ENTRIES}
"""The figures by name, as `laggard plot --figure` knows them."""
FAMILIES = {"heat": "grids", "save": "style", **{entry.name: entry.family for entry in ENTRIES}}
"""The module of each function that this package names."""


def __getattr__(name: str) -> Any:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FAMILIES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *FAMILIES})
