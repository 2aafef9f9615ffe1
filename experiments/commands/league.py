"""The command `league`: which method should train on this cluster?"""

import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import DONE, FAILED, Command, add_jobs, add_no_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laggard.experiments.config.config import Config
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.grid import RunSpec
    from laggard.experiments.results.results import Results


def league_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "cluster", metavar="CLUSTER", help="YAML file with a cluster, or the name of a preset"
    )
    parser.add_argument(
        "--task",
        default="digits",
        metavar="TASK",
        help="digits (default), tridiagonal, mnist, or a config with task, learning and stop",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=25,
        metavar="N",
        help="budget of each method's trials, relative to the gradients that the overlapped all-reduce "
        "computes within the time limit (default: 25)",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only these, and the compulsory opponents",
    )
    parser.add_argument(
        "--add", nargs="+", default=[], metavar="module:Class", help="plugins that also compete"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=12,
        metavar="N",
        help="seeds that report, at least 6 (default: 12)",
    )
    parser.add_argument(
        "--out", default="league", metavar="FOLDER", help="folder of results (default: league)"
    )
    add_jobs(parser)
    add_no_plugins(parser)


def league(args: Namespace) -> int:
    import pandas as pd

    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.league.entrants import names_of_methods
    from laggard.experiments.league.page import write_league
    from laggard.experiments.league.play import play
    from laggard.experiments.league.setting import read_setting
    from laggard.experiments.league.words import honesty, sentence, table
    from laggard.experiments.results.formats import format_table
    from laggard.experiments.running.sweep import SweepError, sweep

    if not 0 < args.budget < float("inf"):
        raise ConfigError("", f"expected a number > 0, got {args.budget:g}", "--budget")
    try:
        setting = read_setting(args.cluster, args.task)
        names = names_of_methods(args.methods, args.add)
    except ConfigError as error:
        raise as_option(error) from None
    tell = partial(print, file=sys.stderr, flush=True)
    if setting.ignored:
        tell(f"{args.cluster}: only its cluster counts, not {', '.join(setting.ignored)}")

    def simulate(config: "Config", planned: "Sequence[RunSpec]") -> "Results":
        return sweep(config, args.out, jobs=args.jobs, planned=planned)

    try:
        outcome = play(setting, names, simulate, args.budget, args.seeds, tell)
    except ConfigError as error:
        raise as_option(error) from None
    except SweepError as error:
        print(error, file=sys.stderr)
        return FAILED
    heading, *rows = table(outcome)
    print(sentence(outcome))
    print(f"\n{format_table(pd.DataFrame(rows, columns=heading))}\n")
    print(*honesty(outcome), sep="\n")
    for name, reason in outcome.refused.items():
        print(f"did not enter: {name}: {reason}")
    for path in write_league(outcome, Path(args.out)):
        print(path)
    return DONE


def as_option(error: "ConfigError") -> "ConfigError":
    """The error of an argument, under the name of its option."""
    if error.where not in ("task", "methods", "seeds", "budget"):
        return error
    return error.relocate(where=f"--{error.where}")


COMMANDS = (
    Command(
        "league",
        "rank the methods on a cluster by the time to a target, each at its own best rate",
        league_arguments,
        league,
    ),
)
