"""Random faults in the engine and in what is learnt: does a test find each? `make mutants`.

A mutant is a copy of the checkout with one change: a comparison, an operator, a number, a branch that is always or
never taken, a call that is left out. It is killed when a test of its package fails or never ends; the tests of its own
folder come first. One that survives names a line that no test depends on, or changes nothing that can be observed.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("simulator", "models")
LIMIT = 400.0
"""Seconds that the tests of a package may take: several times what they take of one core without a fault."""
WANTED = 0.95

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: `before` at an offset of a module's text, in bytes, becomes `after`."""

    path: str
    line: int
    offset: int
    before: str
    after: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of one expression or statement of a module that is tried, in the order of its text."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _runtime_nodes(ast.parse(text)):
        before = ast.get_source_segment(text, node) or ""
        for after in _changes(node):
            if before and after != before:
                offset = starts[node.lineno - 1] + node.col_offset
                yield Mutant(str(path.relative_to(ROOT)), node.lineno, offset, before, after)


def _runtime_nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The expressions and statements below a node, without annotations, decorators and what types alone need."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    skipped = {"annotation", "returns", "decorator_list"}
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):  # wording of messages
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in skipped and isinstance(child, ast.AST):
                if isinstance(child, ast.expr | ast.stmt):
                    yield child
                yield from _runtime_nodes(child)


def _changes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return [ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return [f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})"]
    if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        return [ast.unparse(ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value))]
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return [f"({ast.unparse(ast.BoolOp(other, node.values))})"]
    if isinstance(node, ast.IfExp):
        return [f"({ast.unparse(node.body)})", f"({ast.unparse(node.orelse)})"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [f"({ast.unparse(node.operand)})"]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return [f"({node.value + 1!r})"]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ["pass"]
    return []


def copy_of_checkout(to: Path) -> Path:
    """The files that git knows, links as links, in the folder `to`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    return to


def tests_of(path: str) -> list[str]:
    """The tests of a module's folder, and then those of its package."""
    package = f"tests/{path.partition('/')[0]}"
    own = Path("tests", path).parent
    return [*([str(own)] if (ROOT / own).is_dir() and str(own) != package else []), package]


def outcome(mutant: Mutant, copy: Path) -> str:
    """`killed`, `endless` or `survived`, from the tests of its package in a copy of the checkout."""
    file = copy / mutant.path
    right = file.read_bytes()
    before = mutant.before.encode()
    assert right[mutant.offset :].startswith(before)
    file.write_bytes(right[: mutant.offset] + mutant.after.encode() + right[mutant.offset + len(before) :])
    try:
        for tests in tests_of(mutant.path):
            command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
            try:
                done = subprocess.run(
                    command, cwd=copy, env={**environ, "PYTHONPATH": str(copy)}, capture_output=True, timeout=LIMIT
                )
            except subprocess.TimeoutExpired:
                return "endless"
            if done.returncode:
                return "killed"
        return "survived"
    finally:
        file.write_bytes(right)


def trials(chosen: list[Mutant], jobs: int, tell: Callable[[str], object]) -> int:
    """Try every mutant, several at once, each in a copy of its own; counts the survivors."""
    with tempfile.TemporaryDirectory() as temporary:
        free: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            free.put(copy_of_checkout(Path(temporary, str(job))))

        def trial(mutant: Mutant) -> bool:
            copy, start = free.get(), monotonic()
            said = outcome(mutant, copy)
            free.put(copy)
            change = f"{' '.join(mutant.before.split())} -> {' '.join(mutant.after.split())}"
            tell(f"{said:8} {monotonic() - start:4.0f} s  {mutant.path}:{mutant.line}  {change[:120]}\n")
            return said == "survived"

        with ThreadPoolExecutor(jobs) as pool:
            return sum(pool.map(trial, chosen))


def main() -> int:
    """Try as many random mutants as asked for; 1 where fewer than 95 % are killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the paths of the modules to change")
    args = parser.parse_args()
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    every = [mutant for path in modules if args.only in str(path) for mutant in mutants(path)]
    chosen = random.Random(args.seed).sample(every, min(args.count, len(every)))
    survived = trials(chosen, args.jobs, lambda line: (sys.stdout.write(line), sys.stdout.flush()))
    killed = len(chosen) - survived
    sys.stdout.write(f"{killed} of {len(chosen)} mutants killed (seed {args.seed}, of {len(every)} possible ones)\n")
    return int(killed < WANTED * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
