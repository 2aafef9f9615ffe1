"""Results in a notebook: the summary, the figures by name, and a small table as HTML."""

from collections.abc import Callable
from functools import wraps
from html import escape
from inspect import signature
from typing import TYPE_CHECKING, Any

import pandas as pd

from laggard.experiments.config.errors import printable, suggest
from laggard.experiments.figures import FIGURES
from laggard.experiments.results.formats import format_cell
from laggard.experiments.results.measures import summary
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results, as_results, common_question

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HTML_ROWS = 12
"""Runs, and rows of members, that HTML shows."""


class Plots:
    """The figures of results, by name; each takes a `path` to be saved at, and the options of its
    function.
    """

    def __init__(self, results: Result | Results) -> None:
        self._results = results

    def __call__(self, path: Any = None, **options: Any) -> "Figure":
        """The figure `comparison`."""
        return FIGURES["comparison"].draw(self._results, path, **options)

    def __getattr__(self, name: str) -> Callable[..., "Figure"]:
        if name not in FIGURES:
            raise AttributeError(
                f"{name}: no such figure; {suggest(name, FIGURES) or f'expected one of {self}'}"
            )

        @wraps(FIGURES[name].function)
        def draw(*path: Any, **options: Any) -> "Figure":
            return FIGURES[name].draw(self._results, *path, **options)

        own = signature(FIGURES[name].function)
        draw.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])  # type: ignore[attr-defined]
        return draw

    def __dir__(self) -> list[str]:
        return list(FIGURES)

    def __repr__(self) -> str:
        return ", ".join(FIGURES)


def timed_summary(results: Result | Results) -> pd.DataFrame:
    """The summary by the `run`'s id, with the seconds of wall time that its simulation took."""
    every = as_results(results)
    run = every.final["run"].astype(str)
    wall = {}
    for name, result in zip(every.names, every, strict=True):
        wall[name] = result.manifest["wall_seconds"]
    return summary(every).assign(wall_seconds=run.map(wall)).set_index(run)


def html_of(results: Result | Results) -> str:
    """A heading, and the summary of the first runs and members as a small table; text is
    escaped.
    """
    every = as_results(results)
    if isinstance(results, Results):
        heading = [repr(every)]
    else:
        heading = [f"Result({results.config.name}, run {results.manifest['run']})"]
    if not len(every):
        return f"<p>{escape(heading[0])}</p>"
    table = timed_summary(every[:HTML_ROWS])
    if len(every) > HTML_ROWS or len(table) > HTML_ROWS:
        heading.append("the first of them; .summary has all")
    rows = [
        {name.replace("_", " "): format_cell(name, cell) for name, cell in row.items()}
        for row in table.head(HTML_ROWS).to_dict("records")
    ]
    shown = pd.DataFrame(rows, index=table.index[:HTML_ROWS]).to_html(border=0)
    title = "<br>".join(
        escape(printable(line)) for line in (common_question(every), *heading) if line
    )
    return f"<p>{title}</p>{shown}"
