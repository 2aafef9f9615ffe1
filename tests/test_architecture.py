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

ROOT = Path(__file__).parents[1]
PACKAGES = ("simulator", "models", "experiments")
Sources = dict[str, str]

FORBIDDEN = {  # folder or module -> what nothing in it imports
    "simulator": ("laggard.models", "laggard.experiments", "pandas", "matplotlib"),
    "simulator.errors": ("laggard", "torch", "simpy"),
    "simulator.timing": (
        "torch",
        "laggard.simulator.network",
        "laggard.simulator.learning",
        "laggard.simulator.recording",
        "laggard.simulator.engine",
        "laggard.simulator.algorithms",
    ),
    "simulator.network": (
        "torch",
        "laggard.simulator.learning",
        "laggard.simulator.recording",
        "laggard.simulator.engine",
        "laggard.simulator.algorithms",
    ),
    "simulator.learning": (
        "simpy",
        "laggard.simulator.timing",
        "laggard.simulator.network",
        "laggard.simulator.recording",
        "laggard.simulator.engine",
        "laggard.simulator.algorithms",
    ),
    "simulator.recording": (
        "laggard.simulator.network",
        "laggard.simulator.engine",
        "laggard.simulator.algorithms",
    ),
    "simulator.engine": ("laggard.simulator.algorithms", "laggard.simulator.testing"),
    "simulator.algorithms": (
        "simpy",
        "laggard.simulator.network.config",
        "laggard.simulator.network.transport",
        "laggard.simulator.engine.machine",
        "laggard.simulator.engine.simulation",
        "laggard.simulator.testing",
    ),
    "models": ("laggard.simulator", "laggard.experiments", "simpy", "pandas", "matplotlib"),
    "experiments.config": tuple(
        f"laggard.experiments.{folder}"
        for folder in (
            "running",
            "results",
            "theory",
            "figures",
            "claims",
            "perfetto",
            "report",
            "commands",
        )
    ),
    "experiments.results": tuple(
        f"laggard.experiments.{folder}"
        for folder in ("running", "theory", "figures", "claims", "perfetto", "report", "commands")
    ),
    "experiments.theory": tuple(
        f"laggard.experiments.{folder}"
        for folder in ("running", "figures", "claims", "perfetto", "report", "commands")
    ),
    "experiments.running": tuple(
        f"laggard.experiments.{folder}"
        for folder in ("figures", "claims", "perfetto", "report", "commands")
    ),
    "experiments.figures": tuple(
        f"laggard.experiments.{folder}"
        for folder in ("running", "claims", "perfetto", "report", "commands")
    ),
    "experiments.claims": (
        "laggard.experiments.perfetto",
        "laggard.experiments.report",
        "laggard.experiments.commands",
    ),
}
REACHED = {  # folder -> what nothing in it imports even indirectly
    "simulator.timing": ("torch",),
    "simulator.network": ("torch",),
    "simulator.learning": ("simpy",),
}
NOTEBOOK = ("torch", "simpy", *PACKAGES)


def sources() -> Sources:
    """The source of every module, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = ("laggard", *path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(name: str, source: str, is_package: bool) -> set[str]:
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


def graph_of(found: Sources) -> dict[str, set[str]]:
    """What each module imports."""
    packages = {name.rpartition(".")[0] for name in found}
    return {name: imports_of(name, source, name in packages) for name, source in found.items()}


def reached(name: str, graph: dict[str, set[str]]) -> set[str]:
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


def touches(targets: set[str], *modules: str) -> set[str]:
    """Those of `targets` that are one of `modules`, or inside one."""
    return {
        target
        for target in targets
        for module in modules
        if (target + ".").startswith(module + ".")
    }


def violations(found: Sources) -> list[str]:
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


def is_method(module: str) -> bool:
    """Whether a module of `simulator/algorithms` holds methods, not what several families share."""
    shared = ("base", "bucketing", "sharding", "slicing", "staging", "collectives", "contrib")
    part = module.removeprefix("laggard.simulator.algorithms").strip(".")
    folder, _, method = part.partition(".")
    if folder == "contrib":
        return bool(method)
    return bool(folder) and folder not in shared


def circles(found: Sources) -> list[list[str]]:
    """The import circles between modules, and those between folders that the rules name."""
    graph = nx.DiGraph(
        (name, target)
        for name, targets in graph_of(found).items()
        for target in targets
        if target in found
    )
    return [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def beyond_the_node(found: Sources) -> list[str]:
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


TWICE = {  # names that are defined at the top of two modules, and why
    "AXES": "of results, and those that `laggard plot --x` takes without importing results",
    "COMMANDS": "a table in each module of commands",
    "Constant": "a distribution and a schedule: both are called so in configs",
    "Exponential": "a distribution and a graph: both are called so in the field",
    "Layer": "the engine's protocol, and what models hand it; neither half imports the other",
    "Network": "a cluster's, and a neural one; neither half imports the other",
    "T": "a type variable",
    "Trace": "the record of gradients, and the law that draws from a file: `law: trace`",
    "mean": "of gradients, of models, of a claim's array, of seeds with an interval",
    "report": "the command, and what `run` and `sweep` print",
    "run": "the command and what it calls",
    "staleness": "the figure, the table's column, the claims' statistic",
    "sweep": "the command and what it calls",
    "table": "the command and what it calls",
    "total": "of promises, and of tensors",
}


def definitions(found: Sources) -> dict[str, set[str]]:
    """The modules that define each name at their top; of the papers' modules, which are alike,
    none.
    """
    modules: dict[str, set[str]] = {}
    for module, source in found.items():
        if touches({module}, "laggard.experiments.claims.papers"):
            continue
        for node in ast.parse(source).body:
            names = [getattr(node, "name", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                if name and not name.startswith("__"):
                    modules.setdefault(name, set()).add(module)
    return modules


def notebook_code() -> dict[str, str]:
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


def notebook_imports() -> dict[str, set[str]]:
    return {
        name: imports("notebook", code, is_package=False) for name, code in notebook_code().items()
    }


def files_of_checkout(code: str) -> list[str]:
    """What code names beside the notebooks, but for the results that it leaves there."""
    return [
        path
        for path in re.findall(r"[\"'](\.\./[^\"']*)", code)
        if not f"{path}/".startswith("../results/")
    ]


def test_imports_flow_one_way():
    assert violations(sources()) == []


def test_there_is_no_import_circle():
    assert circles(sources()) == []


def test_a_planted_circle_is_found():
    found = sources()
    found["laggard.simulator.errors"] += (
        "\nfrom laggard.simulator.timing.slowdowns import Slowdown\n"
    )
    assert ["laggard.simulator.errors", "laggard.simulator.timing.slowdowns"] in circles(found)


def test_a_name_is_defined_once_but_for_a_few():
    twice = {name for name, modules in definitions(sources()).items() if len(modules) > 1}
    assert twice == set(TWICE)
    assert len(TWICE) <= 20


def test_a_name_that_is_defined_again_is_found():
    found = sources()
    found["laggard.models.flat"] += "\n\ndef resolve_topology():\n    pass\n"
    assert len(definitions(found)["resolve_topology"]) == 2


def test_algorithms_see_of_a_node_what_is_meant_for_them():
    assert beyond_the_node(sources()) == []


@pytest.mark.parametrize(
    "line", ["node.crash()", "node.mailbox.clear()", "node._work = None", "self._node.spent"]
)
def test_an_algorithm_that_reaches_into_the_engine_is_found(line):
    found = sources()
    found["laggard.simulator.algorithms.delayed"] += f"\n\ndef reach(self, node):\n    {line}\n"
    assert len(beyond_the_node(found)) == 1


def test_a_notebook_imports_laggard_alone():
    assert notebook_imports()
    for name, targets in notebook_imports().items():
        assert not touches(targets, *NOTEBOOK), name


def test_a_notebook_names_no_file_of_the_checkout():
    """An installed wheel has the configs as examples."""
    assert {
        name: paths for name, code in notebook_code().items() if (paths := files_of_checkout(code))
    } == {}
    assert files_of_checkout("load('../configs/quickstart.yaml')") == ["../configs/quickstart.yaml"]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("simulator.engine.node", "from laggard.models import LeNet5"),
        ("simulator.recording.trace", "import pandas as pd"),
        ("simulator.recording.metrics", "import matplotlib.pyplot"),
        ("simulator.engine.cluster", "import laggard.experiments.config.config"),
        ("simulator.errors", "import torch"),
        ("simulator.errors", "from laggard.simulator.timing.clock import Clock"),
        ("simulator.timing.distributions", "import torch"),
        ("simulator.timing.slowdowns", "from torch import Tensor"),
        ("simulator.timing.events", "from laggard.simulator.learning.gradients import Gradient"),
        ("simulator.timing.clock", "from laggard.simulator.network.links import Link"),
        ("simulator.network.topology", "import torch"),
        ("simulator.network.topology.regular", "from torch import Tensor"),
        ("simulator.network.mixing", "import laggard.simulator.learning.weights"),
        ("simulator.network.config", "from laggard.simulator.learning.weights import stamped"),
        ("simulator.network.transport", "from laggard.simulator.engine.node import Node"),
        ("simulator.learning.gradients", "import simpy"),
        ("simulator.learning.task", "from laggard.simulator.timing.streams import stream"),
        ("simulator.learning.rules.rule", "from simpy import Environment"),
        ("simulator.learning.rules.optimizers", "from laggard.simulator.engine.node import Node"),
        ("simulator.recording.counters", "from laggard.simulator.engine.stopping import Stop"),
        (
            "simulator.engine.simulation",
            "from laggard.simulator.algorithms.asynchronous import AsyncPS",
        ),
        ("simulator.algorithms.asynchronous", "import simpy"),
        (
            "simulator.algorithms.asynchronous",
            "from laggard.simulator.algorithms.synchronous import SyncPS",
        ),
        ("simulator.algorithms.delayed", "from . import synchronous"),
        (
            "simulator.algorithms.contrib.p3",
            "from laggard.simulator.algorithms.asynchronous import AsyncPS",
        ),
        (
            "simulator.algorithms.asynchronous",
            "from laggard.simulator.algorithms.contrib.p3 import P3",
        ),
        (
            "simulator.algorithms.synchronous",
            "from laggard.simulator.network.config import Network",
        ),
        (
            "simulator.algorithms.synchronous",
            "from laggard.simulator.engine.machine import Machine",
        ),
        ("models.task", "from laggard.simulator.learning.task import Task"),
        ("models.task", "import simpy"),
        ("models.data", "from laggard.experiments.config.load import load"),
        ("models.quadratic", "import pandas"),
        ("experiments.config.grid", "from laggard.experiments.running.run import run"),
        ("experiments.results.results", "from laggard.experiments.figures import comparison"),
        ("experiments.theory.staleness", "from laggard.experiments.figures.style import save"),
        ("experiments.running.run", "from laggard.experiments.claims import ledger"),
        ("experiments.figures.grids", "from laggard.experiments.running.sweep import sweep"),
        ("experiments.claims.ledger", "from laggard.experiments.commands import count"),
    ],
)
def test_a_planted_violation_is_found(module, line):
    found = sources()
    name = f"laggard.{module}"
    assert name in found
    assert not any(broken.startswith(f"{name} must not import") for broken in violations(found))
    found[name] = f"{line}\n{found[name]}"
    assert any(broken.startswith(f"{name} must not import") for broken in violations(found)), (
        "it went unseen"
    )


@pytest.mark.parametrize(
    "line", ["import torch", "from simulator.engine import node", "import models"]
)
def test_a_planted_violation_in_a_notebook_is_found(line):
    assert touches(imports("notebook", line, is_package=False), *NOTEBOOK)
