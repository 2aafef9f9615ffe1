"""The commands that simulate: run, sweep."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laggard.experiments.commands import (
    DONE,
    FAILED,
    Command,
    add_config,
    add_jobs,
    add_no_plugins,
    add_out,
    add_scale,
    count,
    duration,
    size,
)
from laggard.experiments.running import SNAPSHOT_SECONDS

if TYPE_CHECKING:
    from laggard.experiments.config.config import Config
    from laggard.experiments.config.grid import RunSpec
    from laggard.experiments.config.rungs import Halving
    from laggard.experiments.results.result import Result
    from laggard.experiments.results.results import Results
    from laggard.experiments.running.run import ProgressDisplay


MAX_RUNS_SHOWN = 100
"""The number of a sweep's runs that get a line; further runs are counted."""
MAX_STALLED_SHOWN = 3
"""The number of stalled runs whose reason is printed."""


def simulation_arguments(parser: ArgumentParser) -> None:
    add_config(parser)
    add_out(parser)
    parser.add_argument(
        "--force", action="store_true", help="simulate again even if a result exists"
    )
    parser.add_argument("--quiet", action="store_true", help="print only warnings and errors")
    parser.add_argument(
        "--snapshots",
        type=wall_time,
        default=SNAPSHOT_SECONDS,
        metavar="SECONDS",
        help="wall time between snapshots, from which a killed run resumes "
        "(default: 60; inf: none)",
    )
    add_no_plugins(parser)


def run_arguments(parser: ArgumentParser) -> None:
    simulation_arguments(parser)
    parser.add_argument(
        "--keep-snapshot", action="store_true", help="keep the last snapshot, for --continue"
    )
    parser.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="continue from the kept snapshot of a finished run of this config with a shorter stop",
    )


def wall_time(text: str) -> float:
    """Seconds of wall time >= 0; infinity too."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not number >= 0:
        raise ArgumentTypeError(f"expected seconds >= 0, or inf, got {text!r}")
    return number


def sweep_arguments(parser: ArgumentParser) -> None:
    simulation_arguments(parser)
    add_scale(parser)
    add_jobs(parser)
    parser.add_argument(
        "--backend", default="loky", metavar="NAME", help="loky (default), ray or dask"
    )
    parser.add_argument(
        "--all", action="store_true", help="print a row for each run and member, without means"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the planned runs and their estimated duration"
    )


def run(args: Namespace) -> int:
    from laggard.experiments.commands.network_warnings import warn_of_networks
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load
    from laggard.experiments.running.run import run

    config = load(args.config, *args.overrides)
    args.planned = runs(config)  # after an interrupt, `cli` counts the saved runs among these
    warn_of_networks(args.config, args.planned)
    progress = _progress_display(args)
    result = run(
        config,
        args.out,
        args.force,
        progress,
        args.snapshots,
        args.keep_snapshot,
        args.continues,
    )
    report([result], result.path, args)
    return DONE


def sweep(args: Namespace) -> int:
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load
    from laggard.experiments.config.rungs import halving_of

    config = load(args.config, *args.overrides, scale=args.scale)
    halving = halving_of(config)
    if halving:
        if args.dry_run:
            return _print_rungs(config, halving)
        return _halve(config, halving, args)
    if config.tune:
        if args.dry_run:
            return _print_tuning(config, args)
        return _tune(config, args)
    if args.dry_run:
        return _print_plan(config, args)
    _, failed, diverged = _sweep(config, runs(config), args)
    if failed or diverged:
        return FAILED
    return DONE


def _sweep(
    config: "Config", planned: "Sequence[RunSpec]", args: Namespace
) -> "tuple[Results, int, int]":
    """Simulate a grid; return the results, and the numbers of failed and of diverged runs."""
    from laggard.experiments.commands.network_warnings import warn_of_networks
    from laggard.experiments.results import store
    from laggard.experiments.running.progress import SweepDisplay, heartbeat
    from laggard.experiments.running.sweep import SweepError, sweep

    args.planned = planned  # as in `run`
    warn_of_networks(args.config, planned)
    folder = Path(args.out) / config.name
    moved = None
    with suppress(OSError):  # `sweep` raises it again, unless all runs are finished
        moved = store.write_index(args.planned, args.out)
    if moved and not args.quiet:
        print(f"{folder}: the previous sweep, of another grid, is now {moved}", file=sys.stderr)
    failed = 0
    with SweepDisplay(args.planned, folder, sys.stderr, args.quiet) as display:
        progress = _progress_display(args)
        if progress and len(args.planned) > 1:
            # other processes may run them: `display` reads their progress from files
            progress = partial(heartbeat, out=args.out)
        try:
            results = sweep(
                config,
                args.out,
                args.force,
                progress,
                jobs=args.jobs,
                backend=args.backend,
                tell=display.report,
                snapshots=args.snapshots,
                planned=args.planned,
            )
        except SweepError as error:
            results = error.results
            failed = len(error.failures)
    report(results, store.sweep_folder(args.planned, args.out), args)
    diverged = sum(result.manifest["status"] == "diverged" for result in results)
    for number, status in ((failed, "failed"), (diverged, "diverged")):
        if number:
            print(f"{number} of {count(len(args.planned), 'run')} {status}", file=sys.stderr)
    return results, failed, diverged


def _tune(config: "Config", args: Namespace) -> int:
    """Simulate the runs that choose settings and those that report, and print the choices."""
    from laggard.experiments.config.tuning import tune_of
    from laggard.experiments.results.formats import format_table
    from laggard.experiments.running.sweep import SweepError
    from laggard.experiments.running.tuning import tune_and_report

    bad = 0

    def simulate(part: "Config", planned: "Sequence[RunSpec]") -> "Results":
        nonlocal bad
        results, failed, diverged = _sweep(part, planned, args)
        if failed and part is not config:
            problem = f"{part.name}: cannot choose the best settings: repeat the command"
            raise SweepError(results, [problem])
        if part is config:
            bad = failed + diverged
        return results

    try:
        chosen, _ = tune_and_report(config, simulate)
    except SweepError as error:
        print(error, file=sys.stderr)
        return FAILED
    if not args.quiet:
        seeds = ", ".join(map(str, tune_of(config).seeds))
        print(f"\nchosen on seeds {seeds}:\n")
        print(format_table(chosen))
    return FAILED if bad else DONE


def _print_tuning(config: "Config", args: Namespace) -> int:
    """Print the planned runs that choose settings; those that report depend on the choice."""
    from laggard.experiments.config.tuning import tuning_config

    _print_plan(tuning_config(config), args)
    print("then the seeds that report, each at the setting that these runs have chosen")
    return DONE


def _halve(config: "Config", halving: "Halving", args: Namespace) -> int:
    """Simulate the rungs of a search, and report the best setting and the cost of the search."""
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.search import numbered_draws
    from laggard.experiments.running.halving import halve
    from laggard.experiments.running.sweep import SweepError

    def simulate(rung: "Config") -> "Results":
        results, failed, _ = _sweep(rung, runs(rung), args)
        if failed:
            problem = f"{rung.name}: cannot choose the best settings: repeat the command"
            raise SweepError(results, [problem])
        return results

    spent = 0
    try:
        for rung in halve(config, simulate):
            spent += rung.gradients
            if not args.quiet:
                draws = ", ".join(map(str, rung.best))
                title = f"{halving.key} = {rung.budget:g}"
                print(f"\n{title}: best of {len(rung.scores)}: draws {draws}\n", flush=True)
    except SweepError as error:
        print(error, file=sys.stderr)
        return FAILED
    if all(result.manifest["status"] == "diverged" for result in rung.results):
        remedy = "search other settings, such as lower learning rates"
        print(f"no best setting: all runs of the last rung diverged; {remedy}", file=sys.stderr)
        return FAILED
    if not args.quiet:
        best = rung.best[0]
        settings = numbered_draws(config.sweep["search"], "sweep.search")[best]
        values = ", ".join(f"{key} = {value}" for key, value in settings.items())
        print(f"best by {halving.by}: draw {best}: {values}")
        all_settings = halving.settings[0]
        full_cost = rung.gradients / len(rung.scores) * all_settings
        share = spent / full_cost
        print(f"{spent:,} gradients, {share:.0%} of those of all {all_settings} settings")
    return DONE


def _print_rungs(config: "Config", halving: "Halving") -> int:
    """Print the expected cost of each rung of a search."""
    from laggard.experiments.running.halving import expected_gradients

    costs = expected_gradients(config, halving)
    for budget, settings, gradients in zip(halving.budgets, halving.settings, costs, strict=True):
        title = f"{halving.key} = {budget:<8g} {count(settings, 'setting'):>12}"
        print(f"{title}  about {gradients:.3g} gradients")
    full_cost = costs[-1] / halving.settings[-1] * halving.settings[0]
    total = sum(costs)
    print(f"\nabout {total:.3g} gradients, {total / full_cost:.0%} of those of all settings")
    return DONE


def _print_plan(config: "Config", args: Namespace) -> int:
    """Print the planned runs, a line each, and their total."""
    from laggard.experiments.running.estimate import plan

    planned = plan(config, args.out, args.force, args.jobs, args.backend)
    width = max(len(run.title) for run, _ in planned.runs)
    for run, estimate in planned.runs[:MAX_RUNS_SHOWN]:
        left = "finished already"
        if estimate:
            left = f"about {duration(estimate.seconds):>7}  {size(estimate.memory):>8}"
        print(f"{run.id}  {run.title:<{width}}  {count(len(run.members), 'member'):>11}  {left}")
    if len(planned.runs) > MAX_RUNS_SHOWN:
        print(f"... and {len(planned.runs) - MAX_RUNS_SHOWN} more")
    members = sum(len(run.members) for run, _ in planned.runs)
    missing = planned.missing
    finished = len(planned.runs) - missing
    totals = f"{len(planned.runs)} runs, {members} members"
    print(f"\n{totals}, in {planned.folder}: {finished} finished already")
    if missing:
        schedule = "one after the other"
        if planned.jobs > 1:
            schedule = f"{planned.jobs} at once"
        cost = f"{duration(planned.seconds)} and {size(planned.memory)} of memory"
        print(
            f"the other {missing}, {schedule}: about {cost}, "
            "estimated from a short trial under the current load"
        )
    return DONE


def _progress_display(args: Namespace) -> "ProgressDisplay | None":
    """A progress bar if standard error is a terminal."""
    from laggard.experiments.running.progress import bar

    if args.quiet or not sys.stderr.isatty():
        return None
    return bar


def report(results: Sequence["Result"], folder: Path, args: Namespace) -> None:
    """Print the table of results, and draw their figure in `folder`."""
    from laggard.experiments.config.errors import error_line
    from laggard.experiments.results.origins import describe_origins

    if not results:
        return
    origins = describe_origins(results)
    if origins:
        print(origins, file=sys.stderr)
    manifests = [result.manifest for result in results]
    returned = [manifest["run"] for manifest in manifests if manifest["reached"] == "returned"]
    if returned:
        message = "the method ended before any stop criterion was reached"
        print(f"{message}: run {', '.join(returned)}", file=sys.stderr)
    _report_stalled(manifests)
    if not args.quiet:  # the table first: drawing takes seconds, and may fail
        print(_table_of(results, folder, args), flush=True)
    path = folder / "figure.png"
    try:
        if not _is_drawn(path, results):
            from laggard.experiments.figures import comparison  # its import takes seconds

            comparison(results, path, target=results[0].config.evaluate.target_accuracy)
    except Exception as error:  # the runs are saved
        cause = getattr(error, "strerror", None) or error_line(error)
        print(f"{path}: warning: the figure is not drawn: {cause}", file=sys.stderr)
        return
    if not args.quiet:
        print(f"\n{path}")


def _report_stalled(manifests: "Sequence[Mapping[str, Any]]") -> None:
    """Print why runs stalled, for the first of them."""
    stalled = [manifest for manifest in manifests if manifest["stalled"]]
    for manifest in stalled[:MAX_STALLED_SHOWN]:
        print(f"run {manifest['run']} stalled at {manifest['stalled']}", file=sys.stderr)
    if len(stalled) > MAX_STALLED_SHOWN:
        print(f"... and {len(stalled) - MAX_STALLED_SHOWN} more runs stalled", file=sys.stderr)


def _table_of(results: Sequence["Result"], folder: Path, args: Namespace) -> str:
    """A row per method, the best first; with `--all`, or for a single run, a row per run and
    member.
    """
    from laggard.experiments.results import tables
    from laggard.experiments.results.formats import format_table
    from laggard.experiments.results.measures import summary
    from laggard.experiments.results.ranking import rank

    shows_all = getattr(args, "all", False)
    if shows_all or (len(results) == 1 and not results[0].swept):
        return format_table(summary(results))
    table = rank(results)
    rows = dict.fromkeys(row for row, _, _ in table.cells)
    if len(rows) > MAX_RUNS_SHOWN:
        left = len(rows) - MAX_RUNS_SHOWN
        shown = set(list(rows)[:MAX_RUNS_SHOWN])
        cells = {cell: estimate for cell, estimate in table.cells.items() if cell[0] in shown}
        note = f"... and {left} more rows; `laggard table {folder}` has all"
        table = replace(table, cells=cells, notes=(note, *table.notes))
    return tables.text(table)


def _is_drawn(path: Path, results: Sequence["Result"]) -> bool:
    """Whether the figure is newer than the manifests of its runs and their index."""
    from laggard.experiments.results.store import INDEX, MANIFEST

    if not path.is_file():
        return False
    sources = [path.with_name(INDEX), *(result.path / MANIFEST for result in results)]
    times = [source.stat().st_mtime_ns for source in sources if source.is_file()]
    return path.stat().st_mtime_ns > max(times)


COMMANDS = (
    Command("run", "simulate one config", run_arguments, run),
    Command("sweep", "simulate a grid of configs", sweep_arguments, sweep),
)
