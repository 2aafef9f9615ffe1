"""The commands about configs and about what they may name: validate, list, new, schema, doctor."""

import json
import sys
from argparse import ArgumentParser, Namespace
from shutil import get_terminal_size

from laggard.experiments.commands import (
    BAD_INPUT,
    DONE,
    FAILED,
    Command,
    add_no_plugins,
    count,
    is_override,
)

PLAIN_WIDTH = 120  # columns of lists that go to a file
LOAD, CATALOGUE = "laggard.experiments.config.load", "laggard.experiments.config.listing"
EDITORS = "laggard.experiments.config.listing"
MARKS = {"ok": " ", "missing": "-", "broken": "!"}


def validate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "configs", nargs="+", metavar="CONFIG", help="YAML files, and key=value as `run` takes them"
    )
    add_no_plugins(parser)


def validate(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load
    from laggard.experiments.running.run import starved_ranks

    code = DONE
    overrides = list(filter(is_override, args.configs))
    if len(overrides) == len(args.configs):
        raise ConfigError("", "expected a CONFIG before key=value", "laggard validate")
    for path in args.configs:
        if path in overrides:
            continue
        try:
            planned = runs(load(path, *overrides))
        except ConfigError as error:
            print(error, *error.others, sep="\n", file=sys.stderr)
            code = BAD_INPUT
        else:
            starved = {run.title: ranks for run in planned if (ranks := starved_ranks(run))}
            for title, ranks in list(starved.items())[:1]:
                others = f" (and {count(len(starved) - 1, 'other run')})" * (len(starved) > 1)
                shown = ", ".join(map(str, ranks[:5])) + ", ..." * (len(ranks) > 5)
                problem = f"{title}{others}: equal times and ties by rank: ranks {shown} never contribute to an update"
                print(
                    f"{path}: warning: cluster.ties: {problem}; set it to random", file=sys.stderr
                )
            trained = sum(len(run.members) for run in planned)
            print(f"{path}: fine: {count(len(planned), 'run')}, {count(trained, 'member')}")
    return code


def list_arguments(parser: ArgumentParser) -> None:
    named = "a table (methods, laws, ...), an entry of one, or what has keys (network, stop, ...)"
    parser.add_argument("words", nargs="*", metavar="NAME", help=named)


def list_entries(args: Namespace) -> int:
    from laggard.experiments.config.listing import describe_entries, wrap

    lines = list(describe_entries(args.words))
    width = get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH
    print("\n".join(wrap(lines, width)))
    return DONE


def new_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", help="algorithm, compensation, dataset, law, model or topology"
    )
    parser.add_argument("name", metavar="NAME", help="of its module, in snake case")


def new_entry(args: Namespace) -> int:
    from laggard.experiments.config.listing import new

    module, *others = new(args.kind, args.name)
    config, test = sorted(others, key=lambda path: path.suffix, reverse=True)
    print(f"{module}\n{config}: laggard run {config}\n{test}: pytest {test}")
    return DONE


def schema(_: Namespace) -> int:
    from laggard.experiments.config.listing import config_schema

    print(json.dumps(config_schema(), indent=1))
    return DONE


def doctor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        default="results",
        metavar="FOLDER",
        help="where results are kept (default: results)",
    )


def doctor(args: Namespace) -> int:
    from laggard.experiments.doctor import diagnose

    broken = 0
    for subject, state, said, remedy in diagnose(args.out):
        broken += state == "broken"
        print(f"{MARKS[state]} {subject:<14}{said}" + (f": {remedy}" if remedy else ""), flush=True)
    print(
        f"{count(broken, 'thing')} to mend before a run can work"
        if broken
        else "a run can work here"
    )
    return FAILED if broken else DONE


COMMANDS = (
    Command(
        "validate", "check configs without simulating them", validate_arguments, validate, LOAD
    ),
    Command("list", "list what a config may name", list_arguments, list_entries, CATALOGUE),
    Command(
        "new",
        "write an entry of one's own, with a config and a test",
        new_arguments,
        new_entry,
        CATALOGUE,
    ),
    Command(
        "schema",
        "print the JSON schema of a config, for an editor",
        lambda _: None,
        schema,
        EDITORS,
    ),
    Command(
        "doctor",
        "say what this machine has of what a run needs: device, threads, memory, libraries, data",
        doctor_arguments,
        doctor,
        imports="",
    ),
)
