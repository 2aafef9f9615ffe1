"""A finished run without what slowed it: closed forms, and what stays as it was."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from laggard import load, run
from laggard.experiments.cli import main
from laggard.experiments.results.results import load_one
from laggard.experiments.running.whatif import cluster_without, whatif
from laggard.simulator import AsyncPS, Cluster, Network, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Constant, Gamma, Scaled, Trace, TwoLevelGamma
from laggard.simulator.timing.recorded import Recorded
from laggard.simulator.timing.slowdowns import Crash, Factor, Markov, Window

SECONDS = np.array([0.5, 0.75, 1.0, 4.0])
"""Of four workers, the last of which is the straggler."""
PLAIN = """
cluster:
  workers: 4
  compute: {law: trace, file: compute.csv, column: seconds, worker: worker, order: replay}
algorithm: sync_ps
task: {model: timing}
stop: {updates: 120}
"""


def finished(
    folder: Path, *overrides: str, seconds: np.ndarray = SECONDS[:, None], text: str = PLAIN
) -> Path:
    """The folder of a finished run; `seconds` `(workers, rows)` are its compute times."""
    workers, steps = np.indices(seconds.shape)
    table = pd.DataFrame(
        {"worker": workers.ravel(), "step": steps.ravel(), "seconds": seconds.ravel()}
    )
    table.to_csv(folder / "compute.csv", index=False)
    (folder / "plain.yaml").write_text(text)
    return run(load(folder / "plain.yaml", *overrides), folder / "results").path


def rates(path: Path, *removals: str) -> list[float]:
    return whatif(load_one(path), removals)["updates_per_second"].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["sync_ps", "all_reduce"])
def test_a_synchronous_step_takes_the_largest_of_the_others(tmp_path: Path, method: str) -> None:
    """1 / max(t_i): the straggler's times become the median of the others'."""
    path = finished(tmp_path, f"algorithm={method}")
    assert rates(path, "straggler=3", "straggler=2,3", "straggler=0") == [
        1 / 4,
        1 / 1,
        1 / 0.75,
        1 / 4,
    ]


def test_an_asynchronous_server_has_the_sum_of_the_rates(tmp_path: Path) -> None:
    """sum(1 / t_i), up to the first and the last gradient of each."""
    path = finished(tmp_path, "algorithm=async_ps", "stop={time: 600}")
    expected = [sum(1 / SECONDS), sum(1 / SECONDS[:3]) + 1 / 0.75]
    assert rates(path, "straggler=3") == pytest.approx(expected, abs=4 / 600)


def test_each_row_is_replaced_by_the_median_of_the_others_rows_of_that_step(tmp_path: Path) -> None:
    seconds = np.random.default_rng(3).gamma(4.0, 0.25, (5, 30))
    seconds[4] *= 6
    path = finished(tmp_path, "cluster.workers=5", "stop.updates=30", seconds=seconds)
    table = whatif(load_one(path), ["straggler=4"])
    others = seconds[:4]
    assert table["seconds"].tolist() == pytest.approx(
        [seconds.max(0).sum(), others.max(0).sum()], rel=1e-12
    )
    assert table["gain"].tolist() == pytest.approx(
        [1, seconds.max(0).sum() / others.max(0).sum()], rel=1e-12
    )
    trace = Trace(str(tmp_path / "compute.csv"), "seconds", "replay", "worker")
    changed = cluster_without(Cluster(workers=5, compute=trace), "straggler=4").compute
    rng = np.random.default_rng()
    assert (
        changed.of_worker(4).machine(rng).draw(rng, 30).tolist()
        == np.median(others, axis=0).tolist()
    )  # type: ignore[attr-defined]
    assert changed.of_worker(1).machine(rng).draw(rng, 30).tolist() == seconds[1].tolist()  # type: ignore[attr-defined]


FIVE_TIMES = (
    "{workers: 4, compute: {law: constant, mean: 1.0}, slowdowns: [{worker: 3, factor: 5}]}"
)


def test_a_straggler_by_a_factor(tmp_path: Path) -> None:
    synchronous = finished(tmp_path, f"cluster={FIVE_TIMES}")
    assert rates(synchronous, "straggler=3", "slowdowns") == [1 / 5, 1, 1]
    asynchronous = finished(
        tmp_path, f"cluster={FIVE_TIMES}", "algorithm=async_ps", "stop={time: 500}"
    )
    assert rates(asynchronous, "straggler=3", "slowdowns") == pytest.approx(
        [3 + 1 / 5, 4, 4], abs=4 / 500
    )


def test_without_a_network_messages_take_no_time(tmp_path: Path) -> None:
    """Steps of t + 2 (latency + bytes / bandwidth), of 4 workers that share the server's card, and
    an announcement.
    """
    network = "{latency: 0.125, bandwidth: 1000, message_bytes: 250, server_bandwidth: 1000, hosts: {size: 2}}"
    cluster = f"{{workers: 4, compute: {{law: constant, mean: 1.0}}, network: {network}}}"
    path = finished(tmp_path, f"cluster={cluster}")
    seconds = 0.125 + 120 * (1 + 2 * (0.125 + 4 * 0.25))
    assert rates(path, "network") == pytest.approx([120 / seconds, 1.0], rel=1e-12)


def test_without_a_network_trunks_take_no_time_and_groups_stay(tmp_path: Path) -> None:
    """A sum inside and across two groups of two: 2 (alpha + N beta / 2) + 2 (alpha + alpha' + N
    beta' / 2).
    """
    trunks = "groups: {count: 2, trunks: [{switches: [0], to: 1, bandwidth: 500, latency: 0.5}]}"
    cluster = f"{{workers: 4, network: {{latency: 0.125, bandwidth: 1000, message_bytes: 250, {trunks}}}}}"
    path = finished(
        tmp_path, f"cluster={cluster}", "algorithm={name: all_reduce, collective: hierarchical}"
    )
    seconds = 1 + 2 * (0.125 + 0.125) + 2 * (0.125 + 0.5 + 0.25)
    assert rates(path, "network") == pytest.approx([1 / seconds, 1.0], rel=1e-12)


def test_all_other_draws_stay_as_they_were() -> None:
    """Of other workers, and of the random slowdown that follows in the list."""
    own, theirs = (
        Window(3, factor=9.0, start=2.0, end=30.0),
        Markov(workers=[1, 3], factor=4.0, slow_for=2, fast_for=2),
    )
    cluster = Cluster(
        workers=4,
        compute=Scaled(TwoLevelGamma(mean=1.0, machine_cv=1.0, batch_cv=0.3), 2.0),
        slowdowns=[
            own,
            theirs,
            Recorded([own, Window(0, factor=2.0, start=1.0, end=5.0)]),
            Crash(3, at=40.0),
        ],
    )
    changed = cluster_without(cluster, "straggler=3")
    assert not changed.crashes
    assert all(one.factor == 1.0 for one in changed.slowdowns_of(3))  # type: ignore[attr-defined]
    assert [len(changed.slowdowns_of(rank)) for rank in range(3)] == [1, 1, 0]
    assert changed.compute.of_worker(3) == Scaled(Gamma(1.0, 0.3), 2.0)  # type: ignore[attr-defined]
    found = [
        simulate(each, AsyncPS(Rule()), stop=Stop(time=60.0)).updates for each in (cluster, changed)
    ]
    for rank in range(4):
        before, after = (rows["computed"][rows["worker"] == rank] for rows in found)
        assert (before.tolist() == after.tolist()) == (rank < 3)


@pytest.mark.parametrize(
    ("removal", "said"),
    [
        ("straggler=4", "expected ranks below workers = 4, got '4'"),
        ("straggler=", "expected ranks below workers = 4, got ''"),
        ("straggler=a,0", "expected ranks below workers = 4, got 'a,0'"),
        ("straggler", "expected straggler=RANK, slowdowns or network, got 'straggler'"),
        (
            "straggler=2",
            "expected a worker with slowdowns or compute times of its own, got 'one like all others'",
        ),
        ("network", "expected a run with network to remove, got 'one without'"),
        ("everything", "expected straggler=RANK, slowdowns or network, got 'everything'"),
    ],
)
def test_what_cannot_be_removed_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], removal: str, said: str
) -> None:
    path = finished(tmp_path, f"cluster={FIVE_TIMES}", "stop.updates=2")
    assert main(["whatif", str(path), "--without", removal]) == 2
    assert capsys.readouterr().err == f"--without {removal}: {said}\n"


def test_all_workers_of_a_trace_cannot_be_like_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = finished(tmp_path, "stop.updates=2")
    assert main(["whatif", str(path), "--without", "straggler=0,1,2,3"]) == 2
    assert (
        "expected another worker, whose times it could have, got 'none'" in capsys.readouterr().err
    )
    assert main(["whatif", str(path), "--without", "slowdowns"]) == 2
    assert (
        capsys.readouterr().err
        == "--without slowdowns: expected a run with slowdowns to remove, got 'one without'\n"
    )


def test_laws_of_ones_own_are_not_taken_apart() -> None:
    from laggard.experiments.config.errors import ConfigError

    class Mine(Constant):
        def machine(self, rng: np.random.Generator) -> Constant:
            return Constant(rng.random())

    cluster = Cluster(
        workers=2,
        compute=Mine(1.0),
        slowdowns=[Factor(0, factor=2.0)],
        network=Network(latency=1.0),
    )
    with pytest.raises(ConfigError, match="expected a law of laggard's own, got 'Mine'"):
        cluster_without(cluster, "straggler=0")
    assert cluster_without(cluster, "slowdowns").compute is cluster.compute


def test_the_command_prints_a_table_of_what_there_was_and_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = finished(tmp_path)
    capsys.readouterr()
    assert (
        main(["whatif", str(path), "--without", "straggler=3", "--without", "straggler=2,3"]) == 0
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [
        "without",
        "seconds",
        "updates",
        "updates_per_second",
        "gain",
        "waiting",
        "end",
    ]
    assert [line[:5] for line in lines[1:]] == [
        ["-", "480", "120", "0.25", "1"],
        ["straggler=3", "120", "120", "1", "4"],
        ["straggler=2,3", "90", "120", "1.333", "5.333"],
    ]


def test_a_folder_without_a_run_and_a_trace_that_changed_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(tmp_path), "--without", "network"]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: no finished run: it has no manifest.json\n"
    path = finished(tmp_path)
    (tmp_path / "compute.csv").write_text("worker,seconds\n0,1\n")
    assert main(["whatif", str(path), "--without", "straggler=3"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"{path}/config.yaml: cluster.compute.file: expected a file whose SHA-256 is "
    )
    assert said.count("\n") == 1
