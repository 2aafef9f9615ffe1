"""The command line: which command is meant, and how what goes wrong is said."""

import argparse
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from experiments.commands import BAD_INPUT, COMMANDS, FAILED, INTERRUPTED, count


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def entry() -> int:
    """`main` as a process of its own, at whose end nobody looks for garbage: that takes Python a second."""
    try:
        return main()
    finally:
        gc.freeze()


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit code is 0, 1 where a run failed, 2 where the input is bad, 130 after Ctrl-C."""
    top = parser()
    args, rest = top.parse_known_args(argv)
    if any(extra.startswith("-") for extra in rest) or (rest and "overrides" not in args):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides after an option
        args.overrides += rest
    try:
        if not args.looks_itself:
            with _leaving_at_once():
                import experiments.errors
                import experiments.sweeps  # noqa: F401
        code: int = args.command(args)
        return code
    except KeyboardInterrupt:
        return _interrupted(args)
    except Exception as error:
        said = _said(error, getattr(args, "config", ""))
        if said is None:
            raise
        print(said[1], file=sys.stderr)
        return said[0]


def parser() -> Parser:
    """The commands and their arguments."""
    top = Parser(prog="laggard", description="A discrete-event simulator of distributed SGD.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        command = import_module(f"experiments.commands.{name}")
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        command.arguments(sub)
        sub.set_defaults(command=command.carry_out, looks_itself=getattr(command, "LOOKS_ITSELF", False))
    return top


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Ctrl-C ends the process on the spot: an import that an exception cut short leaves torch crashing at exit."""
    if "torch" in sys.modules or threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> NoReturn:
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    gc.disable()  # half a second of looking for garbage among what imports leave, all of which stays
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        signal.signal(signal.SIGINT, before)


def _interrupted(args: argparse.Namespace) -> int:
    """Say what is saved, by what is imported already: nothing may be imported after an interrupted import."""
    said = "interrupted"
    if planned := getattr(args, "planned", None):
        kept = sys.modules["experiments.store"].kept
        saved = sum(kept(run.config, args.out) is not None for run in planned)
        said += f": {saved} of {count(len(planned), 'run')} saved in {Path(args.out) / planned[0].config.name}"
    print(said, file=sys.stderr)
    return INTERRUPTED


def _said(error: Exception, config: str) -> tuple[int, str] | None:
    """The exit code and the line for an error that a user can mend; None for one of ours."""
    from experiments.errors import ConfigError
    from experiments.store import ResultError
    from simulator import Deadlock, Invalid

    if isinstance(error, ConfigError):
        return BAD_INPUT, str(error if error.where else error.moved(where=config))
    if isinstance(error, ResultError):
        return BAD_INPUT, str(error)
    if isinstance(error, OSError):
        return BAD_INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, Deadlock | Invalid):
        return FAILED, f"{config}: {error}"
    return None
