"""The command line: parses the arguments, runs the command and prints its errors."""

import argparse
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import laggard
from laggard.__main__ import SIGNALS, block_signals, leave, shorten_warnings
from laggard.experiments.commands import (
    BAD_INPUT,
    DONE,
    FAILED,
    MODULES,
    Command,
    CommandGroup,
    count,
)

OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "failed to map segment",
    "can't start new thread",
)
"""Messages of torch, CUDA, the dynamic loader and Python in errors other than MemoryError."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def entry() -> int:
    """Run `main` as a process, which exits without garbage collection: it would take a second."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    finally:
        block_signals()  # the command has ended: nothing is left to interrupt
        gc.freeze()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    It is 0 on success, 1 if a run failed, 2 for bad input, 130 after Ctrl-C, and 143 after SIGTERM,
    with which batch systems end a job.
    """
    with handle_signals(leave):
        shorten_warnings()
        try:
            args = _parse(argv)
        except MemoryError as error:
            print(_out_of_memory(error, "laggard"), file=sys.stderr)
            return FAILED
        command: Command = args.command
        interrupts: list[int] = []
        try:
            _import(command.imports)
            with _handle_interrupts(interrupts), _refuse_plugins(args):
                code = command.function(args)
        except KeyboardInterrupt as interrupt:
            return _report_interrupt(args, *interrupt.args)
        except BaseException as error:
            if interrupts:  # a library made another error of the interrupt
                return _report_interrupt(args, *interrupts)
            # a plugin's SystemExit would end the process as if the run had finished
            if isinstance(error, BrokenPipeError) or not isinstance(error, Exception | SystemExit):
                raise
            user_error = _describe_error(error, getattr(args, "config", None) or "")
            if user_error is None:
                raise
            code, line = user_error
            print(_name_options(line, args.options), file=sys.stderr)
            return code
        if interrupts:  # a library dropped it
            return _report_interrupt(args, *interrupts)
        return code


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    top = parser()
    args, rest = top.parse_known_args(argv)
    if args.version:
        print("laggard", laggard.__version__)
        sys.exit(DONE)
    has_unknown_option = any(word.startswith("-") for word in rest)
    if has_unknown_option or not _add_late_words(args, rest):
        refuse = getattr(args, "refuse", top.error)
        refuse(f"unrecognized arguments: {' '.join(rest)}")
    if "command" not in args:
        top.print_help()
        sys.exit(DONE)
    return args


def _add_late_words(args: argparse.Namespace, words: list[str]) -> bool:
    """Add words after an option to an optional positional argument; return whether they fit.

    argparse (Python 3.11) fills such an argument from words before the first option only.
    """
    if "overrides" in args:
        args.overrides += words
        return True
    if len(words) == 1 and getattr(args, "path", "") is None:
        args.path = words[0]
        return True
    return not words


def parser() -> Parser:
    """The commands and their arguments."""
    top = Parser(prog="laggard", description="A discrete-event simulator of distributed SGD.")
    top.add_argument("--version", action="store_true", help="show the version and exit")
    modules = [import_module(f"laggard.experiments.commands.{name}") for name in MODULES]
    _add_commands(top, [command for module in modules for command in module.COMMANDS])
    return top


def _add_commands(
    parent: argparse.ArgumentParser, commands: Sequence[Command | CommandGroup], **options: Any
) -> None:
    subparsers = parent.add_subparsers(metavar="COMMAND", **options)
    for command in commands:
        sub = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if isinstance(command, CommandGroup):
            _add_commands(sub, command.commands, required=True)
        else:
            command.arguments(sub)
            sub.set_defaults(command=command, options=_options(sub), refuse=sub.error)


def _options(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The option of each argument, by the argument's name in Python."""
    options = {}
    for action in parser._actions:
        if action.option_strings:
            options[action.dest] = action.option_strings[-1]
    return options


def _name_options(line: str, options: Mapping[str, str]) -> str:
    """Replace the names of Python arguments in an error by the command's options."""

    def option(match: re.Match[str]) -> str:
        return options.get(match[1], match[0])

    return re.sub("`([a-z_]+)`", option, line)


def _refuse_plugins(args: argparse.Namespace) -> AbstractContextManager[None]:
    if not getattr(args, "no_plugins", False):
        return nullcontext()
    from laggard.experiments.config.plugins import refuse

    return refuse()


def _import(module: str) -> None:
    """Import what a command needs, while Ctrl-C still ends the process at once."""
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
    """Handle Ctrl-C and SIGTERM by `handler` in this context."""
    previous = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        previous = {number: signal.getsignal(number) for number in SIGNALS}
    for number, old_handler in previous.items():
        if old_handler is not signal.SIG_IGN:  # a shell has it ignored in background jobs
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old_handler in previous.items():
            signal.signal(number, old_handler)


@contextmanager
def _handle_interrupts(received: list[int]) -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal, and append its number to `received`.

    Later signals are ignored, since `timeout` sends two. Code that Python calls itself, such as
    `__del__`, cannot pass the exception on; there the process ends at once.
    """

    def interrupt(number: int, _: object) -> None:
        if received:
            return
        received.append(number)
        if _is_being_imported("torch"):  # after an interrupted import it would crash at exit
            leave(number)
        raise KeyboardInterrupt(number)

    def report_ignored(unraisable: Any) -> None:
        if received:
            leave(*received)
        name = unraisable.exc_type.__name__
        print(f"warning: ignored: {name}: {unraisable.exc_value}", file=sys.stderr)

    hook = sys.unraisablehook
    sys.unraisablehook = report_ignored
    try:
        with handle_signals(interrupt):
            yield
    finally:
        sys.unraisablehook = hook


def _is_being_imported(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _report_interrupt(args: argparse.Namespace, number: int = signal.SIGINT) -> int:
    """Report how many runs are saved.

    It imports nothing, because the interrupt may have stopped an import halfway.
    """
    message = SIGNALS[signal.Signals(number)]
    planned = getattr(args, "planned", None)
    if planned:
        find_run = sys.modules["laggard.experiments.results.result"].find_run
        saved = [run for run in planned if find_run(run, args.out) is not None]
        folder = Path(args.out) / planned[0].config.name
        message += f": {len(saved)} of {count(len(planned), 'run')} saved in {folder}"
        if len(saved) < len(planned) and not args.force:  # --force would simulate all again
            message += "; run the same command to complete it"
    print(message, file=sys.stderr)
    return 128 + number


def _out_of_memory(error: BaseException, subject: str) -> str:
    cause = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{subject}: out of memory: {cause}"


def _describe_error(error: Exception | SystemExit, config: str) -> tuple[int, str] | None:
    """The exit code and the line for an error that a user can correct; None for an internal one."""
    subject = config or "laggard"
    # first what a full disk or memory causes: then an import may fail too
    if isinstance(error, OSError):
        if error.filename:
            return BAD_INPUT, f"{error.filename}: {error.strerror}"
        if error.strerror:
            return BAD_INPUT, f"{subject}: {error.strerror}"
        return BAD_INPUT, str(error)  # ours, which says what is missing and where
    message = str(error)
    if isinstance(error, MemoryError) or any(text in message for text in OUT_OF_MEMORY):
        return FAILED, _out_of_memory(error, subject)
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.plugins import describe_failure_in_plugin
    from laggard.experiments.real import RealRunError
    from laggard.experiments.results.files import ResultError
    from laggard.models.optional import MissingPackageError
    from laggard.simulator import Deadlock, InvalidSettingError

    if isinstance(error, ConfigError) and not error.where:
        error = error.relocate(where=config)
    if isinstance(error, ConfigError | ResultError | MissingPackageError):
        return BAD_INPUT, str(error)
    if isinstance(error, RealRunError | Deadlock | InvalidSettingError):
        return FAILED, f"{subject}: {error}"
    failure = describe_failure_in_plugin(error)
    if failure:
        return FAILED, f"{subject}: {failure}"
    return None
