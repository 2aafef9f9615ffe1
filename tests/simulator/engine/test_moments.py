"""Moments that are written in decimals count what falls on them, though sums of decimals differ."""

from decimal import Decimal

import pytest

from laggard import AsyncPS, Cluster, Rule, Stop, simulate
from laggard.simulator import Evaluate
from laggard.simulator.network.config import Network
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash

BATCHES = ["0.1", "0.3", "0.7", "0.01", "0.07", "1.1", "0.013"]
COUNTS = [*range(1, 30), 100, 333]


def run_until(seconds, batch, stop=None, evaluate=None, **cluster):
    """Asynchronous SGD of one worker whose mini-batches take `batch` seconds."""
    stop = Stop(time=float(seconds)) if stop is None else stop
    method = AsyncPS(Rule())
    cluster = Cluster(1, Constant(float(batch)), **cluster)
    return simulate(cluster, method, stop=stop, evaluate=evaluate or Evaluate())


def updates(outcome):
    return int((outcome.updates["status"] == "applied").sum())


@pytest.mark.parametrize("batch", BATCHES)
def test_limit_counts_batches_that_end_on_it(batch):
    for count in COUNTS:
        limit = Decimal(batch) * count
        assert updates(run_until(limit, batch)) == count
        assert updates(run_until(limit - Decimal(batch) / 2, batch)) == count - 1


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_limit_counts_messages_that_arrive_on_it(sharing):
    """Each update takes 0.1 s of computing, 0.1 s up and 0.1 s down."""
    network = Network(bandwidth=10.0, message_bytes=1.0, sharing=sharing)
    for count in COUNTS:
        limit = Decimal("0.3") * count - Decimal("0.1")  # the weights first come down
        outcome = run_until(limit + Decimal("0.1"), "0.1", network=network)
        assert updates(outcome) == count


@pytest.mark.parametrize("batch", BATCHES)
def test_crash_comes_before_batches_that_end_on_it(batch):
    for count in range(2, 30):
        moment = Decimal(batch) * count
        crash = Crash(0, at=float(moment))
        outcome = run_until(2 * moment, batch, slowdowns=[crash])
        assert updates(outcome) == count - 1
        later = Crash(0, at=float(moment + Decimal(batch) / 2))
        assert updates(run_until(2 * moment, batch, slowdowns=[later])) == count


def test_evaluations_see_batches_that_end_on_their_period():
    evaluate = Evaluate(every_seconds=0.3)
    metrics = run_until("0.9", "0.1", evaluate=evaluate).metrics
    assert metrics["updates"].tolist() == [0, 3, 6, 9]
    assert metrics["time"].tolist() == pytest.approx([0.0, 0.3, 0.6, 0.9], rel=1e-12)


@pytest.mark.parametrize("unit", [0.1, 0.125])
def test_checkpoint_comes_before_updates_on_its_period(unit):
    """Of 8 updates before a crash, those after the checkpoint at 6 units are lost, the 6th too."""
    outcome = run_until(
        20 * unit,
        unit,
        checkpoint=Checkpoint(every_seconds=3 * unit),
        server_crashes=[ServerCrash(at=8.5 * unit, restore_seconds=unit)],
    )
    assert outcome.restores["lost"].tolist() == [3]
