"""Coverage where it tells something: watching makes an event-driven run two to four times as long."""

import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from time import perf_counter

import pytest

WATCHED = 0.3
"""Seconds that a test's cases are watched for; those after them go the same ways, with other numbers."""

spent: Counter[tuple[Path, str]] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Have coverage look away where earlier cases of the same test have taken their time.

    pytest-cov's own mark `no_cover` has no effect in a process of xdist, where two of its collectors run.
    """
    test, tracer = (item.path, getattr(item, "originalname", item.name)), sys.gettrace()
    if spent[test] > WATCHED:
        sys.settrace(None)
    start = perf_counter()
    try:
        yield
    finally:
        spent[test] += perf_counter() - start
        sys.settrace(tracer)
