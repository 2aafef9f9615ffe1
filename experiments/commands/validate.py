"""check configs without simulating them"""

import sys
from argparse import ArgumentParser, Namespace

from experiments.commands import BAD_INPUT, DONE, count


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("configs", nargs="+", metavar="CONFIG", help="a YAML file")


def carry_out(args: Namespace) -> int:
    from experiments import ConfigError, load
    from experiments.grid import members, runs

    code = DONE
    for path in args.configs:
        try:
            planned = runs(load(path))
        except ConfigError as error:
            print(error, file=sys.stderr)
            code = BAD_INPUT
        else:
            trained = sum(len(members(run.config)) for run in planned)
            print(f"{path}: fine: {count(len(planned), 'run')}, {count(trained, 'member')}")
    return code
