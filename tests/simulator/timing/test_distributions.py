"""Laws know their moments; streams are each purpose's and rank's own; what is no duration is
refused.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from laggard.simulator import AsyncPS, Cluster, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.timing.distributions import (
    DISTRIBUTIONS,
    Constant,
    Durations,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    Scaled,
    ShiftedExponential,
    Trace,
    TwoLevelGamma,
    TwoPoint,
    Uniform,
)
from laggard.simulator.timing.streams import BATCHES, COMPUTE, StoredStream, stream

MEASURED = str(Path(__file__).with_name("seconds.csv"))
"""Two columns of numbers, beside one of names; ten rows."""

EXAMPLES = [
    Constant(2.0),
    Uniform(1.0, 4.0),
    Normal(1.0, 0.2),
    Normal(1.0, 1.5),
    Exponential(3.0),
    ShiftedExponential(1.0, 0.5),
    Gamma(2.0, 0.1),
    Gamma(2.0, 1.5),
    LogNormal(2.0, 0.7),
    Pareto(1.0, 5.0),
    TwoPoint(1.0, 10.0, 0.05),
    Scaled(Gamma(2.0, 0.3), 32.0),
    TwoLevelGamma(2.0, 0.3, 0.1),
    TwoLevelGamma(2.0, 0.9, 1.2),
    Trace(MEASURED, "forward"),
    Trace(MEASURED, "wall", "bootstrap"),
    Scaled(Trace(MEASURED, "forward"), 32.0),
    Trace(MEASURED, "wall", "replay"),
]
N = 200_000


def test_every_law_of_the_table_is_tested():
    assert set(DISTRIBUTIONS.values()) | {Scaled} == {type(law) for law in EXAMPLES}


@pytest.mark.parametrize("law", EXAMPLES, ids=repr)
def test_draws_have_the_mean_and_deviation_that_the_law_claims(law):
    draws = law.draw(np.random.default_rng(5), N)
    assert draws.shape == (N,)
    assert (draws > 0).all()
    assert draws.mean() == pytest.approx(law.mean, abs=5 * law.std / math.sqrt(N) + 1e-12)
    error = np.std((draws - draws.mean()) ** 2) / math.sqrt(N)
    assert draws.var() == pytest.approx(law.std**2, abs=6 * error + 1e-12)


def test_a_heavy_tail_has_no_deviation():
    assert Pareto(1.0, 2.0).std == math.inf


@pytest.mark.parametrize(
    ("law", "field"),
    [
        (lambda: Constant(0.0), "mean"),
        (lambda: Constant(math.nan), "mean"),
        (lambda: Constant(math.inf), "mean"),
        (lambda: Uniform(2.0, 1.0), "high"),
        (lambda: Uniform(-1.0, 1.0), "low"),
        (lambda: Normal(0.0, 1.0), "location"),
        (lambda: Gamma(1.0, 0.0), "cv"),
        (lambda: Gamma(1.0, 1e-200), "cv"),
        (lambda: LogNormal(1.0, 1e200), "cv"),
        (lambda: Pareto(1.0, 1.0), "alpha"),
        (lambda: TwoPoint(1.0, 2.0, 1.5), "probability"),
        (lambda: ShiftedExponential(-1.0, 1.0), "shift"),
        (lambda: Scaled(Constant(1.0), 0.0), "factor"),
        (lambda: TwoLevelGamma(0.0, 0.1, 0.1), "mean"),
        (lambda: TwoLevelGamma(1.0, -0.1, 0.1), "machine_cv"),
        (lambda: TwoLevelGamma(1.0, 0.1, 0.0), "batch_cv"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(law, field):
    with pytest.raises(InvalidSettingError, match=f"{field}: expected a number"):
        law()


class Broken:
    """A law that draws what is no duration."""

    mean = std = 1.0

    def __init__(self, bad):
        self.bad = bad

    def __repr__(self):
        return "Broken"

    def draw(self, rng, n):
        return np.full(n, self.bad)


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf])
def test_what_is_no_duration_raises_and_names_the_law(bad):
    with pytest.raises(
        InvalidSettingError,
        match=r"Broken.draw for worker 0: expected a finite duration >= 0 s, got",
    ):
        simulate(Cluster(workers=2, compute=Broken(bad)), AsyncPS(Rule()), stop=Stop(updates=3))


def test_blocks_do_not_change_the_stream():
    durations = Durations(Exponential(1.0), StoredStream(np.random.default_rng(), 1, COMPUTE, 2), 2)
    drawn = [durations.next() for _ in range(200)]
    rng = stream(1, COMPUTE, 2)
    assert (
        drawn
        == [value for _ in range(4) for value in Exponential(1.0).draw(rng, 64).tolist()][:200]
    )


def test_streams_that_share_a_generator_are_those_that_have_one_each():
    """Whatever is drawn in between, also 32-bit numbers, of which a generator keeps half a draw."""
    shared = np.random.default_rng(5)
    stored = [StoredStream(shared, 1, COMPUTE, rank) for rank in range(3)]
    own = [stream(1, COMPUTE, rank) for rank in range(3)]
    for draw in (
        lambda rng: rng.integers(7, dtype=np.uint32),
        lambda rng: rng.exponential(size=2).tolist(),
    ) * 3:
        assert [one.draw(draw) for one in stored] == [draw(rng) for rng in own]


def test_streams_differ_by_seed_purpose_and_rank_and_the_server_has_one():
    values = {stream(*key).random() for key in [(0, COMPUTE, 0), (1, COMPUTE, 0), (0, BATCHES, 0), (0, COMPUTE, 1),
                                                (0, COMPUTE, -1)]}  # fmt: skip
    assert len(values) == 5


@pytest.mark.parametrize(
    "law", [TwoLevelGamma(2.0, 0.5, 0.1), Scaled(TwoLevelGamma(0.5, 0.5, 0.1), 4.0)], ids=repr
)
def test_machines_differ_for_good_and_each_has_its_own_batches(law):
    """Means of 1,000 machines have deviation 2 machine_cv, a machine's mini-batches its mean times
    batch_cv.
    """
    machines = [[durations.next() for _ in range(640)] for durations in workers(law, 1000)]
    means, stds = np.mean(machines, axis=1), np.std(machines, axis=1)
    M = len(machines)
    assert means.mean() == pytest.approx(2.0, abs=5 * means.std() / math.sqrt(M))
    fourth = np.std((means - means.mean()) ** 2) / math.sqrt(M)
    # what 640 mini-batches leave of their own deviation
    batches = (1.0 + 0.25) * 0.1**2 * 4.0 / 640
    assert means.var() == pytest.approx(1.0 + batches, abs=6 * fourth)
    ratio = stds / means
    assert ratio.mean() == pytest.approx(0.1, abs=5 * ratio.std() / math.sqrt(M) + 0.1 / 640)


def workers(law, many, seed=1):
    shared = np.random.default_rng()
    return [Durations(law, StoredStream(shared, seed, COMPUTE, rank), rank) for rank in range(many)]


def test_a_machines_mean_comes_from_its_own_stream():
    """Another worker, or another number of them, moves nobody."""
    law = TwoLevelGamma(2.0, 0.5, 0.1)
    few, many = ([durations.next() for durations in workers(law, P)] for P in (3, 8))
    assert few == many[:3]
    assert len(set(many)) == 8


def test_two_levels_become_one_where_machines_are_alike():
    alike = [durations.next() for durations in workers(TwoLevelGamma(2.0, 1e-6, 0.3), 4000)]
    law = Gamma(2.0, 0.3)
    assert np.mean(alike) == pytest.approx(law.mean, abs=5 * law.std / math.sqrt(len(alike)))
    assert TwoLevelGamma(2.0, 1e-6, 0.3).std == pytest.approx(law.std)


def column(name):
    lines = Path(MEASURED).read_text().split()
    place = lines[0].split(",").index(name)
    return [float(line.split(",")[place]) for line in lines[1:]]


@pytest.mark.parametrize("name", ["forward", "wall"])
def test_a_worker_goes_round_the_file_from_a_place_of_its_own(name):
    rows = column(name)
    starts = set()
    for durations in workers(Trace(MEASURED, name), 40):
        drawn = [durations.next() for _ in range(200)]
        start = rows.index(drawn[0])
        starts.add(start)
        assert drawn == [rows[(start + step) % len(rows)] for step in range(200)]
    assert len(starts) > 5


def test_a_bootstrap_draws_rows_at_random():
    drawn = [durations.next() for durations in workers(Trace(MEASURED, "wall", "bootstrap"), 5000)]
    rows = column("wall")
    shares = [drawn.count(row) / len(drawn) for row in rows]
    assert shares == pytest.approx(
        [1 / len(rows)] * len(rows), abs=5 * math.sqrt(0.1 * 0.9 / len(drawn))
    )


def test_a_trace_runs_under_a_simulation():
    rows = column("wall")
    outcome = simulate(
        Cluster(workers=2, compute=Trace(MEASURED, "wall")), AsyncPS(Rule()), stop=Stop(updates=50)
    )
    for rank in range(2):
        own = outcome.updates["worker"] == rank
        took = np.diff(outcome.updates["time"][own])
        assert min(abs(took[0] - row) for row in rows) < 1e-9
        assert sum(took[:10]) == pytest.approx(sum(rows))


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (
            None,
            {},
            r"Trace.file: .*: No such file or directory'",
        ),
        (
            "",
            {},
            r"Trace.file: expected a row of names and rows below it",
        ),
        ("seconds\n", {}, r"Trace.file: expected a row of names and rows below it"),
        ("0.1\n0.2\n", {}, r"Trace.file: expected a row of names"),
        (
            "name,seconds\na,0.1\nb,-0.2\n",
            {},
            r"Trace.file: .*'-0.2' in line 3 of",
        ),
        ("s,t\n0.1,1\n\n0,1\n", {"column": "s"}, r"got \"'0' in line 4 of .*a.csv\""),
        ("s,t\n0.1,1\nnan,1\n", {"column": "s"}, r"'nan' in line 3"),
        ("s,t\n0.1,1\ninf,1\n", {"column": "s"}, r"'inf' in line 3"),
        ("s,t\n0.1,1\nfast,1\n", {"column": "s"}, r"'fast' in line 3"),
        ("s,t\n0.1,1\n0.1\n", {"column": "t"}, r"'' in line 3"),
        (
            "s,t\n0.1,1\n",
            {"column": "u"},
            r"Trace.column: expected one of s, t, of numbers, got 'u'",
        ),
        ("step,s\n1,0.1\n", {}, r"Trace.column: expected the name of one of step, s, got None"),
        ("s,t\na,b\n", {}, r"Trace.column: expected a column of numbers, got 's, t in"),
        ("s,t\n0.1,b\n", {"column": "t"}, r"'b' in line 2"),
        (
            "s,t\n0.1,1\n",
            {"order": "backwards"},
            r"Trace.order: expected sequential, bootstrap or replay, got 'backwards'",
        ),
    ],
)
def test_a_trace_that_is_none_is_refused_by_its_line(tmp_path, text, given, said):
    path = tmp_path / "a.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSettingError, match=said):
        Trace(str(path), **given)


def test_of_several_columns_the_one_called_seconds_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("worker,step,seconds,wall\n0,1,0.25,3\n0,2,0.5,4\n")
    assert (
        Trace(str(path)).seconds.tolist()
        == Trace(str(path), worker="worker").seconds.tolist()
        == [0.25, 0.5]
    )


def test_a_file_as_spreadsheets_write_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff"host", seconds \r\nnode7, 0.25\r\nnode8,0.5\r\n'.encode())
    assert (
        Trace(str(path)).seconds.tolist()
        == Trace(str(path), "seconds").seconds.tolist()
        == [0.25, 0.5]
    )


RANKED = "rank,seconds,wall\n1,0.5,1.5\n0,0.25,1.25\n1,4.0,5.0\n0,0.125,1.125\n1,2.0,3.0\n"
OWN = {0: [0.25, 0.125], 1: [0.5, 4.0, 2.0]}
"""The seconds of each rank, in the order of the file."""


@pytest.fixture
def ranked(tmp_path):
    (tmp_path / "ranked.csv").write_text(RANKED)
    return str(tmp_path / "ranked.csv")


@pytest.mark.parametrize("factor", [1.0, 32.0])
@pytest.mark.parametrize("order", ["sequential", "replay", "bootstrap"])
def test_with_a_column_of_ranks_a_worker_uses_its_own_rows(ranked, order, factor):
    law = Scaled(Trace(ranked, order=order, worker="rank"), factor)
    starts = {rank: set() for rank in OWN}
    for seed in range(30):
        for rank, rows in OWN.items():
            durations = Durations(
                law, StoredStream(np.random.default_rng(0), seed, COMPUTE, rank), rank
            )
            drawn = [durations.next() / factor for _ in range(200)]
            assert set(drawn) == set(rows)
            start = rows.index(drawn[0])
            starts[rank].add(start)
            if order != "bootstrap":
                assert drawn == [rows[(start + step) % len(rows)] for step in range(200)]
    assert starts == {
        rank: {0} if order == "replay" else set(range(len(rows))) for rank, rows in OWN.items()
    }


def test_a_replay_without_ranks_begins_with_the_first_row_on_every_worker():
    rows = column("wall")
    for durations in workers(Trace(MEASURED, "wall", "replay"), 5):
        assert [durations.next() for _ in range(25)] == [
            rows[step % len(rows)] for step in range(25)
        ]


def test_moments_of_a_trace_with_ranks_are_those_of_all_rows(ranked):
    seconds = [0.5, 0.25, 4.0, 0.125, 2.0]
    law = Trace(ranked, worker="rank")
    assert (law.mean, law.std) == (pytest.approx(np.mean(seconds)), pytest.approx(np.std(seconds)))


def test_a_simulation_repeats_measured_seconds_in_their_order(ranked):
    cluster = Cluster(workers=2, compute=Trace(ranked, "wall", "replay", "rank"))
    rows = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=60)).updates
    for rank, wall in {0: [1.25, 1.125], 1: [1.5, 5.0, 3.0]}.items():
        ends = rows["time"][rows["worker"] == rank]
        assert (
            ends.tolist()
            == np.cumsum([wall[step % len(wall)] for step in range(len(ends))]).tolist()
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "rank,seconds\n0,1\n1,2\n",
            r"Cluster.compute.worker: expected rows of each rank below workers = 3",
        ),
        (
            "host,seconds\n0,1\n",
            r"Trace.worker: expected one of host, seconds, of ranks, .*got 'rank'",
        ),
        (
            "rank,seconds\n0,1\n1.5,2\n",
            r"expected a rank, .*'1.5' in line 3",
        ),
        ("rank,seconds\n0,1\n-1,2\n", r"expected a rank, .*'-1' in line 3"),
        (
            "rank,seconds\n0,1\n1234567890,2\n",
            r"expected a rank, .*'1234567890' in line 3",
        ),
        ("rank,seconds\n0,1\n,2\n", r"expected a rank, .*'' in line 3"),
        ("seconds,rank\n1,0\n2\n", r"expected a rank, .*'' in line 3"),
        (
            "rank,seconds\n0,1\n1,0\n",
            r"Trace.file: .*'0' in line 3",
        ),
        ("rank,name\n0,a\n", r"Trace.column: expected a column of numbers"),
    ],
)
@pytest.mark.parametrize("factor", [None, 32.0])
def test_ranks_that_are_none_are_refused(tmp_path, text, said, factor):
    (tmp_path / "a.csv").write_text(text)

    def build():
        law = Trace(str(tmp_path / "a.csv"), worker="rank")
        return Cluster(workers=3, compute=Scaled(law, factor) if factor else law)

    with pytest.raises(InvalidSettingError, match=said) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "drawn",
    [1.0, [1.0] * 64, None, np.ones(1), np.ones((64, 2))],
    ids=lambda drawn: f"{drawn!r:.20}",
)
def test_a_law_that_draws_another_number_of_durations_is_told(drawn):
    class Own(Constant):
        def draw(self, rng, size):
            return drawn

    with pytest.raises(
        InvalidSettingError, match="draw: expected an array of 64 numbers, as asked for"
    ):
        simulate(Cluster(2, Own(1.0)), AsyncPS(Rule()), stop=Stop(updates=3))
