"""What validation accepts runs to its end; what it refuses is one line that names the key."""

import math
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from laggard import ConfigError, load
from laggard.experiments.config.document import text_of
from laggard.experiments.config.grid import runs
from laggard.models.data import DataMissingError
from laggard.simulator import RunProgress, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import TOPOLOGIES
from tests.mutated import mutated_config, plain_config

TOY = """\
cluster: {workers: 4, compute: {law: gamma, mean: 0.01, cv: 0.3}}
algorithm: async_ps
task: {model: quadratic, dim: 4, condition: 10, noise: 0.2, epoch: 20}
learning: {lr: 0.1}
stop: {updates: 40}
"""
FROM_FILES = "graph", "time_varying"
GRAPHS = {
    name: f"{{topology: {name}, colocated: %s}}" for name in TOPOLOGIES if name not in FROM_FILES
} | {"graph": "{topology: graph, graph: path_graph, arguments: [4], colocated: %s}"}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    return path


def refusal(
    path: Path, *overrides: str, updates: float = math.inf
) -> ConfigError | DataMissingError | None:
    """Why the config is refused; one that is not is run."""
    try:
        simulated(path, *overrides, updates=updates)
    except (ConfigError, DataMissingError) as error:
        return error
    return None


class Running(Exception):
    """A run has made so many updates, or made some for so long, that it would get to its end."""


def simulated(path: Path, *overrides: str, updates: float = math.inf) -> None:
    until = time.monotonic() + 10 if updates < math.inf else math.inf

    def watch(progress: RunProgress) -> None:
        if progress.updates >= updates or time.monotonic() > until:
            raise Running

    for run in runs(load(path, *overrides))[:10]:
        with suppress(Running):
            outcome = simulate(**run.arguments(), watch=watch)
            assert outcome.reached in (
                "epochs",
                "updates",
                "gradients",
                "time",
                "accuracy",
                "diverged",
                "stalled",
            )


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("colocated", ["false", "true"])
@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("method", ALGORITHMS)
def test_a_method_runs_on_the_topologies_that_are_accepted(
    toy, method, topology, colocated, workers
):
    arguments = GRAPHS[topology].replace("[4]", f"[{workers}]") % colocated
    refused = refusal(
        toy,
        f"cluster.workers={workers}",
        f"algorithm.name={method}",
        f"cluster.network={arguments}",
    )
    keys = ("cluster.network.topology", "cluster.network.colocated", "algorithm.mixing")
    one_process = method == "delayed" and workers > 1
    assert refused is None or refused.key in (*keys, *["cluster.workers"] * one_process)
    assert refused is not None or colocated == "false" or hasattr(ALGORITHMS[method], "server")
    assert refused is None or topology != "auto" or colocated == "true" or one_process


@pytest.mark.parametrize(
    "method", ["async_ps", "all_reduce", "dpsgd", "adpsgd", "sgp", "gpipe", "async_pipelines"]
)
def test_a_refusal_names_topologies_that_are_accepted(toy, method):
    refused = "ring" if method == "async_ps" else "star"
    with pytest.raises(ConfigError, match="expected") as caught:
        load(toy, f"algorithm.name={method}", f"cluster.network.topology={refused}")
    assert caught.value.key == "cluster.network.topology"
    words = caught.value.problem.replace(",", " ").split()
    named = sorted(
        {"auto", "star", "ring", "torus", "complete", "exponential"}
        & set(words[: words.index("got")])
    )
    assert named
    for name in named:
        simulated(toy, f"algorithm.name={method}", f"cluster.network.topology={name}")


ENDLESS = "stop={time: 1}"
NETWORK = "task={model: mlp, dataset: digits, batch: 8, hidden: [%s]}"
REFUSED = {
    # limits that are never reached
    (
        "stop={accuracy: 0.9, updates: 5}",
    ): "stop.accuracy: expected null, since quadratic has no accuracy, got 0.9",
    (
        "stop={accuracy: 0.9}",
    ): "stop.epochs: expected at least one of epochs, updates, gradients, time beside accuracy",
    (
        ENDLESS,
        "evaluate={every_seconds: 1e-17}",
    ): "evaluate.every_seconds: expected at least 1e-05 s, got 1e-17",
    (
        "evaluate={every_seconds: 1e-17}",
    ): "evaluate.every_seconds: expected at least 1e-06 s, got 1e-17",
    (
        ENDLESS,
        "cluster.compute={law: constant, mean: 1e-17}",
    ): "stop.time: expected at most 1e-09 s",
    (
        ENDLESS,
        "cluster.slowdowns=[{worker: 0, factor: 1e-15}]",
    ): "stop.time: expected at most 1e-09 s",
    (ENDLESS, "cluster.compute={law: exponential, mean: 5e-324}"): "stop.time: expected at most",
    ("cluster.slowdowns=[{kind: markov, worker: 0, factor: 2, slow_for: 1e-9, fast_for: 1e-9}]",): (
        "cluster.slowdowns.0.slow_for: expected at least 2e-06 s"
    ),
    ("evaluate={every_epochs: 5e-324}",): "evaluate.every_epochs: expected a number >= 1e-09",
    ("evaluate={every_updates: 5e-324}",): "evaluate.every_updates: expected a number >= 1e-09",
    ("stop={epochs: 1e300}",): "stop.epochs: expected a number > 0 and <= 1e+06, got 1e+300",
    ("stop={updates: 1000000000000000000}",): "stop.updates: expected a number > 0 and <= 1e+09",
    ("cluster.compute.cv=1e6",): "cluster.compute.cv: expected a number >= 1e-06 and <= 100",
    # numbers that overflow in the middle of a run
    (
        "cluster.network={bandwidth: 5e-324}",
    ): "cluster.network.bandwidth: expected bytes per second > 0, at least 1e-9",
    (
        "cluster.compute={law: pareto, scale: 1e308, alpha: 2}",
    ): "cluster.compute.scale: expected a number > 0 and <= 1",
    (
        "cluster.slowdowns=[{worker: 0, factor: 1e308}]",
    ): "cluster.slowdowns.0.factor: expected a number >= 1e-15 and",
    (
        f"cluster.slowdowns=[{', '.join(['{worker: 0, factor: 1e15}'] * 25)}]",
    ): "cluster.slowdowns: expected factors",
    # counts that no machine has memory or time for
    (
        "cluster.workers=10000000",
    ): "cluster.workers: expected a number >= 1 and <= 2e+06, got 10000000",
    (
        "cluster.workers=1",
        "algorithm={name: delayed, delay: 1000000000000}",
    ): "algorithm.delay: expected a number >= 0",
    (
        "algorithm={name: gpipe, micro_batches: 1000000000}",
    ): "algorithm.micro_batches: expected a number >= 1 and",
    (
        "task={model: timing, depth: 1000000000}",
    ): "task.depth: expected a number >= 1 and <= 100000",
    (
        "task={model: timing, depth: 10000}",
        "algorithm=naive",
    ): "algorithm.cut: expected the layers to cut at: 10000",
    (
        "task={model: quadratic, dim: 9223372036854775808}",
    ): "task.dim: expected a number of at most 1000000",
    (
        "task={model: quadratic, dim: 1000000000000}",
    ): "task.dim: expected a number of at most 1000000",
    (NETWORK % 1000000000,): "task.hidden: expected at most 100 sizes of at most 100000",
    (NETWORK % 9223372036854775807,): "task.hidden: expected at most 100 sizes of at most 100000",
    (NETWORK % "100000, 100000",): "task.model: expected at most 1000000000 parameters, got 10079",
    (
        "task={model: mlp, dataset: digits, batch: 1501}",
    ): "task.batch: expected at most 1500 (training set)",
    (
        "task={model: mlp, dataset: digits, batch: 18446744073709551616}",
    ): "task.batch: expected at most 1500",
    (
        "task={model: transformer, dataset: {name: characters, words: 0}}",
    ): "task.dataset.words: expected a number from",
    (
        "task={model: transformer, dataset: {name: characters, samples: 1}}",
    ): "task.dataset.samples: expected a number",
    (
        "task={model: mlp, dataset: {name: synthetic, samples: 1}}",
    ): "task.dataset.samples: expected a number from 4",
    (
        "task={model: mlp, dataset: {name: synthetic, classes: 1}}",
    ): "task.dataset.classes: expected a number from 2",
    (
        "task={model: mlp, dataset: {name: synthetic, samples: 1000000, features: 100000}}",
    ): "task.dataset.samples: exp",
    ("threads=1000000",): "threads: expected a number <= 1024",
    (
        "cluster.workers=20000",
        "algorithm={name: all_reduce, collective: mesh}",
    ): "cluster.workers: expected so few",
    (
        "cluster.workers=20000",
        "algorithm=dpsgd",
        "cluster.network.topology=complete",
    ): "cluster.workers: expected so",
    # gradients whose norm nobody has
    (
        "algorithm={name: async_ps, shards: 2}",
        "learning.clip={norm: 1}",
    ): "learning.clip: expected none or {value: ...}, ",
    (
        "algorithm={name: sync_ps, bucket_bytes: 8}",
        "learning.clip={norm: 1}",
    ): "learning.clip: expected none or {value",
    (
        "algorithm=p3",
        "learning.clip={norm: 1}",
    ): "learning.clip: expected none or {value: ...}, since P3 updates a",
    (
        "algorithm=gpipe",
        "learning.clip={norm: 1}",
    ): "learning.clip: expected none or {value: ...}, since GPipe updates",
    # graphs
    (
        "cluster.network={topology: graph, graph: grid_graph, arguments: {dim: [1000000000, 2]}}",
        "algorithm=dpsgd",
    ): ("cluster.network.arguments: expected numbers of at most 100000, got 1000000000"),
    (
        "cluster.network={topology: graph, graph: hypercube_graph, arguments: [30]}",
        "algorithm=dpsgd",
    ): ("cluster.network.arguments: expected those of hypercube_graph"),
    (
        "cluster.network={topology: graph, graph: complete_graph, arguments: [100000]}",
        "algorithm=dpsgd",
    ): ("cluster.network.arguments: expected those of complete_graph"),
    (
        "cluster.network={topology: graph, file: 'a.json'}",
        "algorithm=dpsgd",
    ): "cluster.network.file: expected a file",
}


LONG_REFUSAL = next(overrides for overrides in REFUSED if "hypercube_graph" in overrides[0])


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(each, marks=[pytest.mark.slow] * (each == LONG_REFUSAL), id=each[0][:60])
        for each in REFUSED
    ],
)
def test_what_cannot_run_to_its_end_is_refused_in_one_line(toy, overrides):
    with pytest.raises(ConfigError) as caught:
        load(toy, *overrides)
    assert str(caught.value).startswith(f"{toy}: {REFUSED[overrides]}")
    assert "\n" not in str(caught.value)


SHORT, LONG = 150, 3000


@contextmanager
def seconds(most: int) -> Iterator[None]:
    """Fail where the context takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {most} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(most)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_config(path: Path, text: str) -> bool:
    """Whether a config is accepted and every run ends; otherwise the refusal is one line."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with seconds(20):
        refused = refusal(path, updates=300)
    assert refused is None or len(str(refused).splitlines()) == 1
    assert refused is None or str(refused).isprintable()
    return refused is None


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (10**6, SHORT),
        *(pytest.param(of, 300, marks=pytest.mark.slow) for of in range(0, LONG, 300)),
    ],
)
def test_a_mutated_config_runs_to_its_end_or_is_refused_in_one_line(toy, first, count):
    accepted = 0
    for seed in range(first, first + count):
        try:
            accepted += check_config(toy, mutated_config(seed))
        except BaseException:
            print(f"mutated_config({seed}):\n{mutated_config(seed)}")  # noqa: T201
            raise
    assert 0.02 < accepted / count < 0.95


def test_a_mutated_config_is_a_function_of_its_seed():
    """So that a seed that was printed can be tried again."""
    first = [mutated_config(seed) for seed in range(40)]
    assert [mutated_config(seed) for seed in range(40)] == first


@pytest.mark.parametrize("first", [10**6, pytest.param(0, marks=pytest.mark.slow)])
def test_a_config_that_is_accepted_runs_to_its_end(toy, first):
    count = SHORT if first else LONG
    rng = random.Random(first)
    accepted = sum(check_config(toy, text_of(plain_config(rng))) for _ in range(count))
    assert accepted > 0.2 * count
