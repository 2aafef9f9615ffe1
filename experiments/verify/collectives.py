"""All-reduce: every collective adds up the same gradients, and takes the time of its textbook."""

import math
from collections.abc import Callable, Iterator

from experiments.verify.finding import Family, Finding, close, equals, identical
from experiments.verify.trials import every, left_by, method, quadratic, update_times
from models import LeNet5
from simulator import Cluster, Network, Stop
from simulator.collectives import COLLECTIVES
from simulator.laws import Constant, Gamma

THAKUR, PATARASUK, LOGP = "Thakur et al. (2005)", "Patarasuk & Yuan (2009)", "alpha-beta model"
ALPHA, TRANSFER = 0.125, 0.25
Seconds = Callable[[int, float, float], float]
TIMES: dict[str, tuple[str, str, Seconds]] = {
    "ring": ("2 (P - 1) alpha + 2 ((P - 1) / P) N beta", PATARASUK,
             lambda P, alpha, transfer: 2 * (P - 1) * alpha + 2 * (P - 1) / P * transfer),
    "naive_ring": ("(P - 1) (alpha + N beta)", LOGP, lambda P, alpha, transfer: (P - 1) * (alpha + transfer)),
    "mesh": ("alpha + (P - 1) N beta", LOGP, lambda P, alpha, transfer: alpha + (P - 1) * transfer),
    "recursive_doubling": ("log2 P (alpha + N beta)", THAKUR,
                           lambda P, alpha, transfer: math.log2(P) * (alpha + transfer)),
    "halving_doubling": ("2 log2 P alpha + 2 ((P - 1) / P) N beta", THAKUR,
                         lambda P, alpha, transfer: 2 * math.log2(P) * alpha + 2 * (P - 1) / P * transfer),
    "tree": ("2 ceil(log2 P) (alpha + N beta)", THAKUR,
             lambda P, alpha, transfer: 2 * math.ceil(math.log2(P)) * (alpha + transfer)),
}  # fmt: skip
"""Seconds of each collective over cards, beside the gradient's: of P, alpha and N beta."""

collectives = Family("collectives", "Collectives: arithmetic and time")


@collectives.check
def same_as_a_server() -> Iterator[Finding]:
    """All-reduce is a synchronous server, whatever the collective and however many nodes."""
    for P in (4, 6):
        cluster = Cluster(workers=P, compute=Gamma(1.0, 0.5))
        server = every(cluster, "sync_ps")
        for name in COLLECTIVES:
            reduced = every(cluster, "all_reduce", collective=name)
            yield close(f"all_reduce, {name}, P = {P} = sync_ps, every optimiser", PATARASUK, reduced, server)


@collectives.check
def same_everywhere() -> Iterator[Finding]:
    """After every update the nodes' models are the same to the bit."""
    for P in (4, 6):
        cluster = Cluster(workers=P, compute=Gamma(1.0, 0.5))
        firsts, others = [], []
        for name in COLLECTIVES:
            nodes = left_by(cluster, method("all_reduce", collective=name), quadratic(), Stop(updates=10)).nodes
            firsts += [nodes[0].weights] * (P - 1)
            others += [nodes[rank].weights for rank in range(1, P)]
        yield identical(f"all_reduce, P = {P}, every collective: all nodes' models", "derived", firsts, others)


def seconds(P: int, name: str, alpha: float = ALPHA, transfer: float = TRANSFER, **network: str) -> float:
    """What one update takes beside its gradient: the longest of several."""
    settings = Network(bandwidth=1.0, latency=alpha, message_bytes=transfer, **network)  # type: ignore[arg-type]
    cluster = Cluster(workers=P, compute=Constant(1.0), network=settings)
    return float(update_times(cluster, method("all_reduce", collective=name), 10).max()) - 1.0


@collectives.check
def times() -> Iterator[Finding]:
    """P nodes that begin together, on a card each."""
    for sharing in ("fair", "fifo"):
        for name, (form, source, closed) in TIMES.items():
            measured = seconds(8, name, sharing=sharing)
            yield equals(f"{name}, P = 8, {sharing}: {form}", source, closed(8, ALPHA, TRANSFER), measured)
    for name in ("ring", "naive_ring", "mesh", "tree"):
        form, source, closed = TIMES[name]
        yield equals(f"{name}, P = 6: {form}", source, closed(6, ALPHA, TRANSFER), seconds(6, name))
    measured = seconds(8, "mesh", wiring="pairs")
    yield equals("mesh on private links, P = 8: alpha + N beta", LOGP, ALPHA + TRANSFER, measured)


@collectives.check
def ring_or_naive() -> Iterator[Finding]:
    """The ring of chunks beats the naive one iff N beta (1 - 2 / P) > alpha."""
    P = 8
    for alpha, transfer in [(0.125, 0.25), (0.2, 0.25), (0.1875, 0.25)]:
        gain = seconds(P, "naive_ring", alpha, transfer) - seconds(P, "ring", alpha, transfer)
        costs = f"alpha {alpha:g}, N beta {transfer:g}"
        statement = f"naive ring - ring, P = {P}, {costs}: (P - 1) (N beta (1 - 2/P) - alpha)"
        yield equals(statement, "derived", (P - 1) * (transfer * (1 - 2 / P) - alpha), gain)
    parameters = sum(parameter.numel() for parameter in LeNet5().build((1, 28, 28), 10).parameters())
    yield equals("LeNet-5 in float32: N bytes", "LeCun et al. (1998)", 246_824, 4 * parameters)
