"""write an entry of one's own, with a config and a test"""

from argparse import ArgumentParser, Namespace

from experiments.commands import DONE


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="algorithm, compensation, law, model or topology")
    parser.add_argument("name", metavar="NAME", help="of its module, in snake case")


def carry_out(args: Namespace) -> int:
    from experiments.new import new

    module, *others = new(args.kind, args.name)
    config, test = sorted(others, key=lambda path: path.suffix, reverse=True)
    print(f"{module}\n{config}: laggard run {config}\n{test}: pytest {test}")
    return DONE
