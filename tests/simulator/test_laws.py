"""Laws know their moments; streams are each purpose's and rank's own; what is no duration is refused."""

import math

import numpy as np
import pytest

from simulator import AsyncPS, Cluster, Invalid, Rule, Stop, simulate
from simulator.laws import (
    LAWS,
    Constant,
    Durations,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    Scaled,
    ShiftedExponential,
    TwoPoint,
    Uniform,
)
from simulator.streams import BATCHES, COMPUTE, stream

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
]
N = 200_000


def test_every_law_of_the_table_is_tested():
    assert set(LAWS.values()) | {Scaled} == {type(law) for law in EXAMPLES}


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
        (lambda: Pareto(1.0, 1.0), "tail"),
        (lambda: TwoPoint(1.0, 2.0, 1.5), "probability"),
        (lambda: ShiftedExponential(-1.0, 1.0), "shift"),
        (lambda: Scaled(Constant(1.0), 0.0), "factor"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(law, field):
    with pytest.raises(Invalid, match=f"{field}: expected a number"):
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
    with pytest.raises(Invalid, match=r"Broken.draw for worker 0: expected a finite duration >= 0 s, got"):
        simulate(Cluster(workers=2, compute=Broken(bad)), AsyncPS(Rule()), stop=Stop(updates=3))


def test_blocks_do_not_change_the_stream():
    durations = Durations(Exponential(1.0), stream(1, COMPUTE, 2), "worker 2")
    drawn = [durations.next() for _ in range(200)]
    rng = stream(1, COMPUTE, 2)
    assert drawn == [value for _ in range(4) for value in Exponential(1.0).draw(rng, 64).tolist()][:200]


def test_streams_differ_by_seed_purpose_and_rank_and_the_server_has_one():
    values = {stream(*key).random() for key in [(0, COMPUTE, 0), (1, COMPUTE, 0), (0, BATCHES, 0), (0, COMPUTE, 1),
                                                (0, COMPUTE, -1)]}  # fmt: skip
    assert len(values) == 5
