"""The commands that read results: plot, table, export, report."""

import inspect
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EACCES, EPERM, EROFS
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laggard.experiments.commands import DONE, Command
from laggard.units import EXPECTED_FORMS, read_quantity

if TYPE_CHECKING:
    from laggard.experiments.results.results import Results

AXES = ("time", "updates", "samples", "epoch", "bytes")
PERFETTO = "perfetto"
TARGETS = (PERFETTO, "tensorboard", "wandb", "mlflow")
RESULT = "folder of a run, or results/<name> for a sweep"


def add_where(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="only runs and members with these values",
    )


def plot_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", nargs="*", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--figure",
        default="comparison",
        metavar="NAME",
        help="figure to draw (default: comparison)",
    )
    parser.add_argument("--x", choices=AXES, help="horizontal axis of learning and consensus")
    parser.add_argument(
        "--from", dest="start", type=float, metavar="S", help="first virtual second (timeline)"
    )
    parser.add_argument("--until", type=float, metavar="S", help="last virtual second (timeline)")
    add_where(parser)
    parser.add_argument(
        "--to", metavar="FILE", help=".png, .svg or .pdf file (default: in the first RESULT)"
    )
    parser.add_argument("--list", action="store_true", help="list the available figures")


def plot(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError, unknown_name
    from laggard.experiments.figures import FIGURES
    from laggard.experiments.results.files import ResultError

    if args.list:
        _list_figures()
        return DONE
    if not args.results:
        problem = f"expected a RESULT to draw, got none: {RESULT}"
        raise ConfigError("", problem, "laggard plot")
    if args.figure not in FIGURES:
        raise unknown_name("", args.figure, FIGURES).relocate(where="laggard plot --figure")
    figure = FIGURES[args.figure]
    takes = inspect.signature(figure.function).parameters
    options = {}
    if args.x:
        if "x" not in takes:
            problem = f"{args.figure} has fixed axes; learning and consensus take --x"
            raise ConfigError("", problem, "laggard plot --x")
        options["x"] = args.x
    for option, name in (("--from", "start"), ("--until", "until")):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in takes:
            problem = f"{args.figure} shows whole runs; timeline takes {option}"
            raise ConfigError("", problem, f"laggard plot {option}")
        options[name] = value
    results = _load_all(args.results)
    if args.where:
        results = _where(results, args.where, args.results)
    # `run` and `sweep` draw the comparison as `figure.png`
    name = "figure" if args.figure == "comparison" else args.figure

    def draw(path: Path) -> None:
        try:
            figure.draw(results, path, **options)
        except (ConfigError, ResultError):  # the error names its file
            raise
        # two results have the same label, there is nothing to draw, or the suffix is unknown
        except ValueError as error:
            raise ConfigError("", str(error), str(path)) from None

    print(_write_output(args.to, args.results[0], f"{name}.png", draw))
    return DONE


def _list_figures() -> None:
    from laggard.experiments.figures import FIGURES

    width = max(map(len, FIGURES))
    for name, figure in FIGURES.items():
        first_paragraph = str(inspect.getdoc(figure.function)).partition("\n\n")[0]
        title = first_paragraph.replace("\n", " ")
        print(f"{name:{width}}  {title}")


def _load_all(paths: Sequence[str]) -> "Results":
    """All finished runs in folders; a note names sweeps with unfinished runs."""
    from laggard.experiments.results.results import Results, load_results
    from laggard.experiments.results.tables import label_results

    folders = []
    for path in paths:
        results = load_results(path)
        if len(results) < results.planned:
            print(f"{path}: {len(results)} of {results.planned} runs are finished", file=sys.stderr)
        folders.append(results)
    if any(result.labels for results in folders for result in results):
        return label_results(_join(folders))
    # runs outside a sweep have the names of their methods
    return Results(result for results in folders for result in results)


def _write_output(to: str | None, result: str, name: str, write: Callable[[Path], object]) -> Path:
    """Write the file `to`, or else `name` in the folder `result`; return its path.

    If that folder is read-only, such as an archive, the file goes to the current folder.
    """
    if to:
        write(Path(to))
        return Path(to)
    path = Path(result) / name
    try:
        write(path)
    except OSError as error:
        if error.errno not in (EROFS, EACCES, EPERM):
            raise
        path = Path(f"{Path(result).resolve().name}-{name}")
        print(f"{result}: {error.strerror}: written to the current folder", file=sys.stderr)
        write(path)
    return path


def _check_ending(path: Path, endings: tuple[str, ...], where: str) -> None:
    """Refuse to replace a file of another kind, such as a config.

    Raises:
        ConfigError: the name of `path` has none of the `endings`.
    """
    from laggard.experiments.config.errors import ConfigError

    if not path.name.lower().endswith(endings):
        expected = f"expected a name that ends in {' or '.join(endings)}"
        raise ConfigError("", f"{expected}, got {path.name!r}", where)


def table_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="KEY",
        help="keys of the rows (default: all swept keys except seeds)",
    )
    parser.add_argument("--columns", metavar="KEY", help="key of the columns")
    parser.add_argument(
        "--value",
        nargs="+",
        metavar="VALUE",
        help="accuracy, loss, train_loss, consensus, time, updates, samples, epochs or bytes (sent) "
        "at the end; time_to, updates_to, samples_to, epochs_to, bytes_to or cost_to "
        "(worker-seconds) the target; "
        "speedup, efficiency over cluster.workers; "
        "staleness, max_staleness, waiting, up (workers), goodput, throughput",
    )
    parser.add_argument(
        "--target", type=float, metavar="X", help="target: test accuracy (0 to 1), else test loss"
    )
    add_where(parser)
    parser.add_argument(
        "--best",
        nargs="+",
        metavar="KEY",
        help="keys of which each row shows only the best setting",
    )
    parser.add_argument(
        "--by",
        metavar="CRITERION",
        help="criterion of --best: accuracy, loss, or time or updates to the target",
    )
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="differences from the runs with these values, of pairs with equal seeds",
    )
    parser.add_argument(
        "--format",
        choices=["text", "markdown", "md", "csv", "latex"],
        default="text",
        help="(default: text)",
    )


def table(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.results.files import ResultError
    from laggard.experiments.results.results import load_results
    from laggard.experiments.results.tables import FORMATS, label_results, tabulate

    results = label_results(_join([load_results(path) for path in args.results]))
    format_table = FORMATS[args.format]
    results = _where(results, args.where, args.results)
    try:
        values = tabulate(
            results,
            args.rows,
            args.columns,
            args.value,
            args.target,
            args.best,
            args.by,
            dict(_conditions(args.against)),
        )
        print(format_table(values))
    except (ConfigError, ResultError):  # the error names its file
        raise
    except ValueError as error:
        raise ConfigError("", str(error), " ".join(args.results)) from None
    return DONE


def _join(folders: "Sequence[Results]") -> "Results":
    """The results of several folders as one.

    Results of several configs are labelled with the names of their configs.
    """
    from dataclasses import replace

    from laggard.experiments.results.results import Results
    from laggard.experiments.results.tables import EXPERIMENT

    if len(folders) == 1:
        return folders[0]
    results = [result for folder in folders for result in folder]
    if len({result.config.name for result in results}) > 1:
        results = [
            replace(result, labels={EXPERIMENT: result.config.name, **result.labels})
            for result in results
        ]
    joined = Results(results, sum(folder.planned for folder in folders))
    duplicates = len(results) - len(joined)
    if duplicates:
        joined.planned -= duplicates
        message = f"{duplicates} of {len(results)} runs were given twice: they count once"
        print(message, file=sys.stderr)
    return joined


def _where(results: "Results", conditions: Sequence[str], paths: Sequence[str]) -> "Results":
    """The runs and members that meet all conditions `key=value`.

    Raises:
        ConfigError: a condition has another form, or no run or member meets it.
    """
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.results.files import ResultError

    try:
        return _restrict_results(results, conditions)
    except ResultError:  # it names its file
        raise
    except ValueError as error:
        raise ConfigError("", str(error), " ".join(paths)) from None


def _restrict_results(results: "Results", conditions: Sequence[str]) -> "Results":
    """The runs and members that meet all conditions `key=value`."""
    for condition, (key, value) in zip(conditions, _conditions(conditions), strict=True):
        results = results.where(**{key: _readings(value)})
        if not len(results):
            raise ValueError(f"{condition}: no run has that value")
    return results


def _readings(value: Any) -> list[Any]:
    """The values that a condition names; text with a unit also stands for the number in laggard's
    unit.
    """
    values = value
    if not isinstance(value, list):
        values = [value]
    readings = list(values)
    for text in filter(lambda item: isinstance(item, str), values):
        for quantity in EXPECTED_FORMS:
            with suppress(ValueError):
                readings.append(read_quantity(text, quantity))
    return readings


def _conditions(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The keys and values of texts `key=value`."""
    from laggard.experiments.config.document import parse_yaml

    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"{text}: expected key=value, as in learning.lr=0.1")
        yield key, parse_yaml(value, text)


def report_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--to", metavar="FILE", help="HTML file (default: report.html in the first RESULT)"
    )
    parser.add_argument(
        "--config", metavar="CONFIG", help="YAML file whose question stands below the title"
    )


def report(args: Namespace) -> int:
    from laggard.experiments.config.document import question
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.report import write_report

    results = _load_all(args.results)
    asked = question(args.config) if args.config else None

    def write(path: Path) -> None:
        if path.is_dir() or not path.name:
            raise ConfigError("", "expected a file, got a folder", f"--to {path}")
        _check_ending(path, (".html", ".htm"), "laggard report --to")
        write_report(results, path, asked)

    print(_write_output(args.to, args.results[0], "report.html", write))
    return DONE


def export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULT", help=f"{RESULT}; for perfetto one run")
    parser.add_argument(
        "--to", required=True, choices=TARGETS, help="the program that reads it; wandb is offline"
    )
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="folder to write to; for perfetto a .json or .json.gz file "
        "(default: trace.json in RESULT)",
    )
    parser.add_argument(
        "--from", dest="start", type=float, metavar="S", help="first virtual second (perfetto)"
    )
    parser.add_argument(
        "--until", dest="end", type=float, metavar="S", help="last virtual second (perfetto)"
    )


def export(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.results.results import load_results

    if args.to == PERFETTO:
        return _export_trace(args)
    where = f"laggard export --to {args.to}"
    if args.start is not None or args.end is not None:
        raise ConfigError("", "expected no --from or --until: only perfetto takes them", where)
    if args.path is None:
        raise ConfigError("", "expected a folder to write to, got none", where)
    print(load_results(args.results).export(args.to, args.path))
    return DONE


def _export_trace(args: Namespace) -> int:
    from laggard.experiments.perfetto import write_trace
    from laggard.experiments.results.files import ResultError
    from laggard.experiments.results.result import TimeWindow
    from laggard.experiments.results.results import load_one

    start = 0.0 if args.start is None else args.start
    end = float("inf") if args.end is None else args.end
    if not 0 <= start < end:
        problem = f"expected 0 <= --from < --until, got {start:g} and {end:g}"
        raise ResultError(f"{args.results}: {problem}")
    result = load_one(args.results)
    if not result.has_messages:
        hint = "`laggard run CONFIG record.messages=true` records them"
        print(f"{result.path}: no links, since no messages were recorded: {hint}", file=sys.stderr)
    numbers = []

    def write(path: Path) -> None:
        _check_ending(path, (".json", ".json.gz"), "laggard export PATH")
        numbers.append(write_trace(result, path, TimeWindow(start, end)))

    path = _write_output(args.path, str(result.path), "trace.json", write)
    print(f"{path}: {numbers[-1]:,} events; open it in ui.perfetto.dev")
    return DONE


COMMANDS = (
    Command("plot", "draw a figure of results", plot_arguments, plot),
    Command(
        "table",
        "tabulate results: means and intervals over seeds, or the time to a target",
        table_arguments,
        table,
        "laggard.experiments.results.tables",
    ),
    Command("report", "write a run or a sweep as one HTML page", report_arguments, report),
    Command(
        "export",
        "write results for Perfetto, TensorBoard, Weights & Biases or MLflow",
        export_arguments,
        export,
    ),
)
