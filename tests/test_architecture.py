"""Imports flow one way, by folder. Each rule is checked, and each is seen to fail on a planted
violation.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from laggard.simulator.algorithms import ALGORITHMS
from tests.cases import yaml_table

ROOT = Path(__file__).parents[1]
PACKAGES = ("simulator", "models", "experiments")

RULES = yaml_table(__file__, "architecture.yaml")
FORBIDDEN, REACHED, TWICE = RULES["forbidden"], RULES["indirect"], RULES["twice"]
NOTEBOOK = ("torch", "simpy", *PACKAGES)


@cache
def checkout():
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = ("laggard", *path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def sources():
    """The source of every module, by its dotted name."""
    return dict(checkout())


def imports(name, source, is_package):
    """The modules that a source imports, relative ones made absolute; those for type checkers alone
    left out.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    base = name.split(".") if is_package else name.split(".")[:-1]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


imports_of = cache(imports)


def graph_of(found):
    """What each module imports."""
    packages = {name.rpartition(".")[0] for name in found}
    return {name: imports_of(name, source, name in packages) for name, source in found.items()}


def reached(name, graph):
    """Everything that a module imports, and what that imports, `__init__` of the packages on the
    way left out.
    """
    packages = {other.rpartition(".")[0] for other in graph}
    seen, stack = set(), [name]
    while stack:
        for target in graph.get(stack.pop(), set()) - seen:
            seen.add(target)
            if target not in packages:
                stack.append(target)
    return seen


def touches(targets, *modules):
    """Those of `targets` that are one of `modules`, or inside one."""
    return {
        target
        for target in targets
        for module in modules
        if (target + ".").startswith(module + ".")
    }


def violations(found):
    """What breaks the rules, one line each."""
    graph = graph_of(found)
    broken = []
    for rules, targets_of in (
        (FORBIDDEN, graph.__getitem__),
        (REACHED, lambda name: reached(name, graph)),
    ):
        for folder, modules in rules.items():
            for name in touches(set(found), f"laggard.{folder}"):
                broken += [
                    f"{name} must not import {hit}"
                    for hit in sorted(touches(targets_of(name), *modules))
                ]
    for name in touches(set(found), "laggard.simulator.algorithms"):
        if name != "laggard.simulator.algorithms":
            others = touches(graph[name], "laggard.simulator.algorithms")
            broken += [
                f"{name} must not import {other}" for other in sorted(others) if is_method(other)
            ]
    return broken


@cache
def violations_of_checkout():
    return violations(sources())


METHODS = {method.__module__ for method in ALGORITHMS.values()}


def is_method(module):
    """Whether a module of `simulator/algorithms` holds methods, not what several families share."""
    return module in METHODS


def circles(found):
    """The import circles between modules, and those between folders that the rules name."""
    graph = nx.DiGraph(
        (name, target)
        for name, targets in graph_of(found).items()
        for target in targets
        if target in found
    )
    return [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def beyond_the_node(found):
    """What algorithms use of a node that is not in the protocol `Node`, one line each."""
    (protocol,) = (
        node
        for node in ast.parse(found["laggard.simulator.engine.node"]).body
        if isinstance(node, ast.ClassDef)
    )
    meant = {item.name for item in protocol.body if isinstance(item, ast.FunctionDef)}
    meant |= {item.target.id for item in protocol.body if isinstance(item, ast.AnnAssign)}
    used = []
    for name in touches(set(found), "laggard.simulator.algorithms"):
        for part in ast.walk(ast.parse(found[name])):
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) in (
                "node",
                "self._node",
            ):
                used += [f"{name} uses node.{part.attr}"] * (part.attr not in meant)
    return used


def definitions(found):
    """The modules that define each name at their top."""
    modules = {}
    for module, source in found.items():
        for node in ast.parse(source).body:
            names = [getattr(node, "name", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                if name and not name.startswith("__"):
                    modules.setdefault(name, set()).add(module)
    return modules


def notebook_code():
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [
            cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"
        ]
        found[path.name] = "\n".join(
            line
            for cell in cells
            for line in "".join(cell["source"]).splitlines()
            if line[:1] not in "%!"
        )
    return found


def notebook_imports():
    return {
        name: imports("notebook", code, is_package=False) for name, code in notebook_code().items()
    }


def files_of_checkout(code):
    """What code names beside the notebooks, but for the results that it leaves there."""
    return [
        path
        for path in re.findall(r"[\"'](\.\./[^\"']*)", code)
        if not f"{path}/".startswith("../results/")
    ]


def test_imports_flow_one_way():
    assert violations_of_checkout() == []


def test_there_is_no_import_circle():
    assert circles(sources()) == []


def test_planted_circle_is_found():
    found = sources()
    found["laggard.simulator.errors"] += (
        "\nfrom laggard.simulator.timing.slowdowns import Slowdown\n"
    )
    assert ["laggard.simulator.errors", "laggard.simulator.timing.slowdowns"] in circles(found)


def test_names_are_defined_once():
    twice = {name for name, modules in definitions(sources()).items() if len(modules) > 1}
    assert twice == set(TWICE)
    assert len(TWICE) <= 20


def test_name_defined_twice_is_found():
    every = sources()
    found = {name: source for name, source in every.items() if "def resolve_topology" in source}
    assert len(definitions(found)["resolve_topology"]) == 1
    found["laggard.models.flat"] = every["laggard.models.flat"] + "\n\nresolve_topology = None\n"
    assert len(definitions(found)["resolve_topology"]) == 2


def test_algorithms_use_the_node_protocol_only():
    assert beyond_the_node(sources()) == []


@pytest.mark.parametrize("line", ["node.mailbox.clear()", "node._work = None", "self._node.spent"])
def test_algorithm_that_uses_the_engine_is_found(line):
    found = sources()
    found["laggard.simulator.algorithms.delayed"] += f"\n\ndef reach(self, node):\n    {line}\n"
    assert len(beyond_the_node(found)) == 1


def test_notebook_imports_only_laggard():
    assert notebook_imports()
    for name, targets in notebook_imports().items():
        assert not touches(targets, *NOTEBOOK), name


def test_notebook_names_no_file_of_the_checkout():
    """An installed wheel has the configs as examples."""
    assert {
        name: paths for name, code in notebook_code().items() if (paths := files_of_checkout(code))
    } == {}
    assert files_of_checkout("load('../configs/quickstart.yaml')") == ["../configs/quickstart.yaml"]


@pytest.mark.parametrize(("module", "line"), RULES["planted"])
def test_planted_violation_is_found(module, line):
    found = sources()
    name = f"laggard.{module}"
    assert name in found
    before = violations_of_checkout()
    assert not any(broken.startswith(f"{name} must not import") for broken in before)
    found[name] = f"{line}\n{found[name]}"
    assert any(broken.startswith(f"{name} must not import") for broken in violations(found)), (
        "it went unseen"
    )


@pytest.mark.parametrize(
    "line", ["import torch", "from simulator.engine import node", "import models"]
)
def test_planted_violation_in_a_notebook_is_found(line):
    assert touches(imports("notebook", line, is_package=False), *NOTEBOOK)
