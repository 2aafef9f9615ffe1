"""The commands: name, arguments and function of each; torch and pandas are imported only when one
runs.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MODULES = ("simulate", "results", "configs", "reproduce", "real")
DONE, FAILED, BAD_INPUT = 0, 1, 2


class Command(NamedTuple):
    """A command of the command line.

    Attributes:
        arguments: adds its arguments to a parser.
        function: runs it and returns the exit code.
        imports: the module that it needs, which is imported first, together with all that this
            imports; none where the command itself is to see whether that works.
    """

    name: str
    help: str
    arguments: Callable[[ArgumentParser], None]
    function: Callable[[Namespace], int]
    imports: str = "laggard.experiments.running.sweep"


IMPORTS = (
    "A config may name modules of your own (module:Name): they are imported, so their code is run."
)


def add_no_plugins(parser: ArgumentParser) -> None:
    """Let a command refuse such configs."""
    parser.epilog = IMPORTS
    parser.add_argument(
        "--no-plugins", action="store_true", help="refuse configs that name modules of one's own"
    )


def is_override(word: str) -> bool:
    """Whether a word is `key=value`, not a file that has an equals sign in its name."""
    try:
        return "=" in word and not Path(word).exists()
    except OSError:  # longer than a file's name may be
        return True


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """A duration in readable form.

    Example:
        >>> duration(0.234), duration(75), duration(5000), duration(200_000)
        ('0.2 s', '75 s', '83 min', '56 h')
    """
    for unit, each in (("h", 3600), ("min", 60)):
        if seconds >= 2 * each:
            return (
                f"{seconds / each:.0f} {unit}"
                if seconds >= 10 * each
                else f"{seconds / each:.1f} {unit}"
            )
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def size(memory: float) -> str:
    """A number of bytes in readable form.

    Example:
        >>> size(3.2e8), size(5e9)
        ('305 MiB', '4.7 GiB')
    """
    return f"{memory / 2**30:.1f} GiB" if memory >= 2**30 else f"{memory / 2**20:.0f} MiB"
