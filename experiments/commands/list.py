"""list what a config may name"""

import sys
from argparse import ArgumentParser, Namespace
from shutil import get_terminal_size

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="NAME", help="a room (methods, laws, ...), or an entry of one")


def carry_out(args: Namespace) -> int:
    from experiments.catalogue import listing, wrapped

    lines = list(listing(args.words))
    print("\n".join(wrapped(lines, get_terminal_size().columns) if sys.stdout.isatty() else lines))
    return DONE
