"""The changes of one expression or statement of a module that `mutants` tries."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


UNOBSERVABLE = {
    ("simulator/testing/identities.py", "unusual = secrets.randbits(31)", "(32)"): "any other seed does as well",
    ("simulator/network/max_min.py", "least = max(shares) * (1", "max(shares) / (1"): "of a tolerance for rounding",
    ("simulator/engine/recovery.py", "reshape(-1, len(RESTORE_COLUMNS))", "(2)"): "numpy takes any negative number",
    ("models/backends/compiled/kernels.py", "high if value > high else value", "value >= high"): "both are `high`",
    ("models/backends/choice.py", "CudaMemory(device) if on_gpu else None", "(None)"): "on a GPU alone",
    ("models/backends/batched.py", 'tensor.device.type == "cpu"', "tensor.device.type != 'cpu'"): "on a GPU alone",
    ("models/backends/chunked.py", "memory_reserved", "+"): "on a GPU alone",
}  # fmt: skip
"""Changes of a line, by what is in both, that were found to make no difference, and why; they are
not tried.
"""


class Mutant(NamedTuple):
    """One change: `before` at an offset of a module, in bytes, becomes `after`; in its statement,
    function, module.
    """

    path: str
    line: int
    offset: int
    before: str
    after: str
    spans: tuple[range, ...]

    @property
    def observable(self) -> bool:
        """Whether nobody has found that it makes no difference."""
        line = (ROOT / self.path).read_text().splitlines()[self.line - 1]
        return not any(
            self.path == path and part in line and after in self.after
            for path, part, after in UNOBSERVABLE
        )


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change of one expression or statement of a module that is tried, in the order of its
    text.
    """
    text = path.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for nodes in _runtime_nodes((ast.parse(text),)):
        node: Any = nodes[-1]  # an expression or a statement
        if changes := _changes(node):
            offset, end = (
                starts[node.lineno - 1] + node.col_offset,
                starts[node.end_lineno - 1] + node.end_col_offset,
            )
            before, spans = text[offset:end].decode(), (*_spans(nodes), range(1, len(starts)))
            for after in changes:
                if after != before:
                    yield Mutant(
                        str(path.relative_to(ROOT)), node.lineno, offset, before, after, spans
                    )


def _runtime_nodes(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, ...]]:
    """What lies below the last of `nodes`, after these: without annotations, decorators and what
    types alone need.
    """
    node = nodes[-1]
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):  # wording of messages
        return
    if isinstance(node, ast.FunctionDef) and ast.unparse(node.body[-1]) == "...":  # of a protocol
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in {"annotation", "returns", "decorator_list"} and isinstance(
                child, ast.AST
            ):
                if isinstance(child, ast.expr | ast.stmt):
                    yield *nodes, child
                yield from _runtime_nodes((*nodes, child))


def _spans(nodes: tuple[Any, ...]) -> Iterator[range]:
    statement = next(node for node in reversed(nodes) if isinstance(node, ast.stmt))
    around = [node for node in reversed(nodes) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    pairs = [(statement, nodes[-1]), *((node, node) for node in around)]
    yield from (range(first.lineno, last.end_lineno + 1) for first, last in pairs)


def _changes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return [
            ast.unparse(
                ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
            )
        ]
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
