"""The live view: what it says is so, it changes nothing, and it costs little by construction."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.running import watch
from laggard.experiments.running.watch import View, describe_state, describe_waiting, plot_lines
from laggard.simulator import AsyncPS, Cluster, Network, Rule, RunProgress, Stop, simulate
from laggard.simulator.timing.distributions import Constant


def test_who_waits_is_who_has_nothing_to_compute_longest_first() -> None:
    """One worker, a second a gradient, 0.75 s each way: at its update, 2.75 s, it has waited since
    2 s.
    """
    network = Network(bandwidth=100.0, latency=0.25, message_bytes=50.0)
    seen, said = [], []

    def look(progress: RunProgress) -> None:
        said.append((progress.time, describe_waiting(seen[0], progress.time)))

    cluster = Cluster(workers=1, compute=Constant(1.0), network=network)
    simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=2), watch=look, observe=seen.append)
    assert said == [
        (2.75, "1 of 1 workers wait: 0 for 0.75 s"),
        (5.25, "1 of 1 workers wait: 0 for 0.75 s"),
    ]


def test_what_is_told_is_what_the_tables_say_in_the_end(
    toy: Callable[..., Path], tmp_path: Path
) -> None:
    given, seen = RunSpec(load(toy())).arguments(), []
    outcome = simulate(**given, observe=seen.append)
    how_far, learnt, stale, _ = describe_state(seen[0], outcome.progress, 2.0)
    applied = outcome.updates["staleness"]
    assert how_far.endswith("40 updates, 20 updates/s")
    assert f"test loss {outcome.metrics['test_loss'][-1]:.4g}" in learnt
    assert (
        stale
        == f"staleness {applied.mean():.2f} on average, {applied.max()} at most, of the last 40 gradients"
    )
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in plot_lines(seen[0], 60, 12)]
    assert lines[0].strip() == "test loss against virtual time (s)"
    assert max(map(len, lines)) <= 60
    assert len(lines) <= 12


def test_looking_on_changes_nothing(
    toy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PLAIN_PERIOD", 0.0)
    monkeypatch.setattr(watch, "PERIOD", 0.0)
    monkeypatch.setattr(watch, "SHARE", 0)
    plain = run(load(toy()), tmp_path / "plain")
    watched = run(load(toy()), tmp_path / "watched", progress=watch.live_view)
    assert watched.manifest["files"] == plain.manifest["files"]
    np.testing.assert_array_equal(watched.weights, plain.weights)


def test_a_drawing_that_takes_long_is_drawn_seldom(
    toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update a millisecond, a drawing that costs a fifth of a second: a sixtieth of the time,
    not two a second.
    """
    clock = [0.0]
    monkeypatch.setattr(watch, "perf_counter", lambda: clock[0])
    view = View(load(toy()), io.StringIO())
    view.plain = False

    def draw(progress: RunProgress) -> None:
        clock[0] += 0.2

    monkeypatch.setattr(view, "draw", draw)
    for _ in range(100_000):
        clock[0] += 0.001
        view(RunProgress(0.0, 0.0, 0, 0.0, 0))
    assert 0.01 < view.spent / clock[0] < 0.02


def test_without_a_terminal_it_prints_plain_lines(
    toy: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "PERIOD", 0.0)
    monkeypatch.setattr("laggard.experiments.figures.comparison", lambda *_, **__: None)
    assert main(["watch", str(toy()), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "finished" in said.out
    assert re.match(r"toy: \d+%, (?:\d:\d\d:\d\d left, )?\S+ s simulated, ", said.err), said.err
    assert re.search(
        r"; staleness [\d.]+ on average, \d+ at most, of the last \d+ gradients; ", said.err
    ), said.err
    assert "\x1b" not in said.err
    assert len(said.err.splitlines()) == 1
