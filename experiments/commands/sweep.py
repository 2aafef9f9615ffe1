"""simulate a grid of configs"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.commands import DONE, FAILED, count
from experiments.commands.simulating import config_arguments, output_arguments, progress, report

if TYPE_CHECKING:
    from experiments.config import Config
    from experiments.store import Result


def arguments(parser: ArgumentParser) -> None:
    config_arguments(parser)
    output_arguments(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at once (default: as many as there are cores)")
    parser.add_argument("--backend", default="loky", metavar="NAME", help="loky (default), ray or dask")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be simulated, and how long it would take"
    )


def carry_out(args: Namespace) -> int:
    from experiments import load, sweep
    from experiments.grid import runs
    from experiments.progress import Sweeping
    from experiments.sweeps import SweepError
    from experiments.underway import noting

    config = load(args.config, *args.overrides)
    if args.dry_run:
        return _foretell(config, args)
    args.planned = runs(config)
    folder = Path(args.out) / config.name
    with Sweeping(args.planned, folder, sys.stderr, args.quiet) as sweeping:
        shown = progress(args)
        if shown and len(args.planned) > 1:
            shown = partial(noting, out=args.out)
        given = {"jobs": args.jobs, "backend": args.backend, "tell": sweeping.tell}
        try:
            results: Sequence[Result] = sweep(config, args.out, args.force, shown, **given)
            failed = 0
        except SweepError as error:
            results, failed = error.results, len(error.failures)
    report(results, folder, args)
    diverged = sum(result.manifest["status"] == "diverged" for result in results)
    for number, how in ((failed, "failed"), (diverged, "diverged")):
        if number:
            print(f"{number} of {count(len(args.planned), 'run')} {how}", file=sys.stderr)
    return FAILED if failed or diverged else DONE


def _foretell(config: "Config", args: Namespace) -> int:
    from experiments.plan import plan

    for line in plan(config, args.out, args.force, args.jobs, args.backend).lines():
        print(line)
    return DONE
