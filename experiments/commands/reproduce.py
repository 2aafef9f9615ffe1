"""The command that answers questions by studies: reproduce."""

import hashlib
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import (
    DONE,
    FAILED,
    Command,
    add_jobs,
    add_out,
    add_scale,
    count,
    duration,
)

if TYPE_CHECKING:
    import pandas as pd

    from laggard.experiments.questions.question import Question

LEAGUE_TAKES = "about half an hour of two cores"
YOURS = "yours"
"""The folder of numbers made with overrides. Each set of overrides has its own folder, so that its
numbers never mix with the shipped ones.
"""
NAME_LENGTH = 120


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="QUESTION",
        help="name of a question (default: all, but none is run at full scale)",
    )
    add_scale(parser)
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="key=value",
        help="redo it on your task or cluster, as task.model=my_nets:Net; may be repeated",
    )
    add_jobs(parser)
    add_out(parser)
    parser.add_argument("--list", action="store_true", help="list the questions")
    parser.add_argument(
        "--dry-run", action="store_true", help="print how many runs are missing, and their time"
    )
    parser.add_argument(
        "--stored", action="store_true", help="run nothing: answer from the stored numbers"
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="write the first page to this file, and the cards to docs/questions beside it",
    )


def carry_out(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.questions.catalogue import questions

    if not (args.names or args.list or args.stored or args.dry_run or args.scale):
        problem = "expected the names of questions: to run all of them takes days"
        remedy = "--list names them, --stored answers from the stored numbers"
        raise ConfigError("", f"{problem}; {remedy}", "laggard reproduce")
    chosen = questions(args.names)
    if args.list:
        for question in chosen:
            print(f"{question.name:<22}{question.asks}")
        return DONE
    if args.dry_run:
        return _print_missing(chosen, args)
    failed = 0
    for question in chosen:
        failed += not _answer(question, args)
    if args.page:
        from laggard.experiments.questions.pages import write_pages

        for path in write_pages(Path(args.page), Path(args.out) / "questions"):
            print(path)
    if failed:
        print(f"{count(failed, 'question')} could not be answered", file=sys.stderr)
    return FAILED if failed else DONE


def _answer(question: "Question", args: Namespace) -> bool:
    """Answer one question and print it; a failure does not stop the others."""
    from laggard.experiments.questions.collecting import collect
    from laggard.experiments.questions.presentation import lines
    from laggard.experiments.questions.store import write_numbers
    from laggard.experiments.running.sweep import SweepError

    folder = _folder(args)
    table = _known(question, args)
    if not args.stored:
        try:
            table = collect(question, table, args.scale, args.overrides, args.out, args.jobs)
        except SweepError as error:
            print(f"{question.name}: {error}", file=sys.stderr)
            return False
        print(write_numbers(table, question.name, folder))
    if table.empty:
        print(f"{question.name}: {question.asks} not run: no numbers are stored")
        return True
    changes = list(args.overrides)
    if args.scale:
        changes.insert(0, f"scale {args.scale}")
    if args.overrides:
        changes.insert(0, YOURS)
    print(*lines(question, question.decide(table), ", ".join(changes)), sep="\n", flush=True)
    return True


def _folder(args: Namespace) -> Path:
    """The folder of stored numbers; each other scale and each set of overrides has its own."""
    folder = Path(args.out) / "questions"
    if args.scale:
        folder /= args.scale
    if args.overrides:
        folder = folder / YOURS / _folder_name(args.overrides)
    return folder


def _folder_name(overrides: Sequence[str]) -> str:
    """A set of overrides as the name of a folder, with a hash where the name cannot tell it all."""
    text = ",".join(sorted(overrides))
    name = re.sub(r"[^\w.,=-]", "-", text)
    if name == text and len(name) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[:NAME_LENGTH]}-{digest}"


def _known(question: "Question", args: Namespace) -> "pd.DataFrame":
    """The stored numbers: those in `--out`, or else those shipped with laggard."""
    from laggard.experiments.questions.store import STORED, read_numbers

    table = read_numbers(question.name, _folder(args))
    if table.empty and not args.scale and not args.overrides:
        table = read_numbers(question.name, STORED)
    return table


def _print_missing(chosen: "list[Question]", args: Namespace) -> int:
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.tuning import tuning_config
    from laggard.experiments.league.entrants import COMPULSORY
    from laggard.experiments.questions.collecting import missing_runs, study_config
    from laggard.experiments.questions.question import LeagueStudy
    from laggard.experiments.running.estimate import plan

    total, leagues = 0.0, 0
    for question in chosen:
        known = _known(question, args)
        for name, study in question.studies.items():
            if isinstance(study, LeagueStudy):
                if name not in set(known["study"]):
                    entrants = len(study.methods) + len(COMPULSORY)
                    print(
                        f"{question.name}  {name}: a league of {entrants} methods, {LEAGUE_TAKES}"
                    )
                    leagues += 1
                continue
            config = study_config(question, name, args.scale, args.overrides)
            choosing = tuning_config(config) if config.tune else config
            missing = missing_runs(known, name, runs(choosing))
            seconds = plan(choosing, args.out, jobs=args.jobs, planned=missing).seconds
            total += seconds
            left = f"{count(len(missing), 'run')} missing, about {duration(seconds)}"
            then = ", then the seeds that report" if config.tune else ""
            print(f"{question.name}  {name}: {left}{then}", flush=True)
    if leagues:
        print(f"\n{count(leagues, 'league')}, each {LEAGUE_TAKES}")
    if total or not leagues:
        print(f"\nabout {duration(total)}, estimated under the current load of this machine")
    return DONE


COMMANDS = (Command("reproduce", "answer questions by studies", arguments, carry_out),)
