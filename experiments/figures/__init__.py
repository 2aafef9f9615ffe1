"""Figures of results, drawn without a display.

A figure is a function of results; with a path it is saved there, as PNG, SVG or PDF. A new figure
is a function in a module of this folder, its family, and a row in `ENTRIES`. A family is imported
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
    """A figure, and its place in reports.

    Attributes:
        name: the name of its function.
        family: the module of its function.
        title, caption: the title and the caption in reports.
        one, several: whether reports of one run, and of several runs, show it. They leave it out if
            the function raises `ValueError`.
    """

    name: str
    family: str
    title: str = ""
    caption: str = ""
    one: bool = False
    several: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """Draws the figure: a function of results."""
        # `__getattr__` of this module imports the family, only now
        function: Callable[..., Any] = getattr(sys.modules[__name__], self.name)
        return function

    def draw(self, results: "Runs", path: "File" = None, **options: Any) -> "Figure":
        """Draw the figure; by default with the first run's target and with labels by method."""
        from laggard.experiments.figures.lines import by_method
        from laggard.experiments.figures.style import as_sequence

        results = as_sequence(results)
        parameters = signature(self.function).parameters
        if "target" in parameters:
            options.setdefault("target", results[0].config.evaluate.target_accuracy)
        if "label" in parameters:
            options.setdefault("label", by_method(results))
        figure: Figure = self.function(results, path, **options)
        return figure


ENTRIES = (
    Entry("comparison", "evaluations"),
    Entry("learning", "evaluations"),
    Entry("curves", "evaluations"),
    Entry("histograms", "delays"),
    Entry(
        "staleness",
        "delays",
        "Staleness",
        "The staleness of the applied gradients: its distribution, and of few runs each worker's over"
        " time.",
        one=True,
        several=True,
    ),
    Entry(
        "split",
        "delays",
        "Where staleness comes from",
        "The updates in each phase of a gradient's life: network, compute, barrier, queue.",
        one=True,
        several=True,
    ),
    Entry("timeline", "timelines"),
    Entry("occupation", "timelines"),
    Entry(
        "utilisation",
        "network",
        "Links",
        "The utilisation of each direction of each trunk and card.",
        one=True,
    ),
    Entry(
        "lr_delay",
        "grids",
        "Learning rate and delay",
        "The outcome over a grid of learning rates and delays.",
        several=True,
    ),
    Entry(
        "lr_batch",
        "grids",
        "Learning rate and batch",
        "The outcome over a grid of learning rates and batch sizes.",
        several=True,
    ),
    Entry(
        "cliff",
        "sweeps",
        "The learning rate's cliff",
        "The outcome against the learning rate, a line a delay.",
        several=True,
    ),
    Entry(
        "scaling",
        "sweeps",
        "Scaling",
        "Seconds an iteration against the number of workers.",
        several=True,
    ),
    Entry(
        "target_time",
        "sweeps",
        "How many workers pay",
        "Virtual time to the target against the number of workers.",
        several=True,
    ),
    Entry(
        "consensus",
        "evaluations",
        "Consensus",
        "The consensus distance of the nodes' models.",
        one=True,
        several=True,
    ),
    Entry("topology", "network"),
)
FIGURES = {entry.name: entry for entry in ENTRIES}
"""The figures by name, as `laggard plot --figure` takes them."""
FAMILIES = {"heat": "grids", "save": "style", **{entry.name: entry.family for entry in ENTRIES}}
"""The module of each function of this package."""


def __getattr__(name: str) -> Any:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FAMILIES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *FAMILIES})
