"""draw a figure of results"""

import inspect
from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE

AXES = ("time", "updates", "samples", "epoch")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="*", metavar="RESULT", help="a run's folder, or results/<name> for a whole sweep"
    )
    parser.add_argument("--figure", default="comparison", metavar="NAME", help="which one (default: comparison)")
    parser.add_argument("--x", choices=AXES, help="what learning and consensus are drawn against")
    parser.add_argument("--to", metavar="FILE", help="where to, .png, .svg or .pdf (default: in the first RESULT)")
    parser.add_argument("--list", action="store_true", help="the figures that there are, a line each")


def carry_out(args: Namespace) -> int:
    from experiments import load_results
    from experiments.errors import ConfigError, unknown_name
    from experiments.figures import FIGURES

    if args.list:
        width = max(map(len, FIGURES))
        print("\n".join(f"{name:{width}}  {_first_line(figure)}" for name, figure in FIGURES.items()))
        return DONE
    if not args.results:
        raise ConfigError("", "expected a RESULT to draw, got none: a run's folder, or results/<name>", "laggard plot")
    if args.figure not in FIGURES:
        raise ConfigError("", str(unknown_name("", args.figure, FIGURES)), "laggard plot --figure")
    if args.x and "x" not in inspect.signature(FIGURES[args.figure]).parameters:
        raise ConfigError("", f"{args.figure} has axes of its own; learning and consensus take one", "laggard plot --x")
    results = [result for path in args.results for result in load_results(path)]
    name = "figure" if args.figure == "comparison" else args.figure
    path = Path(args.to) if args.to else Path(args.results[0]) / f"{name}.png"
    try:
        _draw(args, results, path)
    except ValueError as error:  # two results look the same, there is nothing to draw, or the suffix cannot be drawn
        raise ConfigError("", str(error), str(path)) from None
    print(path)
    return DONE


def _draw(args: Namespace, results: list, path: Path) -> None:
    """The figure, with the settings that it takes."""
    from experiments import figures
    from experiments.tables import names

    draw = getattr(figures, args.figure)
    taken = inspect.signature(figures.FIGURES[args.figure]).parameters
    given = {"target": results[0].config.evaluate.target_accuracy}
    called = None if any(result.labels for result in results) else names(results).get
    given["label"] = called and (lambda result: called(result.path))
    if args.x:
        given["x"] = args.x
    draw(results, path, **{key: value for key, value in given.items() if key in taken})


def _first_line(figure: object) -> str:
    return (inspect.getdoc(figure) or "").partition("\n")[0]
