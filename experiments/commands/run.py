"""simulate one config"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE
from experiments.commands.simulating import config_arguments, output_arguments, progress, report


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)


def carry_out(args: Namespace) -> int:
    from experiments import load, run
    from experiments.grid import runs

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    result = run(config, args.out, args.force, progress(args))
    report([result], result.path, args)
    return DONE
