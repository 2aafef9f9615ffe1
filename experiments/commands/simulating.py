"""What the commands that simulate have in common: their arguments, their progress, and what they report."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.store import Result


def config_arguments(parser: ArgumentParser) -> None:
    """CONFIG, and overrides of its keys."""
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="a dotted key of the config and its value")


def output_arguments(parser: ArgumentParser) -> None:
    """Where results go, and how much is said."""
    parser.add_argument("--out", default="results", metavar="FOLDER", help="where results are kept (default: results)")
    parser.add_argument("--force", action="store_true", help="simulate again what is there already")
    parser.add_argument("--quiet", action="store_true", help="say nothing unless something is wrong")


def progress(args: Namespace) -> Callable | None:
    """A progress bar, where somebody looks at it."""
    from experiments.progress import bar

    return bar if sys.stderr.isatty() and not args.quiet else None


def report(results: Sequence["Result"], folder: Path, args: Namespace) -> None:
    """The table of `results`, and their figure in `folder`."""
    from experiments.figures import comparison
    from experiments.tables import as_text, summary

    if not results:
        return
    path = folder / "figure.png"
    if not args.quiet:  # the table first: drawing takes seconds, and may fail
        print(as_text(summary(results)), flush=True)
    comparison(results, path, target=results[0].config.evaluate.target_accuracy)
    if not args.quiet:
        print(f"\n{path}")


def one_run(args: Namespace, progress: Callable | None) -> None:
    """Simulate one config, shown by `progress`, and report."""
    from experiments import load, run
    from experiments.grid import runs

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    result = run(config, args.out, args.force, progress)
    report([result], result.path, args)
