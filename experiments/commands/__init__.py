"""The commands: name, arguments and function of each.

torch and pandas are imported only when a command runs that needs them.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MODULES = ("simulate", "league", "configs", "results", "reproduce", "real")
DONE, FAILED, BAD_INPUT = 0, 1, 2


class Command(NamedTuple):
    """A command of the command line.

    Attributes:
        arguments: adds its arguments to a parser.
        function: runs it and returns the exit code.
        imports: the module that it needs; empty for `doctor`, which checks what can be imported.
    """

    name: str
    help: str
    arguments: Callable[[ArgumentParser], None]
    function: Callable[[Namespace], int]
    imports: str = "laggard.experiments.running.sweep"


class CommandGroup(NamedTuple):
    """Commands under a common name, such as `laggard real calibrate`."""

    name: str
    help: str
    commands: tuple[Command, ...]


PLUGIN_NOTE = "A config may name plugins (module:Name). They are imported, so their code is run."


def add_no_plugins(parser: ArgumentParser) -> None:
    """Add the option that refuses configs with plugins."""
    parser.epilog = PLUGIN_NOTE
    parser.add_argument(
        "--no-plugins", action="store_true", help="refuse configs that name plugins"
    )


def add_config(parser: ArgumentParser) -> None:
    """Add the arguments of a command that takes one config."""
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # without it argparse calls them required where CONFIG is missing
        metavar="key=value",
        help="dotted key of the config and its value",
    )


def add_configs(parser: ArgumentParser) -> None:
    """Add the argument of a command that takes several configs."""
    parser.add_argument(
        "configs", nargs="+", metavar="CONFIG", help="YAML files, and key=value to override keys"
    )


def add_out(parser: ArgumentParser) -> None:
    """Add the option for the folder of results."""
    parser.add_argument(
        "--out", default="results", metavar="FOLDER", help="folder of results (default: results)"
    )


def add_scale(parser: ArgumentParser) -> None:
    """Add the option that chooses one of a config's `scales`."""
    parser.add_argument(
        "--scale", metavar="NAME", help="apply the changes of one of the config's scales"
    )


def add_jobs(parser: ArgumentParser) -> None:
    """Add the option for the number of parallel runs."""
    parser.add_argument(
        "--jobs", type=job_count, metavar="N", help="parallel runs (default: one for each core)"
    )


def job_count(text: str) -> int:
    """A number of parallel runs, at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"expected a whole number >= 1, got {text!r}")
    return number


def split_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """Separate the paths of configs from overrides."""
    overrides = [word for word in words if is_override(word)]
    paths = [word for word in words if word not in overrides]
    return paths, overrides


def is_override(word: str) -> bool:
    """Whether a word is `key=value`, not a file with an equals sign in its name."""
    try:
        return "=" in word and not Path(word).exists()
    except OSError:  # too long for the name of a file
        return True


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def duration(seconds: float) -> str:
    """A duration in readable form.

    Example:
        >>> duration(0.234), duration(75), duration(5000), duration(200_000)
        ('0.2 s', '75 s', '83 min', '56 h')
    """
    amount, unit = seconds, "s"
    if seconds >= 2 * 3600:
        amount, unit = seconds / 3600, "h"
    elif seconds >= 2 * 60:
        amount, unit = seconds / 60, "min"
    digits = 0 if amount >= 10 else 1
    return f"{amount:.{digits}f} {unit}"


def size(memory: float) -> str:
    """A number of bytes in readable form.

    Example:
        >>> size(3.2e8), size(5e9)
        ('305 MiB', '4.7 GiB')
    """
    if memory >= 2**30:
        return f"{memory / 2**30:.1f} GiB"
    return f"{memory / 2**20:.0f} MiB"
