"""Gossip: seconds per step."""

from typing import Any

import pytest

from laggard.simulator import Cluster, Stop, simulate
from laggard.simulator.network.topology import Exponential, Ring, Topology
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Factor
from tests.theory.gossiping import ASSRAN, LIAN, ONE_PEER, ORDERS, on
from tests.theory.statements import equal
from tests.theory.trials import method, update_times

ONCE, TWICE = 0.375, 0.625  # alpha + N beta and alpha + 2 N beta, for the cards below
CARDS = {"bandwidth": 12.0, "latency": 0.125, "message_bytes": 3.0}
STEPS: dict[str, tuple[Topology, dict[str, Any], str]] = {
    "sgp, one peer": (ONE_PEER, {}, "t_c + alpha + N beta"),
    "sgp, two peers": (Exponential(peers=2), {}, "t_c + alpha + 2 N beta"),
    "sgp, one peer, overlap 1": (ONE_PEER, {"overlap": 1}, "max(t_c, alpha + N beta)"),
    "dpsgd, ring, adapt": (Ring(), {"order": ORDERS[1]}, "t_c + alpha + 2 N beta"),
    "dpsgd, ring, combine": (Ring(), {"order": ORDERS[0]}, "max(t_c, alpha + 2 N beta)"),
}


@pytest.mark.parametrize("t_c", [2.0, 0.1])
@pytest.mark.parametrize("name", STEPS)
def test_seconds_per_step(name: str, t_c: float) -> None:
    """Gradient and messages one after the other, or the longer of the two."""
    graph, settings, form = STEPS[name]
    way = TWICE if "2 N beta" in form else ONCE
    took = update_times(on(graph, 8, Constant(t_c), **CARDS), method(name.split(",")[0], **settings), 20)[3:]
    expected, source = max(t_c, way) if "max" in form else t_c + way, ASSRAN if "sgp" in name else LIAN
    equal(f"{name}, t_c {t_c:g}: {form}", expected, took, source=source)


@pytest.mark.parametrize(("name", "form"), [("adpsgd", "P - 1 + 1/s"), ("dpsgd", "P / s"), ("sgp", "P / s")])
def test_one_slow_worker(name: str, form: str) -> None:
    """A node that is s times slower holds up nobody but those who average with it in step."""
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    at = simulate(cluster, method(name), stop=Stop(time=600.5)).updates["time"]
    expected = P - 1 + 1 / s if name == "adpsgd" else P / s
    text = f"{name}, P = {P}, one worker {s:g} times slower: speed-up {form}"
    equal(text, expected, (at > 300.5).sum() / 300, source="derived")
