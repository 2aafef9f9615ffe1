"""Networks: how messages share cards."""

import numpy as np
import pytest

from laggard.simulator import SERVER, Network
from tests.simulator.network.traffic import arrivals as arrivals_of
from tests.theory.statements import equal

GALLAGER, QUEUE, LOGP = "Bertsekas & Gallager", "fifo queue", "alpha-beta model"
P, ALPHA, TRANSFER = 8, 0.125, 0.25
either_sharing = pytest.mark.parametrize("sharing", ["fair", "fifo"])


def arrivals(moments, sizes, scatter=False, **network):
    """When each worker's message arrives at the server (s), or the server's at each worker, over
    cards of 1 byte a second unless `network` says otherwise.
    """
    sends = []
    for rank, (moment, size) in enumerate(zip(moments, sizes, strict=True)):
        ends = (SERVER, rank) if scatter else (rank, SERVER)
        sends.append((moment, *ends, size))
    return arrivals_of(sends, Network(**{"bandwidth": 1.0, **network}), workers=len(sizes))


@either_sharing
@pytest.mark.parametrize("size", [0.0, 0.25])
def test_message_takes_latency_and_transfer(size, sharing):
    """The time of a message is its latency plus its bytes over the bandwidth."""
    arrived = arrivals([1.0], [size], latency=ALPHA, sharing=sharing)
    text = f"one message of {size:g} bytes, {sharing}: alpha + N beta"
    equal(text, 1 + ALPHA + size, arrived, source=LOGP)


@either_sharing
@pytest.mark.parametrize("scatter", [False, True], ids=["gather", "scatter"])
def test_gather_and_scatter_take_equal_time(scatter, sharing):
    """With either sharing, all messages through the server's card take P N beta; only their order
    differs.
    """
    name = "scatter" if scatter else "gather"
    arrived = arrivals([0.0] * P, [TRANSFER] * P, scatter, latency=ALPHA, sharing=sharing)
    text = f"{name}, P = {P}, {sharing}: alpha + P N beta"
    equal(text, ALPHA + P * TRANSFER, arrived.max(), source=LOGP)
    if sharing == "fair":
        equal(f"{name}, fair: all arrive together", 0.0, np.ptp(arrived), source=GALLAGER)
    else:
        gaps = np.diff(np.sort(arrived))
        equal(f"{name}, fifo: one after another, N beta apart", TRANSFER, gaps, source=QUEUE)


def test_fair_sharing_is_max_min_fair():
    """A message whose own card is the bottleneck gets that bandwidth; the others share the rest."""
    first, second = arrivals([0.0, 0.0], [30.0, 15.0], bandwidth=10.0, server_bandwidth=15.0)
    text = "30 and 15 bytes over cards of 10 into one of 15 B/s:"
    equal(f"{text} 15 / 7.5 s", 2.0, second, source=GALLAGER)
    equal(f"{text} 2 s + 15 / 10 s", 3.5, first, source=GALLAGER)


@either_sharing
def test_later_message_shares_card(sharing):
    """A message starts s seconds after another over one card of 1 byte a second."""
    s, N = 0.75, 2.0
    form, expected, source = (
        ("2 N beta - s", 2 * N - s, GALLAGER) if sharing == "fair" else ("N beta", N, QUEUE)
    )
    arrived = arrivals([0.0, s], [N, N], sharing=sharing)
    equal(
        f"two messages s apart, {sharing}: the first at {form}", expected, arrived[0], source=source
    )
    equal(
        f"two messages s apart, {sharing}: the second at 2 N beta", 2 * N, arrived[1], source=source
    )


@either_sharing
def test_directions_of_card_do_not_share(sharing):
    """The two directions of a card have separate bandwidths."""
    sends = [(0.0, 0, SERVER, TRANSFER), (0.0, SERVER, 0, TRANSFER)]
    arrived = arrivals_of(sends, Network(bandwidth=1.0, sharing=sharing), workers=1)
    text = f"two messages in opposite directions, {sharing}: N beta each"
    equal(text, TRANSFER, arrived, source=LOGP, wrong=2 * TRANSFER)
