"""Parameter server: workers with optima of their own."""

import math

import numpy as np
import torch
from torch import Tensor

from laggard.models import Quadratic
from laggard.simulator import Cluster, Evaluate, Node, Outcome, Rule, Stop, simulate
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Factor
from tests.theory.statements import ERRORS, Statement, check, equal, mean_is
from tests.theory.trials import method

t, h, a = np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.25, 1.0]), np.array([0.0, 2.0, 10.0])
"""Seconds of a mini-batch, curvature and optimum of each worker."""
START = 3.0
STATIONARY = float((h * a / t).sum() / (h / t).sum())
BALANCED = float((h * a).sum() / h.sum())
"""Where the mean of the workers' losses is least: what a synchronous server finds."""


def run(
    name: str, lr: float, seconds: float, noise: float = 0.0, members: int = 1
) -> tuple[Outcome, list[tuple[int, Tensor]]]:
    """A run on h_i (w - a_i)^2 / 2 with times t_i, and who read which weights `(ensemble, 1)`, in
    order.
    """
    task = Quadratic(
        scale=h.tolist(), shift=a.tolist(), initial=START, noise=noise, dtype=torch.float64
    )
    slow = [Factor(worker=worker, factor=seconds) for worker, seconds in enumerate(t)]
    reads: list[tuple[int, Tensor]] = []

    def note(node: Node) -> None:
        right = node.compute

        def compute(weights: Tensor, *given: object, **named: object) -> object:
            reads.append((node.rank, weights))
            return right(weights, *given, **named)  # type: ignore[arg-type]

        node.compute = compute  # type: ignore[method-assign, assignment]

    def observe(simulation: Simulation) -> None:
        for node in simulation.nodes.values():
            note(node)

    outcome = simulate(
        Cluster(workers=len(t), compute=Constant(1.0), slowdowns=slow),
        method(name, Rule(lr=lr)),
        task,
        stop=Stop(time=seconds),
        evaluate=Evaluate(every_seconds=seconds),
        learning_seeds=range(members),
        observe=observe,
    )
    return outcome, reads


def test_gradients_per_worker_follow_speed() -> None:
    """A worker computes T / t_i gradients at the weights that it read; their steps sum to the
    final weights.
    """
    lr, T = 0.1, 200.0
    outcome, reads = run("async_ps", lr, seconds=T)
    made = outcome.updates["worker"][outcome.updates["status"] == "applied"]
    own = [
        torch.cat([w for rank, w in reads if rank == worker][: (made == worker).sum()])
        for worker in range(len(t))
    ]
    pull = sum(h[i] / t[i] * (float(own[i].mean()) - a[i]) for i in range(len(t)))
    text = "async_ps: sum_i h_i / t_i (mean of i's reads - a_i) = (w_0 - w_T) / (lr T)"
    equal(text, (START - float(outcome.weights)) / (lr * T), pull, source="derived", rtol=1e-12)


def test_synchronous_workers_count_alike() -> None:
    """A method that waits for all workers weighs them equally, whatever their speeds."""
    text = "sync_ps: goes to sum_i h_i a_i / sum_i h_i"
    weights = run("sync_ps", lr=1.0, seconds=400.0)[0].weights
    equal(text, BALANCED, float(weights), source="derived", rtol=1e-12, wrong=STATIONARY)


def test_ringleader_counts_workers_alike() -> None:
    """It waits for nobody at an update but the first of a round, and has no bias for the fast."""
    text = "ringleader: goes to sum_i h_i a_i / sum_i h_i"
    weights = run("ringleader", lr=0.05, seconds=4000.0)[0].weights
    source = "Maranjyan & Richtarik (2025)"
    equal(text, BALANCED, float(weights), source=source, rtol=1e-12, wrong=STATIONARY)


def test_malenia_counts_workers_alike() -> None:
    """Fast workers send several gradients to an update, and count no more for it."""
    text = "malenia: goes to sum_i h_i a_i / sum_i h_i"
    weights = run("malenia", lr=0.5, seconds=800.0)[0].weights
    source = "Tyurin & Richtarik (2023)"
    equal(text, BALANCED, float(weights), source=source, rtol=1e-12, wrong=STATIONARY)


def stationary_means(lr: float, settled: float) -> np.ndarray:
    """The mean of the server's weights over 350 s after they have settled, of 40 seeds."""
    outcome, reads = run("async_ps", lr, settled + 350.0, noise=0.15, members=40)
    before = (outcome.updates["time"] <= settled).sum()
    means: np.ndarray = (
        torch.stack([weights[:, 0] for _, weights in reads])[before:].mean(0).numpy()
    )
    return means


def test_stationary_mean_weighs_workers_by_frequency() -> None:
    """Workers count by their frequency only at small learning rates, since a worker reads the
    weights just after its own update.
    """
    # eight time constants, 1 / (lr sum_i h_i / t_i)
    means = stationary_means(0.005, settled=1150.0)
    text = "async_ps, lr h <= 0.005: stationary mean sum_i (h_i a_i / t_i) / sum_i (h_i / t_i)"
    mean_is(text, STATIONARY, means, source="derived", wrong=BALANCED)
    means = stationary_means(0.05, settled=150.0)
    off = abs(means.mean() - STATIONARY) / (means.std(ddof=1) / math.sqrt(len(means)))
    text = (
        "async_ps, lr h <= 0.05: how far the stationary mean is from there, in its standard errors"
    )
    check(Statement(text, "derived", ERRORS, off, relation=">="))
