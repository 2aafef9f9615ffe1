"""The asynchronous server against its pseudo-code: a plain loop, fed in the order in which the workers pushed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close
from experiments.verify.trials import LR, TORCH, UPDATES, TorchOptimizer, method, quadratic
from simulator import Cluster, Evaluate, Rule, Stop, simulate
from simulator.laws import Gamma
from simulator.rules import DCASGDa, DCASGDc, DelayAdaptive, GapAware, Staleness
from simulator.streams import BATCHES, start_seed, stream

P = 4
ZHENG = "Zheng et al. (2017)"
Paper = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
"""The gradient that the optimiser gets: of g, the weights now, the worker's backup, its staleness, and the worker."""

replays = Family("pseudo_code", f"async_ps, P = {P}: replays of the papers' pseudo-code")


@replays.check
def optimizer_at_the_server() -> Iterator[Finding]:
    """One optimiser, at the server, sees every worker's gradients, late as they are."""
    for name, (optimizer, torchs) in TORCH.items():
        mine, its = replayed(Rule(optimizer, lr=LR), torchs, lambda g, w, backup, tau, worker: g)
        yield close(f"{name}: torch.optim at the server", ZHENG, mine, its)


@replays.check
def compensations() -> Iterator[Finding]:
    """A backup per worker, and what each compensation makes of it."""
    optimizer, torchs = TORCH["momentum"]
    papers: list[tuple[str, str, object, Paper]] = [
        ("DC-ASGD-c", ZHENG, DCASGDc(strength=1.0), lambda g, w, backup, tau, worker: g + g * g * (w - backup)),
        ("DC-ASGD-a", ZHENG, DCASGDa(strength=2.0, decay=0.95), dc_asgd_a(2.0, 0.95)),
        ("lr / staleness", "Zhang et al. (2016)", Staleness(), lambda g, w, backup, tau, worker: g / max(1, tau)),
        ("min(lr, c / staleness)", "Mishchenko et al. (2022)", DelayAdaptive(ceiling=0.06),
         lambda g, w, backup, tau, worker: g * min(1.0, 0.06 / LR / max(tau, 1e-9))),
        ("gap-aware", "Barkai et al. (2020)", GapAware(decay=0.9), gap_aware(0.9)),
    ]  # fmt: skip
    for name, source, compensation, paper in papers:
        rule = replace(Rule(optimizer, lr=LR), compensation=compensation)
        yield close(f"{name}, momentum 0.9 at the server", source, *replayed(rule, torchs, paper))


def dc_asgd_a(strength: float, decay: float) -> Paper:
    """MS <- m MS + (1 - m) g g, a worker's own; g + strength / sqrt(MS + 1e-7) g g (w - backup)."""
    squares: dict[int, Tensor] = {}

    def corrected(g: Tensor, w: Tensor, backup: Tensor, tau: int, worker: int) -> Tensor:
        squares[worker] = decay * squares.get(worker, torch.zeros_like(g)) + (1 - decay) * g * g
        return g + strength / torch.sqrt(squares[worker] + 1e-7) * g * g * (w - backup)

    return corrected


def gap_aware(decay: float) -> Paper:
    """g / (1 + |w - backup| / C), with C the root of the running mean, corrected for its start, of squared steps."""
    models: list[Tensor] = []

    def damped(g: Tensor, w: Tensor, backup: Tensor, tau: int, worker: int) -> Tensor:
        models.append(w.clone())
        steps = [(new - old).square() for old, new in pairwise(models)]
        shares = [decay ** (len(steps) - 1 - age) for age in range(len(steps))]
        if not steps or tau == 0:
            return g
        mean = sum((share * step for share, step in zip(shares, steps, strict=True)), torch.zeros_like(w)) / sum(shares)
        return g / (1 + (w - backup).abs() / mean.sqrt())

    return damped


def replayed(rule: Rule, optimizer: TorchOptimizer, paper: Paper) -> tuple[Tensor, Tensor]:
    """An asynchronous run's weights, and those of the paper's server fed in the order in which its workers pushed."""
    cluster, task = Cluster(workers=P, compute=Gamma(1.0, 0.5)), quadratic()
    stop, evaluate = Stop(updates=UPDATES), Evaluate(every_updates=UPDATES)
    run = simulate(cluster, method("async_ps", rule), task, stop=stop, evaluate=evaluate)
    weights = torch.nn.Parameter(task.start([start_seed(0)]))
    descent = optimizer([weights])
    streams = [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    backups, reads = [weights.detach().clone()] * P, [0] * P
    for update, worker in enumerate(run.updates["worker"].tolist()):
        gradient = task.gradients(backups[worker][None], [next(streams[worker])])[0][0]
        weights.grad = paper(gradient, weights.detach(), backups[worker], update - reads[worker], worker)
        descent.step()
        backups[worker], reads[worker] = weights.detach().clone(), update + 1
    return run.weights, weights.detach()
