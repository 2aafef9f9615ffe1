"""The command that tests claims of papers: reproduce."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from laggard.experiments.commands import (
    DONE,
    FAILED,
    Command,
    add_jobs,
    add_out,
    count,
    duration,
)

if TYPE_CHECKING:
    from laggard.experiments.claims import Claim
    from laggard.experiments.claims.pages import Evidence

SCALES = ("smoke", "cpu", "paper")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="CLAIM",
        help="id of a claim (A1), letter or key of a paper (default: all claims)",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="cpu",
        help="takes seconds, minutes, or hours with an estimate first (default: cpu)",
    )
    add_jobs(parser)
    add_out(parser)
    parser.add_argument(
        "--claims",
        metavar="FOLDER",
        help="folder of modules with claims, which are run as code (default: laggard's own)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the planned runs and their estimated duration"
    )
    parser.add_argument(
        "--stored", action="store_true", help="run nothing: decide by the stored arrays"
    )
    parser.add_argument(
        "--again", action="store_true", help="rerun the claim and compare the verdict"
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="write the overview to this file, and the pages of claims to docs/claims beside it",
    )
    parser.add_argument("--list", action="store_true", help="list the claims")


def carry_out(args: Namespace) -> int:
    from laggard.experiments.claims import claims

    chosen = claims(args.names, args.claims)
    if args.list:
        for claim in chosen:
            print(f"{claim.id:<4}{claim.question}")
        return DONE
    if args.dry_run:
        return _print_forecast(chosen, args)
    if args.scale == "paper" and not args.stored:  # takes hours: print the forecast first
        _print_forecast(chosen, args)
    failed = sum(not (_decide_again if args.stored else _one)(claim, args) for claim in chosen)
    if args.page:
        _write(args)
    if failed:
        print(f"{failed} of {count(len(chosen), 'claim')} could not be decided", file=sys.stderr)
    return FAILED if failed else DONE


def _one(claim: "Claim", args: Namespace) -> bool:
    """Reproduce one claim and print its row; true on success. A failure does not stop the other
    claims.
    """
    from laggard.experiments.claims import repeat, reproduce
    from laggard.experiments.claims.ledger import path_of
    from laggard.experiments.claims.presentation import (
        describe_claim,
        describe_repeat,
        number_lines,
        summary_line,
    )
    from laggard.experiments.results.files import ResultError
    from laggard.experiments.running.sweep import RunEnd, SweepError

    failed: dict[str, list[str]] = {}  # by what went wrong, which is mostly the same for all

    def tell(ended: RunEnd) -> None:
        if ended.failure:
            failed.setdefault(ended.failure, []).append(f"run {ended.run.id} ({ended.run.title})")
        if sys.stderr.isatty() and ended.seconds is not None:
            print(f"  {claim.id}: {ended.run.config.name} {ended.seconds:.1f} s", file=sys.stderr)

    try:
        row = (repeat if args.again else reproduce)(claim, args.scale, args.out, args.jobs, tell)
    except SweepError:
        for failure, (first, *others) in failed.items():
            also = f" and {count(len(others), 'other')}" * bool(others)
            print(f"{claim.id}: {first}{also}: {failure}", file=sys.stderr)
        return False
    except ResultError as error:  # nothing to repeat, or too soon
        print(error, file=sys.stderr)
        return False
    print(summary_line(row))
    if args.again:
        print(f"    {describe_repeat(row.repeats[-1])}", flush=True)
        return True
    for text in (
        *describe_claim(row, get_terminal_size().columns),
        *number_lines([*row.criteria, *row.beside]),
    ):
        print(text)
    print(
        f"    {count(len(row.runs), 'run')}; the row: {path_of(row, Path(args.out) / 'claims')}",
        flush=True,
    )
    return True


def _decide_again(claim: "Claim", args: Namespace) -> bool:
    """Decide a claim by the arrays that are stored, and print its row; true unless they decide
    otherwise than its row.

    A claim without arrays, or whose row was decided by other criteria, has its own line.
    """
    from laggard.experiments.claims import decide_again
    from laggard.experiments.claims.ledger import read_row
    from laggard.experiments.claims.presentation import is_outdated, number_lines, summary_line
    from laggard.experiments.results.files import ResultError

    rows_in = Path(args.out) / "claims"
    kept = read_row(claim.id, rows_in, args.scale)
    if kept is None or is_outdated(claim, kept):
        print(f"{claim.id}  not run under its present criteria: {claim.question}")
        return True
    try:
        row = decide_again(claim, args.scale, rows_in)
    except ResultError:
        print(f"{summary_line(kept)} (no arrays stored)")
        return True
    print(summary_line(row))
    print(*number_lines([*row.criteria, *row.beside]), sep="\n")
    if not (same := row.agrees_with(kept)):
        print(
            f"{claim.id}: the stored arrays decide otherwise than its row: {kept.verdict}",
            file=sys.stderr,
        )
    return same


def _print_forecast(chosen: "list[Claim]", args: Namespace) -> int:
    from laggard.experiments.claims.studies import configs
    from laggard.experiments.running.estimate import plan

    total = 0.0
    for claim in chosen:
        seconds = 0.0
        for name, config in configs(claim, args.scale).items():
            each = plan(config, args.out, jobs=args.jobs)
            seconds += each.seconds
            left = f"about {duration(each.seconds)}" if each.missing else "finished already"
            print(f"{claim.id}  {name}: {count(len(each.runs), 'run')}, {left}", flush=True)
        for name in sorted(set(claim.studies) - set(configs(claim, args.scale))):
            print(f"{claim.id}  {name}: once {claim.studies[name].tuned.on} has chosen")  # type: ignore[union-attr]
        total += seconds
    print(
        f"\n{count(len(chosen), 'claim')}: about {duration(total)}, an estimate on this machine as busy as it is now"
    )
    return DONE


def _write(args: Namespace) -> None:
    """Draw the figures of all claims that are decided, and write the pages."""
    from laggard.experiments.claims import claims, ledger
    from laggard.experiments.claims.ledger import figure_table, stored_arrays
    from laggard.experiments.claims.pages import Evidence, write_pages
    from laggard.experiments.claims.presentation import caption_of
    from laggard.experiments.figures.claim_grids import accuracy_grid
    from laggard.experiments.figures.claims import picture

    rows_in, every = Path(args.out) / "claims", claims((), args.claims)
    rows = ledger(rows_in, args.scale)
    studies = {
        name: found
        for name in rows
        if (found := stored_arrays(name, rows_in, args.scale)) is not None
    }
    evidence = Evidence(every, rows, studies, {}, args.scale)
    pictures = {}
    for claim in every:
        row = evidence.row(claim)
        if row is not None and claim.figure and (table := figure_table(row, rows_in)) is not None:
            pictures[claim.id] = rows_in / args.scale / f"{claim.id}.png"
            picture(claim, table, pictures[claim.id], caption_of(claim, row))
            if claim.grid and claim.id in studies:
                path = pictures[f"{claim.id}, grid"] = rows_in / args.scale / f"{claim.id}-grid.png"
                accuracy_grid(claim.grid(studies[claim.id]), path=path)
    if (front := _draw_rates(evidence, rows_in)) is not None:
        pictures["rates"] = front
    for path in write_pages(replace(evidence, pictures=pictures), Path(args.page)):
        print(path)


def _draw_rates(evidence: "Evidence", rows_in: Path) -> Path | None:
    """The figure of the first page, of the arrays that are stored or else of the runs that have
    ended; its path.
    """
    from laggard.experiments.claims.pages import FRONT
    from laggard.experiments.claims.papers.srinivasan2018 import fitted_line
    from laggard.experiments.claims.reproduction import measured_so_far
    from laggard.experiments.claims.statistics import final
    from laggard.experiments.figures.claim_grids import accuracy_grid

    for claim in evidence.claims:
        if claim.id == FRONT and "grid" in claim.studies:
            stored = evidence.studies.get(FRONT) if evidence.row(claim) is not None else None
            study = (
                stored["grid"]
                if stored
                else measured_so_far(claim, "grid", evidence.scale, rows_in)
            )
            if study is not None:
                path = rows_in / evidence.scale / "rates.png"
                planned = claim.studies["grid"].document(evidence.scale)["sweep"]
                settings = {
                    "delay": planned["algorithm.delay"],
                    "optimiser": list(planned["optimiser"]),
                }
                accuracy = final(study, "accuracy").reindex(settings)
                line = fitted_line(accuracy)
                accuracy_grid(accuracy, line if bool(line.notnull().all()) else None, path)
                return path
    return None


COMMANDS = (Command("reproduce", "test claims of papers", arguments, carry_out),)
