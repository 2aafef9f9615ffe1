"""simulate a grid of configs"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE, FAILED
from experiments.commands.simulating import config_arguments, output_arguments, progress, report


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)


def carry_out(args: Namespace) -> int:
    from experiments import load, sweep
    from experiments.grid import runs
    from experiments.sweeps import SweepError

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    folder = Path(args.out) / config.name
    try:
        report(sweep(config, args.out, args.force, progress(args)), folder, args)
    except SweepError as error:
        print(error, file=sys.stderr)
        report(error.results, folder, args)
        print(f"{len(error.failures)} of {error.runs} runs failed", file=sys.stderr)
        return FAILED
    return DONE
