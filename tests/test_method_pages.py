"""What the page of a method is made of: statements and questions that are about it, and none about
another.
"""

import sys
from importlib import import_module

import pytest

from laggard.experiments.config.parts import ALGORITHM
from tests.documents import ROOT


@pytest.fixture(scope="module")
def method_pages():
    """The module that writes the pages; it imports its neighbour by name."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return import_module("method_pages")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("name", ALGORITHM.parts)
def test_every_method_has_a_config_and_statement(method_pages, name):
    assert f"name: {name}" in method_pages.config_of(name).read_text()
    statements = set((ROOT / "tests" / "theory").glob("test_*.py"))
    statements.remove(ROOT / "tests" / "theory" / "test_engine.py")  # about all methods at once
    assert any(f'"{name}' in module.read_text() for module in statements)


def test_statement_is_listed_under_its_methods(method_pages):
    page = """
| Ho et al. (2013) | expected | measured | tolerance |
| --- | ---: | ---: | ---: |
| ssp, bound 0 = downpour, sync_every 1 | 0 | 0 | 0 |

| osgp | expected | measured | tolerance |
| --- | ---: | ---: | ---: |
| osgp, P = 6 | 0 | sgp | 0 |
"""
    rows = method_pages.statement_rows(page)
    assert len(rows) == 2
    found = {
        name: len(method_pages.statements_on(name, rows))
        for name in ("ssp", "downpour", "osgp", "sgp", "sync")
    }
    assert found == {"ssp": 1, "downpour": 1, "osgp": 1, "sgp": 0, "sync": 0}


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({"algorithm": {"name": "sgp"}}, True),
        ({"algorithm": "sgp"}, True),
        ({"sweep": {"algorithm.name": ["osgp", "sgp"]}}, True),
        ({"sweep": {"method": {"push": {"algorithm.name": "sgp"}}}}, True),
        ({"algorithm": {"name": "osgp"}, "name": "sgp"}, False),
    ],
)
def test_config_uses_the_methods_that_it_names(method_pages, settings, used):
    assert method_pages.uses(settings, "sgp") == used


def test_question_is_listed_under_its_methods(method_pages):
    sweep, league = method_pages.question_lines("local_sgd")
    assert sweep.endswith("(../questions/average-seldom.md)")
    assert league.endswith("(../questions/unequal-data.md)")
    assert list(method_pages.question_lines("nothing")) == ["No question has runs of it."]


def test_first_column_links_to_method_pages(method_pages):
    rows = "| `osgp` | as `sgp` |\n| `staleness` | a compensation |\n"
    assert (
        method_pages.link_names(rows)
        == "| [`osgp`](methods/osgp.md) | as `sgp` |\n| `staleness` | a compensation |\n"
    )
    page = (ROOT / "docs" / "methods.md").read_text()
    assert method_pages.link_names(page).count("](methods/") == len(ALGORITHM.parts)
