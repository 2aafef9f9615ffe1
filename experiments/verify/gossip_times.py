"""Gossip: seconds per step, and one slow worker."""

from collections.abc import Iterator

from experiments.verify.finding import Family, Finding, equals
from experiments.verify.gossip import ASSRAN, LIAN, ONE_PEER, ORDERS, on
from experiments.verify.trials import method, update_times
from simulator import Cluster, Stop, simulate
from simulator.laws import Constant
from simulator.slowdowns import Factor
from simulator.topology import Exponential, Ring

gossip_times = Family("gossip_times", "Gossip: seconds per step")
ALPHA, TRANSFER, MESSAGE = 0.125, 0.25, {"bandwidth": 12.0, "latency": 0.125, "message_bytes": 3.0}


@gossip_times.check
def seconds_per_step() -> Iterator[Finding]:
    """Gradient and messages one after the other, or the longer of the two."""
    for t_c in (2.0, 0.1):
        for name, graph, settings, form, expected in [
            ("sgp, one peer", ONE_PEER, {}, "t_c + alpha + N beta", t_c + ALPHA + TRANSFER),
            ("sgp, two peers", Exponential(peers=2), {}, "t_c + alpha + 2 N beta", t_c + ALPHA + 2 * TRANSFER),
            (
                "sgp, one peer, overlap 1",
                ONE_PEER,
                {"overlap": 1},
                "max(t_c, alpha + N beta)",
                max(t_c, ALPHA + TRANSFER),
            ),
            ("dpsgd, ring, adapt", Ring(), {"order": ORDERS[1]}, "t_c + alpha + 2 N beta", t_c + ALPHA + 2 * TRANSFER),
            (
                "dpsgd, ring, combine",
                Ring(),
                {"order": ORDERS[0]},
                "max(t_c, alpha + 2 N beta)",
                max(t_c, ALPHA + 2 * TRANSFER),
            ),
        ]:
            took = update_times(on(graph, 8, Constant(t_c), **MESSAGE), method(name.split(",")[0], **settings), 20)[3:]
            yield equals(f"{name}, t_c {t_c:g}: {form}", ASSRAN if "sgp" in name else LIAN, expected, took)


@gossip_times.check
def one_slow_worker() -> Iterator[Finding]:
    """A node that is s times slower holds up nobody but those who average with it in step."""
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    for name, form, expected in [
        ("adpsgd", "P - 1 + 1/s", P - 1 + 1 / s),
        ("dpsgd", "P / s", P / s),
        ("sgp", "P / s", P / s),
    ]:
        at = simulate(cluster, method(name), stop=Stop(time=1000.5)).updates["time"]
        statement = f"{name}, P = {P}, one worker {s:g} times slower: speed-up {form}"
        yield equals(statement, "derived", expected, (at > 500.5).sum() / 500)
