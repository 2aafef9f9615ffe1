"""Toy experiments."""

import json
import signal
import sys
from functools import wraps
from types import SimpleNamespace

import pandas as pd
import pytest
from ruamel.yaml import YAML

from laggard import load, load_results, run, sweep
from laggard.experiments import figures
from laggard.experiments.cli import main
from laggard.experiments.config import plugins
from laggard.experiments.config.config import parse
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.files import seal
from laggard.simulator import simulate
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from tests.models.releases import write_leaf

TOY = """\
# A noisy quadratic on three uneven workers.
cluster: {workers: 3, compute: {law: gamma, mean: 0.01, cv: 0.3}, seed: 5}
algorithm: async_ps
task: {model: quadratic, dim: 3, condition: 10, noise: 0.2, jitter: 0.5, epoch: 20}
learning: {lr: 0.1}
stop: {updates: 40}
"""


@pytest.fixture
def ctrl_c():
    """What the test starts hears Ctrl-C, even where a shell has shut that off, as it does in the
    background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def toy(tmp_path):
    """Writes the toy config, with more YAML below it, to a file."""

    def write(more="", text=TOY):
        path = tmp_path / "toy.yaml"
        path.write_text(text + more, encoding="utf-8")
        return path

    return write


@pytest.fixture
def ran(toy, tmp_path):
    """Runs the toy config with overrides, and stores the result in the test's folder."""
    return lambda *overrides, **options: run(load(toy(), *overrides), tmp_path, **options)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that `run` and `sweep` would have drawn: what `comparison` was given.

    Drawing takes longer than a short sweep.
    """
    calls = []

    @wraps(figures.comparison)
    def comparison(results, path, **given):
        calls.append((results, path, given))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"figure {len(calls)}")

    monkeypatch.setattr("laggard.experiments.figures.comparison", comparison)
    return calls


@pytest.fixture
def mistake(capsys):
    """Calls a command that refuses; returns its error, which is one line, and all it prints."""

    def call(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as leaving:  # of the parser
            code = leaving.code
        assert code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return call


STRAGGLERS = """\
cluster:
  workers: 16
  compute: {law: gamma, mean: 0.010, cv: 0.1}
  slowdowns: [{worker: 0, factor: 5}]
  network: {topology: star, bandwidth: 1.25e8, latency: 1e-4, sharing: fair}
algorithm: {name: async_ps}
task: {model: lenet5, dataset: mnist, batch: 32, partition: iid}
learning: {optimizer: sgd, momentum: 0.0, lr: 0.05, compensation: {name: dc_asgd_a, strength: 2.0, decay: 0.95}}
stop: {epochs: 5}
evaluate: {every_epochs: 1}
"""


@pytest.fixture
def stragglers(toy):
    """Writes a config with a network, a data set and a compensation to a file."""
    return lambda: toy(text=STRAGGLERS)


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """The results of the grid whose config is the module's `SWEEP`."""
    out = tmp_path_factory.mktemp("swept")
    (out / "grid.yaml").write_text(request.module.SWEEP, encoding="utf-8")
    first, *_ = sweep(load(out / "grid.yaml"), out, jobs=1)
    return first.path.parent


@pytest.fixture(scope="module")
def results(folder):
    return load_results(folder)


ROWS = "".join(f"{row % 3} {row % 5 + 1}:{row}\n" for row in range(12))


@pytest.fixture
def data(tmp_path):
    """A folder with a file of every format, in which the configs of the tests lie."""
    (tmp_path / "rows.txt").write_text(ROWS)
    (tmp_path / "prose.txt").write_text("Which characters follow each other? " * 3)
    (tmp_path / "shards.csv").write_text("worker,sample\n1,3\n0,0\n0,9\n1,0\n")
    write_leaf(tmp_path)
    return tmp_path


@pytest.fixture
def module(tmp_path):
    """Writes a module beside the toy config; afterwards no module of the test is known any more."""
    path, folders, hashes = list(sys.path), dict(plugins.FOLDERS), dict(plugins._hashes)

    def write(name, source):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        return file

    yield write
    sys.path[:] = path
    for now, before in ((plugins.FOLDERS, folders), (plugins._hashes, hashes)):
        now.clear()
        now.update(before)
    for name, loaded in list(sys.modules.items()):
        if str(getattr(loaded, "__file__", None) or "").startswith(
            str(tmp_path)
        ) or name.startswith("package."):
            del sys.modules[name]


@pytest.fixture(scope="session")
def bench():
    """Simulates a config, without a folder: what figures read of a result; `labels` are columns of
    its metrics.
    """

    def simulated(text, **labels):
        config = parse(YAML(typ="safe").load(text))
        outcome = simulate(**RunSpec(config).arguments())
        swept = {key: [each[key] for each in RunSpec(config).members] for key in config.sweep}
        metrics = pd.DataFrame(outcome.metrics)
        for key, values in swept.items():
            metrics[key] = [values[member] for member in metrics["member"]]
        tables = {
            name: pd.DataFrame(getattr(outcome, name)) for name in ("updates", "workers", "nodes")
        }
        messages = pd.DataFrame(outcome.message_log, columns=list(MESSAGE_COLUMNS))
        return SimpleNamespace(
            metrics=metrics.assign(**labels), config=config, weights=outcome.weights, models=outcome.models,
            messages=messages, manifest={}, labels=labels, **tables,
        )  # fmt: skip

    return simulated


def stamps(folder, pattern="**/*"):
    """When each file was written, by its path in the folder."""
    files = folder.glob(pattern)
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in files}


def write_manifest(path, content):
    """Write a manifest of the current schema that vouches for itself."""
    rest = {key: value for key, value in content.items() if key not in ("schema", "self")}
    (path / "manifest.json").write_text(json.dumps(seal(rest)))
