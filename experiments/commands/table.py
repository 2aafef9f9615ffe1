"""tabulate results: a mean and its interval over seeds, or how soon how many reached a target"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.commands import DONE

if TYPE_CHECKING:
    from experiments.results import Results


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="+", metavar="RESULTS", help="results/<name> of a sweep or of several runs, or a run's folder"
    )
    parser.add_argument("--rows", nargs="+", metavar="KEY", help="keys down (default: all that were swept, but seeds)")
    parser.add_argument("--columns", metavar="KEY", help="a key across")
    parser.add_argument(
        "--value",
        nargs="+",
        metavar="VALUE",
        help="accuracy, loss, train_loss, time, updates, samples, epochs at the end; time_to, updates_to, samples_to, "
        "epochs_to a target; staleness, max_staleness, waiting",
    )
    parser.add_argument("--target", type=float, metavar="X", help="test accuracy (0 to 1), else test loss, to reach")
    parser.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help="only these runs and members")
    parser.add_argument("--best", nargs="+", metavar="KEY", help="of these keys only the best setting of each row")
    parser.add_argument("--by", metavar="CRITERION", help="accuracy, loss, time or updates to the target")
    parser.add_argument(
        "--select-seeds", metavar="S,S", help="seeds that choose the best; the others report (default: the first half)"
    )
    parser.add_argument("--format", choices=["text", "md", "csv", "latex"], default="text", help="(default: text)")


def carry_out(args: Namespace) -> int:
    from experiments.errors import ConfigError
    from experiments.selection import best
    from experiments.tabulation import labelled, table
    from experiments.writing import FORMATS

    results = labelled(joined(args.results))
    try:
        results = restricted(results, args.where)
        chosen = None
        if args.best:
            chosen = best(results, args.best, args.by, args.target, seeds(args.select_seeds))
            results = chosen.results
        print(FORMATS[args.format](table(results, args.rows, args.columns, args.value, args.target, chosen)))
    except ValueError as error:
        raise ConfigError("", str(error), " ".join(args.results)) from None
    return DONE


def joined(paths: Sequence[str]) -> "Results":
    """The results of several folders as one; of several names, each is labelled with its own."""
    from dataclasses import replace

    from experiments.results import Results, load_results

    found = [load_results(path) for path in paths]
    if len(found) == 1:
        return found[0]
    names = {result.config.name for each in found for result in each}
    every = [result for each in found for result in each]
    if len(names) > 1:
        every = [replace(result, labels={"experiment": result.config.name, **result.labels}) for result in every]
    return Results(every, sum(each.planned for each in found))


def restricted(results: "Results", conditions: Sequence[str]) -> "Results":
    """The runs and members at `key=value` each."""
    from experiments.documents import parsed

    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not (key and equals):
            raise ValueError(f"{condition}: expected key=value, as in learning.lr=0.1")
        results = results.where(**{key: parsed(value, condition)})
        if not len(results):
            raise ValueError(f"{condition}: no run has that value")
    return results


def seeds(listed: str | None) -> list[int] | None:
    """The seeds in `0,1`."""
    try:
        return None if listed is None else [int(seed) for seed in listed.split(",")]
    except ValueError:
        raise ValueError(f"--select-seeds {listed}: expected whole numbers, as in 0,1") from None
