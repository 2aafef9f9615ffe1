"""Faults that distributed SGD is prone to: each is planted in the product, and a statement must
find it.

A module of statements about one method has its faults itself, as `FAULTS`.
"""

from importlib import import_module
from pathlib import Path

import pytest

from tests.faults import fresh_caches
from tests.theory.faults_of_clients import CLIENTS
from tests.theory.faults_of_compression import COMPRESSION
from tests.theory.faults_of_engine import ENGINE
from tests.theory.faults_of_gossip import GOSSIP
from tests.theory.faults_of_nodes import NODES
from tests.theory.faults_of_pipelines import PIPELINES
from tests.theory.faults_of_rules import RULES
from tests.theory.faults_of_servers import SERVERS

__all__ = ["fresh_caches"]

FOUND = (AssertionError, RuntimeError, ValueError)
"""How a fault is found: a statement does not hold, or the engine refuses to go on."""
BROKEN = ("AttributeError", "KeyError", "NameError", "TypeError")
"""What a fault raises that is itself broken."""
MODULES = [path.stem for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]


def faults_of_methods():
    """The faults that stand beside the statements that find them."""
    found = {}
    for module in sorted(MODULES):
        found |= getattr(import_module(f"tests.theory.{module}"), "FAULTS", {})
    return found


FAULTS = {
    **RULES,
    **SERVERS,
    **CLIENTS,
    **COMPRESSION,
    **NODES,
    **GOSSIP,
    **PIPELINES,
    **ENGINE,
    **faults_of_methods(),
}


@pytest.mark.slow  # it tests the statements, not the product
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.usefixtures("fresh_caches")
def test_statement_finds_the_fault(name, monkeypatch):
    *replaced, statement = FAULTS[name]
    for each in replaced:
        each.plant(monkeypatch)
    with pytest.raises(FOUND) as found:
        statement()
    assert not any(error in str(found.value) for error in BROKEN), found.value
