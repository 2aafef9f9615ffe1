"""The command line: it selects the command and prints its errors."""

import argparse
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import laggard
from laggard.__main__ import SIGNALS, leave, shorten_warnings
from laggard.experiments.commands import BAD_INPUT, DONE, FAILED, MODULES, count

OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "failed to map segment",
    "can't start new thread",
)
"""What torch, CUDA, the loader of libraries and Python say in errors of other kinds."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def entry() -> int:
    """`main` as a process of its own, which exits without garbage collection: that would take a
    second.
    """
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    finally:
        gc.freeze()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 where a run failed, 2 where the input is bad.

    It is 130 after Ctrl-C and 143 after SIGTERM, with which batch systems end a job.
    """
    with handle_signals(leave):
        shorten_warnings()
        args = _parse(argv)
        _import(args.command.imports)
        try:
            with handle_signals(_interrupt), _refuse_plugins(args):
                code: int = args.command.function(args)
            return code
        except KeyboardInterrupt as interrupt:
            return _report_interrupt(args, *interrupt.args)
        except BrokenPipeError:
            raise
        except Exception as error:
            outcome = _exit_code(error, getattr(args, "config", None) or "")
            if outcome is None:
                raise
            print(outcome[1], file=sys.stderr)
            return outcome[0]


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    top = parser()
    args, rest = top.parse_known_args(argv)
    if args.version:
        print("laggard", laggard.__version__)
        sys.exit(DONE)
    if any(extra.startswith("-") for extra in rest) or (rest and "overrides" not in args):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if "command" not in args:
        top.print_help()
        sys.exit(DONE)
    if rest:  # overrides after an option
        args.overrides += rest
    return args


def parser() -> Parser:
    """The commands and their arguments."""
    top = Parser(prog="laggard", description="A discrete-event simulator of distributed SGD.")
    top.add_argument("--version", action="store_true", help="show the version and exit")
    commands = top.add_subparsers(metavar="COMMAND")
    for module in MODULES:
        for command in import_module(f"laggard.experiments.commands.{module}").COMMANDS:
            sub = commands.add_parser(command.name, help=command.help, description=command.help)
            command.arguments(sub)
            sub.set_defaults(command=command)
    return top


def _refuse_plugins(args: argparse.Namespace) -> AbstractContextManager[None]:
    if not getattr(args, "no_plugins", False):
        return nullcontext()
    from laggard.experiments.config.plugins import refuse

    return refuse()


def _import(module: str) -> None:
    """Import what a command needs; Ctrl-C ends the process meanwhile."""
    gc.disable()  # collecting garbage during imports takes half a second and frees nothing
    try:
        if module:
            import_module("laggard.experiments.config.errors")
            import_module(module)
    finally:
        gc.enable()
        gc.freeze()


@contextmanager
def handle_signals(handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Handle Ctrl-C, unless a shell has shut it off, and SIGTERM by `handler` in this context."""
    here = threading.current_thread() is threading.main_thread()
    before = {of: signal.getsignal(of) for of in SIGNALS if here}
    before = {of: was for of, was in before.items() if was is not signal.SIG_IGN}
    for of in before:
        signal.signal(of, handler)
    try:
        yield
    finally:
        for of, was in before.items():
            signal.signal(of, was)


def _interrupt(number: int, _: object) -> NoReturn:
    """Raise KeyboardInterrupt; what comes next, as `timeout` sends it twice, is ignored while the
    command ends.
    """
    for of in SIGNALS:
        signal.signal(of, lambda *_: None)
    # it crashes at exit after an import that an exception interrupted
    if _is_being_imported("torch"):
        leave(number)
    raise KeyboardInterrupt(number)


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _report_interrupt(args: argparse.Namespace, number: int = signal.SIGINT) -> int:
    """Report what is saved, without imports: nothing may be imported after an interrupted
    import.
    """
    message = SIGNALS[signal.Signals(number)]
    if planned := getattr(args, "planned", None):
        find_run = sys.modules["laggard.experiments.results.result"].find_run
        saved = sum(find_run(run, args.out) is not None for run in planned)
        message += f": {saved} of {count(len(planned), 'run')} saved in {Path(args.out) / planned[0].config.name}"
        if saved < len(planned) and not getattr(args, "force", False):  # which would make all anew
            message += "; run the same command to complete it"
    print(message, file=sys.stderr)
    return 128 + number


def _exit_code(error: Exception, config: str) -> tuple[int, str] | None:
    """The exit code and the line for an error that a user can correct; None for an internal one."""
    from laggard.experiments.config.errors import ConfigError, error_line
    from laggard.experiments.real import RealRunError
    from laggard.experiments.results.files import ResultError
    from laggard.models.optional import MissingPackageError
    from laggard.simulator import Deadlock, InvalidSettingError

    if isinstance(error, MissingPackageError):
        return BAD_INPUT, str(error)
    if isinstance(error, ConfigError):
        return BAD_INPUT, str(error if error.where else error.relocate(where=config))
    if isinstance(error, ResultError):
        return BAD_INPUT, str(error)
    if isinstance(error, OSError):
        return BAD_INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, RealRunError):
        return FAILED, f"{config or 'laggard'}: {error}"
    if isinstance(error, Deadlock | InvalidSettingError):
        return FAILED, f"{config}: {error}"
    if isinstance(error, MemoryError) or any(told in str(error) for told in OUT_OF_MEMORY):
        return FAILED, f"{config or 'laggard'}: out of memory: {error_line(error)}"
    return None
