"""simulate one config and look on: curves, staleness, who waits"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE
from experiments.commands.simulating import config_arguments, output_arguments, report


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)


def carry_out(args: Namespace) -> int:
    from experiments import load, run
    from experiments.grid import runs
    from experiments.watch import watching

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    result = run(config, args.out, args.force, None if args.quiet else watching)
    report([result], result.path, args)
    return DONE
