"""Laws with heavy tails: now and then a mini-batch takes very long."""

import math
from dataclasses import dataclass

import numpy as np

from simulator.bounds import bounded
from simulator.laws.law import Seconds


@dataclass(frozen=True)
class LogNormal:
    """Log-normal durations of a given mean and `cv`: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""

    mean: float
    cv: float

    def __post_init__(self) -> None:
        bounded(self, "mean", above=0)
        bounded(self, "cv", least=1e-6, most=1e6)

    @property
    def std(self) -> float:
        return self.mean * self.cv

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        variance = math.log1p(self.cv**2)
        return rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), n)


@dataclass(frozen=True)
class Pareto:
    """Heavy-tailed durations, P(X > x) = (least / x)^tail for x >= least: mean least tail / (tail - 1).

    The standard deviation is infinite for tail <= 2; the mean is required to exist (tail > 1).
    """

    least: float
    tail: float

    def __post_init__(self) -> None:
        bounded(self, "least", above=0)
        bounded(self, "tail", above=1)

    @property
    def mean(self) -> float:
        return self.least * self.tail / (self.tail - 1)

    @property
    def std(self) -> float:
        a = self.tail
        return self.least / (a - 1) * math.sqrt(a / (a - 2)) if a > 2 else math.inf

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.least * (1 + rng.pareto(self.tail, n))
