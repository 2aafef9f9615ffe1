"""What validation accepts runs to its end; what it refuses is one line that names the key."""

from pathlib import Path

import numpy as np
import pytest

from laggard import ConfigError, load
from laggard.experiments.config.grid import runs
from laggard.simulator import Cluster, Network, Record, Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import TOPOLOGIES

TOY = """\
cluster: {workers: 4, compute: {law: gamma, mean: 0.01, cv: 0.3}}
algorithm: async_ps
task: {model: quadratic, dim: 4, condition: 10, noise: 0.2, epoch: 20}
learning: {lr: 0.1}
stop: {updates: 40}
"""
GRAPHS = {name: f"{{topology: {name}, colocated: %s}}" for name in TOPOLOGIES if name != "graph"} | {
    "graph": "{topology: graph, graph: path_graph, arguments: [4], colocated: %s}"
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    return path


def refusal(path: Path, *overrides: str) -> ConfigError | None:
    """Why the config is refused; one that is not is run."""
    try:
        simulated(path, *overrides)
    except ConfigError as error:
        return error
    return None


def simulated(path: Path, *overrides: str) -> None:
    for run in runs(load(path, *overrides)):
        outcome = simulate(**run.arguments())
        assert outcome.reached in ("epochs", "updates", "gradients", "time", "accuracy", "diverged", "stalled")


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("colocated", ["false", "true"])
@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_method_runs_on_the_topologies_that_are_accepted(toy, method, topology, colocated, workers):
    arguments = GRAPHS[topology].replace("[4]", f"[{workers}]") % colocated
    refused = refusal(toy, f"cluster.workers={workers}", f"algorithm.name={method}", f"cluster.network={arguments}")
    keys = ("cluster.network.topology", "cluster.network.colocated", "algorithm.mixing")
    one_process = method == "delayed" and workers > 1
    assert refused is None or refused.key in (*keys, *["cluster.workers"] * one_process)
    assert refused is not None or colocated == "false" or hasattr(ALGORITHMS[method], "server")
    assert refused is None or topology != "auto" or colocated == "true" or one_process


@pytest.mark.parametrize("method", ["async_ps", "all_reduce", "dpsgd", "adpsgd", "sgp", "gpipe"])
def test_a_refusal_names_topologies_that_are_accepted(toy, method):
    refused = "ring" if method == "async_ps" else "star"
    with pytest.raises(ConfigError, match="expected") as caught:
        load(toy, f"algorithm.name={method}", f"cluster.network.topology={refused}")
    assert caught.value.key == "cluster.network.topology"
    words = caught.value.problem.replace(",", " ").split()
    named = sorted({"auto", "star", "ring", "torus", "complete", "exponential"} & set(words[: words.index("got")]))
    assert named
    for name in named:
        simulated(toy, f"algorithm.name={method}", f"cluster.network.topology={name}")


SETTINGS = [{}, {"shards": 3}, *({"collective": name} for name in ("naive_ring", "mesh", "recursive_doubling",
            "halving_doubling", "tree"))]  # fmt: skip


@pytest.mark.parametrize("workers", [5, 8])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("method", sorted(set(ALGORITHMS) - {"delayed", "dpsgd", "adpsgd", "sgp"}))
def test_a_method_sends_along_its_links_and_along_no_others(method, settings, workers):
    recipe = ALGORITHMS[method]
    if not set(settings) <= set(recipe.__dataclass_fields__):
        return
    needs = {"micro_batches": 8} if method == "pipedream_2bw" else {}
    algorithm = recipe(Rule(), **settings, **needs)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(cluster, algorithm, stop=Stop(gradients=100), record=Record(messages=True))
    used = set(zip(*(np.asarray(outcome.message_log[end]).tolist() for end in ("sender", "receiver")), strict=True))
    assert used == set(algorithm.links(workers))
