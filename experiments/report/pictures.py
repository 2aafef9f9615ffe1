"""The figures of a report, drawn as SVG and put into the page itself."""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.figure import Figure

from experiments import figures
from experiments.figures.look import STYLE
from experiments.report.sections import facts
from experiments.store import Result

HEAVY = 1_500_000
"""Bytes above which a figure is dots rather than lines."""


class Picture(NamedTuple):
    """A figure as a data URI, with its title, what it shows for who cannot see it, and how to read it."""

    title: str
    source: str
    alt: str
    caption: str


TOLD = {
    "comparison": ("Learning and staleness", "What was learnt against virtual time and against updates, and the "
                   "distribution of the staleness of the applied gradients."),
    "curves": ("Learning", "What was learnt against virtual time, updates, samples and epochs."),
    "staleness": ("Staleness", "How stale applied gradients were: their distribution, and each worker's over time."),
    "split": ("Where staleness comes from", "The updates that fell into each phase of a gradient's life: network, "
              "compute, barrier, queue."),
    "timeline": ("Who computed when", "A row a worker: bars compute, coloured by staleness; what is blank waits."),
    "utilisation": ("Links", "How busy each direction of each card was."),
    "consensus": ("Consensus", "How far the nodes' models lay apart."),
    "lr_delay": ("Learning rate and delay", "The outcome over a grid of learning rates and delays."),
    "lr_batch": ("Learning rate and batch", "The outcome over a grid of learning rates and batch sizes."),
    "cliff": ("The learning rate's cliff", "The outcome against the learning rate, a line a delay."),
    "scaling": ("Scaling", "Seconds an iteration against the number of workers."),
}  # fmt: skip
ONE = ("curves", "staleness", "split", "timeline", "utilisation", "consensus")
MANY = ("comparison", "split", "lr_delay", "lr_batch", "cliff", "scaling", "consensus")


def pictures(results: Sequence[Result], named: Sequence[str]) -> list[Picture]:
    """The figures that these results have: those that say that they do not apply are left out."""
    known = {**figures.FIGURES, "comparison": _comparison}
    said = "; ".join(f"{what} {value}" for what, value in facts(results))
    runs = ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")
    found = []
    for name in MANY if len(results) > 1 else ONE:
        if name in known:
            title, caption = TOLD[name]
            with suppress(ValueError):
                found.append(Picture(title, uri(known[name](results)), f"{caption} Of {runs}: {said}.", caption))
    return found


def uri(figure: Figure) -> str:
    """A figure as a data URI, without a background."""
    with style.context(STYLE):
        kind, image = "svg+xml", _saved(figure, format="svg", metadata={"Date": None})
        if len(image) > HEAVY:
            kind, image = "png", _saved(figure, format="png", dpi=200)
    return f"data:image/{kind};base64,{b64encode(image).decode()}"


def _saved(figure: Figure, **options: Any) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, transparent=True, **options)
    return stream.getvalue()


def _comparison(results: Sequence[Result]) -> Figure:
    """Named by what was swept, or by method where nothing was."""
    from experiments.tables import names

    said = None if any(result.labels for result in results) else names(results).get
    target = results[0].config.evaluate.target_accuracy
    return figures.comparison(results, target=target, label=said and (lambda result: said(result.path)))
