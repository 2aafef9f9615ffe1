"""Plugins that are defined in `__main__`: other processes get them by value."""

import os
import re
import subprocess
import sys

import pytest

from laggard import ConfigError, load, run
from laggard.experiments.config.by_value import pack_plugins
from tests.cases import ROOT
from tests.experiments.test_plugins import ABSOLUTE, PIECES
from tests.experiments.test_sweeping import contents

BLOBS = "dataset: {name: synthetic, samples: 40}, batch: 4"
ENTRIES = f"""
sweep:
  entry:
    algorithm: {{algorithm: '__main__:Server'}}
    law: {{cluster.compute: {{law: '__main__:Law', mean: 0.01}}}}
    slowdown: {{cluster.slowdowns: [{{kind: '__main__:Slow', worker: 0, factor: 3}}]}}
    topology: {{cluster.network: {{topology: '__main__:Star', latency: 0.1}}}}
    optimizer: {{learning: {{optimizer: '__main__:Plain', momentum: 0.5, lr: 0.1}}}}
    schedule: {{learning.schedule: '__main__:Steady'}}
    compensation: {{learning.compensation: '__main__:Absolute'}}
    task: {{task: {{model: '__main__:Bowl', noise: 0.1}}}}
    network: {{task: {{model: '__main__:Net', {BLOBS}, partition: '__main__:Dealt'}}}}
    data: {{task: {{model: mlp, hidden: [4], dataset: '__main__:blobs', batch: 4}}}}
"""
SCRIPT = f"""
from __future__ import annotations
{PIECES}
{ABSOLUTE}
from functools import partial
from laggard import load, sweep
from laggard.experiments.running.halving import halve

if __name__ == "__main__":
    for jobs in (1, 2):
        sweep(load("toy.yaml"), f"{{jobs}}", jobs=jobs)
"""


def python(*words, folder, stdin=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )


SULKY = '''
from dataclasses import dataclass
from laggard.simulator import Algorithm

@dataclass(frozen=True)
class Sulky(Algorithm):
    """Fails at its first step."""

    def worker(self, node):
        raise RuntimeError("I will not,\\nand that is that")
        yield
'''


def test_script_sweeps_its_entry_in_processes(toy, tmp_path):
    """Its method derives from `async_ps`, whose run in this process has the same bytes.

    A third run fails: its worker process imports the method from the config's folder, the error is
    reported in one line, and the other runs finish. It is the same test since worker processes take
    seconds to start.
    """
    (alone,) = contents_by_run(run(load(toy()), tmp_path / "alone").path.parent)
    toy("sweep: {algorithm: ['__main__:Server', async_ps, 'sulky:Sulky']}")
    (tmp_path / "sulky.py").write_text(SULKY)
    (tmp_path / "script.py").write_text(SCRIPT.replace("(1, 2)", "(2,)"))
    done = python("script.py", folder=tmp_path)
    assert done.returncode == 1
    place = r"\(.*sulky\.py, line \d+; worker of node 0 at 0 s\)"
    error = rf"RuntimeError: I will not, and that is that {place}"
    failure = rf"run \w{{12}} \(algorithm = sulky:Sulky\): {error}"
    assert re.search(rf"^.*SweepError: .*{failure}$", done.stderr, flags=re.MULTILINE)
    assert contents_by_run(tmp_path / "2/toy") == [alone, alone]


def contents_by_run(results):
    """The bytes of each run's files, by name."""
    files = contents(results)
    folders = {name.partition("/")[0] for name in files}
    return [
        {name.partition("/")[2]: file for name, file in files.items() if name.startswith(folder)}
        for folder in folders
    ]


@pytest.mark.slow
def test_script_sweeps_all_its_entries_in_processes(toy, tmp_path):
    toy(ENTRIES)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = python("script.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(contents_by_run(tmp_path / "1/toy")) == 10
    assert contents(tmp_path / "2/toy") == contents(tmp_path / "1/toy")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["-m", "-c", "standard input", "halving"])
def test_every_kind_of_main_module_sweeps_in_processes(how, toy, tmp_path):
    toy("sweep: {algorithm: ['__main__:Server', async_ps], seed: [0, 1]}")
    (tmp_path / "package").mkdir()
    source = SCRIPT
    if how == "halving":
        rungs = "{key: stop.updates, from: 10, to: 40, factor: 2, by: train_loss}"
        search = f"{{learning.lr: {{log_uniform: [0.01, 0.1]}}, runs: 4, halving: {rungs}}}"
        toy(
            f"sweep: {{search: {search}}}",
            toy().read_text().replace("async_ps", "'__main__:Server'"),
        )
        source = SCRIPT.replace("sweep(load", "list(halve(load").replace(
            ', f"{jobs}", jobs=jobs)', ", partial(sweep, out=str(jobs), jobs=jobs)))"
        )
    (tmp_path / "package/main.py").write_text(source)
    words = {"-m": ["-m", "package.main"], "-c": ["-c", source], "standard input": ["-"]}
    done = python(*words.get(how, ["package/main.py"]), folder=tmp_path, stdin=source)
    assert done.returncode == 0, done.stderr
    alone = {}
    for folder in sorted((tmp_path / "1").iterdir()):
        alone[folder.name] = contents(folder)
    assert all(alone.values())
    assert {folder: contents(tmp_path / "2" / folder) for folder in alone} == alone


def test_unpicklable_entry_gives_one_line_error(toy, monkeypatch):
    main = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(
        "numbers = (1.0 for _ in range(9))\n" + ABSOLUTE.replace("value.abs()", "next(numbers)"),
        vars(main),
    )
    config = load(toy(), "learning.compensation='__main__:Absolute'")
    with pytest.raises(ConfigError, match=r"^learning\.compensation\.name: .* put it in a module"):
        pack_plugins([config])


CHANGES = {
    "a function": ("return 1.0", "return 2.0"),
    "a helper": ("return 3.0", "return 4.0"),
    "a constant": ("FACTOR = 5.0", "FACTOR = 6.0"),
    "a base": ("return 7.0", "return 8.0"),
    "a property": ("return 9.0", "return 10.0"),
}
DEFINITION = """
from laggard.simulator.learning.rules import DCASGDc
from dataclasses import dataclass
FACTOR = 5.0
def helper():
    return 3.0
class Base:
    def base(self):
        return 7.0
@dataclass(frozen=True)
class Absolute(Base, DCASGDc):
    @property
    def other(self):
        return 9.0
    def scale(self, gradient, lr):
        [helper() for _ in range(2)]
        FACTOR
        return 1.0
"""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("has_source", [True, False])
def test_names_used_by_class_are_hashed(change, has_source, toy, monkeypatch):
    import linecache

    hashes = []
    for number, source in enumerate([DEFINITION, DEFINITION, DEFINITION.replace(*CHANGES[change])]):
        main = type(sys)("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        name = f"<cell {change} {number}>" if has_source else "<string>"
        if has_source:
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), vars(main))
        part = load(toy(), "learning.compensation='__main__:Absolute'").learning.compensation
        hashes.append(part.sha256)
    first, same, other = hashes
    assert first == same != other
