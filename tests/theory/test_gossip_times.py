"""Gossip: seconds per step."""

import numpy as np
import pytest

from laggard.simulator import Cluster, Network, Record, Stop, simulate
from laggard.simulator.network.topology import Complete, Exponential, Ring
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Factor
from tests.theory.gossiping import AD, ASSRAN, LIAN, ONE_PEER, ORDERS, WANG, on
from tests.theory.statements import equal, mean_is
from tests.theory.test_networks import either_sharing
from tests.theory.trials import method, update_times

ONCE = 0.375  # alpha + N beta, for the cards below
CARDS = {"bandwidth": 12.0, "latency": 0.125, "message_bytes": 3.0}
STEPS = {
    "sgp, one peer": (ONE_PEER, {}, "t_c + alpha + N beta"),
    "sgp, two peers": (Exponential(peers=2), {}, "t_c + alpha + 2 N beta"),
    "sgp, one peer, overlap 1": (ONE_PEER, {"overlap": 1}, "max(t_c, alpha + N beta)"),
    "dpsgd, ring, adapt": (Ring(), {"order": ORDERS[1]}, "t_c + alpha + 2 N beta"),
    "dpsgd, ring, combine": (Ring(), {"order": ORDERS[0]}, "max(t_c, alpha + 2 N beta)"),
    "gradient_tracking, ring": (Ring(), {}, "t_c + alpha + 4 N beta"),
    "d2, ring": (Ring(), {}, "t_c + alpha + 2 N beta"),
    "qg_dsgdm, ring": (Ring(), {}, "t_c + alpha + 2 N beta"),
    "relay_sgd, chain": (Ring(), {}, "t_c + alpha + 2 N beta"),
    "choco, top 50 %, ring": (Ring(), {"keep": 0.5}, "t_c + alpha + 2 N beta"),
    "choco, top 25 %, ring": (Ring(), {"keep": 0.25}, "t_c + alpha + N beta"),
    "choco, random 50 %, ring": (
        Ring(),
        {"keep": 0.5, "compressor": "random_k"},
        "t_c + alpha + N beta",
    ),
    "matcha, ring, c = 1": (Ring(), {"activation": 1.0}, "t_c + alpha + 2 N beta"),
}


@either_sharing
@pytest.mark.parametrize("t_c", [2.0, 0.1])
@pytest.mark.parametrize("name", STEPS)
def test_step_time_follows_closed_form(name, t_c, sharing):
    """A step takes the sum of gradient and messages, or their maximum if they overlap."""
    graph, settings, form = STEPS[name]
    models = next(count for count in (4, 2, 1) if count == 1 or f"{count} N beta" in form)
    way = CARDS["latency"] + models * CARDS["message_bytes"] / CARDS["bandwidth"]
    cluster = on(graph, 8, Constant(t_c), **CARDS, sharing=sharing)
    took = update_times(cluster, method(name.split(",")[0], **settings), 20)[3:]
    expected, source = (
        max(t_c, way) if "max" in form else t_c + way,
        ASSRAN if "sgp" in name else LIAN,
    )
    equal(f"{name}, t_c {t_c:g}, {sharing}: {form}", expected, took, source=source)


@pytest.mark.parametrize(("t_c", "sharing"), [(0.5, "fifo"), (0.1, "fifo"), (0.5, "fair")])
@pytest.mark.parametrize(("tau", "H"), [(2, 1), (4, 1), (3, 2)])
def test_push_interval_follows_closed_form(tau, H, t_c, sharing):
    """It is H gradients plus the part of E = alpha + N beta that tau gradients do not hide, and N
    beta on a saturated card; with fair sharing where H t_c >= N beta.
    """
    card = {"bandwidth": 12.0, "latency": 1.25, "message_bytes": 3.0}
    cluster = on(ONE_PEER, 8, Constant(t_c), **card, sharing=sharing)
    E, n = 1.5, -(-tau // H)  # exchanges outstanding
    took = update_times(cluster, method("osgp", overlap=tau, local_steps=H), 26 * n * H)
    pushes = took[2 * n * H :].reshape(-1, n * H).sum(1) / n
    form = (
        "max(t_c, E / tau, N beta)"
        if H == 1
        else "max(H t_c + max(0, E - tau t_c) / ceil(tau / H), N beta)"
    )
    expected = max(H * t_c + max(0.0, E - tau * t_c) / n, 0.25)
    text = f"osgp, tau = {tau}, H = {H}, t_c {t_c:g}, {sharing}: {form}"
    equal(text, expected, pushes, source=ASSRAN)


@pytest.mark.parametrize(("tau", "H"), [(3, 1), (2, 3)])
def test_fast_node_leads_by_bounded_gradients(tau, H):
    """On the complete graph a fast node leads a slow one by at most tau + H - 1 gradients."""
    cluster = Cluster(
        3,
        Constant(1.0),
        slowdowns=[Factor(0, factor=40.0)],
        network=Network(Complete(), latency=0.01),
    )
    rows = simulate(
        cluster, method("osgp", overlap=tau, local_steps=H), stop=Stop(time=1000.0)
    ).updates
    done, begun = rows["time"][rows["target"] == 0], rows["started"][rows["target"] == 1]
    ahead = np.arange(len(begun)) - np.searchsorted(done, begun, "right")
    text = f"osgp, tau = {tau}, H = {H}: a node is at most tau + H - 1 gradients ahead"
    equal(text, tau + H - 1, ahead.max(), source="derived")


@either_sharing
@pytest.mark.parametrize("t_c", [2.0, 0.5])
@pytest.mark.parametrize(
    ("name", "form"), [("adpsgd", "t_c + 2 E"), ("adpsgd_overlap", "max(t_c, 2 E)")]
)
def test_average_time_follows_closed_form(name, form, t_c, sharing):
    """The active one of two nodes sends a request and gets an answer, of E = alpha + N beta each,
    after the gradient or during it.
    """
    cluster, E = on(Ring(), 2, Constant(t_c), **CARDS, sharing=sharing), 2 * ONCE
    rows = simulate(cluster, method(name), stop=Stop(updates=60)).updates
    took = np.diff(rows["time"][rows["worker"] == 0])
    expected = t_c + E if name == "adpsgd" else max(t_c, E)
    equal(f"{name}, P = 2, t_c {t_c:g}, {sharing}: {form}", expected, took, source=AD)


@pytest.mark.parametrize(
    "name", ["adpsgd", "adpsgd_overlap", "async_ps", "dpsgd", "sgp", "sync_ps"]
)
def test_slow_node_delays_synchronous_peers_only(name):
    """A node that is s times slower delays only nodes that wait for it, by a server or a mean."""
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    at = simulate(cluster, method(name), stop=Stop(time=600.5)).updates["time"]
    form, expected = "P - 1 + 1/s", P - 1 + 1 / s
    if name in ("dpsgd", "sgp", "sync_ps"):
        form, expected = "P / s", P / s
    text = f"{name}, P = {P}, one worker {s:g} times slower: speed-up {form}"
    equal(text, expected, (at > 300.5).sum() / 300, source="derived")


def test_matchings_cost_messages_and_seconds_of_active_edges():
    """With probability c a step of two nodes has an exchange; the coin says in which steps."""
    c, coin, steps = 0.3, 7, 400
    cluster = on(Ring(), 2, Constant(2.0), **CARDS)
    algorithm = method("matcha", activation=c, coin=coin)
    took = update_times(cluster, algorithm, steps)
    active = np.random.default_rng(coin).random(steps) < c
    text = "matcha, P = 2: seconds of a step: t_c + alpha + N beta where the matching is active"
    expected = 2.0 + ONCE * np.concatenate([[0.0], active[:-1]])
    equal(text, 0.0, took - expected, source=WANG)
    mean_is("matcha, P = 2, 400 steps: t_c + c (alpha + N beta)", 2 + c * ONCE, took, source=WANG)
    record, stop = Record(messages=True), Stop(time=steps + 0.5)
    log = simulate(on(Ring(), 8), method("matcha", activation=c), stop=stop, record=record)
    assert log.message_log is not None
    flips = np.random.default_rng(0).random((steps, 2)) < c
    text = "matcha, ring, P = 8: messages of all steps: twice the edges of active matchings"
    equal(text, 2 * 4 * flips.sum(), len(log.message_log["bytes"]), source=WANG)
