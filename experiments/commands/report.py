"""write a run or a sweep as one HTML page"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULT", help="a run's folder, or results/<name> for a whole sweep"
    )
    parser.add_argument("--to", metavar="FILE", help="where to (default: report.html in the first RESULT)")
    parser.add_argument(
        "--config", metavar="CONFIG", help="a YAML file that asks another question than the results' own"
    )


def carry_out(args: Namespace) -> int:
    from experiments import load_results
    from experiments.documents import question
    from experiments.report import write

    results = [result for path in args.results for result in load_results(path)]
    path = Path(args.to) if args.to else Path(args.results[0]) / "report.html"
    write(results, path, question(args.config) if args.config else None)
    print(path)
    return DONE
