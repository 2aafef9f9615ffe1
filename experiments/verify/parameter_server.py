"""The parameter-server family: which methods are one and the same."""

from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, identical
from experiments.verify.trials import (
    LR,
    ONE,
    RULES,
    TORCH,
    UPDATES,
    Dealt,
    TorchOptimizer,
    every,
    learnt,
    method,
    perceptron,
    quadratic,
)
from simulator import Cluster, Rule
from simulator.laws import Constant, Gamma
from simulator.streams import BATCHES, start_seed, stream

UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
DUTTA, DEAN, HO, DERIVED = "Dutta et al. (2018)", "Dean et al. (2012)", "Ho et al. (2013)", "derived"
parameter_server = Family("parameter_server", "Parameter server: identities")


@parameter_server.check
def one_worker() -> Iterator[Finding]:
    """With one worker nothing is late."""
    sgd = every(ONE, "delayed")
    for name in ("async_ps", "sync_ps"):
        yield identical(f"{name}, P = 1 = SGD, every optimiser", DERIVED, every(ONE, name), sgd)


@parameter_server.check
def constant_delay() -> Iterator[Finding]:
    """Equal asynchronous workers that are dealt one stream of mini-batches are a constant delay of P - 1."""
    for P in (2, 5):
        equal, one = Cluster(workers=P, compute=Constant(0.1)), Cluster(workers=1, compute=Constant(0.1))
        for name, task in [("quadratic", quadratic()), ("network", perceptron())]:
            workers = every(equal, "async_ps", Dealt(task, P))
            delayed = every(one, "delayed", Dealt(task, 1), delay=P - 1)
            statement = f"async_ps, P = {P} equal workers = delayed, D = {P - 1}, {name}, every optimiser"
            yield identical(statement, DERIVED, workers, delayed)


@parameter_server.check
def large_batch() -> Iterator[Finding]:
    """A synchronous update is one worker's with the P mini-batches together."""
    P = 4

    def together(optimizer: TorchOptimizer) -> Tensor:
        task = quadratic()
        weights = torch.nn.Parameter(task.start([start_seed(0)]))
        descent, streams = optimizer([weights]), [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
        for _ in range(UPDATES):
            gradients = [task.gradients(weights.detach()[None], [next(batches)])[0][0] for batches in streams]
            weights.grad = torch.stack(gradients).mean(0)
            descent.step()
        return weights.detach()

    its = [together(optimizer) for _, optimizer in TORCH.values()]
    statement = f"sync_ps, P = {P} = torch.optim on the P mini-batches together"
    yield close(statement, "Chen et al. (2016)", every(UNEVEN, "sync_ps"), its)


@parameter_server.check
def same_methods() -> Iterator[Finding]:
    """The ends of the family's scales: one gradient an update is asynchronous, all workers' are synchronous."""
    asynchronous, synchronous = every(UNEVEN, "async_ps"), every(UNEVEN, "sync_ps")
    for statement, source, mine, same in [
        ("k_async, K = 1 = async_ps", DUTTA, every(UNEVEN, "k_async", wait_for=1), asynchronous),
        ("soft_sync, K = 1 = async_ps", DUTTA, every(UNEVEN, "soft_sync", gradients=1), asynchronous),
        ("ssp without a bound = async_ps", HO, every(UNEVEN, "ssp", bound=None), asynchronous),
        ("ringmaster, R > 40 = async_ps", DERIVED, every(UNEVEN, "ringmaster", threshold=41), asynchronous),
        ("sync_ps, wait_for = P = sync_ps", DUTTA, every(UNEVEN, "sync_ps", wait_for=4), synchronous),
        ("sync_ps, wait_for = P, cancel", DUTTA, every(UNEVEN, "sync_ps", wait_for=4, cancel=True), synchronous),
    ]:
        yield identical(f"{statement}, every optimiser", source, mine, same)
    in_order = every(UNEVEN, "k_async", wait_for=4)  # of arrival, in which they are added up
    yield close("k_async, K = P = sync_ps, every optimiser", DUTTA, in_order, synchronous)
    for name, others in [
        ("soft_sync, K = P, is not sync_ps", every(UNEVEN, "soft_sync", gradients=4, rules=RULES[:1])),
        ("ssp, bound 0, is not sync_ps", every(UNEVEN, "ssp", bound=0, rules=RULES[:1])),
        ("async_ps is not sync_ps", asynchronous[:1]),
    ]:
        yield differ(name, DERIVED, others, synchronous[:1])


@parameter_server.check
def rennala_alone() -> Iterator[Finding]:
    """K-batch-sync of one worker: what it begins at old weights and cancels takes every (K + 1)-th mini-batch."""
    K, task = 3, quadratic()
    weights, batches = task.start([start_seed(0)]), task.batches(0, [stream(0, BATCHES, 0)])
    for _ in range(UPDATES):
        gradients = [task.gradients(weights[None], [next(batches)])[0][0] for _ in range(K)]
        weights = weights - LR * torch.stack(gradients).mean(0)
        next(batches)
    mine = learnt(ONE, method("k_batch_sync", Rule(lr=LR), gradients=K))
    yield close(f"k_batch_sync, P = 1, K = {K} = SGD on {K} mini-batches", DUTTA, mine, weights)
