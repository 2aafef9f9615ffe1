"""The commands that read results: plot, table, trace, report."""

import inspect
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import DONE, Command

if TYPE_CHECKING:
    from laggard.experiments.results.results import Results

AXES = ("time", "updates", "samples", "epoch")
RESULT = "a run's folder, or results/<name> for a whole sweep"


def plot_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", nargs="*", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--figure", default="comparison", metavar="NAME", help="which one (default: comparison)"
    )
    parser.add_argument("--x", choices=AXES, help="what learning and consensus are drawn against")
    parser.add_argument(
        "--to", metavar="FILE", help="where to, .png, .svg or .pdf (default: in the first RESULT)"
    )
    parser.add_argument(
        "--list", action="store_true", help="the figures that there are, a line each"
    )


def plot(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError, unknown_name
    from laggard.experiments.figures import FIGURES
    from laggard.experiments.results.files import ResultError
    from laggard.experiments.results.results import load_results

    if args.list:
        width = max(map(len, FIGURES))
        for name, figure in FIGURES.items():
            first_paragraph = str(inspect.getdoc(figure.function)).partition("\n\n")[0]
            title = first_paragraph.replace("\n", " ")
            print(f"{name:{width}}  {title}")
        return DONE
    if not args.results:
        raise ConfigError(
            "",
            "expected a RESULT to draw, got none: a run's folder, or results/<name>",
            "laggard plot",
        )
    if args.figure not in FIGURES:
        raise unknown_name("", args.figure, FIGURES).relocate(where="laggard plot --figure")
    figure = FIGURES[args.figure]
    if args.x and "x" not in inspect.signature(figure.function).parameters:
        raise ConfigError(
            "",
            f"{args.figure} has axes of its own; learning and consensus take one",
            "laggard plot --x",
        )
    results = [result for path in args.results for result in load_results(path)]
    name = "figure" if args.figure == "comparison" else args.figure
    path = Path(args.to) if args.to else Path(args.results[0]) / f"{name}.png"
    try:
        figure.draw(results, path, **({"x": args.x} if args.x else {}))
    except (ConfigError, ResultError):  # they name their file
        raise
    # two results look the same, there is nothing to draw, or the suffix cannot be drawn
    except ValueError as error:
        raise ConfigError("", str(error), str(path)) from None
    print(path)
    return DONE


def table_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="+",
        metavar="RESULTS",
        help="results/<name> of a sweep or of several runs, or a run's folder",
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="KEY",
        help="keys down (default: all that were swept, but seeds)",
    )
    parser.add_argument("--columns", metavar="KEY", help="a key across")
    parser.add_argument(
        "--value",
        nargs="+",
        metavar="VALUE",
        help="accuracy, loss, train_loss, consensus, time, updates, samples, epochs at the end; time_to, updates_to, "
        "samples_to, epochs_to a target; staleness, max_staleness, waiting",
    )
    parser.add_argument(
        "--target", type=float, metavar="X", help="test accuracy (0 to 1), else test loss, to reach"
    )
    parser.add_argument(
        "--where", nargs="+", default=[], metavar="KEY=VALUE", help="only these runs and members"
    )
    parser.add_argument(
        "--best", nargs="+", metavar="KEY", help="of these keys only the best setting of each row"
    )
    parser.add_argument(
        "--by", metavar="CRITERION", help="accuracy, loss, time or updates to the target"
    )
    parser.add_argument(
        "--select-seeds",
        metavar="S,S",
        help="seeds that choose the best; the others report (default: the first half)",
    )
    parser.add_argument(
        "--format", choices=["text", "md", "csv", "latex"], default="text", help="(default: text)"
    )


def table(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.results.tables import FORMATS, label_results, tabulate

    results = label_results(_join(args.results))
    try:
        results = _restrict_results(results, args.where)
        best = args.best, args.by, _seeds(args.select_seeds)
        print(
            FORMATS[args.format](
                tabulate(results, args.rows, args.columns, args.value, args.target, *best)
            )
        )
    except ValueError as error:
        raise ConfigError("", str(error), " ".join(args.results)) from None
    return DONE


def _join(paths: Sequence[str]) -> "Results":
    """The results of several folders as one; of several names, each is labelled with its own."""
    from dataclasses import replace

    from laggard.experiments.results.results import Results, load_results

    found = [load_results(path) for path in paths]
    if len(found) == 1:
        return found[0]
    names = {result.config.name for each in found for result in each}
    every = [result for each in found for result in each]
    if len(names) > 1:
        every = [
            replace(result, labels={"experiment": result.config.name, **result.labels})
            for result in every
        ]
    joined = Results(every, sum(each.planned for each in found))
    if twice := len(every) - len(joined):
        joined.planned -= twice
        print(f"{twice} of {len(every)} runs were given twice: they count once", file=sys.stderr)
    return joined


def _restrict_results(results: "Results", conditions: Sequence[str]) -> "Results":
    """The runs and members at `key=value` each."""
    from laggard.experiments.config.document import parse_yaml

    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not (key and equals):
            raise ValueError(f"{condition}: expected key=value, as in learning.lr=0.1")
        results = results.where(**{key: parse_yaml(value, condition)})
        if not len(results):
            raise ValueError(f"{condition}: no run has that value")
    return results


def _seeds(listed: str | None) -> list[int] | None:
    """The seeds in `0,1`."""
    try:
        return None if listed is None else [int(seed) for seed in listed.split(",")]
    except ValueError:
        raise ValueError(f"--select-seeds {listed}: expected whole numbers, as in 0,1") from None


def trace_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a run's folder")
    parser.add_argument(
        "--to", metavar="FILE", help="where to, .json or .json.gz (default: trace.json in RESULT)"
    )
    parser.add_argument(
        "--from", dest="start", type=float, default=0.0, metavar="S", help="first virtual second"
    )
    parser.add_argument(
        "--until", type=float, default=float("inf"), metavar="S", help="last virtual second"
    )


def trace(args: Namespace) -> int:
    from laggard.experiments.perfetto import TimeWindow, write_trace
    from laggard.experiments.results.files import ResultError
    from laggard.experiments.results.results import load_one

    if not 0 <= args.start < args.until:
        raise ResultError(
            f"{args.result}: expected 0 <= --from < --until, got {args.start:g} and {args.until:g}"
        )
    result = load_one(args.result)
    if not result.has_messages:
        missing = (
            "no messages recorded, so no links: laggard run CONFIG record.messages=true leaves them"
        )
        print(f"{result.path}: {missing}", file=sys.stderr)
    path = Path(args.to) if args.to else result.path / "trace.json"
    count = write_trace(result, path, TimeWindow(args.start, args.until))
    print(f"{path}: {count:,} events; open it in ui.perfetto.dev")
    return DONE


def report_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--to", metavar="FILE", help="where to (default: report.html in the first RESULT)"
    )
    parser.add_argument(
        "--config",
        metavar="CONFIG",
        help="a YAML file that asks another question than the results' own",
    )


def report(args: Namespace) -> int:
    from laggard.experiments.config.document import question
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.report import write_report
    from laggard.experiments.results.results import load_results

    results = [result for path in args.results for result in load_results(path)]
    path = Path(args.to) if args.to else Path(args.results[0]) / "report.html"
    if path.is_dir() or not path.name:
        raise ConfigError("", "expected a file, got a folder", f"--to {path}")
    write_report(results, path, question(args.config) if args.config else None)
    print(path)
    return DONE


def export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULT", help=RESULT)
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="tensorboard, wandb (offline) or mlflow"
    )
    parser.add_argument("folder", metavar="DIR", help="where to")


def export(args: Namespace) -> int:
    from laggard.experiments.results.results import load_results

    print(load_results(args.results).export(args.to, args.folder))
    return DONE


COMMANDS = (
    Command("plot", "draw a figure of results", plot_arguments, plot),
    Command(
        "table",
        "tabulate results: a mean and its interval over seeds, or the time to a target",
        table_arguments,
        table,
        "laggard.experiments.results.tables",
    ),
    Command("trace", "write a run as a trace for ui.perfetto.dev", trace_arguments, trace),
    Command(
        "export", "write runs for TensorBoard, Weights & Biases or MLflow", export_arguments, export
    ),
    Command("report", "write a run or a sweep as one HTML page", report_arguments, report),
)
