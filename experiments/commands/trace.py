"""write a run as a trace for ui.perfetto.dev"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", help="a run's folder")
    parser.add_argument("--to", metavar="FILE", help="where to, .json or .json.gz (default: trace.json in RESULT)")
    parser.add_argument("--from", dest="start", type=float, default=0.0, metavar="S", help="first virtual second")
    parser.add_argument("--until", type=float, default=float("inf"), metavar="S", help="last virtual second")


def carry_out(args: Namespace) -> int:
    from experiments import load_results
    from experiments.perfetto import Window, write
    from experiments.store import ResultError

    if not 0 <= args.start < args.until:
        raise ResultError(f"{args.result}: expected 0 <= --from < --until, got {args.start:g} and {args.until:g}")
    result, *others = load_results(args.result)
    if others:
        raise ResultError(f"{args.result}: holds {1 + len(others)} runs: name the folder of one, such as {result.path}")
    if not result.recorded:
        missing = "no messages recorded, so no links: laggard run CONFIG record.messages=true leaves them"
        print(f"{result.path}: {missing}", file=sys.stderr)
    path = Path(args.to) if args.to else result.path / "trace.json"
    count = write(result, path, Window(args.start, args.until))
    print(f"{path}: {count:,} events; open it in ui.perfetto.dev")
    return DONE
