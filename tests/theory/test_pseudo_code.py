"""The asynchronous server against the papers' pseudo-code, fed in the order in which the workers
pushed.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from laggard.simulator import Evaluate, Rule, Stop, simulate
from laggard.simulator.learning.rules import (
    DCASGDa,
    DCASGDc,
    DelayAdaptive,
    GapAware,
    Staleness,
    Uncompensated,
)
from tests.theory.statements import close
from tests.theory.trials import (
    LR,
    TORCH,
    UNEVEN,
    UPDATES,
    batches_of,
    first_weights,
    gradient_of,
    method,
    quadratic,
)

ZHENG, ZHANG = "Zheng et al. (2017)", "Zhang et al. (2016)"
MISHCHENKO, BARKAI = "Mishchenko et al. (2022)", "Barkai et al. (2020)"


def dc_asgd_a(strength, decay):
    """MS <- m MS + (1 - m) g g, a worker's own; g + strength / sqrt(MS + 1e-7) g g (w - backup)."""
    squares = {}

    def corrected(g, w, backup, tau, worker):
        squares[worker] = decay * squares.get(worker, torch.zeros_like(g)) + (1 - decay) * g * g
        return g + strength / torch.sqrt(squares[worker] + 1e-7) * g * g * (w - backup)

    return corrected


def gap_aware(decay):
    """g / (1 + |w - backup| / C), with C the root of the running mean, corrected for its start, of
    squared steps.
    """
    models = []

    def damped(g, w, backup, tau, worker):
        models.append(w.clone())
        steps = [(new - old).square() for old, new in pairwise(models)]
        shares = [decay ** (len(steps) - 1 - age) for age in range(len(steps))]
        if not steps or tau == 0:
            return g
        mean = sum(
            (share * step for share, step in zip(shares, steps, strict=True)), torch.zeros_like(w)
        ) / sum(shares)
        return g / (1 + (w - backup).abs() / mean.sqrt())

    return damped


PAPERS = {
    "no compensation": (
        ZHENG,
        Uncompensated(),
        lambda: lambda g, w, backup, tau, worker: g,
    ),
    "DC-ASGD-c": (
        ZHENG,
        DCASGDc(strength=1.0),
        lambda: lambda g, w, backup, tau, worker: g + g * g * (w - backup),
    ),
    "DC-ASGD-a": (ZHENG, DCASGDa(strength=2.0, decay=0.95), lambda: dc_asgd_a(2.0, 0.95)),
    "lr / staleness": (
        ZHANG,
        Staleness(),
        lambda: lambda g, w, backup, tau, worker: g / max(1, tau),
    ),
    "min(lr, c / staleness)": (
        MISHCHENKO,
        DelayAdaptive(ceiling=0.06),
        lambda: lambda g, w, backup, tau, worker: g * min(1.0, 0.06 / LR / max(tau, 1e-9)),
    ),
    "gap-aware": (BARKAI, GapAware(decay=0.9), lambda: gap_aware(0.9)),
}
"""By name: the source, ours, and what makes a function for the gradient that the optimiser gets: of
g, the weights now, the worker's backup, its staleness, and the worker.
"""


def replayed(rule, optimizer, paper):
    """An asynchronous run's weights, and those of the paper's server fed in the order in which its
    workers pushed.
    """
    task = quadratic()
    stop, evaluate = Stop(updates=UPDATES), Evaluate(every_updates=UPDATES)
    run = simulate(UNEVEN, method("async_ps", rule), task, stop=stop, evaluate=evaluate)
    weights = torch.nn.Parameter(first_weights(task))
    descent, streams = (
        optimizer([weights]),
        [batches_of(task, rank) for rank in range(UNEVEN.workers)],
    )
    backups, reads = [weights.detach().clone()] * UNEVEN.workers, [0] * UNEVEN.workers
    for update, worker in enumerate(run.updates["worker"].tolist()):
        gradient = gradient_of(task, backups[worker], next(streams[worker]))
        weights.grad = paper(
            gradient, weights.detach(), backups[worker], update - reads[worker], worker
        )
        descent.step()
        backups[worker], reads[worker] = weights.detach().clone(), update + 1
    return run.weights, weights.detach()


@pytest.mark.parametrize("name", PAPERS)
def test_compensations_match_pseudo_code(name):
    """One optimiser at the server takes the gradients of all workers, stale or not; it holds a
    backup of the weights per worker, which each compensation uses by its pseudo-code.
    """
    optimizer, torchs = TORCH["momentum"]
    source, compensation, paper = PAPERS[name]
    mine, its = replayed(
        replace(Rule(optimizer, lr=LR), compensation=compensation), torchs, paper()
    )
    close(f"async_ps, P = 4, {name}, momentum 0.9 at the server", mine, its, source=source)
