"""A rule that changed gives a new id to the runs that it can touch, and to no other."""

import pytest

from laggard import load, sweep
from laggard.experiments.config import config as config_module
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.revisions import revisions_of
from tests.cases import yaml_table

TOY = """
cluster: {workers: 2, compute: {law: constant, mean: 0.1}}
algorithm: async_ps
task: {model: timing}
stop: {updates: 9}
"""


def digests(tmp_path, monkeypatch, *overrides):
    """The digest with and without the revisions of rules."""
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    spec = RunSpec(load(path, *overrides))
    now = spec.digest
    monkeypatch.setattr(config_module, "revisions_of", lambda config: {})
    before = RunSpec(load(path, *overrides)).digest
    monkeypatch.undo()
    return before, now


TABLE = yaml_table(__file__, "revisions.yaml")


@pytest.mark.parametrize(
    ("touched", "overrides"),
    [(part == "touched", row) for part, rows in TABLE.items() for row in rows],
)
def test_runs_that_changed_rule_affects_have_new_ids(tmp_path, monkeypatch, touched, overrides):
    words = [word for word in overrides.split("; ") if word]
    before, now = digests(tmp_path, monkeypatch, *words)
    assert (before != now) == touched


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("seconds\n0.5\n", "cluster.compute={law: trace, file: FILE}"),
        ("worker,from,to,factor\n0,1,2,3\n", "cluster.slowdowns=[{file: FILE}]"),
        ("source,target\n0,1\n", "cluster.network={topology: graph, file: FILE}"),
        (
            "sender,receiver,from,to,bandwidth,latency\n0,-1,1,2,,1\n",
            "cluster.network={changes: {file: FILE}}",
        ),
    ],
)
def test_run_that_reads_file_has_new_id(tmp_path, monkeypatch, text, key):
    (tmp_path / "file.csv").write_text(text)
    overrides = [key.replace("FILE", str(tmp_path / "file.csv"))]
    if "graph" in key:
        overrides.append("algorithm=dpsgd")
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert before != now


DIVIDED = "task={{model: logistic, dataset: {{name: synthetic, samples: 90}}, partition: {}}}"


@pytest.mark.parametrize(
    ("partition", "workers", "changed"),
    [
        ("iid", 4, False),
        ("disjoint", 9, False),
        ("disjoint", 4, True),
        ("{name: by_label, pieces: 5}", 9, False),
        ("{name: by_label, pieces: 5}", 8, True),
        ("{file: even.csv}", 2, False),
        ("{file: uneven.csv}", 2, True),
    ],
)
def test_average_of_uneven_shards_has_new_id(tmp_path, monkeypatch, partition, workers, changed):
    (tmp_path / "even.csv").write_text("worker,sample\n0,1\n1,0\n")
    (tmp_path / "uneven.csv").write_text("worker,sample\n0,1\n1,0\n1,2\n")
    task = DIVIDED.format(partition.replace("file: ", f"file: {tmp_path}/"))
    size = f"cluster.workers={workers}"
    for method in ("local_sgd", "diloco"):
        before, now = digests(tmp_path, monkeypatch, f"algorithm={method}", size, task)
        assert (before != now) == changed
    equal = "algorithm={name: local_sgd, weighting: equal}"
    for unchanged in ("algorithm=async_ps", equal):
        before, now = digests(tmp_path, monkeypatch, unchanged, size, task)
        assert before == now


def test_old_results_are_used_except_for_affected_runs(tmp_path, monkeypatch):
    """Runs of the version before: those that a rule can touch are simulated again, no other."""
    path = tmp_path / "toy.yaml"
    limits = "{updates: 3}, {updates: 5}, {time: 0.3}, {time: 0.4}"
    path.write_text(f"{TOY}sweep:\n  stop: [{limits}]\n")
    out = tmp_path / "results"
    with monkeypatch.context() as old:
        old.setattr(config_module, "revisions_of", lambda config: {})
        before = sweep(load(path), out, jobs=1)
    after = sweep(load(path), out, jobs=1)
    ids = [[result.path.name for result in results] for results in (before, after)]
    kept = [old_id == new_id for old_id, new_id in zip(*ids, strict=True)]
    assert kept == [True, True, False, False]
    assert len(list((out / "toy").glob("*/manifest.json"))) == 6


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("{name: k_batch_sync, compress_down: {name: top_k, keep: 0.1}}", True),
        ("{name: sync_ps, compress_down: {name: top_k, keep: 0.1}}", False),
        ("{name: k_batch_sync, compress: {name: top_k, keep: 0.1}}", False),
    ],
)
def test_changes_that_may_wait_have_a_revision(tmp_path, method, changed):
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    config = load(path, f"algorithm={method}", "cluster.network={bandwidth: 1e6}")
    assert ("order of changes" in revisions_of(config)) == changed
