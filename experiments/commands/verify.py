"""hold the simulator against theory: identities and closed forms"""

from argparse import ArgumentParser, Namespace
from time import monotonic

from experiments.commands import DONE, FAILED


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="which checks (default: all)")
    parser.add_argument("--json", action="store_true", help="print findings as JSON")


def carry_out(args: Namespace) -> int:
    from experiments.verify import as_json, as_text, summary, verify

    began = monotonic()
    found = verify(args.families)
    seconds = monotonic() - began
    print(as_json(found, seconds) if args.json else f"{as_text(found)}\n{summary(found, seconds)}")
    return DONE if all(finding.holds for finding in found) else FAILED
