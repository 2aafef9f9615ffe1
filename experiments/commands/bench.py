"""measure gradients per second, beside a plain training loop"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE
from experiments.commands.simulating import config_arguments


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)


def carry_out(args: Namespace) -> int:
    from experiments import load
    from experiments.bench import real_gradients

    print(real_gradients(load(args.config, *args.overrides)).as_json())
    return DONE
