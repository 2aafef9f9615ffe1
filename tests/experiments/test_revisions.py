"""A rule that changed gives a new id to the runs that it can touch, and to no other."""

import pytest

from laggard import load, sweep
from laggard.experiments.config import config as config_module
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.revisions import revisions_of

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


@pytest.mark.parametrize(
    "override",
    [
        "stop.time=0.9",
        "evaluate.every_seconds=0.3",
        "cluster.slowdowns=[{worker: 0, at: 0.8}]",
        "cluster.server_crashes=[{at: 0.8}]",
    ],
)
def test_run_with_decimal_moment_has_new_id(tmp_path, monkeypatch, override):
    before, now = digests(tmp_path, monkeypatch, override)
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


@pytest.mark.parametrize(
    ("method", "compress", "changed"),
    [
        ("name: k_sync, wait_for: 1", "name: sign", True),
        ("name: local_sgd, wait_for: 1, average: updates", "name: sign", True),
        ("name: k_sync", "name: sign", False),
        ("name: k_sync, wait_for: 1", "name: top_k, keep: 0.1", False),
        ("name: k_sync, wait_for: 1", "name: sign, feedback: ef21", False),
        ("name: k_async, wait_for: 1", "name: sign", False),
    ],
)
def test_run_that_drops_signs_has_new_id(tmp_path, monkeypatch, method, compress, changed):
    override = f"algorithm={{{method}, compress: {{{compress}}}}}"
    before, now = digests(tmp_path, monkeypatch, override)
    assert (before != now) == changed


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["cluster.slowdowns=[{worker: 0, factor: 2}]"],
        ["stop.time=0.9", "cluster.compute={law: gamma, mean: 0.1, cv: 0.5}"],
    ],
)
def test_other_runs_keep_their_ids(tmp_path, monkeypatch, overrides):
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert before == now


def test_old_folder_is_used_but_for_touched_runs(tmp_path, monkeypatch):
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
    "method", ["all_reduce", "priority_all_reduce", "{name: gpipe, replicas: 2}"]
)
@pytest.mark.parametrize(
    ("network", "changed"),
    [
        ("{bandwidth: 1e6}", False),
        ("{latency: 0.01}", True),
        ("{latency: 0.01, rendezvous: true}", False),
        ("{latency: {law: exponential, mean: 0.01}}", True),
        ("{links: [{sender: 0, receiver: 1, latency: 0.01}]}", True),
        ("{hosts: {size: 2, latency: 0.01}}", True),
        ("{groups: {count: 2, trunks: [{switches: [0], to: 1, latency: 0.03}]}}", True),
    ],
)
def test_collective_with_latency_has_new_id(tmp_path, monkeypatch, method, network, changed):
    overrides = "cluster.workers=4", f"algorithm={method}", f"cluster.network={network}"
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert (before != now) == changed


@pytest.mark.parametrize("method", ["sgp", "async_ps", "{name: gpipe}", "sync_ps"])
def test_latency_without_collective_keeps_id(tmp_path, monkeypatch, method):
    before, now = digests(
        tmp_path, monkeypatch, f"algorithm={method}", "cluster.network.latency=0.01"
    )
    assert before == now


SLOW, FREE = "cluster.network={bandwidth: 1e6}", "cluster.network={latency: 0.01}"


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("k_batch_sync", True),
        ("{name: downpour, n_fetch: 3}", True),
        ("{name: downpour, n_push: 3}", False),
        ("downpour", False),
        ("{name: k_sync, cancel: true}", True),
        ("{name: ringmaster, cancel: true}", True),
        ("k_sync", False),
        ("async_ps", False),
    ],
)
def test_unanswered_sends_over_slow_card_have_new_id(tmp_path, monkeypatch, method, changed):
    before, now = digests(tmp_path, monkeypatch, f"algorithm={method}", SLOW)
    assert (before != now) == changed
    before, now = digests(tmp_path, monkeypatch, f"algorithm={method}", FREE)
    assert before == now


@pytest.mark.parametrize(
    "network",
    [
        "{server_bandwidth: 1e6}",
        "{cards: [{worker: 0, bandwidth: 1e6}]}",
        "{links: [{sender: 0, receiver: -1, bandwidth: 1e6}]}",
        "{colocated: true, bandwidth: 1e6}",
    ],
)
def test_any_slow_card_gives_sends_new_id(tmp_path, monkeypatch, network):
    overrides = "algorithm=k_batch_sync", f"cluster.network={network}"
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert before != now


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
    config = load(path, f"algorithm={method}", SLOW)
    assert ("order of changes" in revisions_of(config)) == changed
