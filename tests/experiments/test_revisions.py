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


SIGNS = "compress: {name: sign}"
SLOW, LATE = "cluster.network={bandwidth: 1e6}", "cluster.network={latency: 0.01}"
GAMMA = "cluster.compute={law: gamma, mean: 0.1, cv: 0.5}"
RETURN = "cluster.slowdowns=[{worker: 0, at: 0.85, back: 0.9}]"
CHURN = "cluster.members={uptime: {law: exponential, mean: 9}, downtime: 1}"
SHRINKS = "algorithm={name: dpsgd, on_crash: shrink}"
WARMUP = "learning.schedule={name: warmup, length: 1}"
RANDOM = "compress: {name: random_k, keep: 0.5, feedback: none}"
QSGD = "compress: {name: qsgd, levels: 4, feedback: none}"
TOUCHED = [
    # decimal moments
    ["stop.time=0.9"],
    ["evaluate.every_seconds=0.3"],
    ["cluster.slowdowns=[{worker: 0, at: 0.8}]"],
    ["cluster.server_crashes=[{at: 0.8}]"],
    # dropped signs
    [f"algorithm={{name: k_sync, wait_for: 1, {SIGNS}}}"],
    [f"algorithm={{name: local_sgd, wait_for: 1, average: updates, {SIGNS}}}"],
    # collectives over a latency
    ["cluster.workers=4", "algorithm=all_reduce", LATE],
    ["cluster.workers=4", "algorithm=priority_all_reduce", LATE],
    ["cluster.workers=4", "algorithm={name: gpipe, replicas: 2}", LATE],
    ["algorithm=all_reduce", "cluster.network={latency: {law: exponential, mean: 0.01}}"],
    ["algorithm=all_reduce", "cluster.network.links=[{sender: 0, receiver: 1, latency: 0.01}]"],
    ["cluster.workers=4", "algorithm=all_reduce", "cluster.network.hosts={size: 2, latency: 0.01}"],
    [
        "cluster.workers=4",
        "algorithm=all_reduce",
        "cluster.network.groups={count: 2, trunks: [{switches: [0], to: 1, latency: 0.03}]}",
    ],
    # one answer to a worker that is back
    ["algorithm=sync_ps", RETURN, GAMMA],
    ["algorithm=k_sync", RETURN, GAMMA],
    ["algorithm=sync_ps", CHURN],
    ["algorithm={name: async_diloco, grace: 0.5}", CHURN],
    # schedules of the nodes that are up
    [SHRINKS, CHURN, WARMUP],
    # pipelines that begin again
    ["cluster.workers=4", "algorithm={name: async_pipelines, replicas: 2}", RETURN, GAMMA],
    # draws of fragments
    [f"algorithm={{name: streaming_diloco, collective: mesh, {RANDOM}}}"],
    [f"algorithm={{name: decoupled_diloco, {QSGD}}}"],
    # sends over a slow card that nobody answers
    ["algorithm=k_batch_sync", SLOW],
    ["algorithm={name: downpour, n_fetch: 3}", SLOW],
    ["algorithm={name: k_sync, cancel: true}", SLOW],
    ["algorithm={name: ringmaster, cancel: true}", SLOW],
    ["algorithm=k_batch_sync", "cluster.network={server_bandwidth: 1e6}"],
    ["algorithm=k_batch_sync", "cluster.network.cards=[{worker: 0, bandwidth: 1e6}]"],
    ["algorithm=k_batch_sync", "cluster.network.links=[{sender: 0, receiver: -1, bandwidth: 1e6}]"],
    ["algorithm=k_batch_sync", "cluster.network={colocated: true, bandwidth: 1e6}"],
]
UNTOUCHED = [
    [],
    ["cluster.slowdowns=[{worker: 0, factor: 2}]"],
    ["stop.time=0.9", "cluster.compute={law: gamma, mean: 0.1, cv: 0.5}"],
    [f"algorithm={{name: k_sync, {SIGNS}}}"],
    ["algorithm={name: k_sync, wait_for: 1, compress: {name: top_k, keep: 0.1}}"],
    ["algorithm={name: k_sync, wait_for: 1, compress: {name: sign, feedback: ef21}}"],
    [f"algorithm={{name: k_async, wait_for: 1, {SIGNS}}}"],
    ["algorithm=async_ps", CHURN],
    [SHRINKS, CHURN],
    [SHRINKS, WARMUP],
    ["algorithm={name: all_reduce, on_crash: shrink}", CHURN, WARMUP],
    ["algorithm=async_diloco", CHURN],
    ["algorithm={name: k_sync, cancel: true}", CHURN],
    ["algorithm=sync_ps", "cluster.members={uptime: {law: exponential, mean: 9}}"],
    ["algorithm={name: async_pipelines, replicas: 2}", GAMMA],
    ["algorithm={name: gpipe, replicas: 2}", RETURN, GAMMA],
    [f"algorithm={{name: decoupled_diloco, fragments: 1, {QSGD}}}"],
    ["algorithm={name: decoupled_diloco, compress: {name: top_k, keep: 0.5, feedback: none}}"],
    [f"algorithm={{name: diloco, average: updates, {RANDOM}}}"],
    ["algorithm=all_reduce", SLOW],
    ["algorithm=all_reduce", "cluster.network={latency: 0.01, rendezvous: true}"],
    ["algorithm=sgp", LATE],
    ["algorithm=async_ps", LATE],
    ["algorithm=gpipe", LATE],
    ["algorithm=sync_ps", LATE],
    ["algorithm={name: downpour, n_push: 3}", SLOW],
    ["algorithm=downpour", SLOW],
    ["algorithm=k_sync", SLOW],
    ["algorithm=async_ps", SLOW],
    ["algorithm=k_batch_sync", LATE],
    ["algorithm={name: downpour, n_fetch: 3}", LATE],
    ["algorithm={name: k_sync, cancel: true}", LATE],
    ["algorithm={name: ringmaster, cancel: true}", LATE],
]


@pytest.mark.parametrize("overrides", TOUCHED, ids=" ".join)
def test_run_that_a_rule_touches_has_new_id(tmp_path, monkeypatch, overrides):
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert before != now


@pytest.mark.parametrize("overrides", UNTOUCHED, ids=" ".join)
def test_other_run_keeps_its_id(tmp_path, monkeypatch, overrides):
    before, now = digests(tmp_path, monkeypatch, *overrides)
    assert before == now


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
