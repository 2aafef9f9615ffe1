"""Laws whose tails end, or fall exponentially."""

import math
from dataclasses import dataclass

import numpy as np

from simulator.bounds import bounded
from simulator.laws.law import Seconds


@dataclass(frozen=True)
class Constant:
    """Always the same duration."""

    mean: float

    def __post_init__(self) -> None:
        bounded(self, "mean", above=0)

    @property
    def std(self) -> float:
        return 0.0

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return np.full(n, self.mean)


@dataclass(frozen=True)
class Uniform:
    """Uniform between `low` and `high`: mean (low + high) / 2."""

    low: float
    high: float

    def __post_init__(self) -> None:
        bounded(self, "low", least=0)
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
class Normal:
    """Normal(location, scale) truncated to positive durations by redrawing.

    With a = location / scale, phi and Phi the standard normal density and distribution and
    r = phi(a) / Phi(a): mean = location + scale r, variance = scale^2 (1 - a r - r^2).
    """

    location: float
    scale: float

    def __post_init__(self) -> None:
        bounded(self, "location", above=0)  # at least half of the draws are kept, so redrawing is quick
        bounded(self, "scale", above=0)

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
class Exponential:
    """Memoryless durations with rate mu = 1 / mean."""

    mean: float

    def __post_init__(self) -> None:
        bounded(self, "mean", above=0)

    @property
    def std(self) -> float:
        return self.mean

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return rng.exponential(self.mean, n)


@dataclass(frozen=True)
class ShiftedExponential:
    """A fixed part `shift` and a memoryless part with mean `tail`: mean shift + tail.

    Source: Dutta et al. (2018), arXiv 1803.01113, where shift is Delta and tail is 1 / mu.
    """

    shift: float
    tail: float

    def __post_init__(self) -> None:
        bounded(self, "shift", least=0)
        bounded(self, "tail", above=0)

    @property
    def mean(self) -> float:
        return self.shift + self.tail

    @property
    def std(self) -> float:
        return self.tail

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.shift + rng.exponential(self.tail, n)


@dataclass(frozen=True)
class Gamma:
    """Gamma durations of a given mean and coefficient of variation `cv` = std / mean: shape 1 / cv^2.

    Source: Ali et al. (2000), task execution times of heterogeneous machines.
    """

    mean: float
    cv: float

    def __post_init__(self) -> None:
        bounded(self, "mean", above=0)
        bounded(self, "cv", least=1e-6, most=1e6)

    @property
    def std(self) -> float:
        return self.mean * self.cv

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return rng.gamma(self.cv**-2, self.mean * self.cv**2, n)


@dataclass(frozen=True)
class TwoPoint:
    """`usual` seconds, but `factor` times as long with probability `probability`: a straggler per mini-batch."""

    usual: float
    factor: float
    probability: float

    def __post_init__(self) -> None:
        bounded(self, "usual", above=0)
        bounded(self, "factor", above=0)
        bounded(self, "probability", least=0, most=1)

    @property
    def mean(self) -> float:
        return self.usual * (1 + (self.factor - 1) * self.probability)

    @property
    def std(self) -> float:
        return self.usual * abs(self.factor - 1) * math.sqrt(self.probability * (1 - self.probability))

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return np.where(rng.random(n) < self.probability, self.usual * self.factor, self.usual)
