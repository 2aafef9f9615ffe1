"""The command line: run, sweep, plot, validate, list, verify, bench."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from experiments.store import Result

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit code is 0, 1 where a run failed, 2 where the input is bad, 130 after Ctrl-C."""
    top = parser()
    args, rest = top.parse_known_args(argv)
    if any(extra.startswith("-") for extra in rest) or (rest and "overrides" not in args):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides after an option
        args.overrides += rest
    try:
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
    for name, command, text in (("run", _run, "simulate one config"), ("sweep", _sweep, "simulate a grid of configs")):
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("config", metavar="CONFIG", help="a YAML file")
        sub.add_argument("overrides", nargs="*", metavar="key=value", help="a dotted key of the config and its value")
        sub.add_argument("--out", default="results", metavar="FOLDER", help="where results are kept (default: results)")
        sub.add_argument("--force", action="store_true", help="simulate again what is there already")
        sub.add_argument("--quiet", action="store_true", help="say nothing unless something is wrong")
        sub.set_defaults(command=command)
    plot = commands.add_parser("plot", help="draw a figure of results")
    plot.add_argument(
        "results", nargs="+", metavar="RESULT", help="a run's folder, or results/<name> for a whole sweep"
    )
    plot.add_argument("--to", metavar="FILE", help="where to (default: figure.png in the first RESULT)")
    plot.set_defaults(command=_plot)
    validate = commands.add_parser("validate", help="check configs without simulating them")
    validate.add_argument("configs", nargs="+", metavar="CONFIG", help="a YAML file")
    validate.set_defaults(command=_validate)
    listing = commands.add_parser("list", help="list what a config may name")
    listing.add_argument("words", nargs="*", metavar="NAME", help="a room (methods, laws, ...), or an entry of one")
    listing.set_defaults(command=_list)
    new = commands.add_parser("new", help="write an entry of one's own, with a config and a test")
    new.add_argument("kind", metavar="KIND", help="algorithm, compensation, law, model or topology")
    new.add_argument("name", metavar="NAME", help="of its module, in snake case")
    new.set_defaults(command=_new)
    verify = commands.add_parser("verify", help="hold the simulator against theory: identities and closed forms")
    verify.add_argument("families", nargs="*", metavar="FAMILY", help="which checks (default: all)")
    verify.add_argument("--json", action="store_true", help="print findings as JSON")
    verify.set_defaults(command=_verify)
    bench = commands.add_parser("bench", help="measure gradients per second, beside a plain training loop")
    bench.add_argument("config", metavar="CONFIG", help="a YAML file")
    bench.add_argument("overrides", nargs="*", metavar="key=value", help="a dotted key of the config and its value")
    bench.set_defaults(command=_bench)
    return top


def _run(args: argparse.Namespace) -> int:
    from experiments import load, run
    from experiments.grid import runs

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    result = run(config, args.out, args.force, _progress(args))
    _report([result], result.path, args)
    return DONE


def _sweep(args: argparse.Namespace) -> int:
    from experiments import load, sweep
    from experiments.grid import runs
    from experiments.sweeps import SweepError

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    folder = Path(args.out) / config.name
    try:
        _report(sweep(config, args.out, args.force, _progress(args)), folder, args)
    except SweepError as error:
        print(error, file=sys.stderr)
        _report(error.results, folder, args)
        print(f"{len(error.failures)} of {error.runs} runs failed", file=sys.stderr)
        return FAILED
    return DONE


def _plot(args: argparse.Namespace) -> int:
    from experiments import load_results
    from experiments.errors import ConfigError
    from experiments.figures import comparison
    from experiments.tables import names

    results = [result for path in args.results for result in load_results(path)]
    path = Path(args.to) if args.to else Path(args.results[0]) / "figure.png"
    label = None if any(result.labels for result in results) else names(results).get
    target = results[0].config.evaluate.target_accuracy
    try:
        comparison(results, path, target=target, label=label and (lambda result: label(result.path)))
    except ValueError as error:  # two results look the same, or the suffix is none that can be drawn
        raise ConfigError("", str(error), str(path)) from None
    print(path)
    return DONE


def _validate(args: argparse.Namespace) -> int:
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
            print(f"{path}: fine: {_count(len(planned), 'run')}, {_count(trained, 'member')}")
    return code


def _list(args: argparse.Namespace) -> int:
    from experiments.catalogue import listing, wrapped

    lines = list(listing(args.words))
    print("\n".join(wrapped(lines, get_terminal_size().columns) if sys.stdout.isatty() else lines))
    return DONE


def _new(args: argparse.Namespace) -> int:
    from experiments.new import new

    module, *others = new(args.kind, args.name)
    config, test = sorted(others, key=lambda path: path.suffix, reverse=True)
    print(f"{module}\n{config}: laggard run {config}\n{test}: pytest {test}")
    return DONE


def _verify(args: argparse.Namespace) -> int:
    from experiments.verify import as_json, as_text, summary, verify

    began = monotonic()
    found = verify(args.families)
    seconds = monotonic() - began
    print(as_json(found, seconds) if args.json else f"{as_text(found)}\n{summary(found, seconds)}")
    return DONE if all(finding.holds for finding in found) else FAILED


def _bench(args: argparse.Namespace) -> int:
    from experiments import load
    from experiments.bench import real_gradients

    print(real_gradients(load(args.config, *args.overrides)).as_json())
    return DONE


def _progress(args: argparse.Namespace) -> Callable | None:
    from experiments.progress import bar

    return bar if sys.stderr.isatty() and not args.quiet else None


def _report(results: Sequence["Result"], folder: Path, args: argparse.Namespace) -> None:
    """The table of `results`, and their figure in `folder`."""
    from experiments.figures import comparison
    from experiments.tables import as_text, summary

    if not results:
        return
    path = folder / "figure.png"
    if not args.quiet:  # the table first: drawing takes seconds, and may fail
        print(as_text(summary(results)), flush=True)
    comparison(results, path, target=results[0].config.evaluate.target_accuracy)
    if not args.quiet:
        print(f"\n{path}")


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
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(args: argparse.Namespace) -> int:
    """Say what is saved, by what is imported already: nothing may be imported after an interrupted import."""
    said = "interrupted"
    if planned := getattr(args, "planned", None):
        kept = sys.modules["experiments.store"].kept
        saved = sum(kept(run.config, args.out) is not None for run in planned)
        said += f": {saved} of {_count(len(planned), 'run')} saved in {Path(args.out) / planned[0].config.name}"
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
