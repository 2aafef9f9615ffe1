"""Parameter server: identities."""

import pytest
import torch

from laggard.simulator import Cluster, Network, Rule
from laggard.simulator.timing.distributions import Constant, Gamma
from tests.theory.statements import close, differ, same
from tests.theory.trials import (
    LR,
    ONE,
    RULES,
    TORCH,
    UNEVEN,
    UPDATES,
    Dealt,
    batches_of,
    every,
    first_weights,
    gradient_of,
    method,
    perceptron,
    quadratic,
    weights_after,
)

DUTTA, HO, DERIVED = "Dutta et al. (2018)", "Ho et al. (2013)", "derived"


def test_one_worker_equals_sgd():
    """With one worker no gradient is stale."""
    sgd = every(ONE, "delayed")
    for name in ("async_ps", "sync_ps"):
        same(f"{name}, P = 1 = SGD, every optimiser", every(ONE, name), sgd, source=DERIVED)


@pytest.mark.parametrize("P", [2, 5])
@pytest.mark.parametrize("name", ["quadratic", "network"])
def test_equal_workers_equal_constant_delay(name, P):
    """Equal asynchronous workers that share one stream of mini-batches give a constant delay of P
    - 1.
    """
    task = quadratic() if name == "quadratic" else perceptron()
    equal, one = (
        Cluster(workers=P, compute=Constant(0.1)),
        Cluster(workers=1, compute=Constant(0.1)),
    )
    workers = every(equal, "async_ps", Dealt(task, P))
    delayed = every(one, "delayed", Dealt(task, 1), delay=P - 1)
    text = f"async_ps, P = {P} equal workers = delayed, D = {P - 1}, {name}, every optimiser"
    same(text, workers, delayed, source=DERIVED)


def test_synchronous_update_equals_large_batch():
    """A synchronous update equals that of one worker with the P mini-batches combined."""
    P, task = UNEVEN.workers, quadratic()

    def together(optimizer):
        weights = torch.nn.Parameter(first_weights(task))
        descent, streams = optimizer([weights]), [batches_of(task, rank) for rank in range(P)]
        for _ in range(UPDATES):
            gradients = [gradient_of(task, weights.detach(), next(batches)) for batches in streams]
            weights.grad = torch.stack(gradients).mean(0)
            descent.step()
        return weights.detach()

    its = [together(optimizer) for _, optimizer in TORCH.values()]
    text = f"sync_ps, P = {P} = torch.optim on the P mini-batches together"
    close(text, every(UNEVEN, "sync_ps"), its, source="Chen et al. (2016)")


def test_extreme_settings_give_same_methods():
    """With one gradient an update the methods are asynchronous; with those of all workers they are
    synchronous.
    """
    asynchronous, synchronous = every(UNEVEN, "async_ps"), every(UNEVEN, "sync_ps")
    for text, source, mine, reference in [
        ("k_async, K = 1 = async_ps", DUTTA, every(UNEVEN, "k_async", wait_for=1), asynchronous),
        (
            "soft_sync, K = 1 = async_ps",
            DUTTA,
            every(UNEVEN, "soft_sync", gradients=1),
            asynchronous,
        ),
        ("ssp without a bound = async_ps", HO, every(UNEVEN, "ssp", bound=None), asynchronous),
        (
            "ringmaster, R > 40 = async_ps",
            DERIVED,
            every(UNEVEN, "ringmaster", threshold=41),
            asynchronous,
        ),
        ("k_sync, wait_for = P = sync_ps", DUTTA, every(UNEVEN, "k_sync", wait_for=4), synchronous),
        (
            "k_sync, wait_for = P, cancel",
            DUTTA,
            every(UNEVEN, "k_sync", wait_for=4, cancel=True),
            synchronous,
        ),
    ]:
        same(f"{text}, every optimiser", mine, reference, source=source)
    in_order = every(UNEVEN, "k_async", wait_for=4)  # of arrival, in which they are added up
    close("k_async, K = P = sync_ps, every optimiser", in_order, synchronous, source=DUTTA)
    for text, others in [
        (
            "soft_sync, K = P, is not sync_ps",
            every(UNEVEN, "soft_sync", gradients=4, rules=RULES[:1]),
        ),
        ("ssp, bound 0, is not sync_ps", every(UNEVEN, "ssp", bound=0, rules=RULES[:1])),
        ("async_ps is not sync_ps", asynchronous[:1]),
    ]:
        differ(text, others, synchronous[:1], source=DERIVED)


def test_rennala_with_one_worker_equals_sgd():
    """With one worker, K-batch-sync is SGD on K mini-batches; each cancelled gradient uses up one
    more.
    """
    K, task = 3, quadratic()
    weights, batches = first_weights(task), batches_of(task)
    for _ in range(UPDATES):
        gradients = [gradient_of(task, weights, next(batches)) for _ in range(K)]
        weights = weights - LR * torch.stack(gradients).mean(0)
        next(batches)
    mine = weights_after(ONE, method("k_batch_sync", Rule(lr=LR), gradients=K))
    close(f"k_batch_sync, P = 1, K = {K} = SGD on {K} mini-batches", mine, weights, source=DUTTA)


WHOLE = {
    "p3": ("sync_ps", "Jayarajan et al. (2019)"),
    "priority_all_reduce": ("all_reduce", "Peng et al. (2019)"),
}
"""The methods in slices, each with the one whose weights are its own."""


@pytest.mark.parametrize("order", ["priority", "fifo"])
@pytest.mark.parametrize("name", WHOLE)
def test_slices_by_priority_change_no_weight(name, order):
    """Sending or summing slices by priority and early forward passes change no weight."""
    network = Network(bandwidth=20.0, latency=0.01)
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), network=network)
    sliced = every(cluster, name, slice_bytes=4.0, order=order, updates=6)
    whole, source = WHOLE[name]
    text = f"{name}, P = 4, in slices, {order} = {whole}, every optimiser"
    same(text, sliced, every(cluster, whole, updates=6), source=source)
