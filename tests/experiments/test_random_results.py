"""Results of random runs: all that shows them does so, or refuses them in one line."""

import random

import pytest

from laggard.experiments.cli import main
from laggard.experiments.config.document import text_of
from laggard.experiments.figures import ENTRIES
from tests.mutated import plain_config

FIGURES = [entry.name for entry in ENTRIES]
SWEPT = [
    {},
    {"seed": [1, 2, 3]},
    {"learning.lr": [0.01, 1e9], "seed": [1, 2]},
    {"cluster.network.latency": [0.0, 0.001]},
    {"method": {"a $x_1$": {"stop.updates": 3}, "b & <c>": {"stop.updates": 4}}},
]
STOPS = [{"time": 1e-9}, {"time": 0.05}, {"updates": 1, "time": 1.0}, {"updates": 20, "time": 1.0}]
"""The first ends before any update."""


@pytest.fixture
def shown(capsys):
    """Whether a command does what it is asked to; what it refuses is one line."""

    def ask(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        assert code in (0, 2), printed.err
        assert code == 0 or len(printed.err.splitlines()) == 1
        return code == 0

    return ask


def swept_config(rng):
    """A random config of a sweep of short runs, which may record messages."""
    document = plain_config(rng)
    document["stop"] = rng.choice(STOPS)
    document["sweep"] = rng.choice(SWEPT)
    document["record"] = {"messages": rng.choice([True, False])}
    return document


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_results_are_shown(seed, shown, tmp_path):
    rng = random.Random(seed)
    path, folder = tmp_path / "toy.yaml", tmp_path / "out" / "toy"
    path.write_text(text_of(swept_config(rng)), encoding="utf-8")
    if not shown("sweep", path, "--out", tmp_path / "out", "--jobs", "1", "--quiet"):
        return  # a method and a cluster that do not fit
    first = next(iter(folder.glob("*/manifest.json"))).parent
    shown("export", first, "--to", "perfetto")
    assert shown("table", folder)
    assert shown("report", folder)
    for name in rng.sample(FIGURES, 3):
        for results in (folder, first):
            shown("plot", results, "--figure", name, "--to", tmp_path / "figure.svg")
