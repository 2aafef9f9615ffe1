"""Distributions of durations by their formula: with light tails, and with heavy ones (log-normal,
Pareto).
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from laggard.simulator.errors import HUGE, NonNegative, Positive, Range, Ratio, Settings, bounded
from laggard.simulator.timing.distributions.distribution import Seconds, Variation


@dataclass(frozen=True)
class Constant(Settings):
    """A constant duration.

    Attributes:
        mean: the duration of every mini-batch (s).
    """

    mean: Positive

    @property
    def std(self) -> float:
        return 0.0

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return np.full(n, self.mean)


@dataclass(frozen=True)
class Uniform(Settings):
    """Uniform between `low` and `high`: mean (low + high) / 2.

    Attributes:
        low: the shortest duration (s).
        high: the longest (s), above `low`.
    """

    low: NonNegative
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "high", above=self.low)

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def std(self) -> float:
        return (self.high - self.low) / math.sqrt(12)

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return rng.uniform(self.low, self.high, n)


@dataclass(frozen=True)
class Normal(Settings):
    """Normal(location, scale) truncated to positive durations by redrawing.

    With a = location / scale, phi and Phi the standard normal density and distribution and r =
    phi(a) / Phi(a): mean = location + scale r, variance = scale^2 (1 - a r - r^2).

    Attributes:
        location: mean of the normal distribution before it is truncated (s).
        scale: its standard deviation (s).
    """

    location: Positive  # at least half of the draws are kept, so redrawing is quick
    scale: Positive

    @property
    def _hazard(self) -> float:
        a = self.location / self.scale
        return math.exp(-a * a / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(-a / math.sqrt(2)))

    @property
    def mean(self) -> float:
        return self.location + self.scale * self._hazard

    @property
    def std(self) -> float:
        a, r = self.location / self.scale, self._hazard
        return self.scale * math.sqrt(1 - a * r - r * r)

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        seconds = rng.normal(self.location, self.scale, n)
        while (negative := seconds <= 0).any():
            seconds[negative] = rng.normal(self.location, self.scale, int(negative.sum()))
        return seconds


@dataclass(frozen=True)
class Exponential(Settings):
    """Memoryless durations with rate mu = 1 / mean.

    Attributes:
        mean: 1 / mu (s).
    """

    mean: Positive

    @property
    def std(self) -> float:
        return self.mean

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return rng.exponential(self.mean, n)


@dataclass(frozen=True)
class ShiftedExponential(Settings):
    """A fixed part `shift` and a memoryless part with mean `scale` = 1 / mu: mean shift + scale.

    Source: Dutta et al. (2018), arXiv 1803.01113, where shift is Delta and scale is 1 / mu.

    Attributes:
        shift: the shortest duration (s).
        scale: mean of the memoryless part (s).
    """

    shift: NonNegative
    scale: Positive

    @property
    def mean(self) -> float:
        return self.shift + self.scale

    @property
    def std(self) -> float:
        return self.scale

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.shift + rng.exponential(self.scale, n)


@dataclass(frozen=True)
class Gamma(Settings):
    """Gamma durations of a given mean and coefficient of variation `cv` = std / mean: shape 1 /
    cv^2.

    Source: Ali et al. (2000), task execution times of heterogeneous machines.

    Attributes:
        mean: the mean of a mini-batch (s).
        cv: standard deviation over mean.
    """

    mean: Positive
    cv: Variation

    @property
    def std(self) -> float:
        return self.mean * self.cv

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return rng.gamma(self.cv**-2, self.mean * self.cv**2, n)


@dataclass(frozen=True)
class TwoPoint(Settings):
    """`usual` seconds, but `factor` times as long with probability `probability`: a straggler per
    mini-batch.

    Attributes:
        usual: the usual duration (s).
        factor: the time of a straggler over the usual one.
        probability: the probability of a straggler.
    """

    usual: Positive
    factor: Ratio
    probability: Annotated[float, Range(least=0, most=1)]

    @property
    def mean(self) -> float:
        return self.usual * (1 + (self.factor - 1) * self.probability)

    @property
    def std(self) -> float:
        return (
            self.usual * abs(self.factor - 1) * math.sqrt(self.probability * (1 - self.probability))
        )

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return np.where(rng.random(n) < self.probability, self.usual * self.factor, self.usual)


@dataclass(frozen=True)
class LogNormal(Settings):
    """Log-normal durations of a given mean and `cv`: sigma^2 = ln(1 + cv^2), mu = ln(mean) -
    sigma^2 / 2.

    Attributes:
        mean: the mean of a mini-batch (s).
        cv: standard deviation over mean.
    """

    mean: Positive
    cv: Variation

    @property
    def std(self) -> float:
        return self.mean * self.cv

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        variance = math.log1p(self.cv**2)
        return rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), n)


@dataclass(frozen=True)
class Pareto(Settings):
    """Heavy-tailed durations, P(X > x) = (scale / x)^alpha for x >= scale: mean scale alpha /
    (alpha - 1).

    The standard deviation is infinite for alpha <= 2; the mean is required to exist (alpha > 1).

    Attributes:
        scale: the shortest duration (s).
        alpha: the tail index; the smaller, the heavier the tail.
    """

    scale: Positive
    alpha: Annotated[float, Range(least=1.001, most=HUGE)]

    @property
    def mean(self) -> float:
        return self.scale * self.alpha / (self.alpha - 1)

    @property
    def std(self) -> float:
        a = self.alpha
        if a > 2:
            return self.scale / (a - 1) * math.sqrt(a / (a - 2))
        return math.inf

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.scale * (1 + rng.pareto(self.alpha, n))
