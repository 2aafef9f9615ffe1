"""Plugins: written outside the repository, named in a config, and equal to entries of the tables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from laggard import ConfigError, load, load_result, load_results, run, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.grid import RunSpec

ABSOLUTE = """
from dataclasses import dataclass
from laggard.simulator.learning.rules import DCASGDc
from laggard.simulator.learning.rules.scalars import cast

@dataclass(frozen=True)
class Absolute(DCASGDc):
    '''DC-ASGD with |g| for g: g + strength |g| (w - w_read).'''

    def correct(self, value, gradient, weights, state, *more):
        change = cast(self.strength, value) * value.abs() * (weights - gradient.weights)
        return value + change, state
"""


def same(one, other):
    return torch.equal(one.weights, other.weights) and one.updates.equals(other.updates)


def test_modules_are_found_beside_the_config(module, toy, tmp_path, monkeypatch):
    """And in the current directory."""
    module("mine", ABSOLUTE)
    module("here/nearby", ABSOLUTE)
    path = toy("sweep: {learning.compensation: ['mine:Absolute', 'nearby:Absolute', none]}")
    monkeypatch.chdir(tmp_path / "here")
    one, other, none = sweep(load(path), tmp_path / "out")
    assert same(one, other)
    assert not same(one, none)


PIECES = """
from dataclasses import dataclass, field
from collections.abc import Sequence
from laggard import models, simulator
from laggard.simulator.timing import distributions as laws, slowdowns
from laggard.simulator.network import topology
from laggard.simulator.learning import rules
from laggard.models import Dataset

@dataclass(frozen=True)
class Server(simulator.AsyncPS):
    pass

@dataclass(frozen=True)
class Law:
    '''Fulfils the protocol and derives from nothing.'''
    mean: float
    cv: float = 0.3

    @property
    def std(self):
        return self.mean * self.cv

    def draw(self, rng, n):
        return laws.Gamma(self.mean, self.cv).draw(rng, n)

@dataclass(frozen=True)
class Slow(slowdowns.Factor):
    pass

@dataclass(frozen=True)
class Star(topology.Star):
    pass

@dataclass(frozen=True)
class Plain(rules.SGD):
    pass

@dataclass(frozen=True)
class Late(rules.DCASGDc):
    pass

@dataclass(frozen=True)
class Steady:
    share: float = 1.0

    def __call__(self, progress):
        return self.share

@dataclass(frozen=True)
class Net:
    hidden: Sequence[int] = (4,)

    def build(self, shape, classes):
        return models.MLP(self.hidden).build(shape, classes)

@dataclass
class Bowl:
    dim: int = 3
    noise: float = 0.0
    batch: int = 1
    epoch: int = 1000
    lanes = 8

    def __post_init__(self):
        inner = models.Quadratic(dim=self.dim, noise=self.noise)
        self.start, self.batches, self.gradients = inner.start, inner.batches, inner.gradients

    def evaluate(self, weights):
        return {}

    start = batches = gradients = None

@dataclass(frozen=True)
class Dealt(models.ByLabel):
    pass

def blobs(samples: int = 40) -> Dataset:
    return models.synthetic(samples=samples)
"""
SMALL = "task={model: mlp, hidden: [4], dataset: {name: synthetic, samples: 40}, batch: 4, partition: by_label}"
PAIRS = {
    "algorithm": ([], "algorithm={name: 'pieces:Server'}"),
    "law": ([], "cluster.compute={law: 'pieces:Law', mean: 0.01}"),
    "law per sample": (
        ["cluster.compute={law: gamma, mean: 0.01, cv: 0.3, per: sample}"],
        "cluster.compute={law: 'pieces:Law', mean: 0.01, per: sample}",
    ),
    "slowdown": (
        ["cluster.slowdowns=[{worker: 0, factor: 3}]"],
        "cluster.slowdowns=[{kind: 'pieces:Slow', worker: 0, factor: 3}]",
    ),
    "topology": (
        ["cluster.network={topology: star, latency: 0.1}"],
        "cluster.network={topology: 'pieces:Star', latency: 0.1}",
    ),
    "optimizer": (
        ["learning.momentum=0.5"],
        "learning={optimizer: 'pieces:Plain', momentum: 0.5, lr: 0.1}",
    ),
    "compensation": (
        ["learning.compensation={name: dc_asgd_c, strength: 0.5}"],
        "learning.compensation={name: 'pieces:Late', strength: 0.5}",
    ),
    "schedule": ([], "learning.schedule='pieces:Steady'"),
    "task": (
        ["task={model: quadratic, dim: 3, noise: 0.1, dtype: float32}"],
        "task={model: 'pieces:Bowl', noise: 0.1}",
    ),
    "network": ([SMALL], SMALL.replace("mlp, hidden: [4]", "'pieces:Net'")),
    "dataset": ([SMALL], SMALL.replace("name: synthetic", "name: 'pieces:blobs'")),
    "partition": ([SMALL], SMALL.replace("by_label", "'pieces:Dealt'")),
}


@pytest.mark.parametrize("what", PAIRS)
def test_plugin_equals_the_built_in_entry(what, module, toy, tmp_path):
    module("pieces", PIECES)
    before, own = PAIRS[what]
    path = toy()
    table = run(load(path, *before), tmp_path / "out")
    mine = run(load(path, *before, own), tmp_path / "out")
    assert same(table, mine)
    assert table.path != mine.path
    assert load_result(mine.path).config.as_dict() == mine.config.as_dict()


def test_algorithm_without_learning_needs_no_rule(module, ran):
    source = """
from dataclasses import dataclass
from laggard.simulator import Algorithm

@dataclass(frozen=True)
class Still(Algorithm):
    def worker(self, node):
        while True:
            gradient = yield node.compute(node.weights)
            node.apply(node.weights, [gradient])
"""
    module("still", source)
    result = ran("algorithm='still:Still'", "task.jitter=0.0")
    assert result.weights.tolist() == [[1.0, 1.0, 1.0]]


WRONG = {
    "nothing:Mine": "no module nothing on Python's path, in the current directory or beside the config",
    "mine.deeper:Mine": "no module mine.deeper on Python's path, *",
    "mine:Absolut": "mine (*mine.py) has no Absolut; did you mean Absolute?",
    "mine:Absolute.": "expected a known name or package.module:Name, got 'mine:Absolute.'",
    ":Mine": "expected a known name or package.module:Name, got ':Mine'",
    "../mine:Mine": "expected a known name or package.module:Name, got '../mine:Mine'",
    "raising:Mine": "raising cannot be imported: ZeroDivisionError: division by zero (*raising.py, line 3)",
    "deeper:Mine": "deeper cannot be imported: ZeroDivisionError: division by zero (*deeper.py, line 2)",
    "lacking:Mine": "lacking cannot be imported: ModuleNotFoundError: No module named 'nowhere' (*lacking.py, line 1)",
    "leaving:Mine": "leaving cannot be imported: SystemExit: 3 (*leaving.py, line 2)",
    "unfinished:Mine": "unfinished cannot be imported: SyntaxError: * (*unfinished.py, line 1)",
    "mine:number": "expected a class that serves as laggard.simulator.algorithms.base.Algorithm, but mine:number is 3",
    "mine:function": "expected a function that returns laggard.*, by its annotation*, got mine:function with no type*",
    "mine:Absolute": "expected a class *.Algorithm, but mine:Absolute does not derive from Algorithm",
    "mine:Bare": "expected a dataclass, got mine:Bare: write @dataclass(frozen=True) above it; its fields are its keys",
    "mine:Named": "mine:Named: name is a key of the config already: rename the field",
    "mine:Typed": "mine:Typed: its fields cannot be keys of a config: *",
    "mine:Unknown": "mine:Unknown: its fields cannot be keys of a config: name 'Nothing' is not defined",
    "random:Random": "random is *, and *random.py is another: rename one of them",
}
MINE = f"""{ABSOLUTE}
import threading
from laggard.simulator import Algorithm, AsyncPS, InvalidSettingError, Rule

number = 3

def function(rule):
    return None

class Bare(Algorithm):
    x: float = 1.0

@dataclass(frozen=True)
class Named(AsyncPS):
    name: str = ""

@dataclass(frozen=True)
class Typed(AsyncPS):
    lock: threading.Thread = None

@dataclass(frozen=True)
class Unknown(AsyncPS):
    x: "Nothing" = None

@dataclass(frozen=True)
class Fine(Algorithm):
    rule: Rule
    patience: int = 3
    share: float = 0.5

    def __post_init__(self):
        if self.patience < 0:
            raise InvalidSettingError("Fine", "patience", "a number >= 0", self.patience)

    def worker(self, node):
        yield node.compute(node.weights)
"""
SOURCES = {
    "mine": MINE,
    "random": "",
    "raising": "import json\n\n1 / 0\n",
    "deeper": "from helping import divided\nvalue = divided()\n",
    "helping": "def divided():\n    return 1 / 0\n",
    "lacking": "import nowhere\n",
    "leaving": "import sys\nsys.exit(3)\n",
    "unfinished": "def worker(:\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_missing_or_broken_plugin_gives_one_line_error(name, module, toy, tmp_path, mistake):
    from fnmatch import fnmatchcase

    for file in {"mine", name.partition(":")[0].partition(".")[0], "helping"} & set(SOURCES):
        module(file, SOURCES[file])
    path = toy()
    error = mistake("run", path, f"algorithm={{name: '{name}'}}", "--out", tmp_path / "out")
    expected = WRONG[name].replace("[", "[[]")
    assert fnmatchcase(error, f"{path}: algorithm.name: {expected}\n"), error


def test_field_of_a_plugin_is_a_key(module, toy):
    module("mine", MINE)
    assert load(toy(), "algorithm={name: 'mine:Fine', patience: 1}").algorithm.patience == 1


def test_unit_of_a_plugin_field_is_that_of_its_docstring(module, toy, mistake):
    module("pausing", PAUSING)
    path = toy()
    config = load(path, "algorithm={name: 'pausing:Pausing', pause: 10 ms}")
    assert config.algorithm.pause == 0.01
    error = mistake("validate", path, "algorithm={name: 'pausing:Pausing', pause: 10 kB}")
    expected = "expected a number (seconds), or text with its unit, as 10 ms, got '10 kB'"
    assert error == f"{path}: algorithm.pause: {expected}\n"


def test_name_of_a_plugin_in_a_mapping_is_named_with_its_remedy(toy, mistake):
    path = toy()
    error = mistake("validate", path, "task={model: {name: 'mine:Net', hidden: 6}}")
    assert error.endswith("; write model: mine:Net, with its keys beside it\n"), error


def test_changed_source_is_another_run(
    module,
    toy,
    tmp_path,
    monkeypatch,
):
    """This holds within one process, and for a new source of equal length and modification time."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, out = (
        toy("", toy().read_text().replace("lr: 0.1", "lr: 0.1, compensation: 'mine:Absolute'")),
        tmp_path / "out",
    )
    born = module("mine", ABSOLUTE).stat()
    first = run(load(path), out)
    again = run(load(path), out)
    assert first.path == again.path
    assert first.manifest["wall_seconds"] == again.manifest["wall_seconds"]
    younger = module("mine", ABSOLUTE.replace("value.abs()", "value.exp()"))
    os.utime(younger, ns=(born.st_atime_ns, born.st_mtime_ns))
    second = run(load(path), out)
    assert second.path != first.path
    assert not torch.equal(second.weights, first.weights)
    module("mine", ABSOLUTE)
    assert RunSpec(load(path)).digest == RunSpec(first.config).digest


HELPED = ABSOLUTE.replace("value.abs()", "factor() * value.abs()")
BETWEEN = "import helping\ndef factor():\n    from helping import factor\n    return factor()\n"
HELPERS = {
    "of a helper": ("mine", "from between import factor\n" + HELPED),
    "by name": (
        "mine",
        "import importlib\nfactor = importlib.import_module('helping').factor\n" + HELPED,
    ),
    "through a package": ("package.mine", "from package import factor\n" + HELPED),
    "of the folder above": ("package.inner.mine", "from ..helping import factor\n" + HELPED),
}


@pytest.mark.parametrize("how", HELPERS)
def test_imported_sources_are_part_of_the_run_id(
    how,
    module,
    ran,
    monkeypatch,
):
    """This holds within one process, and for a new source of equal length and modification time."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    name, source = HELPERS[how]
    module(name.replace(".", "/"), source)
    module("between", BETWEEN)
    module("unrelated", "")
    helper = "helping"
    if "." in name:
        helper = "package/helping"
        imports = "from package.helping import factor\n" if how == "through a package" else ""
        module("package/__init__", imports)
    plugin = f"learning.compensation='{name}:Absolute'"
    born = module(helper, "def factor():\n    return 1\n").stat()
    first = ran(plugin)
    module("unrelated", "changed = True\n")
    assert ran(plugin).manifest == first.manifest
    younger = module(helper, "def factor():\n    return 5\n")
    os.utime(younger, ns=(born.st_atime_ns, born.st_mtime_ns))
    second = ran(plugin)
    assert second.path != first.path
    assert not torch.equal(second.weights, first.weights)


@pytest.mark.slow
def test_processes_find_a_source_of_the_folder_above(module, ran, toy, tmp_path):
    name, source = HELPERS["of the folder above"]
    module("package/__init__", "")
    module(name.replace(".", "/"), source)
    module("package/helping", "def factor():\n    return 5\n")
    plugin = f"learning.compensation='{name}:Absolute'"
    here = ran(plugin)
    elsewhere = sweep(load(toy(), plugin, "sweep.seed=[0, 1]"), tmp_path / "other", jobs=2)
    assert torch.equal(elsewhere[0].weights, here.weights)


@pytest.mark.slow
def test_new_process_reads_no_stale_bytecode(module, toy, tmp_path):
    own, results = "learning.compensation='mine:Absolute'", []
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    module("mine", "from helping import factor\n" + HELPED)
    for number in (1, 5):
        helper = module("helping", f"def factor():\n    return {number}\n")
        os.utime(helper, ns=(10**18, 10**18))
        words = f"-m laggard run {toy()} {own} --out {tmp_path}/{number} --quiet"
        for command in (["-c", "import helping"], words.split()):
            command = [sys.executable, *command]
            subprocess.run(command, env=environment, cwd=tmp_path, check=True)
        results.append(load_results(tmp_path / str(number) / "toy")[0])
    assert results[0].path.name != results[1].path.name
    assert not torch.equal(results[0].weights, results[1].weights)


def test_source_edited_after_an_import_is_read_again(
    module,
    ran,
    toy,
    tmp_path,
    monkeypatch,
):
    import importlib

    own = "learning.compensation='mine:Absolute'"
    module("mine", ABSOLUTE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("mine")
    module("mine", ABSOLUTE.replace("value.abs()", "value.exp()"))
    first = ran(own)
    with monkeypatch.context() as patch:
        patch.setattr("laggard.experiments.config.plugins._hashes", {})
        assert run(load(toy(), own), tmp_path / "other").path.name == first.path.name
    sys.modules.pop("mine")
    assert torch.equal(run(load(toy(), own), tmp_path / "again").weights, first.weights)


@pytest.mark.parametrize("command", ["validate", "run", "sweep"])
def test_no_plugins_imports_nothing(
    command, module, toy, tmp_path,
    capsys,
) :  # fmt: skip
    module("mine", f"import pathlib\npathlib.Path({str(tmp_path / 'hit')!r}).touch()\n{ABSOLUTE}")
    path = toy("sweep: {learning.compensation: ['mine:Absolute', none]}")
    where = [] if command == "validate" else ["--out", str(tmp_path / "out")]
    assert main([command, str(path), "--no-plugins", *where]) == 2
    message = f"{path}: sweep.learning.compensation.name: expected a known name under "
    assert capsys.readouterr().err.startswith(message)
    assert not (tmp_path / "hit").exists()
    assert main(["validate", str(path)]) == 0
    assert (tmp_path / "hit").exists()


def test_result_is_read_without_its_plugin(module, toy, tmp_path):
    """Its resolved config holds the hash of the source of the run."""
    for file in ("pieces", "mine"):
        module(file, {"pieces": PIECES, "mine": ABSOLUTE}[file])
    own = [
        own
        for what, (_, own) in PAIRS.items()
        if what in ("algorithm", "law", "slowdown", "topology", "network")
    ]
    config = load(
        toy(), *own, "learning.compensation='mine:Absolute'", "sweep.learning.lr=[0.1, 0.2]"
    )
    results = sweep(config, tmp_path / "out")
    for file in ("pieces", "mine"):
        (tmp_path / f"{file}.py").unlink()
    (read,) = load_results(tmp_path / "out" / "toy")
    assert read.config.as_dict() == results[0].config.as_dict()
    assert RunSpec(read.config).digest == read.manifest["config"]
    assert len(read.members) == 2
    assert len(read.config.as_dict()["algorithm"]["sha256"]) == 64
    with pytest.raises(ConfigError, match="no module pieces"):
        load(read.path / "config.yaml", "sweep={}")


def test_stored_config_needs_the_same_source(module, ran, tmp_path):
    module("mine", ABSOLUTE)
    result = ran("learning.compensation='mine:Absolute'")
    path = result.path / "config.yaml"
    module("elsewhere", "")
    sys.path.append(str(tmp_path))
    assert RunSpec(load(path)).digest == RunSpec(result.config).digest
    module("mine", ABSOLUTE + "\n")
    with pytest.raises(
        ConfigError, match=r"learning\.compensation\.sha256: expected '\w{64}', got '\w{64}'"
    ):
        load(path)


def test_two_modules_of_one_name_are_refused(module, toy, tmp_path):
    module("mine", ABSOLUTE)
    module("other/mine", ABSOLUTE)
    (tmp_path / "other" / "toy.yaml").write_text(toy().read_text())
    own = "learning.compensation='mine:Absolute'"
    load(toy(), own)
    with pytest.raises(ConfigError, match="rename one of them"):
        load(tmp_path / "other" / "toy.yaml", own)


MODULES = """
import math
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes, hidden=4, act: str = "tanh"):
        super().__init__()
        inner = nn.Linear(math.prod(shape), hidden)
        self.net = nn.Sequential(nn.Flatten(), inner, nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.net(x)

class Fixed(nn.Sequential):
    def __init__(self, outputs: int = 4):
        super().__init__(nn.Linear(20, outputs))

class Untyped(nn.Module):
    def __init__(self, hidden):
        super().__init__()

class Frozen(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(20, 4))
        self[0].bias.requires_grad_(False)

class Bare(nn.Module):
    def forward(self, x):
        return x[:, :4]

class Table(nn.Module):
    # a tensor that is neither a parameter nor a buffer
    def __init__(self):
        super().__init__()
        self.full, self.order = nn.Linear(20, 4), torch.arange(20)

    def forward(self, x):
        return self.full(x[:, self.order])
"""
ON_BLOBS = "dataset: {name: synthetic, samples: 40}, batch: 4"


def test_torch_module_is_a_network(module, toy, tmp_path):
    module("nets", MODULES)
    path = toy()
    table = run(load(path, f"task={{model: mlp, hidden: [6], {ON_BLOBS}}}"), tmp_path / "out")
    mine = run(load(path, f"task={{model: 'nets:Net', hidden: 6, {ON_BLOBS}}}"), tmp_path / "out")
    torch.testing.assert_close(table.weights, mine.weights, rtol=0, atol=1e-5)
    assert load_result(mine.path).config.as_dict() == mine.config.as_dict()
    run(load(path, f"task={{model: 'nets:Fixed', {ON_BLOBS}}}"), tmp_path / "out")
    run(load(path, f"task={{model: 'nets:Table', {ON_BLOBS}}}"), tmp_path / "out")


PAUSING = """
from dataclasses import dataclass
from laggard import AsyncPS

@dataclass(frozen=True)
class Pausing(AsyncPS):
    '''Asynchronous SGD with pauses.

    Attributes:
        pause: the pause before each mini-batch (s).
    '''

    pause: float = 0.0
"""

FAULTS = """
from dataclasses import dataclass
from laggard import AsyncPS

@dataclass(frozen=True)
class Raising(AsyncPS):
    def worker(self, node):
        yield node.work(1 / 0)

@dataclass(frozen=True)
class Leaving(AsyncPS):
    def worker(self, node):
        yield node.work(exit(0))

@dataclass(frozen=True)
class Narrow(AsyncPS):
    def server(self, node):
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                node.apply(node.weights[:, :2], [gradient])
            node.send(worker, node.weights)

@dataclass(frozen=True)
class Yielding(AsyncPS):
    def worker(self, node):
        yield 5

@dataclass(frozen=True)
class Plain(AsyncPS):
    def worker(self, node):
        return None

@dataclass(frozen=True)
class Forgetting(AsyncPS):
    def server(self, node):
        yield node.work(0.5)
        worker, gradient = node.receive()
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "Raising",
            "ZeroDivisionError: division by zero (*faulty.py, line 8; worker of node 0 at 0 s)",
        ),
        ("Leaving", "SystemExit: 0 (*faulty.py, line 13)"),
        ("Narrow", "TypeError: * (*faulty.py, line 21; server of node -1 at 0.* s)"),
        ("Yielding", "algorithm.worker: expected *, got 5"),
        ("Plain", "algorithm.role: expected a generator, *, got None"),
        (
            "Forgetting",
            "TypeError: expected `yield` before a node's verb, *; server of node -1 at 0.5 s)",
        ),
    ],
)
def test_failing_method_ends_its_run_in_one_line(name, line, module, toy, tmp_path, capsys):
    from fnmatch import fnmatchcase

    module("faulty", FAULTS)
    path = toy()
    out = str(tmp_path / "out")
    assert main(["run", str(path), f"algorithm=faulty:{name}", "--out", out]) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert fnmatchcase(error, f"{path}: {line}\n"), error


def test_failing_method_leaves_other_runs_of_a_sweep(module, toy, tmp_path, capsys):
    module("faulty", FAULTS)
    methods = "[async_ps, 'faulty:Raising', 'faulty:Leaving']"
    sweep = f"sweep.algorithm.name={methods}"
    out = str(tmp_path / "out")
    assert main(["sweep", str(toy()), sweep, "--jobs", "1", "--out", out]) == 1
    printed = "".join(capsys.readouterr())
    for failure in ("ZeroDivisionError: division by zero (", "SystemExit: 0 ("):
        assert failure in printed
    assert len(list((tmp_path / "out").glob("*/*/manifest.json"))) == 1


ONCE = """
from dataclasses import dataclass
from laggard import Algorithm, Rule

@dataclass(frozen=True)
class Once(Algorithm):
    '''Each worker takes one step and returns.'''

    rule: Rule

    def worker(self, node):
        gradient = yield node.compute(node.weights)
        weights, _ = self.rule.update(node.weights, [gradient], self.rule.init(node.weights))
        node.apply(weights, [gradient])
"""


def test_method_that_returns_early_is_noted(
    module,
    toy,
    tmp_path,
    monkeypatch,
    capsys,
):
    module("brief", ONCE)
    path = toy()
    monkeypatch.setattr("laggard.experiments.figures.comparison", lambda *_, **__: None)
    line = "the method ended before any stop criterion was reached: run "
    for method, returned in (("brief:Once", True), ("async_ps", False)):
        words = f"run {path} algorithm={method} --out {tmp_path}/out --quiet"
        assert main(words.split()) == 0
        assert (line in capsys.readouterr().err) == returned


NOTING = """
from dataclasses import dataclass
from laggard import AsyncPS

@dataclass(frozen=True)
class Noting(AsyncPS):
    '''Worker 0 notes the norm of the weights that it reads first.'''

    def worker(self, node):
        worker = super().worker(node)
        if node.rank == 0:
            node.note("norm", node.weights.norm(dim=1))
        yield from worker
"""


def test_notes_of_a_method_are_a_table(module, toy, tmp_path):
    module("noted", NOTING)
    path = toy("sweep: {algorithm.name: [async_ps, 'noted:Noting'], learning.seed: [0, 1]}")
    results = sweep(load(path), tmp_path / "out")
    silent = results.where(**{"algorithm.name": "async_ps"})[0]
    assert list(silent.notes) == ["time", "updates", "node", "name", "member", "value"]
    assert silent.notes.empty
    rows = results.notes
    assert rows["member"].tolist() == rows["learning.seed"].tolist() == [0, 1]
    assert set(rows["name"]) == {"norm"}
    assert rows["value"].nunique() == 2
    one = results.where(**{"algorithm.name": "noted:Noting", "learning.seed": 1})[0]
    assert one.notes["member"].tolist() == [1]
