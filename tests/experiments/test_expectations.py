"""Theory stands beside what was measured: the right row, the right half of the run, and their
ratio.
"""

import sys

import pytest

from laggard import load, load_result, run, sweep
from laggard.experiments import figures
from laggard.experiments.theory.iteration_time import expected_seconds
from laggard.experiments.theory.staleness import expected_staleness

TEXT = """\
cluster: {workers: 4}
task: {model: timing}
stop: {updates: 40}
sweep:
  method:
    asynchronous: {algorithm: {name: async_ps}}
    synchronous: {algorithm: {name: sync_ps}}
    bounded: {algorithm: {name: ssp, bound: 1}}
"""


def test_staleness_agrees_with_theory(toy, tmp_path):
    """Equal constant times: three others push in between, but for the first gradients, which are
    left out.
    """
    results = sweep(load(toy("", TEXT)), tmp_path)
    assert results[0].updates["staleness"].min() == 0
    table = expected_staleness(results)
    assert list(table["method"]) == ["asynchronous", "synchronous", "bounded"]
    assert list(table["law"]) == ["constant", "constant", ""]
    assert list(table["theory"][:2]) == [3.0, 0.0]
    assert list(table["measured"][:2]) == [3.0, 0.0]
    assert table["ratio"][0] == 1.0
    assert table[["theory", "ratio"]].isna().to_numpy().tolist() == [
        [False, False],
        [False, True],
        [True, True],
    ]
    end = results[0].metrics["time"].max()
    assert table["n"][0] == (results[0].updates["time"] > end / 2).sum()


def test_seconds_of_an_update_agree_with_theory(toy, tmp_path):
    more = "cluster.slowdowns=[{worker: 0, factor: 5}]"
    table = expected_seconds(sweep(load(toy("", TEXT), more, "stop.updates=640"), tmp_path))
    assert table["theory"][:2].tolist() == pytest.approx([1 / 3.2, 5.0])
    assert table["measured"][:2].tolist() == pytest.approx([1 / 3.2, 5.0], rel=0.02)
    assert table["ratio"].tolist() == pytest.approx(
        (table["measured"] / table["theory"]).tolist(), nan_ok=True
    )
    assert table["theory"].isna().tolist() == [False, False, True]
    (alone,) = expected_seconds(sweep(load(toy("", TEXT), "sweep={}"), tmp_path)).to_dict("records")
    assert alone["method"] == "async_ps"


OWN = """
from dataclasses import dataclass
from laggard.experiments.theory.iteration_time import FREE_SECONDS
from laggard.experiments.theory.staleness import STALENESS, constant
from laggard.simulator import AsyncPS, Rule

@dataclass(frozen=True)
class Held(AsyncPS):
    '''A server that holds the last gradients back: each waits for `hold` others.'''

    hold: int = 2

    def server(self, node):
        state, held = self.rule.init(node.weights), []
        while True:
            worker, gradient = yield node.receive()
            held += [] if gradient is None else [gradient]
            if len(held) > self.hold:
                oldest = [held.pop(0)]
                weights, state = self.rule.update(node.weights, oldest, state)
                node.apply(weights, oldest)
            node.send(worker, node.weights)

@dataclass(frozen=True)
class Derived(Held):
    pass

@STALENESS.of(Held)
def staleness(algorithm, cluster):
    return constant(algorithm.hold) if cluster.workers == 1 else None

@FREE_SECONDS.of(Held)
def seconds(algorithm, cluster):
    return cluster.compute.mean
"""


@pytest.fixture
def own(module, toy, tmp_path):
    """Runs a custom algorithm with closed forms; returns the folder of the result."""
    module("brings", OWN)
    text = "task: {model: timing}\nstop: {updates: 41}\n"

    def result(name="Held", workers=1):
        more = [
            f"algorithm={{name: 'brings:{name}', hold: 3}}",
            f"cluster={{workers: {workers}, compute: {{mean: 5}}}}",
        ]
        return run(load(toy("", text), *more), tmp_path / "out").path

    return result


@pytest.mark.parametrize("reloaded", [False, True])
def test_plugin_brings_its_closed_forms(own, reloaded):
    """They stand in the tables and in the figure, also of a result that another process reads."""
    result = load_result(own())
    if reloaded:
        del sys.modules["brings"]
    (stale,), (seconds,) = (
        table([result]).to_dict("records") for table in (expected_staleness, expected_seconds)
    )
    assert (stale["law"], stale["theory"], stale["measured"]) == ("constant", 3.0, 3.0)
    assert (seconds["theory"], seconds["measured"]) == (5.0, pytest.approx(5.0))
    assert "theory: constant, mean 3.00" in figures.histograms([result]).axes[0].get_title(
        loc="left"
    )


def test_class_has_its_registered_closed_forms_only(
    own,
):
    """Held derives from AsyncPS, whose P - 1 is not its own; it refuses two workers; Derived
    registered nothing.
    """
    for folder in (own(workers=2), own("Derived")):
        (row,) = expected_staleness([load_result(folder)]).to_dict("records")
        assert (row["law"], row["theory"] != row["theory"]) == ("", True)


def test_theory_runs_no_changed_source(own, tmp_path):
    result = load_result(own())
    del sys.modules["brings"]
    (tmp_path / "brings.py").write_text(OWN.replace("constant(algorithm.hold)", "constant(7)"))
    assert expected_staleness([result])["theory"].isna().all()
    assert "brings" not in sys.modules
