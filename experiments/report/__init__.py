"""A run or a sweep as one self-contained HTML page: facts, tables, figures (SVG), config and
provenance.
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib import style
from matplotlib.figure import Figure

from laggard.experiments.config.document import text_of
from laggard.experiments.figures import ENTRIES
from laggard.experiments.figures.lines import by_method
from laggard.experiments.figures.style import STYLE
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.formats import format_cell
from laggard.experiments.results.measures import method, names, shares, summary
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import common_question

HERE = Path(__file__).parent
MAX_SVG_BYTES = 1_500_000
"""A larger figure is stored as PNG."""
MAX_NAMES = 8
"""Runs that the alt text of a figure names."""


def write_report(results: Sequence[Result], path: str | Path, question: str | None = None) -> None:
    """Write the page of `results`, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    text = report_page(results, question)
    with whole_file(Path(path)) as part:
        part.write_text(text, encoding="utf-8")


def report_page(results: Sequence[Result], question: str | None = None) -> str:
    """The page: outcome, waiting, staleness, config and provenance.

    It has no script and refers to nothing outside itself.

    Args:
        results: one run, or the runs of a sweep.
        question: to stand below the title; by default what the results' configs asked.
    """
    if question is None:
        question = common_question(results)
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    first, named = results[0], labels(results)
    return environment.get_template("page.html").render(
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        name=first.config.name,
        question=question,
        several=len(results) > 1,
        facts=facts(results),
        summary=outcomes(results),
        pictures=pictures(results, named),
        waiting=waiting_table(results, named),
        staleness=staleness_table(results, named),
        configs=[
            (name, text_of(of.config.as_dict())) for name, of in zip(named, results, strict=True)
        ],
        manifests=[(name, provenance(of)) for name, of in zip(named, results, strict=True)],
    )


def pictures(results: Sequence[Result], named: Sequence[str]) -> list[dict[str, str]]:
    """The figures that apply to these results: title, `source` (a data URI), alt text, caption."""
    outcome = "; ".join(f"{what} {value}" for what, value in facts(results))
    runs = ", ".join(named[:MAX_NAMES])
    if len(named) > MAX_NAMES:
        runs += f" and {len(named) - MAX_NAMES} more"
    found = []
    for entry in ENTRIES:
        applies = entry.one
        if len(results) > 1:
            applies = entry.several
        if not applies:
            continue
        arguments: tuple[Any, ...] = ()
        if entry.name == "comparison":
            target = results[0].config.evaluate.target_accuracy
            arguments = (None, target, by_method(results))
        alt = f"{entry.caption} Of {runs}: {outcome}."
        with suppress(ValueError):  # the figure does not apply to these results
            source = uri(entry.function(results, *arguments))
            picture = {"title": entry.title, "source": source}
            found.append({**picture, "alt": alt, "caption": entry.caption})
    return found


def uri(figure: Figure) -> str:
    """A figure as a data URI, without a background."""
    with style.context(STYLE):
        kind, image = "svg+xml", _figure_bytes(figure, format="svg", metadata={"Date": None})
        if len(image) > MAX_SVG_BYTES:
            kind, image = "png", _figure_bytes(figure, format="png", dpi=200)
    return f"data:image/{kind};base64,{b64encode(image).decode()}"


def _figure_bytes(figure: Figure, **options: Any) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, transparent=True, **options)
    return stream.getvalue()


REPORT_ROWS = 32
"""Workers that a table of one run shows, and rows that a table of several does not exceed
tenfold.
"""


class ReportTable(NamedTuple):
    """Columns (title, whether its cells are numbers), rows of texts, and what was left out."""

    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    note: str = ""


def labels(results: Sequence[Result]) -> list[str]:
    """The label of each run: its coordinates in the sweep, or its method."""
    said = names(results)
    return [
        ", ".join(_row_label(*item) for item in of.labels.items()) or said[of.path]
        for of in results
    ]


def facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The main facts: of one run its outcome, of several their number and the best."""
    table = summary(results)
    best = table.get("accuracy", pd.Series(dtype=float)).max()
    title = "test accuracy"
    if len(table) > 1:
        title = "best accuracy"
    accuracy = []
    if not math.isnan(best):
        accuracy = [(title, f"{best:.2%}")]
    staleness = table["staleness"].mean()
    shown = "–"
    if not math.isnan(staleness):
        shown = f"{staleness:.2f}"
    waiting = f"{table['waiting'].mean():.0%}"
    late = [("mean staleness", shown), ("time waited", waiting)]
    if len(results) > 1:
        finished = sum(of.manifest["status"] == "finished" for of in results)
        counts = [("runs", f"{len(results)}, {finished} finished"), ("models", str(len(table)))]
        return [*counts, *accuracy, *late]
    (of,) = results
    progress = of.manifest["mileage"]
    run = [("method", method(of)), ("workers", f"{of.config.cluster.workers}")]
    length = [
        ("virtual time", f"{progress['time']:.4g} s"),
        ("updates", f"{progress['updates']:,.6g}"),
    ]
    return [*run, *accuracy, *length, *late]


def outcomes(results: Sequence[Result]) -> ReportTable:
    """The summary: a row a run and member, the first 320."""
    table = summary(results)
    shown = table.head(10 * REPORT_ROWS)
    texts = [
        name for name in table if table[name].map(lambda value: isinstance(value, str | bool)).any()
    ]
    columns = [(name.replace("_", " "), name not in texts) for name in table]
    rows = [
        [format_cell(name, value, "–") for name, value in row.items()]
        for row in shown.to_dict("records")
    ]
    left = len(table) - len(shown)
    note = ""
    if left:
        note = f"{left} more rows are not shown"
    return ReportTable(columns, rows, note)


def waiting_table(
    results: Sequence[Result], named: Sequence[str]
) -> tuple[list[tuple[str, dict[str, float]]], str]:
    """The shares (0 to 1) of the states in the time of one run's workers, or of several runs', each
    with its name; and what was left out.
    """
    if len(results) > 1:
        spent, note = (
            pd.DataFrame([of.workers.sum() for of in results]),
            "Each bar is the mean of a run's workers.",
        )
    else:
        workers = results[0].workers
        spent, left = workers.head(REPORT_ROWS), len(workers) - REPORT_ROWS
        named, note = (
            [f"worker {rank}" for rank in spent["worker"]],
            f"{left} more workers are not shown." * (left > 0),
        )
    found = [row.dropna().to_dict() for _, row in shares(spent).iterrows()]
    return list(zip(named, found, strict=True)), note


def staleness_table(results: Sequence[Result], named: Sequence[str]) -> ReportTable:
    """How stale the applied gradients of each run were, and the number of dropped and cancelled
    ones.
    """
    titles = (
        "run",
        "applied",
        "mean",
        "std. dev.",
        "median",
        "95 %",
        "max",
        "dropped",
        "cancelled",
    )
    rows = []
    for name, of in zip(named, results, strict=True):
        applied = of.updates.loc[of.updates["status"] == "applied", "staleness"]
        told = [applied.mean(), applied.std(ddof=0), *applied.quantile([0.5, 0.95]), applied.max()]
        totals = of.manifest["gradients"]
        counts = [f"{totals[status]:,}" for status in ("applied", "dropped", "cancelled")]
        rows.append(
            [
                name,
                counts[0],
                *(f"{value:.4g}" if len(applied) else "–" for value in told),
                *counts[1:],
            ]
        )
    return ReportTable([(title, title != "run") for title in titles], rows)


def provenance(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    """The provenance in the manifest, in groups of (name, text)."""
    manifest = result.manifest
    run = {
        key: manifest[key]
        for key in ("run", "status", "reached", "stalled", "device", "threads", "wall_seconds")
    }
    run |= {"seed": manifest["seeds"]["seed"], "seed of the cluster": manifest["seeds"]["cluster"]}
    run |= {"seeds of learning": ", ".join(map(str, dict.fromkeys(manifest["seeds"]["learning"])))}
    counts = {f"gradients {status}": n for status, n in manifest["gradients"].items()}
    counts |= {"evaluated": manifest["evaluated"]}
    counts |= {f"messages {status}": n for status, n in manifest["messages"].items()}
    return [
        (
            "Run",
            [
                (key.replace("_", " "), str(value))
                for key, value in run.items()
                if value is not None
            ],
        ),
        ("Counts", [(key, f"{value:,}") for key, value in counts.items()]),
        ("Versions", list(manifest["versions"].items())),
        ("Files, SHA-256", list(manifest["files"].items())),
    ]


def _row_label(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{key.rpartition('.')[2]} = {value}"
