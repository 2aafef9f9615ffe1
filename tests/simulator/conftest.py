"""Coverage where it tells something: it makes an event-driven run three times as long."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case whose parameters earlier cases of its test have had goes the same ways, and is not watched."""
    seen: dict[tuple[Path, str], set[str]] = {}
    for item in items:
        if HERE not in item.path.parents or not hasattr(item, "callspec"):
            continue
        before = seen.setdefault((item.path, item.originalname), set())
        own = set(item.callspec.id.split("-"))
        if own <= before:
            item.add_marker(pytest.mark.no_cover)
        before |= own
