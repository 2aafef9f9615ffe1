"""With `--render FILE` the statements of a session are written to a page."""

import json
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.theory import page, statements
from tests.theory.statements import Statement

ABOUT = ("statements", "planted_faults")
"""Modules whose statements are about statements, and not about the simulator."""
made: list[tuple[page.Test, Statement]] = []
"""What all tests of this session have stated, in the order of their reports."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--render", metavar="FILE", help="write what the statements find to this page")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A page is written by the statements alone: what is about them reads it."""
    if config.getoption("--render", None):
        items[:] = [item for item in items if name_of(item.nodeid)[0] not in ABOUT]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Send what a test has stated along with its report."""
    statements.made.clear()
    result = yield
    if name_of(pyfuncitem.nodeid)[0] in ABOUT:
        return result
    made_here = [
        json.dumps(asdict(each), default=float) for each in statements.made
    ]  # a process sends plain values alone
    pyfuncitem.user_properties.extend(("statement", text) for text in made_here)
    return result


def name_of(nodeid: str) -> page.Test:
    """Module and function of a test, without their `test_`."""
    path, function = nodeid.partition("[")[0].split("::")[:2]
    return Path(path).stem.removeprefix("test_"), function.removeprefix("test_")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what the reports bring, from other processes too."""
    if report.when == "call":
        found: list[Any] = [
            json.loads(str(text)) for name, text in report.user_properties if name == "statement"
        ]
        made.extend((name_of(report.nodeid), Statement(**fields)) for fields in found)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the page, if that is wanted and all statements hold."""
    file = session.config.getoption("--render", None)
    if file and not exitstatus and not hasattr(session.config, "workerinput"):
        order = list(dict.fromkeys(test for test, _ in made))
        Path(file).write_text(
            page.render(sorted(made, key=lambda each: (each[0][0], order.index(each[0]))))
        )
