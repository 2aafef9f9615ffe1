"""The commands that read recordings of other programs, and ask what a run would be without what slowed it."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from laggard.experiments.commands import DONE, Command, add_no_plugins, count

RECORDERS = ("chrome", "straggler-analysis")


def import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("format", choices=RECORDERS, help="PyTorch's profiler, or ByteDance's StragglerAnalysis")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a Chrome trace for each worker, or a Parquet table")
    parser.add_argument("--out", default="imported", metavar="FOLDER", help="where compute.csv and cluster.yaml go")


def whatif_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a run's folder")
    parser.add_argument(
        "--without",
        action="append",
        required=True,
        metavar="WHAT",
        help="straggler=RANK (or RANK,RANK), slowdowns or network; may be repeated, for a row each",
    )
    add_no_plugins(parser)


def import_recording(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.real.importers import chrome_steps, straggler_analysis_steps, write_import

    paths = [Path(file) for file in args.files]
    if args.format == "chrome":
        steps = chrome_steps(paths)
    elif len(paths) > 1:
        raise ConfigError("", f"expected one table, got {len(paths)}", "laggard import straggler-analysis")
    else:
        steps = straggler_analysis_steps(paths[0])
    config = write_import(steps, args.format, Path(args.out))
    print(
        f"{count(steps['worker'].nunique(), 'worker')}, {count(steps['step'].nunique(), 'step')} that all of them have"
    )
    print(config)
    return DONE


def compare_without(args: Namespace) -> int:
    from laggard.experiments.results.results import load_one
    from laggard.experiments.running.whatif import whatif

    table = whatif(load_one(args.result), args.without)
    print(table.to_string(index=False, float_format=lambda number: f"{number:.4g}"))
    return DONE


COMMANDS = (
    Command(
        "import",
        "make a table of compute times and a config from what another program recorded",
        import_arguments,
        import_recording,
        "laggard.experiments.real.importers",
    ),
    Command(
        "whatif",
        "simulate a finished run again without what slowed it",
        whatif_arguments,
        compare_without,
        "laggard.experiments.running.whatif",
    ),
)
