"""draw a figure of results"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULT", help="a run's folder, or results/<name> for a whole sweep"
    )
    parser.add_argument("--to", metavar="FILE", help="where to (default: figure.png in the first RESULT)")


def carry_out(args: Namespace) -> int:
    from experiments import load_results
    from experiments.errors import ConfigError
    from experiments.figures import comparison
    from experiments.tables import names

    results = [result for path in args.results for result in load_results(path)]
    path = Path(args.to) if args.to else Path(args.results[0]) / "figure.png"
    label = None if any(result.labels for result in results) else names(results).get
    target = results[0].config.evaluate.target_accuracy
    try:
        comparison(results, path, target=target, label=label and (lambda result: label(result.path)))
    except ValueError as error:  # two results look the same, or the suffix is none that can be drawn
        raise ConfigError("", str(error), str(path)) from None
    print(path)
    return DONE
