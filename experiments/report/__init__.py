"""A run or a sweep as one self-contained HTML page: facts, tables, figures (SVG), config and
provenance.
"""

import math
from base64 import b64encode
from collections import Counter
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
from laggard.experiments.results.measures import MEASURES, method, names, shares, summary
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import as_results, common_question
from laggard.experiments.results.tables import tabulate

HERE = Path(__file__).parent
MAX_SVG_BYTES = 1_500_000
"""A larger figure is stored as PNG."""
MAX_RUNS = 100
"""Runs of which a page shows each; of more it has means."""
PROVENANCE = (
    "run", "status", "reached", "stalled", "device", "arithmetic", "threads", "wall_seconds",
    "commit",
)  # fmt: skip
"""Entries of a manifest in the first group of a run's provenance."""
MAX_NAMES = 8
"""Runs that the alt text of a figure names."""


REPORT_ROWS = 32
"""Workers that a table of one run shows, and rows that a table of several does not exceed
tenfold.
"""


class ReportTable(NamedTuple):
    """Columns (title, whether its cells are numbers), rows of texts, and what was left out."""

    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    note: str = ""


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
    if len(results) > MAX_RUNS:
        return _fill_template(question=question, **_summary_of_many(results))
    run_labels = labels(results)
    configs = []
    manifests = []
    for label, result in zip(run_labels, results, strict=True):
        configs.append((label, text_of(result.config.as_dict())))
        manifests.append((label, provenance(result)))
    return _fill_template(
        name=results[0].config.name,
        question=question,
        several=len(results) > 1,
        facts=facts(results),
        summary=outcomes(results),
        pictures=pictures(results, run_labels),
        waiting=waiting_table(results, run_labels),
        staleness=staleness_table(results, run_labels),
        configs=configs,
        manifests=manifests,
    )


def _fill_template(**content: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    css = (HERE / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(style=css, **content)


def _summary_of_many(results: Sequence[Result]) -> dict[str, Any]:
    """The content of a page of more than `MAX_RUNS` runs: means over seeds, and the first run."""
    first = results[0]
    statuses = Counter(result.manifest["status"] for result in results)
    counts = [(status, str(count)) for status, count in statuses.items()]
    label = f"the first run, {first.manifest['run']}"
    return {
        "name": first.config.name,
        "several": True,
        "facts": [("runs", str(len(results))), *counts],
        "summary": _means(results),
        "pictures": [],
        "waiting": None,
        "staleness": None,
        "configs": [(label, text_of(first.config.as_dict()))],
        "manifests": [(label, provenance(first))],
    }


def _means(results: Sequence[Result]) -> ReportTable:
    """Means over the seeds of each setting, of the first `MAX_RUNS` settings."""
    results = as_results(results)
    measured = "time"
    for name in ("loss", "accuracy"):
        if MEASURES[name].column in results.metrics:
            measured = name
    means = tabulate(results, value=list(dict.fromkeys([measured, "time", "updates"])))
    heading, *rows = means.lines()
    columns = [(title, place >= len(means.rows)) for place, title in enumerate(heading)]
    notes = [*means.notes, f"a figure or a page shows up to {MAX_RUNS} runs: choose some"]
    if len(rows) > MAX_RUNS:
        notes.insert(0, f"{len(rows) - MAX_RUNS} more settings are not shown")
    return ReportTable(columns, rows[:MAX_RUNS], "; ".join(notes))


def pictures(results: Sequence[Result], run_labels: Sequence[str]) -> list[dict[str, str]]:
    """The figures that apply to these results: title, `source` (a data URI), alt text, caption."""
    outcome = "; ".join(f"{what} {value}" for what, value in facts(results))
    runs = ", ".join(run_labels[:MAX_NAMES])
    if len(run_labels) > MAX_NAMES:
        runs += f" and {len(run_labels) - MAX_NAMES} more"
    entries = [entry for entry in ENTRIES if entry.one]
    if len(results) > 1:
        entries = [entry for entry in ENTRIES if entry.several]
    found = []
    for entry in entries:
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


def labels(results: Sequence[Result]) -> list[str]:
    """The label of each run: its coordinates in the sweep, or its method."""
    methods = names(results)
    run_labels = []
    for result in results:
        coordinates = [_row_label(key, value) for key, value in result.labels.items()]
        run_labels.append(", ".join(coordinates) or methods[result.path])
    return run_labels


def facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The main facts: of one run its outcome, of several their number and the best."""
    table = summary(results)
    title = "test accuracy"
    if len(table) > 1:
        title = "highest accuracy"
    accuracy = []
    if "accuracy" in table and table["accuracy"].notna().any():
        best = table["accuracy"].max()
        accuracy = [(title, f"{best:.2%}")]
    staleness = table["staleness"].mean()
    shown = "–"
    if not math.isnan(staleness):
        shown = f"{staleness:.2f}"
    waiting = f"{table['waiting'].mean():.0%}"
    late = [("mean staleness", shown), ("time waited", waiting)]
    if len(results) > 1:
        finished = [of for of in results if of.manifest["status"] == "finished"]
        runs = f"{len(results)}, {len(finished)} finished"
        return [("runs", runs), ("models", str(len(table))), *accuracy, *late]
    (result,) = results
    progress = result.manifest["mileage"]
    run = [("method", method(result)), ("workers", f"{result.config.cluster.workers}")]
    length = [
        ("virtual time", f"{progress['time']:.4g} s"),
        ("updates", f"{progress['updates']:,.6g}"),
    ]
    return [*run, *accuracy, *length, *late]


def outcomes(results: Sequence[Result]) -> ReportTable:
    """The summary: a row a run and member, the first 320."""
    table = summary(results)
    shown = table.head(10 * REPORT_ROWS)
    columns = []
    for name in table:
        is_text = table[name].map(lambda value: isinstance(value, str | bool))
        columns.append((name.replace("_", " "), not is_text.any()))
    rows = []
    for row in shown.to_dict("records"):
        rows.append([format_cell(name, value, "–") for name, value in row.items()])
    left = len(table) - len(shown)
    note = ""
    if left:
        note = f"{left} more rows are not shown"
    return ReportTable(columns, rows, note)


def waiting_table(
    results: Sequence[Result], run_labels: Sequence[str]
) -> tuple[list[tuple[str, dict[str, float]]], str]:
    """Label and shares (0 to 1) of time in each state, of one run's workers or of several runs; and
    a note.
    """
    if len(results) > 1:
        seconds = pd.DataFrame([result.workers.sum() for result in results])
        row_labels = list(run_labels)
        note = "Each bar is the mean of a run's workers."
    else:
        workers = results[0].workers
        seconds = workers.head(REPORT_ROWS)
        row_labels = [f"worker {rank}" for rank in seconds["worker"]]
        note = ""
        if len(workers) > REPORT_ROWS:
            note = f"{len(workers) - REPORT_ROWS} more workers are not shown."
    rows = [row.dropna().to_dict() for _, row in shares(seconds).iterrows()]
    return list(zip(row_labels, rows, strict=True)), note


def staleness_table(results: Sequence[Result], run_labels: Sequence[str]) -> ReportTable:
    """The staleness of each run's applied gradients, and the numbers of dropped and cancelled
    ones.
    """
    titles = ["applied", "mean", "std. dev.", "median", "95 %", "max", "dropped", "cancelled"]
    columns = [("run", False)] + [(title, True) for title in titles]
    rows = []
    for label, result in zip(run_labels, results, strict=True):
        is_applied = result.updates["status"] == "applied"
        applied = result.updates.loc[is_applied, "staleness"]
        moments = [applied.mean(), applied.std(ddof=0)]
        quantiles = [*applied.quantile([0.5, 0.95]), applied.max()]
        texts = ["–"] * 5
        if len(applied) > 0:
            texts = [f"{value:.4g}" for value in moments + quantiles]
        totals = result.manifest["gradients"]
        lost = [f"{totals['dropped']:,}", f"{totals['cancelled']:,}"]
        rows.append([label, f"{totals['applied']:,}", *texts, *lost])
    return ReportTable(columns, rows)


def provenance(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    """The provenance in the manifest, in groups of (name, text)."""
    manifest = result.manifest
    run = []
    for key in PROVENANCE:
        if manifest.get(key):
            run.append((key.replace("_", " "), str(manifest[key])))
    seeds = manifest["seeds"]
    learning = ", ".join(map(str, dict.fromkeys(seeds["learning"])))
    run.append(("seed", str(seeds["seed"])))
    run.append(("seed of the cluster", str(seeds["cluster"])))
    run.append(("seeds of learning", learning))
    counts = []
    for status, count in manifest["gradients"].items():
        counts.append((f"gradients {status}", f"{count:,}"))
    counts.append(("evaluated", f"{manifest['evaluated']:,}"))
    for status, count in manifest["messages"].items():
        counts.append((f"messages {status}", f"{count:,}"))
    return [
        ("Run", run),
        ("Counts", counts),
        ("Versions", list(manifest["versions"].items())),
        ("Files, SHA-256", list(manifest["files"].items())),
    ]


def _row_label(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{key.rpartition('.')[2]} = {value}"
