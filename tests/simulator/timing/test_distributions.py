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
    Scipy,
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
    Scipy("weibull_min", scale=2.0, c=1.5),
    Scipy("invgauss", loc=0.5, scale=2.0, mu=0.5),
    Scaled(Gamma(2.0, 0.3), 32.0),
    TwoLevelGamma(2.0, 0.3, 0.1),
    TwoLevelGamma(2.0, 0.9, 1.2),
    Trace(MEASURED, "forward"),
    Trace(MEASURED, "wall", "bootstrap"),
    Scaled(Trace(MEASURED, "forward"), 32.0),
    Trace(MEASURED, "wall", "replay"),
]
N = 200_000


def test_every_distribution_is_tested():
    assert set(DISTRIBUTIONS.values()) | {Scaled} == {type(law) for law in EXAMPLES}


@pytest.mark.parametrize("law", EXAMPLES, ids=repr)
def test_draws_have_mean_and_deviation_of_distribution(law):
    draws = law.draw(np.random.default_rng(5), N)
    assert draws.shape == (N,)
    assert (draws > 0).all()
    assert draws.mean() == pytest.approx(law.mean, abs=5 * law.std / math.sqrt(N) + 1e-12)
    error = np.std((draws - draws.mean()) ** 2) / math.sqrt(N)
    assert draws.var() == pytest.approx(law.std**2, abs=6 * error + 1e-12)


def test_heavy_tail_has_no_deviation():
    assert Pareto(1.0, 2.0).std == math.inf


class Broken(Constant):
    """A law that draws a given value whatever it is asked for."""

    def __init__(self, drawn):
        super().__init__(1.0)
        object.__setattr__(self, "drawn", drawn)

    def draw(self, rng, n):
        return self.drawn


DRAWN = [np.full(64, value) for value in (-1e-9, math.nan, math.inf)]


NO_BLOCKS = [1.0, [1.0] * 64, None, np.ones(1), np.ones((64, 2)), np.ones(64, complex)]


@pytest.mark.parametrize("drawn", [*DRAWN, *NO_BLOCKS])
def test_distribution_without_valid_durations_raises(drawn):
    with pytest.raises(InvalidSettingError, match=r"Broken.*draw.*: expected"):
        simulate(Cluster(2, compute=Broken(drawn)), AsyncPS(Rule()), stop=Stop(updates=3))


@pytest.mark.parametrize("mean", [lambda: 1.0, "1.0", math.nan, -1.0])
def test_distribution_without_valid_mean_raises(mean):
    compute = Broken(np.ones(64))
    object.__setattr__(compute, "mean", mean)
    with pytest.raises(InvalidSettingError, match=r"Broken.*mean: expected"):
        simulate(Cluster(2, compute=compute), AsyncPS(Rule()), stop=Stop(updates=3))


def test_blocks_do_not_change_stream():
    durations = Durations(Exponential(1.0), StoredStream(np.random.default_rng(), 1, COMPUTE, 2), 2)
    drawn = [durations.next() for _ in range(200)]
    rng = stream(1, COMPUTE, 2)
    assert (
        drawn
        == [value for _ in range(4) for value in Exponential(1.0).draw(rng, 64).tolist()][:200]
    )


def test_streams_may_share_generator():
    """Other draws may come in between, also 32-bit numbers, for which a generator stores half a
    draw.
    """
    shared = np.random.default_rng(5)
    stored = [StoredStream(shared, 1, COMPUTE, rank) for rank in range(3)]
    own = [stream(1, COMPUTE, rank) for rank in range(3)]
    for draw in (
        lambda rng: rng.integers(7, dtype=np.uint32),
        lambda rng: rng.exponential(size=2).tolist(),
    ) * 3:
        assert [one.draw(draw) for one in stored] == [draw(rng) for rng in own]


def test_streams_differ_by_seed_purpose_and_rank():
    others = [(1, COMPUTE, 0), (0, BATCHES, 0), (0, COMPUTE, 1), (0, COMPUTE, -1)]
    assert len({stream(*key).random() for key in [(0, COMPUTE, 0), *others]}) == 5


@pytest.mark.parametrize(
    "law", [TwoLevelGamma(2.0, 0.5, 0.1), Scaled(TwoLevelGamma(0.5, 0.5, 0.1), 4.0)], ids=repr
)
def test_machines_of_two_levels_keep_their_means(law):
    """Means of 1,000 machines have deviation 2 machine_cv, a machine's mini-batches its mean times
    batch_cv.
    """
    drawn = np.array([[durations.next() for _ in range(640)] for durations in workers(law, 1000)])
    means, stds = drawn.mean(1), drawn.std(1)
    M = len(drawn)
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


def test_mean_of_machine_comes_from_own_stream():
    """Additional workers do not change the means of the others."""
    law = TwoLevelGamma(2.0, 0.5, 0.1)
    few, many = ([durations.next() for durations in workers(law, P)] for P in (3, 8))
    assert few == many[:3]
    assert len(set(many)) == 8


def column(name):
    lines = Path(MEASURED).read_text().split()
    place = lines[0].split(",").index(name)
    return [float(line.split(",")[place]) for line in lines[1:]]


@pytest.mark.parametrize("name", ["forward", "wall"])
def test_worker_reads_file_from_own_place(name):
    rows = column(name)
    starts = set()
    for durations in workers(Trace(MEASURED, name), 40):
        drawn = [durations.next() for _ in range(200)]
        start = rows.index(drawn[0])
        starts.add(start)
        assert drawn == [rows[(start + step) % len(rows)] for step in range(200)]
    assert len(starts) > 5


@pytest.mark.parametrize("factor", [None, 32.0])
def test_trace_without_rows_of_worker_is_refused(tmp_path, factor):
    (tmp_path / "a.csv").write_text("rank,seconds\n0,1\n1,2\n")
    law = Trace(str(tmp_path / "a.csv"), worker="rank")
    with pytest.raises(InvalidSettingError, match=r"Cluster\.compute\.worker"):
        Cluster(workers=3, compute=Scaled(law, factor) if factor else law)


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("worker,step,seconds,wall\n0,1,0.25,3\n0,2,0.5,4\n", {}),
        ("worker,step,seconds,wall\n0,1,0.25,3\n0,2,0.5,4\n", {"worker": "worker"}),
        # as spreadsheets write it
        ('\ufeff"host", seconds \r\nnode7, 0.25\r\nnode8,0.5\r\n', {}),
        ('\ufeff"host", seconds \r\nnode7, 0.25\r\nnode8,0.5\r\n', {"column": "seconds"}),
    ],
)
def test_column_called_seconds_is_read(tmp_path, content, settings):
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    assert Trace(str(path), **settings).seconds.tolist() == [0.25, 0.5]


RANKED = "rank,seconds,wall\n1,0.5,1.5\n0,0.25,1.25\n1,4.0,5.0\n0,0.125,1.125\n1,2.0,3.0\n"
OWN = {0: [0.25, 0.125], 1: [0.5, 4.0, 2.0]}
"""The seconds of each rank, in the order of the file."""


@pytest.fixture
def ranked(tmp_path):
    (tmp_path / "ranked.csv").write_text(RANKED)
    return str(tmp_path / "ranked.csv")


@pytest.mark.parametrize("factor", [1.0, 32.0])
@pytest.mark.parametrize("order", ["sequential", "replay", "bootstrap"])
def test_worker_uses_rows_of_its_rank(ranked, order, factor):
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
