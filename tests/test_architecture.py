"""The house: imports flow one way. Each rule is checked, and each is seen to fail on a planted violation."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("simulator", "models", "experiments")
Sources = dict[str, str]


def sources() -> Sources:
    """The source of every module, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(name: str, source: str, is_package: bool) -> set[str]:
    """The modules that a source imports, relative ones made absolute; those for type checkers alone left out."""
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


def reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    """Everything that a module imports, and what that imports; a package's face (`__init__`) is not entered."""
    seen, stack = set(), [name]
    while stack:
        for target in graph.get(stack.pop(), set()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def touches(targets: set[str], *modules: str) -> set[str]:
    """Those of `targets` that are one of `modules`, or inside one."""
    return {target for target in targets for module in modules if (target + ".").startswith(module + ".")}


def violations(found: Sources) -> list[str]:
    """What breaks the rules of the house, one line each."""
    faces = {name for name in found if any(other.startswith(name + ".") for other in found)}
    direct = {name: imports(name, source, name in faces) for name, source in found.items()}
    rooms = {name: targets for name, targets in direct.items() if name not in faces}
    broken = []

    def forbid(names, targets_of, *modules):
        for name in names:
            broken.extend(f"{name} must not import {hit}" for hit in sorted(touches(targets_of(name), *modules)))

    def inside(package):
        return [name for name in found if touches({name}, package)]

    forbid(inside("simulator"), direct.get, "models", "experiments", "pandas", "matplotlib")
    forbid(inside("models"), direct.get, "simulator", "simpy", "experiments", "pandas", "matplotlib")
    clock = [
        name
        for room in (
            "bounds",
            "laws",
            "slowdowns",
            "topology",
            "mixing",
            "network",
            "sharing",
            "wires",
            "streams",
            "cluster",
        )
        for name in inside(f"simulator.{room}")
    ]
    forbid(clock, lambda name: reached(name, rooms) | direct[name], "torch", "simulator.weights", "simulator.gradients")
    arithmetic = [
        "simulator.task",
        "simulator.gradients",
        "simulator.pool",
        "simulator.weights",
        "simulator.learning",
        *inside("simulator.rules"),
    ]
    forbid(arithmetic, lambda name: reached(name, rooms) | direct[name], "simpy", "simulator.node")
    for name in inside("simulator.algorithms"):
        if name in rooms:
            forbid([name], direct.get, "simpy", "simulator.network", "simulator.sharing", "simulator.simulation")
            forbid([name], direct.get, "simulator.algorithms")
    return broken


def notebook_imports() -> dict[str, set[str]]:
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        code = "\n".join(
            line for cell in cells for line in "".join(cell["source"]).splitlines() if line[:1] not in "%!"
        )
        found[path.name] = imports("notebook", code, is_package=False)
    return found


def strangers(targets: set[str]) -> set[str]:
    """What a notebook imports and should not."""
    return touches(targets, "simulator", "models", "torch", "simpy")


def test_imports_flow_one_way():
    assert violations(sources()) == []


def test_a_notebook_imports_experiments_and_no_other_room():
    assert notebook_imports()
    for name, targets in notebook_imports().items():
        assert not strangers(targets), name


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("simulator.node", "from models import LeNet5"),
        ("simulator.trace", "import pandas as pd"),
        ("simulator.learning", "import matplotlib.pyplot"),
        ("simulator.cluster", "import experiments.config"),
        ("models.task", "from simulator.task import Task"),
        ("models.task", "import simpy"),
        ("models.data", "from experiments import load"),
        ("models.quadratic", "import pandas"),
        ("simulator.laws", "import torch"),
        ("simulator.slowdowns", "from torch import Tensor"),
        ("simulator.topology", "import torch"),
        ("simulator.topology.peers", "from torch import Tensor"),
        ("simulator.mixing", "import simulator.weights"),
        ("simulator.network", "from simulator.weights import stamped"),
        ("simulator.bounds", "import torch"),
        ("simulator.gradients", "import simpy"),
        ("simulator.rules.rule", "from simpy import Environment"),
        ("simulator.rules.optimizers", "from simulator.node import Node"),
        ("simulator.task", "import simpy"),
        ("simulator.algorithms.asynchronous", "import simpy"),
        ("simulator.algorithms.asynchronous", "from simulator.algorithms.synchronous import SyncPS"),
        ("simulator.algorithms.delayed", "from . import synchronous"),
        ("simulator.algorithms.synchronous", "from simulator.network import Network"),
    ],
)
def test_a_planted_violation_is_found(room, line):
    found = sources()
    assert room in found
    found[room] = f"{line}\n{found[room]}"
    assert any(broken.startswith(f"{room} must not import") for broken in violations(found)), "it went unseen"


@pytest.mark.parametrize("line", ["import torch", "from simulator.laws import Gamma", "import models"])
def test_a_planted_violation_in_a_notebook_is_found(line):
    assert strangers(imports("notebook", line, is_package=False))


def test_an_algorithm_is_so_short_that_a_reader_can_hold_it_against_its_paper():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "simulator/algorithms").glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 120} == {}
