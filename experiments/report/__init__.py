"""A run or a sweep as one self-contained HTML page: answer, table, charts, figures, provenance."""

import math
from base64 import b64encode
from collections.abc import Collection, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib import style
from matplotlib.figure import Figure

from laggard.experiments.config.document import text_of
from laggard.experiments.figures import ENTRIES
from laggard.experiments.figures.style import STYLE, axes_of
from laggard.experiments.report.charts import draw_curves, draw_timelines, embed, line_looks
from laggard.experiments.report.settings import row_label, setting_lines, settings_table
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.formats import format_cell
from laggard.experiments.results.measures import is_seed, method, names, shares, summary
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import as_results, common_question
from laggard.experiments.results.tables import label_results

HERE = Path(__file__).parent
MAX_SVG_BYTES = 1_500_000
"""A larger figure is stored as PNG."""
MAX_RUNS = 100
"""The number of runs that a page shows one by one; of more it has the table and the curves."""
MAX_GRADIENTS, MAX_BARS = 200_000, 30_000
"""Gradients in the timeline of one run, and in those of all runs of a sweep."""
PROVENANCE = (
    "run", "status", "reached", "stalled", "device", "arithmetic", "threads", "wall_seconds",
    "commit",
)  # fmt: skip
"""Entries of a manifest in the first group of a run's provenance."""
MAX_NAMES = 8
"""Runs that the alt text of a figure names."""
REPORT_ROWS = 32
"""Workers that a table of one run shows."""


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
    """The page: outcome, curves, timelines, waiting, staleness, config and provenance.

    It refers to nothing outside itself. Its table can be read without scripts.

    Args:
        results: one run, or the runs of a sweep.
        question: the question below the title; by default that of the results' configs.
    """
    if question is None:
        question = common_question(results)
    results = as_results(results)  # read once for all parts of the page
    labelled = label_results(results)
    ranking = settings_table(labelled)
    shown: Sequence[Result] = results
    if len(results) > MAX_RUNS:
        shown = results[:1]
    lines = setting_lines(labelled, ranking)
    first = [index for index, row in enumerate(ranking.rows) if row.is_best]
    curves = draw_curves(lines, first)
    timelines = timeline_runs(shown)
    most = MAX_GRADIENTS
    if len(timelines) > 1:
        most = MAX_BARS // len(timelines)
    timeline = draw_timelines(list(timelines.values()), most)
    run_labels = labels(shown)
    configs = []
    manifests = []
    for label, result in zip(run_labels, shown, strict=True):
        configs.append((label, text_of(result.config.as_dict())))
        manifests.append((label, provenance(result)))
    several = len(results) > 1
    waiting = staleness = None
    if not several:
        waiting = waiting_table(results[0])
        staleness = staleness_table(results[0])
    return _fill_template(
        name=", ".join(dict.fromkeys(result.config.name for result in results)),
        question=question,
        several=several,
        facts=facts(results),
        ranking=ranking,
        outcomes=None if ranking.keys else outcomes(results),
        charts=embed([*curves, timeline]),
        curves=len(curves),
        looks=line_looks(lines),
        dashes=("", "8 3", "2 3", "8 3 2 3"),
        axes=axes_of(lines),
        timelines=list(timelines),
        most=_note_on_most(timelines.values(), most),
        pictures=pictures(results, run_labels) if shown is results else [],
        waiting=waiting,
        staleness=staleness,
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
    parts = {}
    for kind in ("css", "js"):
        parts[kind] = (HERE / f"page.{kind}").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(**parts, **content)


def timeline_runs(results: Sequence[Result]) -> dict[str, Result]:
    """For each setting, under its name, the run of its first seed."""
    runs: dict[str, Result] = {}
    methods = names(results)
    for result in results:
        settings = []
        for key, value in result.labels.items():
            if not is_seed(key):
                settings.append(row_label(key, value))
        runs.setdefault(", ".join(settings) or methods[result.path], result)
    return runs


def _note_on_most(results: Collection[Result], most: int) -> str:
    longest = max(len(result.updates) for result in results)
    if longest <= most:
        return ""
    return f"It shows the first {most:,} gradients of a run."


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
        alt = f"{entry.caption} Of {runs}: {outcome}."
        with suppress(ValueError):  # the figure does not apply to these results
            source = uri(entry.draw(results))
            picture = {"title": entry.title, "source": source}
            found.append({**picture, "alt": alt, "caption": entry.caption})
    return found


def uri(figure: Figure) -> str:
    """A figure as a data URI, without a background."""
    with style.context(STYLE):
        kind = "svg+xml"
        image = _figure_bytes(figure, format="svg", metadata={"Date": None})
        if len(image) > MAX_SVG_BYTES:
            kind = "png"
            image = _figure_bytes(figure, format="png", dpi=200)
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
        coordinates = [row_label(key, value) for key, value in result.labels.items()]
        run_labels.append(", ".join(coordinates) or methods[result.path])
    return run_labels


def facts(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The main facts: the outcome of one run, or the number of runs and their highest accuracy."""
    final = as_results(results).final
    accuracy = []
    if "test_accuracy" in final and final["test_accuracy"].notna().any():
        title = "test accuracy" if len(final) == 1 else "highest accuracy"
        best = final["test_accuracy"].max()
        accuracy = [(title, f"{best:.2%}")]
    if len(results) > 1:
        finished = [run for run in results if run.manifest["status"] == "finished"]
        runs = f"{len(results)}, {len(finished)} finished"
        return [("runs", runs), ("models", str(len(final))), *accuracy]
    (result,) = results
    table = summary(results)
    progress = result.manifest["mileage"]
    staleness = table["staleness"].mean()
    shown = "–"
    if not math.isnan(staleness):
        shown = f"{staleness:.2f}"
    return [
        ("method", method(result)),
        ("workers", f"{result.config.cluster.workers}"),
        *accuracy,
        ("virtual time", f"{progress['time']:.4g} s"),
        ("updates", f"{progress['updates']:,.6g}"),
        ("mean staleness", shown),
        ("time waited", f"{table['waiting'].mean():.0%}"),
    ]


def outcomes(results: Sequence[Result]) -> ReportTable:
    """The summary of a run in which nothing was swept."""
    table = summary(results)
    columns = []
    for name in table:
        is_text = table[name].map(lambda value: isinstance(value, str | bool))
        columns.append((name.replace("_", " "), not is_text.any()))
    rows = []
    for row in table.to_dict("records"):
        rows.append([format_cell(name, value, "–") for name, value in row.items()])
    return ReportTable(columns, rows)


def waiting_table(result: Result) -> tuple[list[tuple[str, dict[str, float]]], str]:
    """Each worker's shares (0 to 1) of time in each state, and a note."""
    workers = result.workers
    seconds = workers.head(REPORT_ROWS)
    row_labels = [f"worker {rank}" for rank in seconds["worker"]]
    note = ""
    if len(workers) > REPORT_ROWS:
        note = f"{len(workers) - REPORT_ROWS} more workers are not shown."
    rows = [row.dropna().to_dict() for _, row in shares(seconds).iterrows()]
    return list(zip(row_labels, rows, strict=True)), note


def staleness_table(result: Result) -> ReportTable:
    """The staleness of a run's applied gradients, and the numbers of dropped and cancelled ones."""
    titles = ["applied", "mean", "std. dev.", "median", "95 %", "max", "dropped", "cancelled"]
    is_applied = result.updates["status"] == "applied"
    applied = result.updates.loc[is_applied, "staleness"]
    moments = [applied.mean(), applied.std(ddof=0)]
    quantiles = [*applied.quantile([0.5, 0.95]), applied.max()]
    texts = ["–"] * 5
    if len(applied) > 0:
        texts = [f"{value:.4g}" for value in moments + quantiles]
    totals = result.manifest["gradients"]
    lost = [f"{totals['dropped']:,}", f"{totals['cancelled']:,}"]
    row = [f"{totals['applied']:,}", *texts, *lost]
    return ReportTable([(title, True) for title in titles], [row])


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
