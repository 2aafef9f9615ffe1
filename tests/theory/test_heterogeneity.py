"""Parameter server: workers with optima of their own."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from laggard.models import Quadratic
from laggard.simulator import Cluster, Evaluate, Node, Outcome, Rule, Stop, simulate
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.learning.rules import Rescaled
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
    name: str,
    lr: float | Tensor,
    seconds: float,
    noise: float = 0.0,
    members: int = 1,
    t: np.ndarray = t,
    h: np.ndarray = h,
    **more: Any,
) -> tuple[Outcome, list[tuple[int, Tensor]]]:
    """A run on h_i (w - a_i)^2 / 2 with times t_i, and who read which weights `(ensemble, 1)`, in
    order; `more` goes to the rule.
    """
    shift = a[: len(t)].tolist()
    task = Quadratic(scale=h.tolist(), shift=shift, initial=START, noise=noise, dtype=torch.float64)
    slow = [Factor(worker=worker, factor=factor) for worker, factor in enumerate(t)]
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
        method(name, Rule(lr=lr, **more)),
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


SPEEDS = {"1 : 2": (2.0, 1.0), "1 : 5": (5.0, 1.0), "1 : 2 : 3": (6.0, 3.0, 2.0)}
"""Seconds of each worker's mini-batch, by their speeds; all are at their start again after the
most.
"""
RATES = torch.tensor([[2e-3], [1e-3], [5e-4]], dtype=torch.float64)


def means_of_cycles(speeds: str, h: np.ndarray, **more: Any) -> np.ndarray:
    """Where the mean of the server's weights over a cycle of arrivals tends, for each of `RATES`.

    The rest shrinks by the same factor in equal times: Aitken's extrapolation of three means.
    """
    t = np.array(SPEEDS[speeds])
    arrivals = int((t.max() / t).sum())
    apart = int(150 / t.max())  # cycles
    _, reads = run("async_ps", RATES, 3 * (apart + 2) * t.max(), members=3, t=t, h=h, **more)
    weights = torch.stack([read[:, 0] for _, read in reads]).numpy()
    one, two, three = (
        weights[-arrivals * (1 + apart * ago) :][:arrivals].mean(0) for ago in (2, 1, 0)
    )
    limits: np.ndarray = three - (three - two) ** 2 / (three - 2 * two + one)
    return limits


@pytest.mark.parametrize("speeds", SPEEDS)
@pytest.mark.parametrize("rescaled", [False, True])
def test_fixed_point_of_vanishing_rate(speeds: str, rescaled: bool) -> None:
    """Gradients are exact: the mean over a cycle stands still at a weighted optimum up to O(lr),
    and extrapolated in the rate, up to O(lr^2).
    """
    t = np.array(SPEEDS[speeds])
    h, optima = np.array([1.0, 0.25, 2.0])[: len(t)], a[: len(t)]
    more: dict[str, Any] = {}
    weights, name = h / t, "async_ps"
    if rescaled:
        more["compensation"] = Rescaled()
        weights, name = h, "async_ps, rescaled"
    expected = (weights * optima).sum() / weights.sum()
    wrong = (h * optima).sum() / h.sum()
    if rescaled:
        wrong = (h / t * optima).sum() / (h / t).sum()
    means = means_of_cycles(speeds, h, **more)
    coarse, fine = 2 * means[1] - means[0], 2 * means[2] - means[1]
    form = "sum h_i a_i / sum h_i" if rescaled else "sum (h_i a_i / t_i) / sum (h_i / t_i)"
    text = f"{name}, speeds {speeds}: cycle means at rates 2e-3 and 1e-3, extrapolated: {form}"
    equal(text, expected, coarse, source="derived", rtol=1e-6, wrong=wrong)
    text = f"{name}, speeds {speeds}: what is left, over that at half the rates"
    equal(text, 4.0, (coarse - expected) / (fine - expected), source="derived", rtol=0.02)


@pytest.mark.parametrize("speeds", SPEEDS)
def test_equal_curvatures_have_no_bias_of_rate(speeds: str) -> None:
    """Then the mean over a cycle of `async_ps` is exact at any rate."""
    t = np.array(SPEEDS[speeds])
    expected = (a[: len(t)] / t).sum() / (1 / t).sum()
    means = means_of_cycles(speeds, np.ones(len(t)))
    text = f"async_ps, speeds {speeds}, equal curvatures: sum (a_i / t_i) / sum (1 / t_i)"
    equal(text, expected, means, source="derived", rtol=1e-12)


EQUAL_COUNTS = {
    "sync_ps": (1.0, "derived"),
    "ringleader": (0.2, "Maranjyan & Richtarik (2025)"),
    "malenia": (0.5, "Tyurin & Richtarik (2023)"),
}
"""Methods in which all workers count equally: a learning rate, and the source."""


@pytest.mark.parametrize("speeds", SPEEDS)
@pytest.mark.parametrize("name", EQUAL_COUNTS)
def test_balanced_methods_stand_still_at_minimum(name: str, speeds: str) -> None:
    """At any rate and any speeds, and not in the mean alone."""
    lr, source = EQUAL_COUNTS[name]
    t = np.array(SPEEDS[speeds])
    h, optima = np.array([1.0, 0.25, 2.0])[: len(t)], a[: len(t)]
    outcome, _ = run(name, lr, 600.0, t=t, h=h)
    expected = (h * optima).sum() / h.sum()
    wrong = (h / t * optima).sum() / (h / t).sum()
    text = f"{name}, speeds {speeds}: goes to sum h_i a_i / sum h_i"
    weights = outcome.weights.item()
    equal(text, expected, weights, source=source, rtol=1e-12, wrong=wrong)


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
