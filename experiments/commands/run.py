"""simulate one config"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE
from experiments.commands.simulating import config_arguments, one_run, output_arguments, progress


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)


def carry_out(args: Namespace) -> int:
    one_run(args, progress(args))
    return DONE
