"""simulate one config and look on: curves, staleness, who waits"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE
from experiments.commands.simulating import config_arguments, one_run, output_arguments


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)


def carry_out(args: Namespace) -> int:
    from experiments.watch import watching

    one_run(args, None if args.quiet else watching)
    return DONE
