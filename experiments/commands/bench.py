"""measure how fast laggard is, beside a plain training loop, bare SimPy and one process"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from experiments.bench import MEASURES
from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="MEASURE",
        help=f"{', '.join(MEASURES)} (default: all); or the config's key=value",
    )
    parser.add_argument("--quick", action="store_true", help="a minute instead of a quarter of an hour")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="cpu", help="of the gradients")
    parser.add_argument("--config", metavar="CONFIG", help="measure the gradients of this one instead")
    parser.add_argument("--json", metavar="FILE", help="write the report there")
    parser.add_argument("--against", metavar="FILE", help="compare with the report that was written there")
    parser.add_argument("--markdown", action="store_true", help="print the tables that the README shows")


def carry_out(args: Namespace) -> int:
    from experiments import ConfigError, load
    from experiments.bench.report import Report
    from experiments.bench.table import against, as_markdown, line
    from experiments.bench.take import take

    changes = [word for word in args.overrides if "=" in word]
    measures = [word for word in args.overrides if "=" not in word]
    if changes and not args.config:
        raise ConfigError("bench", f"expected --config CONFIG beside {changes[0]}")
    then = Report.read(args.against) if args.against else None
    if args.json:
        Path(args.json).touch()  # not after a quarter of an hour
    config = load(args.config, *changes) if args.config else None
    shown = sys.stderr if args.markdown else sys.stdout
    report = take(measures, args.quick, args.device, config, lambda entry: print(line(entry), file=shown, flush=True))
    if args.json:
        Path(args.json).write_text(report.as_json(), encoding="utf-8")
    if args.markdown:
        print(as_markdown(report), end="")
    if then:
        print(against(report, then))
    return DONE
