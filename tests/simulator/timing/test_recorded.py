"""Slowdowns and crashes as a table: they act as its rows do, one by one."""

import numpy as np
import pytest

from laggard.simulator import AsyncPS, Cluster, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor, Recorded, Window, apply_slowdowns

WINDOWS = [
    Window(0, factor=2.0, start=1.0, end=4.0),
    Window(0, factor=3.0, start=2.0, end=6.0),
    Window(0, factor=0.5, start=2.0, end=2.5),
    Window(1, factor=7.0, start=0.0, end=1e30),
    Window(workers=[0, 2], factor=1.5, start=6.0, end=9.0),
]


def test_table_and_its_rows_make_same_run():
    rows = [*WINDOWS, Crash(2, at=3.0, back=5.0), Crash(2, at=8.0, back=8.5), Crash(3, at=11.0)]
    found = [
        simulate(
            Cluster(workers=4, compute=Gamma(1.0, 0.4), slowdowns=slowdowns),
            AsyncPS(Rule()),
            stop=Stop(time=20.0),
        )
        for slowdowns in (rows, [Recorded(rows)])
    ]
    one, other = (outcome.updates for outcome in found)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    assert found[0].workers["down"].tolist() == found[1].workers["down"].tolist()
    assert np.flatnonzero(found[1].workers["down"]).tolist() == [2, 3]


def test_other_slowdowns_multiply_with_table():
    cluster = Cluster(
        workers=1,
        slowdowns=[Factor(0, factor=2.0), Recorded([Window(0, factor=5.0, start=0.0, end=2.0)])],
    )
    assert apply_slowdowns(1.0, 0.0, cluster.slowdowns_of(0)) == 2.0 + 2 * (1.0 - 0.2)


@pytest.mark.parametrize(
    "rows",
    [
        [Window(4, factor=2.0, start=0.0, end=1.0)],
        [Crash(9, at=1.0)],
    ],
)
def test_table_that_does_not_fit_is_refused(rows):
    with pytest.raises(InvalidSettingError, match=r"slowdowns\.1\.file: expected"):
        Cluster(workers=4, slowdowns=[Crash(0, at=0.0, back=6.0), Recorded(rows)])
