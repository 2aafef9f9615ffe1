"""write a run or a sweep as one HTML page"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULT", help="a run's folder, or results/<name> for a whole sweep"
    )
    parser.add_argument("--to", metavar="FILE", help="where to (default: report.html in the first RESULT)")
    parser.add_argument("--config", metavar="CONFIG", help="the YAML file whose first line is the question")


def carry_out(args: Namespace) -> int:
    from experiments import load_results
    from experiments.report import write

    results = [result for path in args.results for result in load_results(path)]
    path = Path(args.to) if args.to else Path(args.results[0]) / "report.html"
    write(results, path, question(args.config) if args.config else "")
    print(path)
    return DONE


def question(path: str) -> str:
    """The first line of a config, if it is a comment.

    Raises:
        OSError: it cannot be read.
    """
    with Path(path).open(encoding="utf-8") as file:
        first = file.readline().strip()
    return first.lstrip("# ") if first.startswith("#") else ""
