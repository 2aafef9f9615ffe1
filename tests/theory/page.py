"""`docs/statements.md`: every statement of the tests in this folder, with what was expected and
what was measured.
"""

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from inspect import getdoc
from itertools import groupby

from tests.machine import machine
from tests.theory.statements import Statement

RULER = "| --- | ---: | ---: | ---: |"
HEAD = "# Statements of theory"
INTRODUCTION = (
    "What theory says of each method, beside what the simulator does. `make verification` runs "
    "`tests/theory` and writes this page.",
    "An identity of two models has their largest relative difference for its measurement: 0 is the "
    "same bits, 1e-12 allows for arithmetic in another order. The tolerance of a mean is 4 "
    'standard errors of its own samples. A value after "not" is one that is often given instead: '
    "the measurement excludes it. A table begins with the source of its statements; "
    '"derived" are those that follow from definitions.',
)

Test = tuple[str, str]
"""A module and a function, without their `test_`."""


def render(made: Sequence[tuple[Test, Statement]]) -> str:
    """The page, a section for each module and a table for each function and source."""
    excluded = sum(statement.wrong is not None for _, statement in made)
    counts = f"{len(made)} statements hold, {excluded} of them against a wrong value."
    taken = f"Taken {datetime.now(UTC):%Y-%m-%d} on {machine()}: {counts}"
    parts = [HEAD, *map(_wrapped, (*INTRODUCTION, taken))]
    for module, of_module in groupby(made, key=lambda each: each[0][0]):
        tests = import_module(f"tests.theory.test_{module}")
        parts += [f"## {(getdoc(tests) or '').rstrip('.')}", f"`tests/theory/test_{module}.py`"]
        for function, of_function in groupby(of_module, key=lambda each: each[0][1]):
            parts.append(_wrapped(f"**{function}.** {getdoc(getattr(tests, f'test_{function}'))}"))
            by_source: dict[str, list[Statement]] = defaultdict(list)
            for _, statement in of_function:
                by_source[statement.source].append(statement)
            parts += [_table(source, statements) for source, statements in by_source.items()]
    return "\n\n".join(parts) + "\n"


def _table(source: str, statements: Sequence[Statement]) -> str:
    return "\n".join(
        [f"| {source} | expected | measured | tolerance |", RULER, *map(_row, statements)]
    )


def _row(statement: Statement) -> str:
    sign = "" if statement.relation == "=" else f"{statement.relation} "
    wrong = "" if statement.wrong is None else f", not {statement.wrong:.5g}"
    digits = (
        5 if statement.expected > 1e-3 or (statement.expected and statement.relation != ">=") else 2
    )
    numbers = f"{statement.measured:.{digits}g} | {statement.tolerance:.2g}"
    return f"| {statement.text} | {sign}{statement.expected:.5g}{wrong} | {numbers} |"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 120, break_on_hyphens=False, break_long_words=False))
