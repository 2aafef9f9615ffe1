"""What each command imports: the prompt does not wait for libraries that a command has no use
for.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from laggard import load, run
from laggard.experiments.config.grid import runs

ROOT = Path(__file__).parents[1]
SLOW = pytest.mark.slow
HEAVY = (
    "torch", "numba", "sklearn", "torchvision", "scipy.stats", "networkx", "matplotlib", "joblib", "rich",
    "bokeh",
)  # fmt: skip
TABLES = ("pandas", "pyarrow", "safetensors")
WITHOUT = {
    "--help": (*HEAVY, *TABLES, "numpy", "pydantic", "simpy"),
    "list": (*HEAVY, *TABLES),
    "list lenet5": (*HEAVY, *TABLES),
    "validate configs/quickstart.yaml": (*HEAVY, *TABLES),
    "validate configs/data/femnist.yaml": (*HEAVY, *TABLES),
    "new law unheard_of": (*HEAVY, *TABLES),
    "table RESULT": HEAVY,
    "export RESULT --to perfetto": HEAVY,
    "sweep TOY": ("torch", "numba", "sklearn", "torchvision", "scipy.stats", "networkx"),
    "plot RESULT": (
        "torch",
        "numba",
        "sklearn",
        "torchvision",
        "scipy.stats",
        "networkx",
    ),
    "run DIGITS": ("sklearn", "torchvision", "scipy.stats", "networkx"),
}
"""A command -> what it does not import; `TOY` is a config whose one run is `RESULT`, `DIGITS` one
that learns.
"""

TOY = "task: {model: timing}\nstop: {updates: 20}\ncluster: {workers: 2}\n"
DIGITS = "task: {model: logistic, dataset: digits}\nstop: {updates: 2}\ncluster: {workers: 2}\n"
IN_A_PROCESS = """
import importlib.machinery, sys
planted, line, *argv = sys.argv[1:]
get_code = importlib.machinery.SourceFileLoader.get_code

def with_line(loader, name):
    if name != planted:
        return get_code(loader, name)
    return compile(loader.get_source(name) + line, loader.path, "exec")

importlib.machinery.SourceFileLoader.get_code = with_line
from laggard.experiments.cli import main
try:
    code = main(argv)
except SystemExit as end:
    code = end.code
print("imported:", *sys.modules)
sys.exit(code)
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


def imported(command, places, module="", line=""):
    """What a command imports, if `line` stands at the end of `module`."""
    argv = [places.get(word, word) for word in command.split()]
    call = [sys.executable, "-c", IN_A_PROCESS, module, f"\n{line}\n", *argv]
    ended = subprocess.run(call, cwd=places[""], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.rpartition("imported:")[2].split())


TRAINS = "run DIGITS"
"""It loads compiled kernels, which takes as long as all the others."""


@pytest.mark.parametrize(
    "command", [*(each for each in WITHOUT if each != TRAINS), pytest.param(TRAINS, marks=SLOW)]
)
def test_command_imports_no_unused_library(command, places):
    assert imported(command, places) & set(WITHOUT[command]) == set()


@pytest.mark.parametrize(
    ("command", "module", "line"),
    [
        ("--help", "laggard.experiments.commands.simulate", "import numpy"),
        ("list", "laggard.simulator.learning.rules.scalars", "import networkx"),
        ("validate configs/quickstart.yaml", "laggard.models.networks", "from torch import nn"),
        pytest.param(
            "table RESULT", "laggard.experiments.results.measures", "import scipy.stats", marks=SLOW
        ),
        pytest.param(
            "sweep TOY", "laggard.experiments.running.run", "from torch import Tensor", marks=SLOW
        ),
    ],
)
def test_planted_import_is_found(command, module, line, places):
    assert line.split()[1] in imported(command, places, module, line) & set(WITHOUT[command])
