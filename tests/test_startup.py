"""What each command imports: the prompt does not wait for libraries that a command has no use
for.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from laggard import load, run
from laggard.experiments.config.grid import runs

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch", "numba", "sklearn", "torchvision", "scipy.stats", "networkx", "matplotlib", "joblib", "rich",
    "bokeh",
)  # fmt: skip
TABLES = ("pandas", "pyarrow", "safetensors")
LIBRARIES = (*HEAVY, *TABLES)
COMPUTING = ("torch", "numba", "sklearn", "torchvision", "scipy.stats", "networkx")
WITHOUT = {
    "--help": (*LIBRARIES, "numpy", "pydantic", "simpy"),
    "list": LIBRARIES,
    "list lenet5": LIBRARIES,
    "validate configs/quickstart.yaml": LIBRARIES,
    "validate configs/data/femnist.yaml": LIBRARIES,
    "new law unheard_of": LIBRARIES,
    "table RESULT": HEAVY,
    "export RESULT --to perfetto": HEAVY,
    "sweep TOY": COMPUTING,
    "plot RESULT": COMPUTING,
    "run DIGITS": ("sklearn", "torchvision", "scipy.stats", "networkx"),
}
"""A command -> what it does not import; `TOY` is a config whose one run is `RESULT`, `DIGITS` one
that learns.

One process runs them in this order. What a command may not import, those before it may not either,
so that none of them hides an import of another.
"""

TOY = "task: {model: timing}\nstop: {updates: 20}\ncluster: {workers: 2}\n"
DIGITS = "task: {model: logistic, dataset: digits}\nstop: {updates: 2}\ncluster: {workers: 2}\n"
IN_A_PROCESS = """
import importlib.machinery, json, sys
planted, commands = json.loads(sys.argv[1])
get_code = importlib.machinery.SourceFileLoader.get_code

def with_line(loader, name):
    if name not in planted:
        return get_code(loader, name)
    return compile(loader.get_source(name) + planted[name], loader.path, "exec")

importlib.machinery.SourceFileLoader.get_code = with_line
from laggard.experiments.cli import main
for argv in commands:
    try:
        code = main(argv)
    except SystemExit as end:
        code = end.code
    print()
    print("imported:", code, *sys.modules)
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup")
    (folder / "toy.yaml").write_text(TOY)
    (folder / "digits.yaml").write_text(DIGITS)
    (folder / "configs").symlink_to(ROOT / "configs")
    config = load(folder / "toy.yaml")
    run(config, folder / "results")
    result = runs(config)[0].folder(folder / "results")
    return {"": str(folder), "TOY": "toy.yaml", "DIGITS": "digits.yaml", "RESULT": str(result)}


def imported(commands, places, lines=()):
    """What has been imported after each command, if each of `lines` stands at the end of a module."""
    argvs = [[places.get(word, word) for word in command.split()] for command in commands]
    planted = {module: f"\n{line}\n" for module, line in lines}
    call = [sys.executable, "-c", IN_A_PROCESS, json.dumps([planted, argvs])]
    ended = subprocess.run(call, cwd=places[""], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    printed = [line.split() for line in ended.stdout.splitlines() if line.startswith("imported: ")]
    assert [code for _, code, *_ in printed] == ["0"] * len(commands), ended.stderr
    return {command: set(words[2:]) for command, words in zip(commands, printed, strict=True)}


TRAINS = "run DIGITS"
"""It loads compiled kernels, which takes as long as all the others."""


def unused(commands, places):
    """The libraries that commands import without need."""
    modules = imported(commands, places)
    return {command: modules[command].intersection(WITHOUT[command]) for command in commands}


def test_no_command_hides_a_later_import():
    sets = [set(names) for names in WITHOUT.values()]
    assert all(later <= earlier for earlier, later in itertools.pairwise(sets))


def test_commands_import_no_unused_library(places):
    found = unused([command for command in WITHOUT if command != TRAINS], places)
    assert not any(found.values()), found


@pytest.mark.slow
def test_training_imports_no_unused_library(places):
    assert unused([TRAINS], places) == {TRAINS: set()}


PLANTED = {
    "--help": ("laggard.experiments.commands.simulate", "import numpy"),
    "list": ("laggard.simulator.learning.rules.scalars", "import networkx"),
    "validate configs/quickstart.yaml": (
        "laggard.experiments.theory.server_load",
        "from torch import nn",
    ),
    "export RESULT --to perfetto": ("laggard.experiments.perfetto.slices", "import bokeh"),
    "sweep TOY": ("laggard.experiments.running.sweep", "import numba"),
}


@pytest.mark.slow
def test_planted_imports_are_found(places):
    found = imported(list(PLANTED), places, PLANTED.values())
    for command, (_, line) in PLANTED.items():
        assert line.split()[1] in found[command], command
