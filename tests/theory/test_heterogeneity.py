"""Parameter server: workers with optima of their own."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.learning.rules import Rescaled
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Factor
from tests.cases import quick
from tests.theory.statements import equal
from tests.theory.trials import method, note_reads

t, h, a = np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.25, 1.0]), np.array([0.0, 2.0, 10.0])
"""Seconds of a mini-batch, curvature and optimum of each worker."""
START = 3.0


def run(
    name,
    lr,
    seconds,
    members=1,
    t=t,
    h=h,
    **more,
):
    """A run on h_i (w - a_i)^2 / 2 with times t_i, and who read which weights `(ensemble, 1)`, in
    order; `more` goes to the rule.
    """
    shift = a[: len(t)].tolist()
    task = Quadratic(scale=h.tolist(), shift=shift, initial=START, noise=0.0, dtype=torch.float64)
    slow = [Factor(worker=worker, factor=factor) for worker, factor in enumerate(t)]
    reads = []
    outcome = simulate(
        Cluster(workers=len(t), compute=Constant(1.0), slowdowns=slow),
        method(name, Rule(lr=lr, **more)),
        task,
        stop=Stop(time=seconds),
        evaluate=Evaluate(every_seconds=seconds),
        learning_seeds=range(members),
        observe=note_reads(reads),
    )
    return outcome, reads


def test_gradients_per_worker_follow_speed():
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


def means_of_cycles(speeds, h, **more):
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
    limits = three - (three - two) ** 2 / (three - 2 * two + one)
    return limits


@pytest.mark.parametrize("speeds", quick(SPEEDS, only=["1 : 2"]))
@pytest.mark.parametrize("rescaled", [False, "by measured times", "by given times"])
def test_low_rate_ends_at_weighted_optimum(speeds, rescaled):
    """Gradients are exact: the mean over a cycle stands still at a weighted optimum up to O(lr),
    and extrapolated in the rate, up to O(lr^2).
    """
    t = np.array(SPEEDS[speeds])
    h, optima = np.array([1.0, 0.25, 2.0])[: len(t)], a[: len(t)]
    more = {}
    weights, name = h / t, "async_ps"
    if rescaled:
        times = tuple(t) if rescaled == "by given times" else None
        more["compensation"] = Rescaled(times=times)
        weights, name = h, f"async_ps, rescaled {rescaled}"
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
def test_equal_curvatures_have_no_bias_of_rate(speeds):
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


@pytest.mark.parametrize("speeds", quick(SPEEDS, only=["1 : 2 : 3"]))
@pytest.mark.parametrize("name", EQUAL_COUNTS)
def test_balanced_methods_stand_still_at_minimum(name, speeds):
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
