"""Collectives: arithmetic and time."""

from dataclasses import replace

import pytest

from laggard.experiments.theory.communication import (
    COLLECTIVE_SECONDS,
    OVERLAP_SECONDS,
    ring_in_slices_seconds,
)
from laggard.simulator import Cluster, Evaluate, Network, Stop, Timing, simulate
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.network.config import Hosts
from laggard.simulator.timing.distributions import Constant, Gamma
from tests.cases import quick
from tests.theory.statements import at_most, close, equal
from tests.theory.trials import every, method, update_times

JIA, LI, P3, PENG = (
    "Jia et al. (2018)",
    "Li et al. (2020)",
    "Jayarajan et al. (2019)",
    "Peng et al. (2019)",
)
THAKUR, PATARASUK, LOGP = "Thakur et al. (2005)", "Patarasuk & Yuan (2009)", "alpha-beta model"
ALPHA, TRANSFER = 0.125, 0.25
FORMS = {
    "ring": ("2 (P - 1) alpha + 2 ((P - 1) / P) N beta", PATARASUK),
    "naive_ring": ("(P - 1) (alpha + N beta)", LOGP),
    "mesh": ("alpha + (P - 1) N beta", LOGP),
    "recursive_doubling": ("log2 P (alpha + N beta)", THAKUR),
    "halving_doubling": ("2 log2 P alpha + 2 ((P - 1) / P) N beta", THAKUR),
    "tree": ("2 ceil(log2 P) (alpha + N beta)", THAKUR),
    "server": ("2 alpha + 2 (P - 1) N beta", LOGP),
}


@pytest.mark.parametrize("P", quick([4, 6], only=[6]))
def test_all_reduce_equals_synchronous_server(P):
    """All-reduce equals a synchronous server for every collective and number of nodes."""
    cluster = Cluster(workers=P, compute=Gamma(1.0, 0.5))
    server = every(cluster, "sync_ps", updates=6)
    for name in COLLECTIVES:
        reduced = every(cluster, "all_reduce", collective=name, updates=6)
        close(
            f"all_reduce, {name}, P = {P} = sync_ps, every optimiser",
            reduced,
            server,
            source=PATARASUK,
        )


CARDS = Network(bandwidth=1.0, latency=ALPHA, message_bytes=TRANSFER)


def seconds(P, network, **settings):
    """What one update takes beside its gradient: the longest of several."""
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network)
    return float(update_times(cluster, method("all_reduce", **settings), 10).max()) - 1.0


ANY_NUMBER = ("ring", "naive_ring", "mesh", "tree")
"""Collectives whose form is not for powers of two alone."""


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(
    ("name", "P"), [*((name, 8) for name in FORMS), *((name, 6) for name in ANY_NUMBER)]
)
def test_collective_time_follows_closed_form(name, P, sharing):
    """P nodes begin at the same time, each with its own card."""
    form, source = FORMS[name]
    expected = COLLECTIVE_SECONDS[name](P, ALPHA, TRANSFER)
    measured = seconds(P, replace(CARDS, sharing=sharing), collective=name)
    if (name, sharing) == ("server", "fifo"):
        form, expected = (
            "2 alpha + P N beta; who is answered first is early in the next round",
            2 * ALPHA + 8 * TRANSFER,
        )
    equal(f"{name}, P = {P}, {sharing}: {form}", expected, measured, source=source)


MODELS_SENT = {
    "ring": ("2 (P - 1)", 14),
    "naive_ring": ("P (P - 1)", 56),
    "mesh": ("P (P - 1)", 56),
    "recursive_doubling": ("P log2 P", 24),
    "halving_doubling": ("2 (P - 1)", 14),
    "tree": ("2 (P - 1)", 14),
    "server": ("2 (P - 1)", 14),
}
"""What eight nodes send in a collective, all together, in models."""


@pytest.mark.parametrize("wiring", ["pairs", "cards"])
@pytest.mark.parametrize("name", FORMS)
def test_bytes_follow_closed_form(name, wiring):
    """The bytes of all messages up to an evaluation, also where rounds are computed at once."""
    form, models = MODELS_SENT[name]
    # long gradients: no node begins a round before all have ended the one before
    cluster = Cluster(8, Constant(100.0), network=replace(CARDS, wiring=wiring))
    reduced = method("all_reduce", collective=name)
    evaluate = Evaluate(every_updates=1)
    run = simulate(cluster, reduced, Timing(), stop=Stop(updates=3), evaluate=evaluate)
    sent = run.metrics["bytes"] / TRANSFER - models * run.metrics["updates"]
    equal(f"bytes of {name}, {wiring}: {form} N an update", 0.0, sent, source=FORMS[name][1])


def test_slices_overlap_in_ring():
    """A node passes on a slice while it receives the next: with queues, the latency counts once if
    k slices cover it.
    """
    for slices in (4, 16):
        took = seconds(8, replace(CARDS, latency=0.01, sharing="fifo"), ring_slices=slices)
        expected = ring_in_slices_seconds(8, slices, 0.01, TRANSFER)
        wrong = COLLECTIVE_SECONDS["ring"](8, 0.01, TRANSFER)
        text = f"ring in {slices} slices, P = 8, fifo"
        equal(text, expected, took, source=PATARASUK, wrong=wrong)


@pytest.mark.parametrize("S", [2, 4, 8])
def test_first_nodes_serve_parts(S):
    """Each of the first S nodes sums one part and sends the sum to all."""
    took = seconds(8, CARDS, collective="server", servers=S)
    expected, one = 2 * ALPHA + 14 / S * TRANSFER, COLLECTIVE_SECONDS["server"](8, ALPHA, TRANSFER)
    text = f"server, P = 8, S = {S}: 2 alpha + 2 ((P - 1) / S) N beta"
    equal(text, expected, took, source=LOGP, wrong=one)


@pytest.mark.parametrize(("P", "g"), [(8, 1), (8, 2), (8, 8), (12, 4)])
def test_hierarchical_time_follows_closed_form(P, g):
    """With m hosts of g workers, which share the host's card, it is 2 (g - 1)(alpha' + N beta' /
    g) + 2 (m - 1)(alpha + N beta / m). Inner cards are 8 times faster.
    """
    m = P // g
    inside, across = 2 * (g - 1) * (ALPHA + TRANSFER / g) / 8, 2 * (m - 1) * (ALPHA + TRANSFER / m)
    text = f"hierarchical, m = {m}, g = {g}: inside each host of g, then across m of them"
    ring = COLLECTIVE_SECONDS["ring"](P, ALPHA, TRANSFER)
    wrong = {} if g == 1 else {"wrong": ring}
    hosts = replace(CARDS, hosts=Hosts(g, bandwidth=8.0, latency=ALPHA / 8))
    took = seconds(P, hosts, collective="hierarchical")
    equal(text, inside + across, took, source=JIA, **wrong)


@pytest.mark.parametrize("g", quick([1, 2, 3, 6], only=[2]))
def test_hierarchical_sum_equals_synchronous_server(g):
    """Summing inside and then across hosts equals a synchronous server."""
    cluster = Cluster(workers=6, compute=Gamma(1.0, 0.5))
    hosts = Cluster(workers=6, compute=Gamma(1.0, 0.5), network=Network(hosts=Hosts(g)))
    reduced = every(hosts, "all_reduce", collective="hierarchical", updates=6)
    close(
        f"all_reduce, hierarchical, 6 / {g} hosts = sync_ps",
        reduced,
        every(cluster, "sync_ps", updates=6),
        source=JIA,
    )


LAYERS = 4
READY = [1 / 3 + 2 / 3 * layer / LAYERS for layer in range(1, LAYERS + 1)]
"""When each of four equal layers has its gradient, the last one first: the forward pass is a third
of 1 s.
"""


def overlapped(transfer, name, **settings):
    """What updates of 8 nodes take that send each layer's gradient as soon as it is there; all but
    the first.
    """
    network = Network(bandwidth=1.0, latency=ALPHA, message_bytes=transfer)
    algorithm = method(name, bucket_bytes=transfer / LAYERS, **settings)
    cluster = Cluster(workers=8, compute=Constant(1.0), network=network)
    return update_times(cluster, algorithm, 10, Timing(depth=LAYERS))[1:]


@pytest.mark.parametrize("transfer", [0.25, 2.0])
@pytest.mark.parametrize("name", FORMS)
def test_buckets_are_exchanged_in_order(name, transfer):
    """The exchange of bucket k starts when it is computed and the exchange before it has ended."""
    each, end = COLLECTIVE_SECONDS[name](8, ALPHA, transfer / LAYERS), 0.0
    for ready in READY:
        end = max(ready, end) + each
    text = f"{name}, 4 buckets, N beta {transfer:g}: e_k = max(r_k, e_(k-1)) + R(N/4)"
    equal(
        text,
        end,
        overlapped(transfer, "all_reduce", collective=name),
        source=LI,
        wrong=1 + LAYERS * each,
    )


@pytest.mark.parametrize("transfer", [0.0625, 2.0])
def test_buckets_overlap_at_server(transfer):
    """The server's card receives buckets one by one and sends back the earlier ones at the same
    time.
    """
    each, come, left = 8 * transfer / LAYERS, 0.0, 0.0
    for ready in READY:
        come = max(ready, come) + ALPHA + each
        left = max(come, left) + each
    text = f"sync_ps, P = 8, 4 buckets, N beta {transfer:g}: in and out at once"
    equal(
        text,
        left + ALPHA,
        overlapped(transfer, "sync_ps"),
        source="derived",
        wrong=1 + 2 * (ALPHA + 8 * transfer),
    )


def sliced(name, transfer, order):
    """What updates of `name` take from the third on with four equal layers in two slices each; and
    by its recursion.
    """
    network = Network(
        bandwidth=1.0, latency=ALPHA / 8 if name == "p3" else ALPHA / 64, message_bytes=transfer
    )
    cluster, task = Cluster(workers=8, compute=Constant(1.0), network=network), Timing(depth=LAYERS)
    algorithm = method(name, slice_bytes=transfer / LAYERS / 2, order=order)
    expected = OVERLAP_SECONDS(algorithm, cluster, task.layers(), transfer)
    assert expected is not None
    return update_times(cluster, algorithm, 10, task)[2:], expected


def check_priority(name, transfer, source):
    (measured, expected), (in_order, slower) = (
        sliced(name, transfer, order) for order in ("priority", "fifo")
    )
    text = f"{name}, P = 8, 4 layers of 2 slices, N beta {transfer:g}"
    equal(f"{text}: a step", expected, measured, source=source, wrong=slower)
    equal(f"{text}, in order", slower, in_order, source=source, wrong=expected)
    at_most(f"{text}: no slower than in order", slower, measured, source="derived")


@pytest.mark.parametrize("transfer", [0.11, 0.3])
def test_p3_sends_front_layers_first(transfer):
    """Slices of the front-most layer go first, and the forward pass of a layer waits only for its
    own slices.
    """
    check_priority("p3", transfer, P3)


@pytest.mark.parametrize("transfer", quick([0.4, 1.0], only=[0.4]))
def test_ring_sums_front_layers_first(transfer):
    """Of the slices that all nodes have computed, the ring first sums those of the front-most
    layer.
    """
    check_priority("priority_all_reduce", transfer, PENG)


def test_private_links_carry_messages_at_once():
    """If every pair has a link, all messages of a mesh are sent at once."""
    measured = seconds(8, replace(CARDS, wiring="pairs"), collective="mesh")
    equal("mesh on private links, P = 8: alpha + N beta", ALPHA + TRANSFER, measured, source=LOGP)
