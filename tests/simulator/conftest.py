"""Coverage where it tells something: watching makes an event-driven run two to four times as long."""

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from time import perf_counter

import pytest

WATCHED = 0.5
"""Seconds that a test's cases are watched for; those after them go the same ways, with other numbers."""

spent: Counter[tuple[Path, str]] = Counter()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Have pytest-cov look away where earlier cases of the same test have taken their time."""
    test = (item.path, getattr(item, "originalname", item.name))
    if spent[test] > WATCHED:
        item.add_marker(pytest.mark.no_cover)
    start = perf_counter()
    try:
        yield
    finally:
        spent[test] += perf_counter() - start
