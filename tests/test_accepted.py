"""What validation accepts runs to its end; what it refuses is one line that names the key."""

import math
import random
import signal
import time
from contextlib import contextmanager, suppress
from itertools import product

import pytest

from laggard import ConfigError, load
from laggard.experiments.config.document import text_of
from laggard.experiments.config.grid import runs
from laggard.models.data import DataMissingError
from laggard.simulator import simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import TOPOLOGIES, graph
from tests.cases import quick
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
def toy(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    return path


def refusal(path, *overrides, updates=math.inf):
    """Why the config is refused; one that is not is run."""
    try:
        simulated(path, *overrides, updates=updates)
    except (ConfigError, DataMissingError) as error:
        return error
    return None


class Running(Exception):
    """A run has made so many updates, or made some for so long, that it would get to its end."""


def simulated(path, *overrides, updates=math.inf):
    until = time.monotonic() + 10 if updates < math.inf else math.inf

    def watch(progress):
        if progress.updates >= updates or time.monotonic() > until:
            raise Running

    for run in runs(load(path, *overrides))[:10]:
        with suppress(Running):
            outcome = simulate(**run.arguments(), watch=watch)
            ends = "epochs updates gradients time accuracy diverged stalled"
            assert outcome.reached in ends.split()


PLACES = quick(
    product(GRAPHS, ("false", "true"), (1, 4)), only=[("auto", "false", 1), ("auto", "true", 4)]
)
"""`test_refusal_names_accepted_topologies` has the other topologies, of one method of each kind."""


@pytest.mark.parametrize(("topology", "colocated", "workers"), PLACES)
@pytest.mark.parametrize("method", ALGORITHMS)
def test_method_runs_on_accepted_topologies(toy, method, topology, colocated, workers):
    arguments = GRAPHS[topology].replace("[4]", f"[{workers}]") % colocated
    refused = refusal(
        toy,
        "stop.updates=6",
        f"cluster.workers={workers}",
        f"algorithm.name={method}",
        f"cluster.network={arguments}",
    )
    keys = ("cluster.network.topology", "cluster.network.colocated", "algorithm.mixing")
    one_process = method.startswith("delayed") and workers > 1
    assert refused is None or refused.key in (*keys, *["cluster.workers"] * one_process)
    assert refused is not None or colocated == "false" or hasattr(ALGORITHMS[method], "server")
    assert refused is None or topology != "auto" or colocated == "true" or one_process


@pytest.mark.parametrize(
    "method", ["async_ps", "all_reduce", "dpsgd", "adpsgd", "sgp", "gpipe", "async_pipelines"]
)
def test_refusal_names_accepted_topologies(toy, method):
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


@pytest.mark.parametrize(
    ("dimensions", "calls"), quick([(10, 1000), (30, graph.MOST_CALLS)], only=[(10, 1000)])
)
def test_huge_graph_is_refused(toy, monkeypatch, dimensions, calls):
    """Generating a graph stops after `MOST_CALLS` function calls, a few seconds of work."""
    monkeypatch.setattr(graph, "MOST_CALLS", calls)
    arguments = f"arguments: [{dimensions}]"
    huge = f"cluster.network={{topology: graph, graph: hypercube_graph, {arguments}}}"
    with pytest.raises(ConfigError, match=r"cluster\.network\.arguments: expected those of"):
        load(toy, huge, "algorithm=dpsgd")


SHORT, LONG = 25, 3000


@contextmanager
def seconds(most):
    """Fail where the context takes longer on a processor, or ten times as long on a busy machine."""

    def late(*_):
        raise TimeoutError(f"longer than {most} s")

    limits = [
        (signal.ITIMER_PROF, signal.SIGPROF, most),
        (signal.ITIMER_REAL, signal.SIGALRM, 10 * most),
    ]
    before = [(number, signal.signal(number, late)) for _, number, _ in limits]
    for timer, _, limit in limits:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _, _ in limits:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


def check_config(path, text):
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
def test_mutated_config_runs_or_is_refused(toy, first, count):
    accepted = 0
    for seed in range(first, first + count):
        try:
            accepted += check_config(toy, mutated_config(seed))
        except BaseException:
            print(f"mutated_config({seed}):\n{mutated_config(seed)}")  # noqa: T201
            raise
    assert 0.02 < accepted / count < 0.95


@pytest.mark.parametrize("first", [10**6, pytest.param(0, marks=pytest.mark.slow)])
def test_accepted_config_runs_to_its_end(toy, first):
    count = SHORT if first else LONG
    rng = random.Random(first)
    accepted = sum(check_config(toy, text_of(plain_config(rng))) for _ in range(count))
    assert accepted > 0.2 * count
