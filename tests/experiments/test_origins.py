"""What a result depends on beside its config is in its manifest, and told where results differ."""

import json
import re
from types import SimpleNamespace

import pytest

from laggard import compiled_cache, load, run, sweep
from laggard.experiments.cli import main
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results import origins
from laggard.experiments.results.origins import describe_origins
from laggard.experiments.results.result import find_run, open_run
from laggard.models import cifar, published
from laggard.models.backends import UNCOMPILED
from laggard.models.backends.compiled import compiler
from tests.experiments.conftest import write_manifest

NETWORK = ["task={model: logistic, dataset: digits, batch: 8}", "stop={updates: 30}"]


@pytest.fixture
def without_numba(monkeypatch):
    """Compiling fails from now on, with its one warning."""

    def fail(text):
        raise ImportError("no numba")

    def switch():
        monkeypatch.setattr(compiled_cache, "source_path", fail)
        compiler.compile_passes.cache_clear()

    yield switch
    compiler.compile_passes.cache_clear()


def rewrite(result, **entries):
    manifest = json.loads((result.path / "manifest.json").read_text())
    write_manifest(result.path, {**manifest, **entries})


@pytest.mark.filterwarnings("ignore:gradients are not compiled")
def test_manifest_tells_compiled_gradients_from_autograd(toy, tmp_path, without_numba, capsys):
    compiled = run(load(toy(), *NETWORK), tmp_path / "compiled")
    assert compiled.manifest["arithmetic"].startswith("compiled: numba ")
    assert describe_origins([compiled]) == ""
    without_numba()
    other = run(load(toy(), *NETWORK), tmp_path / "other")
    assert other.manifest["arithmetic"] == UNCOMPILED
    assert other.weights.tolist() != compiled.weights.tolist()
    assert "of 2 runs 1 by autograd" in describe_origins([compiled, other])
    assert main(["table", str(other.path)]) == 0
    assert "1 by autograd" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:gradients are not compiled")
def test_snapshot_of_other_arithmetic_is_refused(toy, tmp_path, without_numba):
    short, long = (load(toy(), *NETWORK, f"stop.updates={limit}") for limit in (30, 60))
    run(short, tmp_path, snapshots=0.0, keep_snapshot=True)
    without_numba()
    with pytest.warns(UserWarning, match="taken under .*compiled.* and this is .*autograd"):
        result = run(long, tmp_path, continues=True)
    assert "resumed" not in result.manifest
    assert result.weights.tolist() == run(long, tmp_path / "whole").weights.tolist()


@pytest.mark.parametrize(("entries", "text"), [
    ({"commit": "0123456789ab"}, "1 by laggard .* at 0123456789ab; this is laggard"),
    ({"arithmetic": "compiled: numba 0.1"}, "1 compiled: numba 0.1, 1 compiled: numba 0.2"),
    ({"cpu_capability": "AVX"}, "1 on AVX, 1 on "),
    ({"backend": "vmap"}, "1 by the backend vmap, not threads"),
])  # fmt: skip
def test_runs_of_different_origins_are_reported(entries, text, toy, tmp_path):
    config = load(toy(), *NETWORK, "backend=threads", "sweep={cluster.seed: [0, 1]}")
    first, second = sweep(config, tmp_path)
    rewrite(second, arithmetic="compiled: numba 0.2")
    rewrite(first, arithmetic="compiled: numba 0.2")
    stored = [open_run(result.path) for result in (first, second)]
    assert describe_origins(stored) == ""
    rewrite(first, **{"arithmetic": "compiled: numba 0.2", **entries})
    stored = [open_run(result.path) for result in (first, second)]
    assert re.search(text, describe_origins(stored))


def test_changed_sources_change_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(origins, "laggard", SimpleNamespace(__file__=str(tmp_path / "a" / "b.py")))
    assert origins.commit.__wrapped__() == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "rule.py").write_text("lr = 1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        origins.run([*git, *words], check=True)
    first = origins.commit.__wrapped__()
    assert len(first) == 12
    seen = {first}
    for rate in (2, 3):
        (tmp_path / "rule.py").write_text(f"lr = {rate}\n")
        changed = origins.commit.__wrapped__()
        assert changed.startswith(f"{first}+")
        seen.add(changed)
    assert len(seen) == 3


def test_edited_data_set_is_another_run(toy, tmp_path, monkeypatch):
    """The files of a named data set are no part of the run id, so the manifest has their hash."""
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path / "data"))
    files = {"batch_1.bin": 2, "test.bin": 1}
    release = cifar.CIFAR10._replace(
        folder="small", train=("batch_1.bin",), records=2, test="test.bin", tests=1
    )
    (tmp_path / "data" / "small").mkdir(parents=True)
    paths = [tmp_path / "data" / "small" / name for name in files]
    for path, records in zip(paths, files.values(), strict=True):
        path.write_bytes(bytes(records * release.record))
    monkeypatch.setattr(cifar, "CIFAR10", release)
    monkeypatch.setitem(published.PUBLISHED, "cifar10", ("small", tuple(files)))
    task = "task={model: logistic, dataset: cifar10, batch: 1}"
    config = load(toy(), task, "stop={updates: 3}")
    first = run(config, tmp_path / "out")
    first_weights = first.weights.tolist()
    spec = RunSpec(config)
    assert find_run(spec, tmp_path / "out") is not None
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[:-1] + b"\xff")
    assert find_run(spec, tmp_path / "out") is None
    second = run(config, tmp_path / "out")
    assert second.manifest["data"] != first.manifest["data"]
    assert second.weights.tolist() != first_weights
    paths[0].unlink()  # an archive of results needs no data set
    assert find_run(spec, tmp_path / "out") is not None
