"""Configs: what is refused, in which words; overrides; the way to YAML and back."""

import pytest

from laggard import ConfigError, load
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.document import examples, parse_yaml, question, text_of
from laggard.experiments.config.grid import runs
from laggard.simulator.timing.distributions import Gamma, Scaled

ODD = """\
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Odd:
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LayerNorm(784), nn.Linear(784, classes))
"""


def refusal(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        load(path, *overrides)
    return str(caught.value)


def test_unreadable_file_is_named(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert refusal(tmp_path / "binary.yaml").endswith("cannot be read: not text in UTF-8")


def test_override_in_a_list_is_named(toy):
    in_a_list = refusal(toy(), ["learning.lr=0.1"])
    assert in_a_list.startswith("['learning.lr=0.1']: expected each override as a string")


def test_missing_gpu_is_refused(stragglers, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = stragglers()
    assert refusal(path, "device=cuda").startswith(f"{path}: device: expected a GPU")


def test_unfold_takes_only_chains_of_layers(stragglers, module):
    module("house", ODD)
    path, unfold = stragglers(), ("device=cpu", "backend=unfold")
    message = refusal(path, *unfold, "task.model=house:Odd")
    assert message.startswith(f"{path}: backend: expected threads or vmap")
    load(path, *unfold, "task.model=lenet5")


@pytest.mark.parametrize(
    ("file", "name"), [("my run (2)", "my run -2-"), ("(a)", "a-"), ("((", "experiment")]
)
def test_run_gets_a_valid_name_from_its_file(toy, tmp_path, file, name):
    path = toy().rename(tmp_path / f"{file}.yaml")
    assert load(path).name == name


def test_overrides_change_what_the_file_says(stragglers):
    path = stragglers()
    config = load(
        path,
        "learning.lr=1e-3",
        "cluster.slowdowns.0.factor=2",
        "task.partition=disjoint",
        "stop={updates: 7}",
    )
    assert config.learning.lr == 1e-3
    assert config.cluster.slowdowns[0].factor == 2
    assert config.task.partition.name == "disjoint"
    assert (config.stop.updates, config.stop.epochs) == (7, None)
    assert config.learning.compensation == load(path).learning.compensation


def test_override_fixes_a_swept_key(toy):
    path = toy("sweep: {learning.lr: [0.1, 0.2], seed: [0, 1]}")
    assert load(path, "learning.lr=0.5").sweep == {"seed": [0, 1]}
    assert load(path, "sweep.learning.lr=[0.3]").sweep == {"learning.lr": [0.3], "seed": [0, 1]}
    assert load(path, "sweep={}").sweep == {}


def test_resolved_config_survives_yaml(toy):
    (run, *_) = runs(load(toy("sweep: {learning.lr: [0.1, 0.2], learning.seed: [3, 4]}")))
    document = run.config.as_dict()
    assert document["cluster"]["network"]["bandwidth"] == float("inf")
    assert document["learning"]["momentum"] == 0
    assert set(document) == set(Config.model_fields)
    again = parse(parse_yaml(text_of(document), "here"))
    assert again == run.config
    assert runs(again)[0].config == run.config


def test_name_stands_for_a_mapping(toy):
    short, long = toy(), "learning.compensation={name: staleness}"
    assert load(short, "learning.compensation=staleness") == load(short, long)


def test_one_over_n_counts_the_workers_by_default(
    toy,
):
    path = toy()
    config = load(path, "learning.compensation=one_over_n")
    assert config.learning.build(config.cluster.workers).compensation.workers == 3
    config = load(path, "learning.compensation={name: one_over_n, workers: 7}")
    assert config.learning.build(config.cluster.workers).compensation.workers == 7


def test_distribution_per_sample_is_scaled_by_batch(toy):
    config = load(toy(), "cluster.compute.per=sample")
    assert config.cluster.build_cluster(batch=32).compute == Scaled(Gamma(0.01, 0.3), 32)
    assert load(toy()).cluster.build_cluster(batch=32).compute == Gamma(0.01, 0.3)


def test_cost_of_messages_is_number_or_distribution(toy):
    law = "{law: gamma, mean: 0.005, cv: 0.5}"
    config = load(toy(), f"cluster.receive_seconds={law}", "cluster.reply_seconds=1")
    cluster = config.build_cluster()
    seconds = cluster.receive_seconds, cluster.reply_seconds, cluster.apply_seconds
    assert seconds == (Gamma(0.005, 0.5), 1.0, 0.0)
    again = parse(config.as_dict())
    assert again.build_cluster() == cluster
    swept = load(toy("sweep: {cluster.receive_seconds: [0, 0.1, {law: exponential, mean: 0.1}]}"))
    digests = {spec.digest for spec in runs(swept)}
    assert len(digests) == 3
    assert {spec.digest for spec in runs(load(toy()))} < digests


def test_latency_is_number_or_distribution(toy):
    latency = "{latency: {law: gamma, mean: 0.005, cv: 0.5}, server_latency: 1}"
    config = load(toy(), f"cluster.network={latency}")
    network = config.build_cluster().network
    assert (network.latency, network.server_latency) == (Gamma(0.005, 0.5), 1.0)
    assert parse(config.as_dict()).build_cluster().network == network
    assert load(toy()).build_cluster().network.server_latency is None


def test_trace_with_ranks_needs_every_worker(toy, tmp_path):
    (tmp_path / "ranked.csv").write_text("rank,seconds\n0,0.5\n1,0.25\n")
    law = (
        f"cluster.compute={{law: trace, file: {tmp_path}/ranked.csv, worker: rank, order: replay}}"
    )
    assert load(toy(), law, "cluster.workers=2").build_cluster().compute.mean == 0.375
    assert "cluster.compute.worker: expected " in refusal(toy(), law, "cluster.workers=3")


def test_examples_ask_questions():
    for name in examples():
        asked = question(examples()[name])
        # the first line of a study may also say how it is measured
        assert "?" in asked if name.startswith("studies/") else asked.endswith("?"), name


def test_unknown_keys_hide_no_other_mistake(tmp_path):
    """Unknown keys are at the top, two in one mapping, inside a part, or numbers."""
    path = tmp_path / "mistaken.yaml"
    path.write_text(
        "clustr: {workers: 4}\n"
        "cluster: {workers: 0, x: 3}\n"
        "algorithm: {name: async_ps, shard: 2, accumulate: a}\n"
        "learning: {lr: a}\n"
        "stop: {1: 2, epochs: 1}\n"
        "stopp: 3\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    keys = {error.key for error in (caught.value, *caught.value.others)}
    assert keys == {
        "clustr", "stopp", "cluster.x", "cluster.workers", "algorithm.shard", "algorithm.accumulate", "learning.lr",
        "stop.1",
    }  # fmt: skip
