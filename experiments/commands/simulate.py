"""The commands that simulate: run, sweep."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import (
    DONE,
    FAILED,
    Command,
    add_no_plugins,
    count,
    duration,
    size,
)
from laggard.experiments.running import SNAPSHOT_SECONDS

if TYPE_CHECKING:
    from laggard.experiments.config.config import Config
    from laggard.experiments.config.rungs import Halving
    from laggard.experiments.results.result import Result
    from laggard.experiments.results.results import Results
    from laggard.experiments.running.run import ProgressDisplay


def run_arguments(parser: ArgumentParser) -> None:
    """CONFIG and overrides of its keys, where results go, and how much is printed."""
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="a dotted key of the config and its value"
    )
    parser.add_argument(
        "--out",
        default="results",
        metavar="FOLDER",
        help="where results are kept (default: results)",
    )
    parser.add_argument(
        "--force", action="store_true", help="simulate again even if a result exists"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="say nothing unless something is wrong"
    )
    parser.add_argument(
        "--snapshots", type=wall_time, default=SNAPSHOT_SECONDS, metavar="SECONDS",
        help="wall time between snapshots, from the last of which a killed run goes on (default: 60; inf: none)",
    )  # fmt: skip
    add_no_plugins(parser)


def single_arguments(parser: ArgumentParser) -> None:
    run_arguments(parser)
    parser.add_argument(
        "--keep-snapshot", action="store_true", help="keep the last snapshot, for --continue"
    )
    parser.add_argument(
        "--continue", dest="continues", action="store_true",
        help="go on from the snapshot that a finished run of this config with a shorter stop has kept",
    )  # fmt: skip


def wall_time(text: str) -> float:
    """Seconds of wall time >= 0; infinity too."""
    if not (number := float(text)) >= 0:
        raise ValueError
    return number


def sweep_arguments(parser: ArgumentParser) -> None:
    run_arguments(parser)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at once (default: as many as there are cores)"
    )
    parser.add_argument(
        "--backend", default="loky", metavar="NAME", help="loky (default), ray or dask"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be simulated, and how long it would take",
    )


def run(args: Namespace) -> int:
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load
    from laggard.experiments.running.run import run

    config = load(args.config, *args.overrides)
    args.planned = runs(config)
    result = run(
        config, args.out, args.force, _bar(args), args.snapshots, args.keep_snapshot, args.continues
    )
    report([result], result.path, args)
    return DONE


def sweep(args: Namespace) -> int:
    from laggard.experiments.config.load import load
    from laggard.experiments.config.rungs import halving_of

    config = load(args.config, *args.overrides)
    halving = halving_of(config)
    if args.dry_run:
        return _print_rungs(config, halving) if halving else _print_plan(config, args)
    if halving:
        return _halve(config, halving, args)
    _, failed, diverged = _sweep(config, args)
    return FAILED if failed or diverged else DONE


def _sweep(config: "Config", args: Namespace) -> "tuple[Results, int, int]":
    """Simulate a grid, and report: the results, how many runs failed, and how many diverged."""
    from laggard.experiments.config.grid import runs
    from laggard.experiments.results import store
    from laggard.experiments.running.progress import SweepDisplay, heartbeat
    from laggard.experiments.running.sweep import SweepError, sweep

    args.planned = runs(config)
    folder = Path(args.out) / config.name
    if (other := store.write_index(args.planned, args.out)) and not args.quiet:
        print(f"{folder}: the sweep of another grid that was here is now {other}", file=sys.stderr)
    with SweepDisplay(args.planned, folder, sys.stderr, args.quiet) as display:
        shown = _bar(args)
        if shown and len(args.planned) > 1:
            shown = partial(heartbeat, out=args.out)
        given = {
            "jobs": args.jobs,
            "backend": args.backend,
            "tell": display.report,
            "snapshots": args.snapshots,
        }
        try:
            results = sweep(config, args.out, args.force, shown, **given)
            failed = 0
        except SweepError as error:
            results, failed = error.results, len(error.failures)
    report(results, store.sweep_folder(args.planned, args.out), args)
    diverged = sum(result.manifest["status"] == "diverged" for result in results)
    for number, how in ((failed, "failed"), (diverged, "diverged")):
        if number:
            print(f"{number} of {count(len(args.planned), 'run')} {how}", file=sys.stderr)
    return results, failed, diverged


def _halve(config: "Config", halving: "Halving", args: Namespace) -> int:
    """Simulate the rungs of a search, and report the best setting and what it cost to find it."""
    from laggard.experiments.config.search import numbered_draws
    from laggard.experiments.running.halving import halve
    from laggard.experiments.running.sweep import SweepError

    def simulate(rung: "Config") -> "Results":
        results, failed, _ = _sweep(rung, args)
        if failed:
            raise SweepError(
                results, [f"{rung.name}: the settings that go on are not known: repeat the command"]
            )
        return results

    spent, every = 0, halving.settings[0]
    try:
        for rung in halve(config, simulate):
            spent += rung.gradients
            if not args.quiet:
                best = ", ".join(map(str, rung.best))
                print(
                    f"\n{halving.key} = {rung.budget:g}: best of {len(rung.scores)}: draws {best}\n",
                    flush=True,
                )
    except SweepError as error:
        print(error, file=sys.stderr)
        return FAILED
    if not args.quiet:
        drawn = numbered_draws(config.sweep["search"], "sweep.search")[rung.best[0]]
        whole = rung.gradients / len(rung.scores) * every
        print(
            f"best by {halving.by}: draw {rung.best[0]}: {', '.join(f'{key} = {drawn[key]}' for key in drawn)}"
        )
        print(
            f"{spent:,} gradients, {spent / whole:.0%} of what all {every} settings would take to the end"
        )
    return DONE


def _print_rungs(config: "Config", halving: "Halving") -> int:
    """Print what each rung of a search would take."""
    from laggard.experiments.running.halving import expected_gradients

    every = expected_gradients(config, halving)
    for budget, settings, gradients in zip(halving.budgets, halving.settings, every, strict=True):
        print(
            f"{halving.key} = {budget:<8g} {count(settings, 'setting'):>12}  about {gradients:.3g} gradients"
        )
    whole = every[-1] / halving.settings[-1] * halving.settings[0]
    print(
        f"\nabout {sum(every):.3g} gradients, {sum(every) / whole:.0%} of what all settings would take to the end"
    )
    return DONE


def _print_plan(config: "Config", args: Namespace) -> int:
    """Print what would be simulated, a line per run and one for all of them."""
    from laggard.experiments.running.estimate import plan

    planned = plan(config, args.out, args.force, args.jobs, args.backend)
    width = max(len(run.title) for run, _ in planned.runs)
    for run, each in planned.runs:
        left = (
            f"about {duration(each.seconds):>7}  {size(each.memory):>8}"
            if each
            else "finished already"
        )
        print(f"{run.id}  {run.title:<{width}}  {count(len(run.members), 'member'):>11}  {left}")
    trained = sum(len(run.members) for run, _ in planned.runs)
    there = len(planned.runs) - len(planned.missing)
    print(
        f"\n{len(planned.runs)} runs, {trained} members, in {planned.folder}: {there} finished already"
    )
    if planned.missing:
        at_once = f"{planned.jobs} at once" if planned.jobs > 1 else "one after the other"
        print(
            f"the other {len(planned.missing)}, {at_once}: about {duration(planned.seconds)} and "
            f"{size(planned.memory)} of memory, an estimate from the first moments of each on this machine as busy "
            "as it is now"
        )
    return DONE


def _bar(args: Namespace) -> "ProgressDisplay | None":
    """A progress bar if standard error is a terminal."""
    from laggard.experiments.running.progress import bar

    return bar if sys.stderr.isatty() and not args.quiet else None


def report(results: Sequence["Result"], folder: Path, args: Namespace) -> None:
    """The table of `results`, and their figure in `folder`."""
    from laggard.experiments.figures import comparison
    from laggard.experiments.results.formats import format_table
    from laggard.experiments.results.measures import summary
    from laggard.experiments.results.result import describe_versions

    if not results:
        return
    if versions := describe_versions(results):
        print(versions, file=sys.stderr)
    if ended := [
        result.manifest["run"] for result in results if result.manifest["reached"] == "returned"
    ]:
        print(
            f"before any limit of `stop` all roles of the method returned: run {', '.join(ended)}",
            file=sys.stderr,
        )
    path = folder / "figure.png"
    if not args.quiet:  # the table first: drawing takes seconds, and may fail
        print(format_table(summary(results)), flush=True)
    comparison(results, path, target=results[0].config.evaluate.target_accuracy)
    if not args.quiet:
        print(f"\n{path}")


COMMANDS = (
    Command("run", "simulate one config", single_arguments, run),
    Command("sweep", "simulate a grid of configs", sweep_arguments, sweep),
)
