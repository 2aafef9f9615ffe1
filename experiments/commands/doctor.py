"""say what this machine has of what a run needs: device, threads, memory, libraries, data"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE, FAILED, count

LOOKS_ITSELF = True  # at torch and all else: nothing is imported for it
MARKS = {"ok": " ", "missing": "-", "broken": "!"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", default="results", metavar="FOLDER", help="where results are kept (default: results)")


def carry_out(args: Namespace) -> int:
    from experiments.doctor import examined

    broken = 0
    for subject, state, said, remedy in examined(args.out):
        broken += state == "broken"
        print(f"{MARKS[state]} {subject:<14}{said}" + (f": {remedy}" if remedy else ""), flush=True)
    print(f"{count(broken, 'thing')} to mend before a run can work" if broken else "a run can work here")
    return FAILED if broken else DONE
