"""The rows of a run, a gradient each."""

import numpy as np
import pandas as pd
import pytest

from laggard.simulator import AsyncPS, Cluster, Record, Rule, Stop, simulate
from laggard.simulator.recording.trace import TraceColumns
from laggard.simulator.timing.distributions import Exponential


@pytest.mark.parametrize("record", [None, Record(messages=True)], ids=["plain", "with arrivals"])
def test_rows_come_in_parts_of_whole(record):
    fates = simulate(
        Cluster(3, Exponential(1.0)), AsyncPS(Rule()), stop=Stop(updates=25), record=record
    ).updates
    assert isinstance(fates, TraceColumns)
    assert np.isfinite(fates["arrived"]).any() == (record is not None)
    parts = list(fates.parts(7))
    assert [len(part["time"]) for part in parts] == [7, 7, 7, len(fates["time"]) - 21]
    for name in fates:
        np.testing.assert_array_equal(
            np.concatenate([part[name] for part in parts]), fates[name], err_msg=name
        )
    assert (
        list(pd.DataFrame(fates))
        == list(dict(fates))
        == list(fates.keys())
        == [name for name, _ in fates.items()]
    )
    assert "status" in fates
    assert fates.get("nonsense") is None
    np.testing.assert_array_equal(fates["version"], fates["version_read"] + fates["staleness"])
    assert [len(part["time"]) for part in TraceColumns({"time": np.empty(0)}).parts(7)] == [0]
