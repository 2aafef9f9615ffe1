"""Stale synchronous parallel: a crash, and what is refused."""

import numpy as np
import pytest

from laggard.simulator import (
    Cluster,
    InvalidSettingError,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import SSP
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Crash


def test_crashed_worker_holds_others_at_bound():
    at, back, bound, P = 20.5, 60.0, 3, 4
    cluster = Cluster(
        workers=P, compute=Constant(1.0), slowdowns=[Crash(worker=1, at=at, back=back)]
    )
    rows = simulate(cluster, SSP(Rule(), bound=bound), stop=Stop(time=100.0)).updates
    applied = rows["status"] == "applied"
    while_down = applied & (rows["time"] > at) & (rows["time"] <= back)
    assert while_down.sum() == (P - 1) * (bound + 1), "the iteration they are in, and `bound` more"
    assert rows["time"][while_down].max() == pytest.approx(21 + bound)
    since = np.bincount(rows["worker"][applied & (rows["time"] > back)])
    assert since[1] == 40, "one a second"
    assert (since <= 40).all()


def test_negative_bound_is_refused():
    with pytest.raises(InvalidSettingError, match="bound"):
        SSP(Rule(), bound=-1)
