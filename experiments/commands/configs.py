"""The commands about configs and the names in them: validate, list, new, schema, doctor."""

import json
import sys
from argparse import ArgumentParser, Namespace
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from laggard.experiments.commands import (
    BAD_INPUT,
    DONE,
    FAILED,
    Command,
    add_configs,
    add_no_plugins,
    add_out,
    count,
    split_overrides,
)
from laggard.limits import CpuBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laggard.experiments.config.grid import RunSpec

FILE_WIDTH = 120  # columns of lists that go to a file
MAX_RANKS_SHOWN = 5
MAX_CPU_SECONDS = 0.5  # limit of a warning's check, over all runs of a config
LOAD = "laggard.experiments.config.load"
CATALOGUE = "laggard.experiments.config.listing"
MARKS = {"ok": " ", "missing": "-", "broken": "!"}


def validate_arguments(parser: ArgumentParser) -> None:
    add_configs(parser)
    add_no_plugins(parser)


def validate(args: Namespace) -> int:
    from laggard.experiments.commands.network_warnings import warn_of_networks
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load

    paths, overrides = split_overrides(args.configs)
    if not paths:
        raise ConfigError("", "expected a CONFIG before key=value", "laggard validate")
    code = DONE
    for path in paths:
        try:
            planned = runs(load(path, *overrides))
        except ConfigError as error:
            print(error, *error.others, sep="\n", file=sys.stderr)
            code = BAD_INPUT
            continue
        warn_of_networks(path, planned)
        _warn_of_missing_data(path, planned)
        _warn_of_equal_weights(path, planned)
        _warn_of_busy_servers(path, planned)
        _warn_of_starved_workers(path, planned)
        _note_members(path, planned)
        _note_lost_workers(path, planned)
        members = sum(len(run.members) for run in planned)
        print(f"{path}: fine: {count(len(planned), 'run')}, {count(members, 'member')}")
    return code


def _warn_of_equal_weights(path: str, planned: "Sequence[RunSpec]") -> None:
    """Warn if models of workers with different numbers of samples are averaged equally."""
    for run in planned:
        config = run.config
        equal = getattr(config.algorithm, "weighting", None) == "equal"
        if equal and config.task.shards_differ(config.cluster.workers):
            problem = "workers hold different numbers of samples, and their models count equally"
            print(
                f"{path}: warning: algorithm.weighting: {run.title}: {problem}; "
                "set it to samples, as in federated averaging",
                file=sys.stderr,
            )
            return


def _warn_of_busy_servers(path: str, planned: "Sequence[RunSpec]") -> None:
    """Warn if workers that never wait make more gradients than a server can receive."""
    from laggard.experiments.theory.server_load import server_load

    for run in planned:
        load = server_load(run.config)
        if load is not None and load.made > load.taken:
            made = f"{load.workers} workers make {load.made:.3g} gradients/s"
            problem = f"{made}, of which a server takes in {load.taken:.3g}"
            print(
                f"{path}: warning: cluster.workers: {run.title}: {problem}; "
                f"it keeps up with {load.served}",
                file=sys.stderr,
            )
            return


def _note_members(path: str, planned: "Sequence[RunSpec]") -> None:
    """Print the mean number of workers that are up, where workers come and go."""
    shares = []
    for run in planned:
        members = run.config.cluster.members.build()
        if members.uptime is not None:
            shares.append(members.share_up)
    if not shares:
        return
    low, high = 100 * min(shares), 100 * max(shares)
    text = f"{low:.3g}"
    if low < high:
        text += f" to {high:.3g}"
    note = f"in the long run {text} % of the workers are up"
    if low == 0:
        note += "; as downtime is null, none of them returns"
    print(f"{path}: cluster.members: {note}")


def _note_lost_workers(path: str, planned: "Sequence[RunSpec]") -> None:
    """Say how many workers never return; a user may have forgotten the `back` of a crash."""
    for run in planned:
        crashes = run.config.build_cluster().crashes
        lost = {rank: crash.at for crash in crashes if crash.back is None for rank in crash.ranks}
        if lost:
            first = min(lost, key=lost.__getitem__)
            never = "never return"
            if len(lost) == 1:
                never = "never returns"
            lost_of_all = f"{count(len(lost), 'worker')} of {run.config.cluster.workers} {never}"
            reason = f"worker {first} goes down at {lost[first]:g} s, and its crash has no back"
            print(f"{path}: cluster.slowdowns: {run.title}: {lost_of_all}: {reason}")
            return


def _warn_of_missing_data(path: str, planned: "Sequence[RunSpec]") -> None:
    """Warn of data sets whose files this machine lacks."""
    from laggard.models.published import PUBLISHED, REMEDY, find_files

    tasks = [run.config.task for run in planned]
    names = {task.dataset.name for task in tasks if hasattr(task, "dataset")}
    for name in sorted(names & PUBLISHED.keys()):
        files = find_files(name)
        if files.missing:
            problem = f"{name} has no {', '.join(files.missing)} in {files.folder}"
            print(f"{path}: warning: task.dataset: {problem}: {REMEDY}", file=sys.stderr)


def _warn_of_starved_workers(path: str, planned: "Sequence[RunSpec]") -> None:
    """Warn if ties by rank keep workers from contributing, and name the first such run."""
    from laggard.experiments.running.run import starved_ranks

    starved = {}
    budget = CpuBudget(MAX_CPU_SECONDS)
    for run in planned:
        ranks = starved_ranks(run, budget)
        if ranks:
            starved[run.title] = ranks
    if not starved:
        return
    title, ranks = next(iter(starved.items()))
    if len(starved) > 1:
        title += f" (and {count(len(starved) - 1, 'other run')})"
    shown = ", ".join(map(str, ranks[:MAX_RANKS_SHOWN]))
    if len(ranks) > MAX_RANKS_SHOWN:
        shown += ", ..."
    problem = f"equal times and ties by rank: ranks {shown} never contribute to an update"
    print(
        f"{path}: warning: cluster.ties: {title}: {problem}; set it to random",
        file=sys.stderr,
    )


def list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME",
        help="a table (methods, laws, ...), one of its entries, a section of configs (network, "
        "stop, ...), or example:NAME for the text of an example",
    )


def list_entries(args: Namespace) -> int:
    from laggard.experiments.config.document import EXAMPLE, find_config
    from laggard.experiments.config.listing import describe_entries, wrap

    if args.words and args.words[0].startswith(EXAMPLE):
        # as it stands in the file, which then can be saved and changed
        for word in args.words:
            print(find_config(word).read_text(encoding="utf-8"), end="")
        return DONE
    width = FILE_WIDTH
    if sys.stdout.isatty():
        width = get_terminal_size().columns
    lines = list(describe_entries(args.words))
    print("\n".join(wrap(lines, width)))
    return DONE


def new_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kind", metavar="KIND", help="algorithm, compensation, dataset, law, model or topology"
    )
    parser.add_argument("name", metavar="NAME", help="name of the module, in snake case")


def new_entry(args: Namespace) -> int:
    from laggard.experiments.config.listing import new

    module, *others = new(args.kind, args.name)
    config, test = sorted(others, key=lambda path: path.suffix, reverse=True)  # .yaml, .py
    print(f"{module}\n{config}: laggard run {config}\n{test}: pytest {test}")
    return DONE


def no_arguments(_: ArgumentParser) -> None:
    pass


def schema(_: Namespace) -> int:
    from laggard.experiments.config.listing import config_schema

    print(json.dumps(config_schema(), indent=1))
    return DONE


def doctor(args: Namespace) -> int:
    from laggard.experiments.doctor import diagnose

    broken = 0
    for check in diagnose(args.out):
        line = f"{MARKS[check.state]} {check.subject:<14}{check.text}"
        if check.remedy:
            line += f": {check.remedy}"
        print(line, flush=True)
        if check.state == "broken":
            broken += 1
    if broken:
        print(f"{count(broken, 'problem')} to solve before laggard can run")
        return FAILED
    print("laggard can run here")
    return DONE


COMMANDS = (
    Command(
        "validate", "check configs without simulating them", validate_arguments, validate, LOAD
    ),
    Command(
        "list", "list the names that a config may use", list_arguments, list_entries, CATALOGUE
    ),
    Command(
        "new",
        "write a plugin template, with a config and a test",
        new_arguments,
        new_entry,
        CATALOGUE,
    ),
    Command(
        "schema",
        "print the JSON schema of configs, for an editor",
        no_arguments,
        schema,
        CATALOGUE,
    ),
    Command("doctor", "check that this machine can run laggard", add_out, doctor, imports=""),
)
